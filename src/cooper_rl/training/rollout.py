"""Phases 1 and 2 of a step: rollouts from the policy, and their rewards (rows 6 and 7)."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import compress
from typing import Protocol, TypeVar

from cooper_rl.config.data import GenerationConfig
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.engines.base import Engine, Generation, begin_generating
from cooper_rl.errors import TrainingError
from cooper_rl.machine.memory import explains_memory
from cooper_rl.models.policy import Policy
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.schema.data import FinishReason, Problem, RolloutSample, Verdict
from cooper_rl.verdicts.hybrid import Judge, JudgeItem
from cooper_rl.verdicts.verifier import AnswerItem, Verifier


class Group(Protocol):
    """Completions of one problem, as far as rewards and pairs need them."""

    @property
    def problem(self) -> Problem: ...

    @property
    def texts(self) -> tuple[str, ...]: ...

    @property
    def finish_reasons(self) -> tuple[FinishReason | None, ...]:
        """None where nobody knows how a completion ended."""
        ...


@dataclass(frozen=True)
class RolloutGroup:
    """Row 6: the rollouts of one problem. Token ids are the engine's own."""

    problem: Problem
    prompt_ids: tuple[int, ...]
    generations: tuple[Generation, ...]
    texts: tuple[str, ...]
    """Decoded completions, in the order of `generations`."""

    @property
    def finish_reasons(self) -> tuple[FinishReason | None, ...]:
        return tuple(generation.finish_reason for generation in self.generations)


G = TypeVar("G", bound=Group)


@dataclass(frozen=True)
class Scores:
    """Both verifiers' results on all rollouts of a step, (B,) with groups contiguous."""

    verify_rm: list[float]
    """Scores in [0, 1)."""
    rule: list[Verdict]
    judge: list[Verdict] | None = None
    """None where nobody was asked."""

    def of_groups(self, groups: Sequence[Group], chosen: Sequence[bool]) -> "Scores":
        """Those of the chosen groups, one choice a group."""
        is_chosen = [
            choice for group, choice in zip(groups, chosen, strict=True) for _ in range(len(group.texts))
        ]
        judge = self.judge and list[Verdict](compress(self.judge, is_chosen))
        rule = list[Verdict](compress(self.rule, is_chosen))
        return Scores(list(compress(self.verify_rm, is_chosen)), rule, judge)


def places_of(groups: Sequence[G]) -> Iterator[tuple[G, range]]:
    """Every group with the places of its rollouts in `Scores`."""
    start = 0
    for group in groups:
        yield group, range(start, start + len(group.texts))
        start += len(group.texts)


def begin_rollouts(
    engine: Engine,
    policy: Policy,
    problems: Sequence[Problem],
    generation: GenerationConfig,
    *,
    group_size: int,
    instruction: str | None,
    seed: int,
    ranks: Ranks = ALONE,
) -> Callable[[], list[RolloutGroup]]:
    """Begin to draw `group_size` rollouts of every problem, with the weights that the engine has now.

    Returns:
        Waits for the groups, in the order of the problems; collective, and every rank draws a share. Raises
        TrainingError where a log-probability is not finite (names the question), or out of memory.
    """
    remedy = (
        f"lower generation.batch_size={generation.batch_size} of this stage's section (cooper, evaluation or "
        "sampling); with vLLM engine.gpu_memory_utilization"
    )
    prompts = [policy.encode_prompt(problem.question, instruction) for problem in problems]
    # The places go along to the engine, whose seeds are those of the whole step: any number of ranks draws
    # the same.
    places = ranks.places(len(prompts))
    own = [prompts[place] for place in places]
    with explains_memory("drawing completions", remedy):
        share = begin_generating(engine, own, generation, samples=group_size, seed=seed, places=places)

    def wait() -> list[RolloutGroup]:
        with explains_memory("drawing completions", remedy):
            generated = share.result()
        return _make_groups(policy, problems, prompts, ranks.gather(generated, len(prompts)))

    return wait


def _make_groups(
    policy: Policy,
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    drawn: Sequence[Sequence[Generation]],
) -> list[RolloutGroup]:
    for problem, generations in zip(problems, drawn, strict=True):
        # On every rank, and after the exchange: all of them raise, and none waits.
        if not all(math.isfinite(value) for each in generations for value in each.logprobs):
            raise TrainingError(
                f"the policy's log-probabilities are not finite for the question {problem.question[:100]!r}; "
                "its weights are damaged: go back to an earlier checkpoint and lower its learning rate"
            )
    return [
        RolloutGroup(
            problem=problem,
            prompt_ids=tuple(prompt),
            generations=tuple(generations),
            texts=tuple(policy.decode(generation.token_ids) for generation in generations),
        )
        for problem, prompt, generations in zip(problems, prompts, drawn, strict=True)
    ]


def score_rollouts(
    groups: Sequence[Group],
    verify_rm: VerifyRM,
    rule: Verifier,
    *,
    judge: Judge | None = None,
    max_tokens_per_batch: int,
    ranks: Ranks = ALONE,
) -> Scores:
    """Every verifier on every rollout; the reward is chosen from them by configuration.

    The rule verifier works beside VerifyRM. Collective: every rank scores, exchanges verdicts, and hears the
    judge, in this order.

    Raises:
        CooperError: the rule verifier cannot work.
        ServerError: the judge cannot be used.
        TrainingError: a VerifyRM score is NaN; names the question.
    """
    items = [
        VerifyItem(group.problem.question, group.problem.reference_answer, text)
        for group in groups
        for text in group.texts
    ]
    answers = [
        AnswerItem(group.problem.reference_answer, text, group.problem.question, finish_reason)
        for group in groups
        for text, finish_reason in zip(group.texts, group.finish_reasons, strict=True)
    ]
    own = [answers[place] for place in ranks.places(len(answers))]
    # A thread is enough: the comparisons run in worker processes, or between two kernels of VerifyRM. Nothing
    # in it is collective, so that the ranks still talk in one order.
    with ThreadPoolExecutor(1, thread_name_prefix="rule") as threads:
        verifying = threads.submit(rule.verify, own) if own else None
        scores = verify_rm.score(items, max_tokens_per_batch=max_tokens_per_batch)
        checks = verifying.result() if verifying is not None else []
    return Scores(
        verify_rm=scores,
        rule=[check.verdict for check in ranks.gather(checks, len(answers))],
        judge=None if judge is None else ranks.first(lambda: ask_judge(judge, items)),
    )


def ask_judge(judge: Judge, items: Sequence[VerifyItem]) -> list[Verdict]:
    """Its verdicts, in order.

    Raises:
        ServerError: it cannot be used.
    """
    return [result.verdict for result in judge.judge([JudgeItem(*item) for item in items])]


def sample_rollouts(
    groups: Sequence[Group], scores: Scores, rewards: Sequence[float], *, step: int, count: int
) -> list[RolloutSample]:
    """The rollouts with the highest rewards of different problems: what the policy is being paid for."""
    best: list[tuple[int, Group, str]] = []
    for group, places in places_of(groups):
        place = max(places, key=rewards.__getitem__)
        best.append((place, group, group.texts[places.index(place)]))
    best.sort(key=lambda found: -rewards[found[0]])
    return [
        RolloutSample(
            step=step,
            problem_id=group.problem.id,
            question=group.problem.question,
            reference_answer=group.problem.reference_answer,
            completion=text,
            reward=rewards[place],
            score=scores.verify_rm[place],
            rule=scores.rule[place],
        )
        for place, group, text in best[:count]
    ]
