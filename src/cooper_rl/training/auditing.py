"""Phase 5 of a step, beside the pairs: the rollouts that VerifyRM pays most, with the verifiers' word.

A pair needs a rollout that the rule verifier accepts. Where it accepts none, because the policy has found a
text that VerifyRM pays or because the rule verifier cannot read the answers, only these labels teach.
The paper has none (docs/concepts/paper_index.md).
"""

from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.domains.base import Domain
from cooper_rl.negatives.pairs import is_rejected
from cooper_rl.schema.data import Verdict, VerifyExample
from cooper_rl.training.negative_sources import ask_judge
from cooper_rl.training.rollout import Group, Scores, places_of
from cooper_rl.verdicts.hybrid import Judge, JudgeItem


class Audit(NamedTuple):
    """Labelled rollouts, and the judge's calls for them."""

    examples: list[VerifyExample]
    """Those with a label, the best paid first."""
    num_judged: int
    """Rollouts that the judge was asked about."""
    num_unanswered: int
    """Those of them that it could not be asked about."""


def audit(groups: Sequence[Group], scores: Scores, judge: Judge | None, domain: Domain, count: int) -> Audit:
    """Label the best paid rollout of each problem, of at most `count` problems.

    Args:
        groups: Rollouts of the step.
        scores: What VerifyRM and the rule verifier say of them.
        judge: Asked about every chosen rollout; None: rule verifier and mention check alone.
        domain: Has the mention check.
        count: Most rollouts.
    """
    best: list[tuple[float, Verdict, JudgeItem]] = []
    for group, places in places_of(groups):
        place = max(places, key=scores.verify_rm.__getitem__)
        text = group.texts[places.index(place)]
        item = JudgeItem(group.problem.question, group.problem.reference_answer, text)
        best.append((scores.verify_rm[place], scores.rule[place], item))
    chosen = sorted(best, key=lambda each: -each[0])[:count]
    judged = ask_judge(judge, [item for _, _, item in chosen])
    examples = [
        _labelled(rule, verdict, item, domain)
        for (_, rule, item), verdict in zip(chosen, judged.verdicts, strict=True)
    ]
    labelled = [example for example in examples if example is not None]
    return Audit(labelled, judged.num_asked, judged.num_unanswered)


def _labelled(rule: Verdict, judged: Verdict, item: JudgeItem, domain: Domain) -> VerifyExample | None:
    """Right where the rule verifier accepts, or abstains and the judge accepts; wrong where two reject."""
    mention = domain.check_mention(item.question, item.reference_answer, item.completion)
    is_right = rule == "correct" or (rule == "unparsable" and judged == "correct")
    if not is_right and not is_rejected([rule, judged, mention]):
        return None
    return VerifyExample(
        question=item.question,
        reference_answer=item.reference_answer,
        completion=item.completion.strip(),
        label=1 if is_right else 0,
        source="audit",
    )
