"""Co-training on rollouts that are drawn ahead: which weights drew them, and what goes on exactly."""

from pathlib import Path

import pytest
import torch

from cooper_rl.checkpoints.state import PENDING_ROLLOUTS, read_lines
from cooper_rl.config.load import load
from cooper_rl.engines.open import open_engine
from cooper_rl.errors import ConfigError
from cooper_rl.models.policy import load_policy
from cooper_rl.records.files import read_records
from cooper_rl.schema.data import DrawnStep, Problem
from cooper_rl.training.reward_learner import step_seed
from cooper_rl.training.rollout import begin_rollouts
from cooper_rl.training.step import step_problems
from tests.stages.conftest import SMALL, Files
from tests.stages.train_cooper.test_guards import ALARMED, go, guarded, warned
from tests.stages.train_cooper.test_train_cooper import is_same_state, numbers, read, train

__all__ = ["guarded", "warned"]
AHEAD = ["cooper.max_rollout_staleness=1", "cooper.policy.max_importance_weight=2.0"]


def test_rollouts_are_those_of_the_policy_before_the_last_update(files: Files, tmp_path: Path) -> None:
    """The checkpoint of step 2 holds what the policy of the checkpoint of step 1 draws for step 3."""
    values = [*AHEAD, "cooper.steps=2", "cooper.checkpoint_every=1", "storage.keep_last=9"]
    train(files, tmp_path / "run", *values)
    (kept,) = read_lines(tmp_path / "run" / "step-000002" / PENDING_ROLLOUTS, DrawnStep)
    assert (kept.step, kept.drawn_after) == (3, 1)

    config = load("laptop", [*SMALL, *values])
    policy = load_policy(tmp_path / "run" / "step-000001" / "policy", device=torch.device("cpu"))
    wait = begin_rollouts(
        open_engine(policy, config.engine),
        policy,
        step_problems(read_records(files.problems, Problem), 3, count=4, seed=0),
        config.cooper.generation,
        group_size=4,
        instruction=None,
        seed=step_seed(0, 3),
    )
    groups = wait()
    assert [group.problem for group in groups] == [group.problem for group in kept.groups]
    for drawn, again in zip(kept.groups, groups, strict=True):
        assert drawn.prompt_ids == again.prompt_ids
        for one, other in zip(drawn.completions, again.generations, strict=True):
            assert one.token_ids == other.token_ids
            assert one.logprobs == other.logprobs
            assert one.finish_reason == other.finish_reason


@pytest.mark.parametrize("staleness", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_two_runs_that_draw_ahead_equal_one_of_twice_the_length(
    files: Files, tmp_path: Path, staleness: int
) -> None:
    """Continued in its own folder, and as a second iteration."""
    ahead = [*AHEAD, f"cooper.max_rollout_staleness={staleness}"]
    train(files, tmp_path / "straight", *ahead, "cooper.steps=4")
    rows = numbers(tmp_path / "straight")
    assert [row["rollout/staleness"] for row in rows] == [min(staleness, step) for step in range(4)]
    train(files, tmp_path / "stopped", *ahead, "cooper.steps=2")
    train(files, tmp_path / "next", *ahead, "cooper.steps=2", start=tmp_path / "stopped")
    train(files, tmp_path / "stopped", *ahead, "cooper.steps=4")
    for other in ("stopped", "next"):
        assert numbers(tmp_path / other) == rows
        assert is_same_state(tmp_path / other, tmp_path / "straight")
        kept = read(tmp_path / other).drawn
        assert [each.step for each in kept] == list(range(5, 5 + staleness))
        assert kept == read(tmp_path / "straight").drawn


def test_an_engine_in_a_process_of_its_own_changes_no_number(files: Files, tmp_path: Path) -> None:
    """A run goes on in either way; it evaluates in between, with the weights of the step."""
    values = [*AHEAD, "cooper.evaluate_every=1"]
    data = {"examples": files.examples, "held_out": files.held_out}
    train(files, tmp_path / "turns", *values, "cooper.steps=4", **data)
    train(files, tmp_path / "apart", *values, "cooper.steps=3", "engine.process=own", **data)
    assert numbers(tmp_path / "apart") == numbers(tmp_path / "turns")[:3]
    train(files, tmp_path / "apart", *values, "cooper.steps=4", **data)
    assert numbers(tmp_path / "apart") == numbers(tmp_path / "turns")
    assert is_same_state(tmp_path / "apart", tmp_path / "turns")
    assert read(tmp_path / "apart").drawn == read(tmp_path / "turns").drawn


def test_a_run_that_draws_nothing_ahead_keeps_no_rollouts(files: Files, tmp_path: Path) -> None:
    train(files, tmp_path / "run", "cooper.steps=1")
    assert not list((tmp_path / "run").rglob(PENDING_ROLLOUTS))
    assert "rollout/staleness" not in numbers(tmp_path / "run")[0]


def test_stale_rollouts_are_told_by_the_mismatch(files: Files, tmp_path: Path) -> None:
    """In fp32 the engine agrees with the trainer to rounding, until the policy has moved on."""
    train(files, tmp_path / "run", *AHEAD, "cooper.steps=3", "cooper.policy.warmup_steps=0")
    found = [row["policy/mismatch"] for row in numbers(tmp_path / "run") if "policy/mismatch" in row]
    assert found[0] < 1e-5
    assert all(each > 1e-3 for each in found[1:])
    assert len(found) > 1


@pytest.mark.parametrize("action", ["rollback", pytest.param("rule", marks=pytest.mark.slow)])
def test_an_alarm_discards_what_was_drawn_ahead(
    guarded: Files, warned: tuple[Path, int], tmp_path: Path, action: str
) -> None:
    """The step after the alarm draws anew, in one go and continued from the alarm's checkpoint alike."""
    ahead = [*ALARMED, *AHEAD, f"cooper.monitor.action={action}"]
    go(guarded, tmp_path / "straight", *ahead, "cooper.steps=16")
    rows = numbers(tmp_path / "straight")
    alarm = next(int(row["step"]) for row in rows if row.get("monitor/alarm"))
    assert 2 < alarm <= 13, "the test needs steps after the alarm"
    assert [row["rollout/staleness"] for row in rows] == [0] + [1] * (alarm - 1) + [0] + [1] * (15 - alarm)
    go(guarded, tmp_path / "run", *ahead, f"cooper.steps={alarm}")
    assert read(tmp_path / "run").drawn == []
    assert ("monitor/rolled_back_to" in numbers(tmp_path / "run")[-1]) == (action == "rollback")
    go(guarded, tmp_path / "run", *ahead, "cooper.steps=16")
    assert numbers(tmp_path / "run") == rows
    assert is_same_state(tmp_path / "run", tmp_path / "straight")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            AHEAD[:1],
            r"max_rollout_staleness=1 trains on rollouts of an earlier policy.*max_importance_weight",
        ),
        ([*AHEAD, "cooper.max_refills=2"], r"max_refills=2 draws again.*set one of them to 0"),
        (["cooper.max_rollout_staleness=-1"], "max_rollout_staleness"),
    ],
)
def test_what_does_not_go_with_rollouts_drawn_ahead_is_refused(values: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("laptop", values)
