import subprocess
import sys
from pathlib import Path

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.records.files import read_records, write_records
from cooper_rl.schema.data import Completion, Label, RejectedRow, VerifyExample
from cooper_rl.verdicts.journal import Journal, KeptVerdict
from tests.full_disk import no_file_beyond
from tests.stages.label_completions.labelling import (
    KILLED,
    NUM_PROBLEMS,
    damage,
    label,
    rule_only,
    write_inputs,
)


def test_without_a_judge_the_rule_decides_and_what_it_cannot_read_is_dropped(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is plenty."])
    report = label(tmp_path, rule_only())
    assert (report.num_labelled, report.num_correct, report.num_dropped) == (60, 30, 30)
    assert list(report.decisions.items()) == [("rule_abstains", 30), ("rule_alone", 60)]
    audit = read_records(tmp_path / "labels.jsonl", Label)
    assert [row.is_correct for row in audit[:3]] == [True, False, None]
    assert audit[2].rule == "unparsable"
    assert "plenty" in audit[2].rule_reason


def test_columns_that_no_stage_knows_are_ignored(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"])
    damage(tmp_path / "problems.jsonl", {1: {"level": "hard"}})
    damage(tmp_path / "completions.jsonl", {1: {"tokens": "7"}})
    assert label(tmp_path, rule_only()).num_rejected == 0


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


def test_bad_rows_are_set_aside_with_file_row_and_reason_and_the_rest_goes_on(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"])
    damage(tmp_path / "problems.jsonl", {3: {"id": "p0"}, 4: {"reference_answer": "\\frac{"}})
    edits: dict[int, str | dict[str, str]] = {
        6: "{not json",
        7: {"problem_id": "elsewhere"},
        9: {"id": "p7-0"},
    }
    damage(tmp_path / "completions.jsonl", edits)
    report = label(tmp_path, rule_only())
    assert (report.num_completions, report.num_correct, report.num_rejected) == (25, 25, 7)
    rejected = read_records(tmp_path / "report.json.rejected.jsonl", RejectedRow)
    assert [(Path(row.file).stem, row.row) for row in rejected] == [
        ("problems", 3), ("problems", 4),
        ("completions", 3), ("completions", 4), ("completions", 6), ("completions", 7), ("completions", 9),
    ]  # fmt: skip
    reasons = "\n".join(row.reason for row in rejected)
    assert "problems.jsonl:3: duplicate id 'p0', first seen in row 1; make ids unique" in reasons
    assert "field 'reference_answer': reference answer" in reasons
    assert "completions.jsonl:4: field 'problem_id': no usable problem 'p3'" in reasons
    assert "completions.jsonl:6: not JSON" in reasons
    assert "completions.jsonl:7: field 'problem_id': no usable problem 'elsewhere'" in reasons
    assert "completions.jsonl:9: duplicate id 'p7-0', first seen in row 8" in reasons


def test_a_run_without_bad_rows_leaves_no_rejected_file_of_an_earlier_one(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"])
    old = RejectedRow(file="f", row=1, reason="old", content="")
    write_records(tmp_path / "report.json.rejected.jsonl", [old])
    assert label(tmp_path, rule_only()).num_rejected == 0
    assert not (tmp_path / "report.json.rejected.jsonl").exists()


def test_completions_of_which_none_can_be_used_are_refused_with_the_first_reason(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"])
    edits: dict[int, str | dict[str, str]] = {n: {"problem_id": "x"} for n in range(1, NUM_PROBLEMS + 1)}
    damage(tmp_path / "completions.jsonl", edits)
    message = (
        r"no usable Completion row; the first of 30 bad rows: "
        r".*completions.jsonl:1: .*no usable problem 'x' in"
    )
    with pytest.raises(DataError, match=message):
        label(tmp_path, rule_only())


def test_too_few_labelled_questions_are_refused_with_what_became_of_the_rows(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["I do not know."])
    with pytest.raises(
        DataError, match=r"0 of 30 completions were labelled .*'rule_abstains': 30.*at least 3"
    ):
        label(tmp_path, rule_only())


def test_a_run_that_is_killed_goes_on_without_asking_the_judge_twice(
    tmp_path: Path, judge_server: tuple[str, Path]
) -> None:
    url, log = judge_server
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "So it is {answer}"])
    overrides = [
        "labeling.rule.num_workers=1",
        f'labeling.judge={{server={{base_url="{url}", model="judge-1", max_concurrency=1}}}}',
    ]
    # 90 rule verdicts come first; then each run dies at another place among the 90 judge verdicts.
    for deadline in (95, 30, 1, 20):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), str(deadline), *overrides], check=False
        )
        assert killed.returncode == -9
        assert not (tmp_path / "labels.jsonl").exists()
    report = label(tmp_path, load("laptop", overrides))
    assert report.judge_usage is not None
    assert report.num_known_verdicts == 56
    assert report.judge_usage.num_requests == 34
    # A kill can only lose requests that are on their way; while a verdict is kept there is none.
    asked = log.read_text().splitlines()
    assert len(asked) == len(set(asked)) == 90
    assert (report.num_labelled, report.num_correct) == (90, 60)
    assert report.decisions == {"both_agree": 90}


def test_a_second_run_with_one_journal_is_refused_and_the_first_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "labels.journal"
    with Journal(path) as journal:
        journal.keep("a", "correct", "first")
        with path.open("a") as file:  # as between two writes of one line
            file.write('["b", "corr')
        with pytest.raises(ConfigError, match=r"labels\.journal: another process works here; wait until"):
            Journal(path).__enter__()
    assert path.read_text().endswith('["b", "corr')


def test_a_journal_with_a_torn_last_line_loses_that_verdict_only(tmp_path: Path) -> None:
    path = tmp_path / "labels.journal"
    with Journal(path) as journal:
        journal.keep("a", "correct", "first")
        journal.keep("b", "incorrect", "second")
    path.write_bytes(path.read_bytes()[:-5])
    with Journal(path) as journal:
        assert journal.recall("a") == KeptVerdict("correct", "first")
        assert journal.recall("b") is None
        journal.keep("b", "unparsable", "again")
    with Journal(path) as journal:
        assert journal.recall("b") == KeptVerdict("unparsable", "again")


def test_a_damaged_line_of_a_journal_loses_that_verdict_only(tmp_path: Path) -> None:
    path = tmp_path / "labels.journal"
    path.write_text('5\n[["a"], "correct", "r"]\n["b", "correct", "r"]\n' + "[" * 100_000 + "\n")
    with Journal(path) as journal:
        assert journal.recall("b") == KeptVerdict("correct", "r")


def test_a_full_disk_under_a_journal_is_named(tmp_path: Path) -> None:
    refusal = pytest.raises(DataError, match=r"a verdict cannot be written .*too large")
    with Journal(tmp_path / "labels.journal") as journal, no_file_beyond(0), refusal:
        journal.keep("a", "correct", "first")


def test_a_journal_that_cannot_be_opened_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "labels.journal").mkdir()
    with pytest.raises(DataError, match=r"labels.journal: the journal of verdicts cannot be opened"):
        Journal(tmp_path / "labels.journal").__enter__()


def test_verdicts_are_kept_inside_the_journals_block_only(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the journal is not open"):
        Journal(tmp_path / "labels.journal").keep("a", "correct", "")


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (
            [
                "labeling.judge={server={base_url='http://j/v1', model='m'}}",
                "labeling.other_judges=[{tiny_error_rate=0.0}]",
            ],
            r"labeling.other_judges\[0\]",
        ),
        ([], "labeling.judge"),
        (["labeling.judge=null", "labeling.third_vote.judge.tiny_error_rate=0"], "labeling.third_vote.judge"),
    ],
)
def test_the_laptops_judges_are_refused_for_real_problems(
    tmp_path: Path, overrides: list[str], key: str
) -> None:
    write_inputs(tmp_path, ["#### {answer}"], source="gsm8k")
    with pytest.raises(ConfigError, match=rf"^{key}.tiny_error_rate=.* source 'gsm8k'; set {key}=null"):
        label(tmp_path, load("laptop", overrides))
    assert not (tmp_path / "labels.jsonl").exists()


def test_another_seed_of_the_laptops_judge_meets_no_verdict_of_the_first(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"], source="tiny")
    num_known = [
        label(tmp_path, load("laptop", ["labeling.rule.num_workers=1", seed])).num_known_verdicts
        for seed in ("seed=0", "seed=0", "seed=1")
    ]
    assert num_known == [0, NUM_PROBLEMS, 0]


def test_verdicts_of_the_same_run_are_not_known_ones(tmp_path: Path) -> None:
    """Equal texts of later batches are found in the journal too."""
    write_inputs(tmp_path, ["#### {answer}"], source="tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cooper_rl.labels.rows.BATCH_ROWS", 3)
        rows = read_records(tmp_path / "completions.jsonl", Completion)
        again = [row.model_copy(update={"id": f"again-{row.id}"}) for row in rows]
        write_records(tmp_path / "completions.jsonl", [*rows, *again])
        known = [label(tmp_path, load("laptop", ["labeling.rule.num_workers=1"])) for _ in range(2)]
    assert [report.num_known_verdicts for report in known] == [0, 2 * NUM_PROBLEMS]


def test_a_file_that_is_no_journal_stays(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"], source="tiny")
    own = '{"question": "a row without its end'
    (tmp_path / "labels.jsonl.journal").write_text(own)
    with pytest.raises(DataError, match=r"labels.jsonl.journal: is no journal of verdicts; move it"):
        label(tmp_path, load("laptop", ["labeling.rule.num_workers=1"]))
    assert (tmp_path / "labels.jsonl.journal").read_text() == own
