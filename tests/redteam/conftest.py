"""A VerifyRM that a scorer stands in for, and problems to attack it on."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.models.verify_rm import VerifyItem
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.schema.data import Problem
from cooper_rl.tiny.problems import generate_problems


class Scorer:
    """Scores completions by a function, and remembers what it was asked."""

    def __init__(self, score: Callable[[VerifyItem], float]) -> None:
        self._score = score
        self.asked: list[VerifyItem] = []

    def score(self, items: Sequence[VerifyItem]) -> list[float]:
        self.asked += items
        return [self._score(item) for item in items]


@pytest.fixture
def problems() -> list[Problem]:
    return generate_problems(30, 0)


@pytest.fixture
def ask(tmp_path: Path):
    """An oracle over a scorer, with the scorer and an open journal."""
    with Journal(tmp_path / "journal") as journal:

        def make(score: Callable[[VerifyItem], float]) -> tuple[Oracle, Scorer, Journal]:
            scorer = Scorer(score)
            return Oracle(scorer, journal, MATHEMATICS), scorer, journal  # pyright: ignore[reportArgumentType] only scores are asked

        yield make
