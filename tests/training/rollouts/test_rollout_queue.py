"""Rollouts drawn ahead: which weights draw what, and what is still to be learned from."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cooper_rl.engines.base import Generation
from cooper_rl.schema.data import Problem
from cooper_rl.training.reward_learner import step_seed
from cooper_rl.training.rollout import RolloutGroup
from cooper_rl.training.rollout_queue import Drawn, RolloutQueue, read_drawn
from cooper_rl.training.step import run_step, step_problems
from tests.stand_ins.scripted_engine import ScriptedEngine
from tests.training.test_step import MIXED, PROBLEMS, make_trainer

PROMPT = (5, 6)


class Drawing:
    """Draws one completion for each problem, whose tokens are the step and how often it was asked; waits are
    counted."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.num_waits = 0

    def begin(self, problems: Sequence[Problem], step: int) -> Callable[[], list[RolloutGroup]]:
        self.begun.append(step)
        tokens = (step, len(self.begun))

        def wait() -> list[RolloutGroup]:
            self.num_waits += 1
            return [
                RolloutGroup(problem, PROMPT, (Generation(tokens, (-0.1, -1 / 3), "stop"),), ("text",))
                for problem in problems
            ]

        return wait


def batches(step: int, max_staleness: int) -> list[list[Problem]]:
    return [problems_of(number) for number in range(step, step + max_staleness + 1)]


def problems_of(step: int) -> list[Problem]:
    return [Problem(id=f"p{step}", source="t", question=f"How many in {step}?", reference_answer="1")]


@pytest.mark.parametrize("max_staleness", [0, 1, 3])
def test_a_step_begins_the_one_that_lies_the_staleness_ahead_and_takes_its_own(max_staleness: int) -> None:
    """Step k is drawn after step k - 1 - n, or after step 0 where that is before the start."""
    queue, drawing = RolloutQueue(), Drawing()
    for step in range(1, 7):
        drawn = queue.draw(step, batches(step, max_staleness), drawing.begin)
        assert drawing.begun == list(range(1, step + max_staleness + 1))
        assert (drawn.step, drawn.drawn_after) == (step, max(0, step - 1 - max_staleness))
        assert drawn.staleness == min(max_staleness, step - 1)
        assert [group.generations[0].token_ids[0] for group in drawn.groups()] == [step]
        assert [group.problem for group in drawn.groups()] == problems_of(step)
        assert drawing.num_waits == step, "nothing waits for later steps"


def test_what_a_checkpoint_holds_is_taken_by_the_run_that_goes_on(make_policy) -> None:
    policy = make_policy(0)
    queue, drawing = RolloutQueue(), Drawing()
    for step in (1, 2):
        queue.draw(step, batches(step, 2), drawing.begin).groups()
    kept = queue.pending(after=2)
    assert [(each.step, each.drawn_after) for each in kept] == [(3, 0), (4, 1)]
    assert queue.pending(after=2) == kept
    assert drawing.num_waits == 4, "each is waited for once"
    assert [each.step for each in queue.pending(after=1)] == [2, 3, 4], "step 2 may have failed"

    prompted = [with_prompts(step, policy) for step in kept]
    read = [type(step).model_validate_json(step.model_dump_json()) for step in prompted]
    went_on, later = RolloutQueue(read_drawn(read, policy, instruction=None, group_size=1)), Drawing()
    drawn = went_on.draw(3, batches(3, 2), later.begin)
    assert later.begun == [5]
    assert (drawn.step, drawn.drawn_after) == (3, 0)
    assert drawn.groups()[0].generations == (Generation((3, 3), (-0.1, -1 / 3), "stop"),)
    assert drawn.groups()[0].texts == (policy.decode((3, 3)),)


def with_prompts(step, policy):
    groups = tuple(
        group.model_copy(update={"prompt_ids": tuple(policy.encode_prompt(group.problem.question, None))})
        for group in step.groups
    )
    return step.model_copy(update={"groups": groups})


def test_rollouts_of_another_configuration_are_drawn_anew(make_policy) -> None:
    """Other problems, more staleness than is allowed, other prompts, other groups."""
    policy = make_policy(0)
    queue, drawing = RolloutQueue(), Drawing()
    queue.draw(1, batches(1, 2), drawing.begin)
    kept = [with_prompts(step, policy) for step in queue.pending(after=1)]
    same = read_drawn(kept, policy, instruction=None, group_size=1)
    assert [each.step for each in same] == [2, 3]
    assert read_drawn(kept, policy, instruction="Be brief.", group_size=1) == []
    assert read_drawn(kept, policy, instruction=None, group_size=2) == []
    warm = [step.model_copy(update={"sampling": "warm"}) for step in kept]
    assert [
        len(read_drawn(warm, policy, instruction=None, group_size=1, sampling=each))
        for each in ("warm", "cold")
    ] == [2, 0]
    assert len(read_drawn(kept, policy, instruction=None, group_size=1, sampling="cold")) == 2, "not said"

    later = Drawing()
    other = [problems_of(9), problems_of(3), problems_of(4)]
    assert RolloutQueue(same).draw(2, other, later.begin).drawn_after == 1
    assert later.begun == [2, 4]
    later = Drawing()
    too_stale = [Drawn(2, 0, problems_of(2), list)]
    assert RolloutQueue(too_stale).draw(2, batches(2, 0), later.begin).drawn_after == 1
    assert later.begun == [2]


def test_after_they_are_discarded_the_next_step_draws_with_the_weights_of_now() -> None:
    queue, drawing = RolloutQueue(), Drawing()
    for step in (1, 2, 3):
        queue.draw(step, batches(step, 1), drawing.begin)
    queue.discard()
    assert queue.pending(after=3) == []
    staleness = [queue.draw(step, batches(step, 1), drawing.begin).staleness for step in (4, 5, 6)]
    assert staleness == [0, 1, 1]
    assert drawing.begun == [1, 2, 3, 4, 4, 5, 6, 7]


def test_an_error_of_drawing_is_raised_by_the_step_that_takes_the_rollouts() -> None:
    def fail(problems: Sequence[Problem], step: int) -> Callable[[], list[RolloutGroup]]:
        def wait() -> list[RolloutGroup]:
            raise ValueError(f"step {step}")

        return wait

    queue, drawing = RolloutQueue(), Drawing()
    queue.draw(1, batches(1, 0), drawing.begin).groups()
    queue.draw(1, batches(1, 1), fail)
    with pytest.raises(ValueError, match="step 2"):
        queue.draw(2, batches(2, 1), fail).groups()


class Recorded(ScriptedEngine):
    """Notes how often it had taken weights when it drew with a seed."""

    def __init__(self, engine: Any) -> None:
        self.__dict__ |= engine.__dict__
        self.num_loads: dict[int, int] = {}

    def generate(self, prompts, generation, *, samples, seed, places=None):
        self.num_loads[seed] = self.num_weight_loads
        return super().generate(prompts, generation, samples=samples, seed=seed, places=places)


@pytest.mark.parametrize("max_staleness", [0, 1, 2])
def test_a_step_trains_on_what_the_weights_of_its_staleness_drew(
    make_policy, make_verify_rm, rule, max_staleness: int
) -> None:
    """Weights are handed over once a step, so that the draw of step k saw max(0, k - 1 - n) of them."""
    values = {"max_rollout_staleness": max_staleness, "policy__max_importance_weight": 2.0}
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED, **values)
    engine = Recorded(trainer.engine)
    trainer = replace(trainer, engine=engine)
    found = []
    for step in range(1, 5):
        batch, *ahead = (
            step_problems(PROBLEMS, number, count=2, seed=0)
            for number in range(step, step + max_staleness + 1)
        )
        found.append(run_step(trainer, step, batch, ahead=ahead).metrics.rollout.staleness)
    seeds = {step_seed(0, step): step for step in range(1, 5 + max_staleness)}
    assert {seeds[seed]: loads for seed, loads in engine.num_loads.items()} == {
        step: max(0, step - 1 - max_staleness) for step in range(1, 5 + max_staleness)
    }
    assert found == ([None] * 4 if not max_staleness else [min(max_staleness, step) for step in range(4)])
