"""Labels of several pods are, put together, those of one process."""

import shutil
from pathlib import Path

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.labels.merging import add_usages
from cooper_rl.records.files import read_records, read_report, write_records, write_report
from cooper_rl.schema.data import Label
from cooper_rl.schema.reports import JudgeUsage, LabelReport
from cooper_rl.stages import merge_labels
from tests.labels.old_splits import write_inputs
from tests.stages.champions import EXAMPLES
from tests.stages.label_completions.labelling import damage, label, rule_only
from tests.stages.label_completions.labelling import write_inputs as write_tiny_inputs

FILES = ("labels.jsonl", "train.jsonl", "validation.jsonl", "test.jsonl", "report.json.rejected.jsonl")
NUM_SHARDS = 4


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Problems and completions, a few of them bad."""
    write_inputs(tmp_path)
    damage(tmp_path / "problems.jsonl", {3: {"reference_answer": "\\frac{"}})
    damage(tmp_path / "completions.jsonl", {6: "{not json", 9: {"problem_id": "elsewhere"}})
    return tmp_path


def label_shard(inputs: Path, number: int, *overrides: str) -> Path:
    folder = inputs / f"shard-{number}"
    folder.mkdir()
    for name in ("problems.jsonl", "completions.jsonl"):
        shutil.copy(inputs / name, folder / name)
    shard = f"labeling.shard={{number={number}, count={NUM_SHARDS}}}"
    label(folder, rule_only(shard, *overrides))
    return folder


def merge(
    inputs: Path, folders: list[Path], *overrides: str, reports: list[Path] | None = None, **frozen: Path
) -> LabelReport:
    (inputs / "merged").mkdir()
    for name in ("problems.jsonl", "completions.jsonl"):
        shutil.copy(inputs / name, inputs / "merged" / name)
    return merge_labels.run(
        rule_only(*overrides),
        problems=inputs / "problems.jsonl",
        completions=inputs / "completions.jsonl",
        shards=[folder / "labels.jsonl" for folder in folders],
        reports=[folder / "report.json" for folder in reports or folders],
        labels=inputs / "merged" / "labels.jsonl",
        train=inputs / "merged" / "train.jsonl",
        validation=inputs / "merged" / "validation.jsonl",
        test=inputs / "merged" / "test.jsonl",
        report=inputs / "merged" / "report.json",
        **frozen,
    )


def test_four_shards_are_row_for_row_what_a_single_process_gives(inputs: Path) -> None:
    alone = label(inputs, rule_only("seed=3"))
    folders = [label_shard(inputs, number, "seed=3") for number in range(NUM_SHARDS)]
    sizes = [len(read_records(folder / "labels.jsonl", Label)) for folder in folders]
    assert sum(sizes) == alone.num_completions
    assert min(sizes) > 0
    assert all((folder / "test.jsonl").read_bytes() == b"" for folder in folders)
    merged = merge(inputs, folders, "seed=3")
    for name in FILES:
        assert (inputs / "merged" / name).read_bytes() == (inputs / name).read_bytes(), name
    assert merged.model_copy(update={"seconds": 0}) == alone.model_copy(update={"seconds": 0})
    assert alone.num_rejected > 2


def test_frozen_examples_are_the_test_set_of_the_merged_labels_too(inputs: Path) -> None:
    write_records(inputs / "frozen.jsonl", EXAMPLES)
    label(inputs, rule_only(), frozen=inputs / "frozen.jsonl")
    folders = [label_shard(inputs, number) for number in range(NUM_SHARDS)]
    merge(inputs, folders, frozen=inputs / "frozen.jsonl")
    for name in FILES:
        assert (inputs / "merged" / name).read_bytes() == (inputs / name).read_bytes(), name


def test_a_report_of_every_shard_is_needed(inputs: Path) -> None:
    (inputs / "again.json").symlink_to(inputs / "report-0.json")
    for reports in (["report-0.json"], ["report-0.json", "report-1.json", "report-2.json", "again.json"]):
        with pytest.raises(DataError, match=r"4 shards and the reports .*report-0.json.*every shard once"):
            merge_labels.run(
                rule_only(),
                problems=inputs / "problems.jsonl",
                completions=inputs / "completions.jsonl",
                shards=[inputs / f"shard-{number}.jsonl" for number in range(4)],
                reports=[inputs / name for name in reports],
                **{name: inputs / name for name in ("labels", "train", "validation", "test", "report")},
            )


def test_labels_in_another_order_or_of_other_rows_are_refused(inputs: Path) -> None:
    folders = [label_shard(inputs, number) for number in range(NUM_SHARDS)]
    with pytest.raises(DataError, match=r"shard-\d/labels.jsonl: that of .* where that of .* belongs; give"):
        merge(inputs, folders[::-1])
    shutil.rmtree(inputs / "merged")
    rows = read_records(folders[2] / "labels.jsonl", Label)
    write_records(folders[2] / "labels.jsonl", rows[:-1])
    with pytest.raises(DataError, match=r"shard-2/labels.jsonl: no label where that of .* belongs"):
        merge(inputs, folders)
    shutil.rmtree(inputs / "merged")
    write_records(folders[2] / "labels.jsonl", [*rows, rows[0]])
    with pytest.raises(DataError, match=r"shard-2/labels.jsonl: a label of .*, which is no row; give"):
        merge(inputs, folders)


def test_labels_of_another_draw_with_the_same_ids_are_refused(tmp_path: Path) -> None:
    """Of the first draw every first completion is right, of the second every other one."""
    draws: list[list[Path]] = []
    for name, texts in (
        ("one", ["#### {answer}", "#### {wrong}"]),
        ("two", ["#### {wrong}", "#### {answer}"]),
    ):
        (tmp_path / name).mkdir()
        write_tiny_inputs(tmp_path / name, texts)
        draws.append([label_shard(tmp_path / name, number) for number in range(NUM_SHARDS)])
    one, two = draws
    for labels, reports in ((two, two), ([*one[:3], two[3]], one), (one, two), (one, [*one[:3], two[3]])):
        with pytest.raises(
            DataError, match=r"labels.jsonl: no report is of these labels of these compl.*; give"
        ):
            merge(tmp_path / "one", labels, reports=reports)
        shutil.rmtree(tmp_path / "one" / "merged")
    assert merge(tmp_path / "one", one, reports=one[::-1]).num_correct == 30


def test_only_shards_are_named_by_their_rows(inputs: Path) -> None:
    """It costs a digest of every text."""
    folders = [label_shard(inputs, number) for number in range(NUM_SHARDS)]
    assert all(read_report(folder / "report.json", LabelReport).digest for folder in folders)
    assert merge(inputs, folders).digest is None


def test_reports_of_an_earlier_version_are_taken_as_they_are(inputs: Path) -> None:
    folders = [label_shard(inputs, number) for number in range(NUM_SHARDS)]
    report = read_report(folders[0] / "report.json", LabelReport)
    write_report(folders[0] / "report.json", report.model_copy(update={"digest": None}))
    assert merge(inputs, folders).num_completions > 0


def test_what_the_shards_spent_is_added_up() -> None:
    usage = JudgeUsage(
        num_requests=3, num_retries=1, num_failed=0, prompt_tokens=10, completion_tokens=2, seconds=0.5
    )
    twice = add_usages([usage, None, usage])
    assert twice is not None
    assert (twice.num_requests, twice.prompt_tokens, twice.seconds) == (6, 20, 1.0)
    assert twice.cost is None
    assert add_usages([None, None]) is None


def test_a_cost_is_added_up_where_every_shard_knows_its_own() -> None:
    unpriced = JudgeUsage(
        num_requests=1, num_retries=0, num_failed=0, prompt_tokens=1, completion_tokens=1, seconds=0.5
    )
    priced = unpriced.model_copy(update={"cost": 1.5})
    for usages, cost in (([priced, None, priced], 3.0), ([priced, unpriced], None)):
        total = add_usages(usages)
        assert total is not None
        assert total.cost == cost


def test_the_shards_of_several_judges_give_the_report_of_one_process(tmp_path: Path) -> None:
    """Majorities, agreement and a cascade's audit are counted from the labels."""
    write_tiny_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "Plenty."], source="tiny")
    overrides = (
        "labeling.judge={tiny_error_rate=0.3}",
        "labeling.other_judges=[{tiny_error_rate=0.2}, {tiny_error_rate=0.1}]",
        "labeling.judge_asked=where_rule_abstains",
        "labeling.audit_fraction=0.5",
    )
    alone = label(tmp_path, rule_only(*overrides))
    folders = [label_shard(tmp_path, number, *overrides) for number in range(NUM_SHARDS)]
    merged = merge(tmp_path, folders, *overrides)
    assert merged.model_copy(update={"seconds": 0}) == alone.model_copy(update={"seconds": 0})
    assert merged.agreement is not None
    assert "judge_1~judge_2" in merged.agreement.pairs
    assert merged.audit is not None


def test_a_shard_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"labeling.shard.number=4 is none of 4 shards: count from 0"):
        load("laptop", ["labeling.shard={number=4, count=4}"])
