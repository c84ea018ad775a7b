import json
import subprocess
import sys
from pathlib import Path

import pytest

from cooper_rl.config import Config, load
from cooper_rl.errors import DataError
from cooper_rl.records import read_records, write_records
from cooper_rl.schema import Completion, Label, LabelReport, Problem, VerifyExample
from cooper_rl.stages import label_completions

NUM_PROBLEMS = 30


def rule_only(*overrides: str) -> Config:
    return load("laptop", ["labeling.judge=null", "labeling.rule.num_workers=1", *overrides])


def write_inputs(folder: Path, texts: list[str]) -> None:
    """Thirty problems `1 + i`, each answered by every text with `{answer}` and `{wrong}` filled in."""
    problems = [
        Problem(id=f"p{i}", source="test", question=f"What is 1 + {i}?", reference_answer=str(1 + i))
        for i in range(NUM_PROBLEMS)
    ]
    completions = [
        Completion(
            id=f"p{i}-{j}",
            problem_id=f"p{i}",
            model="sampler",
            text=text.format(answer=1 + i, wrong=2 + i),
            finish_reason="stop",
        )
        for i in range(NUM_PROBLEMS)
        for j, text in enumerate(texts)
    ]
    write_records(folder / "problems.jsonl", problems)
    write_records(folder / "completions.jsonl", completions)


def label(folder: Path, config: Config) -> LabelReport:
    return label_completions.run(
        config,
        problems=folder / "problems.jsonl",
        completions=folder / "completions.jsonl",
        labels=folder / "labels.jsonl",
        train=folder / "train.jsonl",
        validation=folder / "validation.jsonl",
        test=folder / "test.jsonl",
        report=folder / "report.json",
    )


def test_without_a_judge_the_rule_decides_and_what_it_cannot_read_is_dropped(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is plenty."])
    report = label(tmp_path, rule_only())
    assert (report.num_labelled, report.num_correct, report.num_dropped) == (60, 30, 30)
    assert report.decisions == {"rule_abstains": 30, "rule_alone": 60}
    audit = read_records(tmp_path / "labels.jsonl", Label)
    assert [row.is_correct for row in audit[:3]] == [True, False, None]
    assert audit[2].rule == "unparsable"
    assert "plenty" in audit[2].rule_reason


def test_no_question_is_in_two_splits_and_the_splits_are_the_same_every_time(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"])
    label(tmp_path, rule_only())
    first = {name: (tmp_path / f"{name}.jsonl").read_text() for name in ("train", "validation", "test")}
    questions = {
        name: {row.question for row in read_records(tmp_path / f"{name}.jsonl", VerifyExample)}
        for name in first
    }
    assert questions["train"].isdisjoint(questions["validation"] | questions["test"])
    assert questions["validation"].isdisjoint(questions["test"])
    assert {name: len(found) for name, found in questions.items()} == {
        "train": 24,
        "validation": 3,
        "test": 3,
    }
    label(tmp_path, rule_only())
    assert first == {name: (tmp_path / f"{name}.jsonl").read_text() for name in first}


def test_a_completion_of_an_unknown_problem_is_refused_by_row_and_field(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"])
    rows = (tmp_path / "completions.jsonl").read_text().splitlines()
    stray = json.loads(rows[4]) | {"problem_id": "elsewhere"}
    (tmp_path / "completions.jsonl").write_text("\n".join([*rows[:4], json.dumps(stray)]) + "\n")
    with pytest.raises(DataError, match=r"completions.jsonl:5: field 'problem_id': no problem 'elsewhere'"):
        label(tmp_path, rule_only())


def test_too_few_labelled_questions_are_refused_with_what_became_of_the_rows(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["I do not know."])
    with pytest.raises(
        DataError, match=r"0 of 30 completions were labelled .*'rule_abstains': 30.*at least 3"
    ):
        label(tmp_path, rule_only())


def test_labelling_imports_neither_torch_nor_kfp() -> None:
    code = (
        "import sys; import cooper_rl.stages.label_completions, cooper_rl.backends.chat;"
        "print([name for name in ('torch', 'transformers', 'kfp', 'math_verify') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
