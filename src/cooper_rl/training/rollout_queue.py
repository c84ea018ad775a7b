"""Rollouts that are drawn ahead of the step that learns from them (phase 1 of later steps, row 6).

With `cooper.max_rollout_staleness` n, step k first begins the rollouts of step k + n, with the weights after
step k - 1, and then takes its own. Which weights draw what follows from the step's number alone, whatever
the timing. An engine in a process of its own (`engines/separate.py`) draws while both models are updated; any
other engine draws at once, in turns with the updates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cooper_rl.engines.base import Generation
from cooper_rl.models.policy import Policy
from cooper_rl.schema.data import DrawnCompletion, DrawnGroup, DrawnStep, Problem
from cooper_rl.training.rollout import RolloutGroup

Begin = Callable[[Sequence[Problem], int], Callable[[], list[RolloutGroup]]]
"""Begins to draw for the problems of a step, given its number; returns what waits for the groups."""


@dataclass
class Drawn:
    """The rollouts of a step, drawn or being drawn."""

    step: int
    """The step that learns from them."""
    drawn_after: int
    """The step after which the policy had the weights that drew them; 0: the start."""
    problems: list[Problem]
    _wait: Callable[[], list[RolloutGroup]]

    def groups(self) -> list[RolloutGroup]:
        """The groups, in the order of the problems; the first call waits for them and is collective."""
        groups = self._wait()
        self._wait = lambda: groups
        return groups

    @property
    def staleness(self) -> int:
        """Steps between the policy that drew them and the one that they train."""
        return self.step - 1 - self.drawn_after


class RolloutQueue:
    """The rollouts of the step under way and of the steps to come; alike on every rank."""

    def __init__(self, pending: Sequence[Drawn] = (), *, sampling: str | None = None) -> None:
        """`pending`: what was drawn ahead before this process started. `sampling`: see `DrawnStep`."""
        self._waiting = list(pending)
        self._sampling = sampling

    def draw(self, step: int, batches: Sequence[Sequence[Problem]], begin: Begin) -> Drawn:
        """The rollouts of a step, once those of the steps after it have begun.

        Args:
            step: From 1.
            batches: Problems of this step, then of each one that is drawn ahead of it.
            begin: Called for each step that has no rollouts yet, in order.
        """
        max_staleness = len(batches) - 1
        found = {each.step: each for each in self._waiting}
        self._waiting = []
        for number, batch in enumerate(batches, start=step):
            drawn = found.get(number)
            # Rollouts of an iteration before, which had other problems or drew further ahead, are not used.
            if drawn is None or drawn.problems != list(batch) or drawn.staleness > max_staleness:
                drawn = Drawn(number, step - 1, list(batch), begin(batch, number))
            self._waiting.append(drawn)
        return self._waiting[0]

    def pending(self, *, after: int) -> list[DrawnStep]:
        """The rollouts of the steps after one, so that a resumed run learns from the same; waits for them.
        Collective."""
        return [
            DrawnStep(
                step=each.step,
                drawn_after=each.drawn_after,
                sampling=self._sampling,
                groups=tuple(_to_record(group) for group in each.groups()),
            )
            for each in self._waiting
            if each.step > after
        ]

    def discard(self) -> None:
        """Forget what was drawn ahead: the next step draws anew."""
        self._waiting = []


def read_drawn(
    steps: Sequence[DrawnStep],
    policy: Policy,
    *,
    instruction: str | None,
    group_size: int,
    sampling: str | None = None,
) -> list[Drawn]:
    """The rollouts of a checkpoint, without those that the configuration now prompts or draws otherwise."""
    steps = [step for step in steps if step.sampling in (None, sampling)]
    found = [
        [
            RolloutGroup(
                problem=group.problem,
                prompt_ids=group.prompt_ids,
                generations=tuple(
                    Generation(each.token_ids, each.logprobs, each.finish_reason)
                    for each in group.completions
                ),
                texts=tuple(policy.decode(each.token_ids) for each in group.completions),
            )
            for group in step.groups
        ]
        for step in steps
    ]
    return [
        Drawn(step.step, step.drawn_after, [group.problem for group in groups], lambda groups=groups: groups)
        for step, groups in zip(steps, found, strict=True)
        if all(
            len(group.generations) == group_size
            and list(group.prompt_ids) == policy.encode_prompt(group.problem.question, instruction)
            for group in groups
        )
    ]


def _to_record(group: RolloutGroup) -> DrawnGroup:
    return DrawnGroup(
        problem=group.problem,
        prompt_ids=group.prompt_ids,
        completions=tuple(
            DrawnCompletion(
                token_ids=each.token_ids, logprobs=each.logprobs, finish_reason=each.finish_reason
            )
            for each in group.generations
        ),
    )
