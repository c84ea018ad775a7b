"""Train, validation and test by question: the rules, and that streaming changed no split."""

import hashlib
import json
from collections.abc import Mapping
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest

from cooper_rl.labels.splits import Split, Splits
from cooper_rl.machine.index import temporary_index
from cooper_rl.records.files import read_records
from cooper_rl.schema.data import VerifyExample
from tests.labels.old_splits import SEEDS, write_inputs
from tests.stages.label_completions.labelling import label, rule_only

GOLDEN = Path(__file__).parent.parent / "golden" / "label_splits.json"


def split_by_question(
    shares: Mapping[str, float], seed: int, *, validation_fraction: float, test_fraction: float
) -> dict[str, Split]:
    """The split of every question, of which this share of the examples is correct."""
    with temporary_index() as index:
        splits = Splits(index, seed)
        for question, share in shares.items():
            exact = Fraction(share).limit_denominator(10)
            for number in range(exact.denominator):
                splits.add(question, is_correct=number < exact.numerator)
        splits.deal(validation_fraction=validation_fraction, test_fraction=test_fraction)
        return {question: splits.split_of(question) for question in shares}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_files_are_those_of_the_version_that_held_all_rows(tmp_path: Path, seed: int) -> None:
    """`label_splits.json` was written by that version, at 0a974b6, from the same rows."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[str(seed)]
    write_inputs(tmp_path)
    fractions = ("labeling.validation_fraction=0.15", "labeling.test_fraction=0.2")
    label(tmp_path, rule_only(f"seed={seed}", *fractions))
    for split, questions in golden["questions"].items():
        rows = read_records(tmp_path / f"{split}.jsonl", VerifyExample)
        assert sorted({row.question for row in rows}) == questions
    found = {
        name: hashlib.sha256((tmp_path / f"{name}.jsonl").read_bytes()).hexdigest()
        for name in ("train", "validation", "test")
    }
    assert found == golden["sha256"]


def test_splits_are_deterministic_disjoint_and_as_large_as_asked() -> None:
    shares = {f"question {i}": float(i % 2) for i in range(100)}
    splits = split_by_question(shares, 3, validation_fraction=0.1, test_fraction=0.2)
    counts = {name: list(splits.values()).count(name) for name in ("train", "validation", "test")}
    assert counts == {"train": 70, "validation": 10, "test": 20}
    reordered = dict(reversed(shares.items()))
    assert split_by_question(reordered, 3, validation_fraction=0.1, test_fraction=0.2) == splits
    assert split_by_question(shares, 4, validation_fraction=0.1, test_fraction=0.2) != splits


@pytest.mark.parametrize(
    ("num_questions", "fraction", "expected"),
    [(18, 0.1, [14, 2, 2]), (3, 0.1, [1, 1, 1]), (3, 0.5, [1, 1, 1])],
    ids=["rounded", "at least one", "one is left to train on"],
)
def test_few_questions_fill_every_split(num_questions: int, fraction: float, expected: list[int]) -> None:
    shares = {f"question {i}": 1.0 for i in range(num_questions)}
    splits = split_by_question(shares, 0, validation_fraction=fraction, test_fraction=fraction)
    assert [list(splits.values()).count(name) for name in ("train", "validation", "test")] == expected


def test_every_split_gets_its_part_of_the_mostly_correct_questions() -> None:
    """100 questions in two spellings, 30 mostly correct: 3 of 10 held-out ones, give or take one."""
    shares = {f"{word} {i}": 1.0 if i < 30 else 0.4 for i in range(100) for word in ("question", "Question")}
    splits = split_by_question(shares, 0, validation_fraction=0.1, test_fraction=0.1)
    for name in ("validation", "test"):
        correct = [question for question, split in splits.items() if split == name and shares[question] > 0.5]
        assert 2 <= len(correct) / 2 <= 4


def test_questions_that_differ_in_case_or_spacing_stay_together() -> None:
    shares = {f"What is {i}?": 1.0 for i in range(20)} | {f"what  is {i}? ": 0.0 for i in range(20)}
    splits = split_by_question(shares, 0, validation_fraction=0.2, test_fraction=0.2)
    assert all(splits[f"What is {i}?"] == splits[f"what  is {i}? "] for i in range(20))


def test_fewer_than_three_questions_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="2 different questions cannot fill train, validation and test"):
        split_by_question({"a": 1.0, "b": 0.0, " A": 1.0}, 0, validation_fraction=0.1, test_fraction=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_questions_of_which_half_is_correct_are_dealt_out_with_the_mostly_correct_ones(seed: int) -> None:
    """Half of the questions are right every second time, half never: a fourth of each goes to every split."""
    shares = {f"question {number}": 0.5 if number % 2 else 0.0 for number in range(40)}
    splits = split_by_question(shares, seed, validation_fraction=0.25, test_fraction=0.25)
    for split, count in (("train", 10), ("validation", 5), ("test", 5)):
        own = [question for question, held in splits.items() if held == split]
        assert [shares[question] for question in own].count(0.5) == count
        assert len(own) == 2 * count


def test_spellings_of_a_question_are_one_question_in_any_order_of_the_rows() -> None:
    """Added up in another order, the shares 1/2, 1/3 and 2/3 fall on the other side of a half."""
    spellings = {"who": (1, 2), "WHO": (1, 3), "Who": (2, 3)}
    found: list[list[Split]] = []
    for order in permutations(spellings):
        with temporary_index() as index:
            splits = Splits(index, 0)
            for spelling in order:
                right, count = spellings[spelling]
                for number in range(count):
                    splits.add(spelling, is_correct=number < right)
            for number in range(20):
                splits.add(f"question {number}", is_correct=number % 2 == 0)
            splits.deal(validation_fraction=0.2, test_fraction=0.2)
            found.append([splits.split_of(name) for name in ("who", *(f"question {n}" for n in range(20)))])
    assert all(each == found[0] for each in found)
