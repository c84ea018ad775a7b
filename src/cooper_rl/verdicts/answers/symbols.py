r"""math-verify on two normalised answers, with checks round it (row 3): the only file that imports it.

Its time limits are off (they need the main thread's signals); `verdicts/rule.py` kills the worker
instead. Deliberately left out: finding the answer in a completion, which math-verify would do as well.
"""

import logging
import re
from typing import Any

import sympy  # pyright: ignore[reportMissingTypeStubs] it ships none
from math_verify import (  # pyright: ignore[reportMissingTypeStubs] it ships none
    ExprExtractionConfig,
    LatexExtractionConfig,
    parse,
    verify,
)
from sympy.core import random as sympy_random  # pyright: ignore[reportMissingTypeStubs] it ships none

from cooper_rl.verdicts.answers.comparison import AnswerCheck, shorten
from cooper_rl.verdicts.answers.sampling import agree_at_points, are_multiples

_SYMPY: Any = sympy  # untyped library: its overloads resolve to unknown types

# It warns once per process that its time limit is off, which is the point here.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def compare_by_math_verify(reference: str, answer: str) -> AnswerCheck:
    """Whether math-verify finds two normalised answers equal, and whether that can be believed.

    No time limit. Anything that it cannot parse, or that a check after it refuses to believe, is unparsable.
    """
    # sympy tests equality at random points: the verdict must not depend on what was compared before.
    sympy_random.seed(0)  # pyright: ignore[reportUnknownMemberType] untyped library
    doubt = find_doubt(reference, answer)
    if doubt is not None:
        return AnswerCheck("unparsable", doubt)
    if "=" in reference and "=" in answer:
        equations = _compare_equations(reference, answer)
        if equations is not None:
            return equations
    left, right = parse_symbols(reference), parse_symbols(_same_imaginary_unit(reference, answer))
    if left is None:
        return AnswerCheck("unparsable", f"the reference answer {shorten(reference)} cannot be parsed")
    if right is None:
        return AnswerCheck("unparsable", f"the answer {shorten(answer)} cannot be parsed")
    # Cheap, and right about what differs: algebra would try every simplification first.
    if not _is_percent(left, right) and agree_at_points(left, right, 1e-7) == "no":
        if _agree_with_imaginary_i(left, right):
            return AnswerCheck("unparsable", "equal if i is the imaginary unit")
        return AnswerCheck("incorrect", f"{shorten(answer)} differs from {shorten(reference)} in value")
    try:
        equal = verify(left, right, timeout_seconds=None, raise_on_error=True)
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
        MemoryError,
    ) as error:
        return AnswerCheck("unparsable", f"math-verify failed: {type(error).__name__}")
    if not equal:
        return AnswerCheck("incorrect", f"{shorten(answer)} is not {shorten(reference)}")
    if _are_far_apart(left, right):
        return AnswerCheck("incorrect", f"{shorten(answer)} is only rounded to {shorten(reference)}")
    return AnswerCheck("correct", f"math-verify: {shorten(answer)} equals {shorten(reference)}")


def _compare_equations(reference: str, answer: str) -> AnswerCheck | None:
    """Correct where left side less right side differs by a factor only; None where math-verify decides.

    It cannot where one equation is solved for a variable: then it compares what stands right of `=`.
    """
    left, right = _difference(reference), _difference(answer)
    if left is None or right is None or left.free_symbols != right.free_symbols or right == 0:
        return None
    # Cheap, so that powers which nobody can expand never reach `cancel`.
    if are_multiples(left, right, 1e-7):
        ratio: Any = _SYMPY.cancel(left / right)
        if ratio.is_number and ratio.is_finite and ratio != 0:
            return AnswerCheck("correct", f"{shorten(answer)} is the same equation as {shorten(reference)}")
    if _IS_SOLVED.match(reference) or _IS_SOLVED.match(answer):
        return AnswerCheck("unparsable", f"{shorten(answer)} may be another form of {shorten(reference)}")
    return None


_IS_SOLVED = re.compile(r"\s*[A-Za-z](?:_\w)?\s*=")


def _difference(equation: str) -> Any | None:
    """Left side less right side of an equation."""
    sides = [parse_symbols(side) for side in equation.split("=")]
    if len(sides) != 2 or not all(isinstance(side, sympy.Expr) for side in sides):
        return None
    left: Any = sides[0]
    return left - sides[1]


def parse_symbols(text: str) -> Any | None:
    """The sympy object of normalised text; None when there is none."""
    try:
        found: Any = parse(  # pyright: ignore[reportUnknownVariableType] untyped library
            f"${text}$",
            extraction_config=[LatexExtractionConfig(), ExprExtractionConfig()],
            fallback_mode="no_fallback",
            parsing_timeout=None,  # pyright: ignore[reportArgumentType] its docstring allows None
        )
    except (RecursionError, MemoryError):
        return None
    return found[0] if found else None


_IMAGINARY_I = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
_IMAGINARY_J = re.compile(r"(?<![A-Za-z\\])j(?![A-Za-z])")


def _same_imaginary_unit(reference: str, answer: str) -> str:
    """Engineers write j for i."""
    is_other = _IMAGINARY_I.search(reference) and not _IMAGINARY_I.search(answer)
    return _IMAGINARY_J.sub("i", answer) if is_other and not _IMAGINARY_J.search(reference) else answer


_QUANTIFIER = re.compile(r"\\forall|\\exists|[∀∃]")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s?\{[A-Za-z]+\*?\}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_SIDE_BY_SIDE = re.compile(r"(?<![\d._^])(?<!\\frac)(?<!\\frac )[\d.]+ +[\d.]")
"""`1 2`; not `\\frac 1 2`, nor `\\log_2 8`."""
_MATH_WORDS = frozenset(
    ("sqrt", "sin", "cos", "tan", "log", "ln", "exp", "pi", "and", "or", "min", "max", "mod", "gcd", "lcm")
)


def find_doubt(reference: str, answer: str) -> str | None:
    """Words, and numbers side by side, that math-verify would read as products or sums or skip."""
    if _SIDE_BY_SIDE.search(reference) or _SIDE_BY_SIDE.search(answer):
        return "two numbers side by side"
    if "°" in reference or "°" in answer:
        return "degrees in an expression"
    if _QUANTIFIER.search(reference) or _QUANTIFIER.search(answer):
        return "a statement with quantifiers"
    words = [word.lower() for word in _WORD.findall(_ENVIRONMENT.sub("", f"{reference} {answer}"))]
    unknown = sorted({word for word in words if word not in _MATH_WORDS})
    return f"words beside the mathematics: {', '.join(unknown)[:100]}" if unknown else None


def _agree_with_imaginary_i(left: Any, right: Any) -> bool:
    """math-verify holds i as a letter like any other, so that i^2 is not -1."""
    letters: dict[Any, Any] = {
        symbol: _SYMPY.I for symbol in left.free_symbols | right.free_symbols if str(symbol) == "i"
    }
    return bool(letters) and agree_at_points(left.subs(letters), right.subs(letters), 1e-7) == "yes"


def _is_percent(left: Any, right: Any) -> bool:
    """math-verify holds 50% as 50 times an unevaluated 1/100, and takes it as 50 or as .5."""
    return any(
        "UnevaluatedExpr" in sympy.srepr(each) for each in (left, right) if isinstance(each, sympy.Mul)
    )


def _are_far_apart(left: Any, right: Any) -> bool:
    """Two numbers that math-verify took as equal after rounding to six decimals, but that differ."""
    if not (isinstance(left, sympy.Number) and isinstance(right, sympy.Number)):
        return False
    if not (left.is_finite and right.is_finite):
        return True
    difference: Any = left - right
    return bool(abs(difference) > sympy.Rational(1, 10**9) * abs(left))
