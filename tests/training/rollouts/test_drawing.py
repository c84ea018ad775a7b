"""Rollouts of a step: what the engine is asked, and what becomes of its answers."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from cooper_rl.config.data import GenerationConfig
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.engines.base import Generation
from cooper_rl.errors import TrainingError
from cooper_rl.models.policy import Policy
from cooper_rl.schema.data import Problem
from cooper_rl.training.rollout import RolloutGroup, begin_rollouts
from tests.stand_ins.scripted_engine import ScriptedEngine

PROBLEMS = [
    Problem(id=str(n), source="t", question=f"Tom has {n} apples.", reference_answer="1") for n in (3, 5, 7)
]
GENERATION = GenerationConfig(max_new_tokens=5, batch_size=3)
MADE = Generation((7, 8), (-0.5, -0.25), "stop")


class Noting(ScriptedEngine):
    """Gives the same completion everywhere, and keeps what it was asked."""

    def __init__(self, made: Generation = MADE) -> None:
        super().__init__({}, end_ids=frozenset())
        self.made = made
        self.asked: list[tuple[Any, ...]] = []

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        *,
        samples: int,
        seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Generation]]:
        self.asked.append((prompts, generation, samples, seed, places))
        return [[self.made] * samples for _ in prompts]


class Failing(Noting):
    """Has no memory, at once."""

    def generate(self, *_: Any, **__: Any) -> list[list[Generation]]:
        raise MemoryError


class FailingLater(Noting):
    """Has no memory, while it draws beside its caller."""

    def begin(self, *_: Any, **__: Any) -> Future[list[list[Generation]]]:
        drawn: Future[list[list[Generation]]] = Future()
        drawn.set_exception(MemoryError())
        return drawn


def draw(engine: ScriptedEngine, policy: Policy, *, ranks: Ranks = ALONE):
    return begin_rollouts(
        engine, policy, PROBLEMS, GENERATION, group_size=2, instruction="Be brief.", seed=9, ranks=ranks
    )


def prompts_of(policy: Policy) -> list[list[int]]:
    return [policy.encode_prompt(problem.question, "Be brief.") for problem in PROBLEMS]


def test_the_engine_gets_prompts_with_the_instruction_and_its_answers_become_groups(make_policy) -> None:
    policy, engine = make_policy(0), Noting()
    groups = draw(engine, policy)()
    assert engine.asked == [(prompts_of(policy), GENERATION, 2, 9, range(3))]
    assert groups == [
        RolloutGroup(problem, tuple(prompt), (MADE, MADE), (policy.decode((7, 8)),) * 2)
        for problem, prompt in zip(PROBLEMS, prompts_of(policy), strict=True)
    ]
    assert groups[0].finish_reasons == ("stop", "stop")


def test_a_process_of_several_draws_its_share_with_the_places_of_the_whole(make_policy) -> None:
    """The second of two draws the second of three prompts."""
    policy, engine = make_policy(0), Noting()
    draw(engine, policy, ranks=Ranks(1, 2))
    assert engine.asked == [(prompts_of(policy)[1:2], GENERATION, 2, 9, range(1, 3, 2))]


@pytest.mark.parametrize("engine", [Failing, FailingLater])
def test_drawing_without_memory_says_what_to_lower(make_policy, engine: type[Noting]) -> None:
    with pytest.raises(
        TrainingError,
        match=r"^drawing completions: out of memory; lower generation\.batch_size=3 of this stage's section "
        r"\(cooper, evaluation or sampling\); with vLLM engine\.gpu_memory_utilization$",
    ):
        draw(engine(), make_policy(0))()


def test_a_log_probability_that_is_not_finite_names_the_question(make_policy) -> None:
    engine = Noting(Generation((7, 8), (-0.5, float("-inf")), "stop"))
    with pytest.raises(
        TrainingError,
        match=r"log-probabilities are not finite for the question 'Tom has 3 apples\.'; its weights are "
        r"damaged: go back to an earlier checkpoint and lower its learning rate$",
    ):
        draw(engine, make_policy(0))()
