"""When two questions are the same one, by which every split goes; and which held-out ones are asked."""

import hashlib
import random
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeVar

from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import Problem, VerifyExample

Row = TypeVar("Row", Problem, VerifyExample)


def question_key(question: str) -> str:
    """Equal for questions that differ in case, white space and the composition of accents only."""
    folded = unicodedata.normalize("NFC", question).casefold()
    return " ".join(unicodedata.normalize("NFC", folded).split())


def without_questions(
    problems: Sequence[Problem], others: Iterable[Problem | VerifyExample]
) -> list[Problem]:
    """Problems whose question none of the others has."""
    keys = _keys(others)
    return [problem for problem in problems if question_key(problem.question) not in keys]


def with_questions(rows: Iterable[Row], others: Iterable[Problem | VerifyExample]) -> list[Row]:
    """Rows whose question one of the others has."""
    keys = _keys(others)
    return [row for row in rows if question_key(row.question) in keys]


def draw_evaluated(problems: Sequence[Problem], count: int | None, *, seed: int) -> list[Problem]:
    """The held-out problems that are evaluated on: `count` of them, drawn with the seed, in their order.

    The first ones would be of the first source alone, where a file has several. None: all of them.
    """
    if count is None or count >= len(problems):
        return list(problems)
    places = random.Random(derive_seed(seed, "evaluate", "max_problems")).sample(range(len(problems)), count)
    return [problems[place] for place in sorted(places)]


def _keys(rows: Iterable[Problem | VerifyExample]) -> set[str]:
    return {question_key(row.question) for row in rows}


def fingerprint(problem: Problem) -> str:
    """Names a problem by what can be learned from it: its question and its reference answer."""
    text = f"{question_key(problem.question)}\0{problem.reference_answer.strip()}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def problem_id(question: str, reference_answer: str) -> str:
    """The id of a problem without one: the same in every file and run, since draws depend on it."""
    return hashlib.blake2b(f"{question}\x1f{reference_answer}".encode(), digest_size=8).hexdigest()
