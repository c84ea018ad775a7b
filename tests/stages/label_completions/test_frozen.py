"""Labelling with test examples that an earlier run froze."""

from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.records.files import read_records, write_records
from cooper_rl.schema.data import VerifyExample
from tests.stages.champions import EXAMPLES
from tests.stages.label_completions.labelling import NUM_PROBLEMS, label, rule_only, write_inputs

SPLITS = ("train", "validation", "test")


def read_splits(folder: Path) -> dict[str, list[VerifyExample]]:
    return {split: read_records(folder / f"{split}.jsonl", VerifyExample) for split in SPLITS}


def test_frozen_examples_are_the_test_set_and_all_new_ones_are_learned_from(tmp_path: Path) -> None:
    """Of 30 questions 3 steer, by validation_fraction=0.1; the 3 that would have been tested go to train."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"])
    write_records(tmp_path / "frozen.jsonl", EXAMPLES)
    report = label(tmp_path, rule_only(), frozen=tmp_path / "frozen.jsonl")
    splits = read_splits(tmp_path)
    assert splits["test"] == EXAMPLES
    questions = {split: {row.question for row in splits[split]} for split in ("train", "validation")}
    assert (len(questions["train"]), len(questions["validation"])) == (NUM_PROBLEMS - 3, 3)
    assert not questions["train"] & questions["validation"]
    assert (report.num_train, report.num_validation, report.num_test) == (54, 6, len(EXAMPLES))


def test_an_empty_file_of_frozen_examples_changes_nothing(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"])
    label(tmp_path, rule_only())
    without = read_splits(tmp_path)
    (tmp_path / "frozen.jsonl").write_text("")
    label(tmp_path, rule_only(), frozen=tmp_path / "frozen.jsonl")
    assert read_splits(tmp_path) == without


def test_a_frozen_question_among_the_problems_is_refused(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"])
    frozen = VerifyExample(question="WHAT is 1 + 4?", reference_answer="5", completion="#### 5", label=1)
    write_records(tmp_path / "frozen.jsonl", [frozen])
    with pytest.raises(DataError, match=r"problem 'p4' has a question of .*frozen\.jsonl; take the frozen"):
        label(tmp_path, rule_only(), frozen=tmp_path / "frozen.jsonl")
