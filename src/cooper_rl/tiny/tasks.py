"""The laptop's tasks for programs: a function of two numbers in words, and solvers that slip (row 1).

    Write f(a, b): twice a plus b, minus 3.      return 2 * a + b - 3

A task keeps the terms that its question was made from, so that solvers can write it down, rightly or not, and
an exact judge can compute it. `program_texts.py` has the texts that models learn from.
"""

import ast
import operator
import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cooper_rl.schema.data import Problem

POINTS = ((1, 2), (3, 5), (7, 4))
"""The points of the tests. Different tasks seldom give the same values there, and those are left out."""
FACTORS = {1: "", 2: "twice ", 3: "three times "}
SIGNS = {"+": "plus", "-": "minus"}
MAX_CONSTANT = 9
OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_EXPRESSION = re.compile(r"(?:return|lambda a, b:|=)?\s*([ab0-9(][-+*() ab0-9]*)$")


class Term(NamedTuple):
    """A multiple of a parameter, or a number; each but the first is added or subtracted."""

    sign: str
    factor: int
    name: str
    """`a`, `b`, or empty for a number."""

    def code(self) -> str:
        """`2 * a`."""
        if not self.name:
            return str(self.factor)
        return self.name if self.factor == 1 else f"{self.factor} * {self.name}"

    def words(self) -> str:
        """`twice a`."""
        return f"{FACTORS[self.factor]}{self.name}" if self.name else str(self.factor)


class Task(NamedTuple):
    """A function of a and b."""

    terms: tuple[Term, ...]

    @property
    def question(self) -> str:
        """The task in words."""
        first, *others = self.terms
        said = "".join(f" {SIGNS[term.sign]} {term.words()}" for term in others)
        return f"Write f(a, b): {first.words()}{said}."

    @property
    def expression(self) -> str:
        """The task in code."""
        first, *others = self.terms
        return first.code() + "".join(f" {term.sign} {term.code()}" for term in others)

    @property
    def tests(self) -> str:
        """A line for each point."""
        values = [evaluate(self.expression, a=a, b=b) for a, b in POINTS]
        return "\n".join(f"f(a={a}, b={b}) == {value}" for (a, b), value in zip(POINTS, values, strict=True))


def generate_problems(count: int, seed: int) -> list[Problem]:
    """`count` problems with unique questions, ids and tests; the same seed gives the same ones."""
    return [
        Problem(
            id=f"program-{seed}-{number:05d}",
            source="tiny",
            question=task.question,
            reference_answer=task.tests,
        )
        for number, task in enumerate(generate_tasks(count, random.Random(seed)))
    ]


def generate_tasks(count: int, rng: random.Random) -> list[Task]:
    """`count` tasks with unique questions; every value at the points is in 0..99."""
    tasks: dict[str, Task] = {}
    while len(tasks) < count:
        task = _draw_task(rng)
        values = [evaluate(task.expression, a=a, b=b) for a, b in POINTS]
        if all(value is not None and 0 <= value <= 99 for value in values):
            tasks.setdefault(task.question, task)
    return list(tasks.values())


def _draw_task(rng: random.Random) -> Task:
    size = rng.choice((2, 3, 3, 4))
    terms: list[Term] = []
    for place in range(size):
        sign = "+" if place == 0 else rng.choice("++-")
        if place and rng.random() < 0.4:
            terms.append(Term(sign, rng.randint(1, MAX_CONSTANT), ""))
        else:
            terms.append(Term(sign, rng.choice((1, 1, 2, 3)), rng.choice("ab")))
    return Task(tuple(terms))


class Habits(NamedTuple):
    """The rate of a solver's errors, for each term."""

    slip: float
    """Another number, parameter or sign."""
    skip: float
    """The last term of three or more is left out."""


class Solution(NamedTuple):
    """The program that a solver wrote."""

    text: str
    is_right: bool


FORMATS = (
    ("return {}", 4),
    ("def f(a, b):\n    return {}", 2),
    ("```python\nreturn {}\n```", 1),
    ("f = lambda a, b: {}", 2),
    ("{}", 1),
)
"""Formats with their weights; the verifier reads the first three, and a person would read all of them."""


def solve(task: Task, rng: random.Random, *, habits: Habits) -> Solution:
    """One solution with the solver's errors, in one of the formats."""
    terms = [slip(term, rng) if rng.random() < habits.slip else term for term in task.terms]
    if len(terms) > 2 and rng.random() < habits.skip:
        terms.pop()
    written = Task(tuple(terms))
    shape = rng.choices([shape for shape, _ in FORMATS], [weight for _, weight in FORMATS])[0]
    return Solution(shape.format(written.expression), written.tests == task.tests)


def slip(term: Term, rng: random.Random) -> Term:
    """The term with one thing changed."""
    if not term.name:
        return term._replace(factor=max(0, term.factor + rng.choice((-1, 1))))
    kind = rng.choice(("factor", "name", "sign"))
    if kind == "factor":
        return term._replace(factor=rng.choice([factor for factor in FACTORS if factor != term.factor]))
    if kind == "name":
        return term._replace(name="b" if term.name == "a" else "a")
    return term._replace(sign="-" if term.sign == "+" else "+")


def find_expression(text: str) -> str | None:
    """The arithmetic that a text ends in, in whatever format; None where it ends in none."""
    lines = [line.strip() for line in text.replace("```", "\n").splitlines() if line.strip()]
    match = _EXPRESSION.search(lines[-1]) if lines else None
    return match[1].strip() if match else None


def evaluate(expression: str, *, a: int, b: int) -> int | None:
    """The value of sums, differences and products of small numbers, a and b; None of anything else."""
    if len(expression) > 200:
        return None
    try:
        return _evaluate(ast.parse(expression, mode="eval").body, {"a": a, "b": b})
    except (SyntaxError, ValueError, KeyError, RecursionError):
        return None


def _evaluate(node: ast.expr, names: dict[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)) if abs(value) <= 999:
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_evaluate(inner, names)
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in OPERATIONS:
            return OPERATIONS[type(kind)](_evaluate(left, names), _evaluate(right, names))
        case _:
            raise ValueError("it is no arithmetic")


def values_of(text: str, points: Sequence[tuple[int, int]] = POINTS) -> list[int | None]:
    """The values of a text's last expression at the points."""
    found = find_expression(text)
    return [None if found is None else evaluate(found, a=a, b=b) for a, b in points]
