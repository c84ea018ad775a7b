"""The chain of stages with programs, at its smallest; no stage knows which domain it is."""

from pathlib import Path

import pytest

from cooper_rl.experiment.jobs import ARM, START, outputs, prepare_start, train_arm
from cooper_rl.records.files import read_records, read_report
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.reports import EvalReport
from cooper_rl.schema.stages import Output
from tests.small_run import SMALL


@pytest.mark.slow  # trains four models from scratch
def test_programs_go_through_every_stage(tmp_path: Path) -> None:
    start, arm = tmp_path / "start", tmp_path / "arm"
    overrides = [*SMALL, "cooper.generation.max_new_tokens=24", "evaluation.generation.max_new_tokens=24"]
    prepare_start("programs_laptop", overrides, start)
    train_arm("programs_laptop", overrides, start, arm)
    made, trained = outputs(START, start), outputs(ARM, arm)
    problems = read_records(made[Output("collect_problems", "problems")], Problem)
    assert all(problem.reference_answer.startswith("f(a=1, b=2) == ") for problem in problems)
    assert {
        example.label for example in read_records(made[Output("label_completions", "train")], VerifyExample)
    } == {
        0,
        1,
    }
    end = read_report(trained[Output("evaluate_policy_1", "report")], EvalReport)
    assert {"always_equal", "ends_the_process", "tests_repeated"} <= set(end.canaries)
    *_, newest = sorted(trained[Output("train_cooper_1", "checkpoint")].rglob("metrics.jsonl"))
    assert [row.step for row in read_metrics(newest)] == [1, 2]
