"""Train, validation and test by question (row 4), for any number of questions.

The questions and their counts are in a temporary index. The same labels and seed give the same splits,
whatever the order of the rows. Questions that differ in case or spacing only count as one. The mostly correct
and the mostly wrong ones are dealt out separately, so that every split has about the same share of correct
examples.
"""

import hashlib
import math
import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Literal, get_args

from cooper_rl.method.questions import question_key

Split = Literal["train", "validation", "test"]


class Splits:
    """Counts labels by question, and deals the questions out."""

    def __init__(self, index: sqlite3.Connection, seed: int) -> None:
        """`seed`: another one deals the questions out differently."""
        self._index = index
        self._seed = seed
        index.execute(
            "CREATE TABLE spelling (place INTEGER PRIMARY KEY, text BLOB UNIQUE, question BLOB, "
            "correct INTEGER, labelled INTEGER)"
        )
        index.execute(
            "CREATE TABLE ranked (is_correct INTEGER, question BLOB, PRIMARY KEY (is_correct, question)) "
            "WITHOUT ROWID"
        )
        index.execute("CREATE TABLE dealt (question BLOB PRIMARY KEY, split TEXT) WITHOUT ROWID")

    def add(self, question: str, *, is_correct: bool) -> None:
        """Count a label."""
        # In place of the question, which may be long: the index has an entry for every spelling.
        text = hashlib.blake2b(question.encode()).digest()
        self._index.execute(
            "INSERT INTO spelling (text, question, correct, labelled) VALUES (?, ?, ?, 1) ON CONFLICT (text) "
            "DO UPDATE SET correct = correct + excluded.correct, labelled = labelled + 1",
            [text, self._rank(question), int(is_correct)],
        )

    def deal(self, *, validation_fraction: float, test_fraction: float) -> None:
        """Assign every question to one split.

        Args:
            validation_fraction: Share of the questions, 0..1.
            test_fraction: Share of the questions, 0..1.

        Raises:
            ValueError: fewer than three different questions.
        """
        num_questions = 0
        for question, share in self._correct_shares():
            self._index.execute("INSERT INTO ranked VALUES (?, ?)", [share >= 0.5, question])
            num_questions += 1
        splits = deal(num_questions, validation_fraction=validation_fraction, test_fraction=test_fraction)
        ranked = self._index.execute("SELECT question FROM ranked ORDER BY is_correct, question")
        for (question,), split in zip(ranked, splits, strict=True):
            self._index.execute("INSERT INTO dealt VALUES (?, ?)", [question, split])

    def split_of(self, question: str) -> Split:
        """The split that the examples of a question go to, once they are dealt out."""
        found = self._index.execute("SELECT split FROM dealt WHERE question = ?", [self._rank(question)])
        return found.fetchone()[0]

    def _correct_shares(self) -> Iterator[tuple[bytes, float]]:
        """Every question and the mean over its spellings of their shares of correct examples."""
        found = self._index.execute(
            "SELECT question, correct, labelled FROM spelling ORDER BY question, place"
        )
        for question, spellings in groupby(found, key=itemgetter(0)):
            shares = [correct / labelled for _, correct, labelled in spellings]
            yield question, math.fsum(shares) / len(shares)

    def _rank(self, question: str) -> bytes:
        """Names a question, and is its place in the line that the seed makes."""
        return hashlib.blake2b(f"{self._seed}:{question_key(question)}".encode()).digest()


def deal(num_questions: int, *, validation_fraction: float, test_fraction: float) -> Iterator[Split]:
    """The split of each question along one ranked line, by systematic sampling: each stratum of the line
    gives its part to every split.

    Raises:
        ValueError: fewer than three questions.
    """
    if num_questions < len(get_args(Split)):
        raise ValueError(
            f"{num_questions} different questions cannot fill train, validation and test; label at least 3"
        )
    num_test = max(1, round(num_questions * test_fraction))
    num_validation = max(1, round(num_questions * validation_fraction))
    num_held_out = min(num_test + num_validation, num_questions - 1)
    held_out = _spread(num_held_out, num_test)
    for is_picked in _spread(num_questions, num_held_out):
        if is_picked:
            yield "test" if next(held_out) else "validation"
        else:
            yield "train"


def _spread(total: int, chosen: int) -> Iterator[bool]:
    """`chosen` of `total` places, evenly spread."""
    # One place is left over: train and validation must hold a question too.
    chosen = min(chosen, total - 1)
    return ((place + 1) * chosen // total > place * chosen // total for place in range(total))
