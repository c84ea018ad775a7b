"""A step's numbers are typed in the code and flat on disk; files of earlier versions still read."""

import json
from pathlib import Path

import pytest

from cooper_rl.errors import DataError
from cooper_rl.records.step_metrics import read_metrics, write_metrics
from cooper_rl.schema.step_metrics import StepMetrics

OLD = Path(__file__).parents[1] / "data/checkpoint-0.1.0/checkpoint/step-000002/metrics.jsonl"
SMALLEST = {"step": 1, "rollout/verify_rm_reward": 0.5, "rollout/rule_accuracy": 0.25}


def test_an_earlier_versions_file_reads_and_is_written_as_it_was(tmp_path: Path) -> None:
    rows = read_metrics(OLD)
    assert [row.step for row in rows] == [1, 2]
    assert rows[1].policy is not None
    assert (rows[1].policy.loss, rows[0].pairs.by_source["assistant"]) == (0.0022704368457198143, 3)
    assert rows[0].others == {}, "every name has its field"
    write_metrics(tmp_path / "metrics.jsonl", rows)
    assert read_metrics(tmp_path / "metrics.jsonl") == rows
    old, new = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (OLD, tmp_path / "metrics.jsonl")
    )
    assert new == old


def test_mappings_are_told_from_the_numbers_whose_names_they_extend() -> None:
    flat = SMALLEST | {
        "gate/start_canary_rate": 0.5,
        "gate/start_canary_rate/empty": 1.0,
        "gate/rolled_back": 1.0,
        "gate/data": 123.0,
        "eval/canary_rate": 0.25,
        "eval/canary_rate/forged_verdict": 0.0,
        "pairs/count": 3,
        "pairs/shout": 3,
        "seconds/rollout": 1.5,
    }
    step = StepMetrics.from_flat(flat)
    assert (step.gate.start_canary_rate, step.gate.start_attacks) == (0.5, {"empty": 1.0})
    assert (step.gate.rolled_back, step.gate.data) == (True, 123)
    assert (step.eval.canary_rate, step.eval.canary_rates) == (0.25, {"forged_verdict": 0.0})
    assert (step.pairs.count, step.pairs.by_source) == (3, {"shout": 3})
    assert step.seconds == {"rollout": 1.5}
    assert step.flat() == flat


def test_names_of_another_version_are_kept() -> None:
    flat = SMALLEST | {"policy_entropy": 1.5, "rollout/later": 2.0, "seconds/later": 0.5}
    step = StepMetrics.from_flat(flat)
    assert step.others == {"policy_entropy": 1.5, "rollout/later": 2.0, "seconds/later": 0.5}
    assert step.flat() == flat


def test_a_line_that_is_no_step_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for text, reason in {
        "not json": "Expecting value",
        "[1]": "no attribute 'items'",
        "[" * 100_000: "maximum recursion depth exceeded",
        '{"step": 1}': "rollout: Field required",
        json.dumps(SMALLEST | {"pairs/count": "many"}): "pairs/count: Input should be a valid integer",
    }.items():
        path.write_text(f"{json.dumps(SMALLEST)}\n{text}\n")
        with pytest.raises(DataError, match=rf":2: not the numbers of a step \(.*{reason}.* use an earlier"):
            read_metrics(path)


def test_a_mistyped_name_is_an_error() -> None:
    step = StepMetrics.from_flat(SMALLEST)
    with pytest.raises(ValueError, match="has no field"):
        step.monitor.alram = True  # pyright: ignore[reportAttributeAccessIssue]
