"""Seeds of the red team's searches: published attacks, our canaries, rewarded wrong rollouts.

A text is one for all problems; only a `{question}` in it depends on the problem.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.domains.base import Domain
from cooper_rl.method.metrics import THRESHOLD
from cooper_rl.redteam.library import LIBRARY, QUESTION
from cooper_rl.schema.data import Problem, RolloutSample, VerifyExample

_CANARY_PROBLEMS = 4
"""Problems whose canaries are seeds; more give the same attacks with other numbers."""


class Seed(NamedTuple):
    """A text to start from."""

    name: str
    family: str
    """Kind of attack."""
    text: str


def fill(text: str, problem: Problem) -> str:
    """The completion that a text is for one problem."""
    return text.replace(QUESTION, problem.question)


def gather_seeds(
    problems: Sequence[Problem],
    rollouts: Sequence[RolloutSample],
    known: Sequence[str] = (),
    *,
    domain: Domain,
    max_rollouts: int,
    rng: random.Random,
) -> list[Seed]:
    """All seeds with different texts: those found before, the library, canaries, rewarded wrong rollouts."""
    found = [Seed(f"known_{number}", "known", text) for number, text in enumerate(known)]
    found += [
        Seed(f"{family}_{number}", family, text)
        for family, texts in LIBRARY.items()
        for number, text in enumerate(texts)
    ]
    blank = [
        VerifyExample(question=p.question, reference_answer=p.reference_answer, completion="", label=0)
        for p in problems
    ]
    canaries = domain.make_canaries(blank, max_problems=_CANARY_PROBLEMS, rng=rng)
    found += [Seed(f"canary_{canary.attack}", "canary", canary.example.completion) for canary in canaries]
    wrong = rewarded_wrong(rollouts, max_rollouts, domain)
    found += [Seed(f"rollout_{number}", "rollout", text) for number, text in enumerate(wrong)]
    by_text: dict[str, Seed] = {}
    for seed in found:
        by_text.setdefault(seed.text, seed)
    return list(by_text.values())


def rewarded_wrong(rollouts: Sequence[RolloutSample], max_rollouts: int, domain: Domain) -> list[str]:
    """Different completions that VerifyRM paid and that cannot be right, highest score first."""
    paid = [rollout for rollout in rollouts if rollout.score > THRESHOLD and rollout.rule != "correct"]
    texts: dict[str, None] = {}
    for rollout in sorted(paid, key=lambda rollout: (-rollout.score, rollout.step, rollout.problem_id)):
        if len(texts) == max_rollouts:
            break
        # What the rule verifier could not read may be right, and looks like a list of numbers.
        is_right = domain.may_be_right if rollout.rule == "incorrect" else domain.holds_answer
        if not is_right(rollout.question, rollout.reference_answer, rollout.completion):
            texts[rollout.completion] = None
    return list(texts)
