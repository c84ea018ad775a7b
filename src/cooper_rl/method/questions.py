"""When two questions are the same one: the rule that every split and every check of a split goes by."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from cooper_rl.schema.data import Problem, VerifyExample

Row = TypeVar("Row", Problem, VerifyExample)


def question_key(question: str) -> str:
    """Equal for questions that differ in case and white space only."""
    return " ".join(question.casefold().split())


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


def _keys(rows: Iterable[Problem | VerifyExample]) -> set[str]:
    return {question_key(row.question) for row in rows}


def fingerprint(problem: Problem) -> str:
    """Names a problem by what can be learned from it: its question and its reference answer."""
    text = f"{question_key(problem.question)}\0{problem.reference_answer.strip()}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
