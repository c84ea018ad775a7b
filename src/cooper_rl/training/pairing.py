"""Phase 5 of a step: preference pairs from the rollouts (row 11)."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.backends.rule_verifier import RuleVerifier
from cooper_rl.core.pairs import Assistant, RewriteItem, is_valid_negative
from cooper_rl.core.randomness import derive_seed
from cooper_rl.schema import PreferencePair, Verdict
from cooper_rl.training.rollout import RolloutGroup


class Pairing(NamedTuple):
    """The pairs of one step and what they cost."""

    pairs: list[PreferencePair]
    """Sorted by problem id."""
    num_positives: int
    """Problems that had a positive."""
    num_rewrites: int
    """Rewrites asked of the assistant."""


def make_pairs(
    groups: Sequence[RolloutGroup],
    verdicts: Sequence[Verdict],
    assistant: Assistant,
    rule: RuleVerifier,
    *,
    max_attempts: int,
    step: int,
    seed: int,
) -> Pairing:
    """At most one pair per problem; the assistant is asked only where there is a positive.

    Both halves lose white space at their ends: which half ends in a newline must not tell them apart.

    Args:
        groups: rollouts of the step.
        verdicts: (B,) rule verdicts of all rollouts, groups contiguous.
        assistant: writes the negatives.
        rule: checks them against the reference answer.
        max_attempts: rewrites per positive before its problem gives no pair.
        step: written into the pairs.
        seed: of the choice of positives and of the rewrites.
    """
    waiting = _choose_positives(groups, verdicts, seed=seed)
    num_positives = len(waiting)
    pairs: list[PreferencePair] = []
    num_rewrites = 0
    for attempt in range(max_attempts):
        if not waiting:
            break
        num_rewrites += len(waiting)
        rewrites = assistant.rewrite(waiting, seed=derive_seed(seed, "rewrite", attempt))
        answered = [
            (item, text.strip()) for item, text in zip(waiting, rewrites, strict=True) if text is not None
        ]
        checks = rule.verify([(item.reference_answer, text) for item, text in answered])
        paired = {
            item.problem_id: PreferencePair(
                step=step,
                problem_id=item.problem_id,
                question=item.question,
                reference_answer=item.reference_answer,
                positive=item.solution.strip(),
                negative=text,
                source=f"assistant:{assistant.name}",
            )
            for (item, text), check in zip(answered, checks, strict=True)
            if is_valid_negative(check.verdict)
        }
        pairs.extend(paired.values())
        waiting = [item for item in waiting if item.problem_id not in paired]
    return Pairing(sorted(pairs, key=lambda pair: pair.problem_id), num_positives, num_rewrites)


def _choose_positives(
    groups: Sequence[RolloutGroup], verdicts: Sequence[Verdict], *, seed: int
) -> list[RewriteItem]:
    items: dict[str, RewriteItem] = {}
    start = 0
    for group in groups:
        own = verdicts[start : start + len(group.texts)]
        start += len(group.texts)
        correct = [text for text, verdict in zip(group.texts, own, strict=True) if verdict == "correct"]
        if correct and group.problem.id not in items:
            chosen = random.Random(derive_seed(seed, "positive", group.problem.id)).choice(correct)
            items[group.problem.id] = RewriteItem(
                group.problem.id, group.problem.question, group.problem.reference_answer, chosen
            )
    return list(items.values())
