"""Phase 5 of a step: preference pairs from the rollouts (row 11).

Every pair draws the source of its negative (`negative_sources.py`). Whether the negative is wrong is its
source's to show.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.negatives.pairs import Assistant, RewriteItem, draw_order
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import Pairing, PreferencePair, Verdict
from cooper_rl.training.auditing import audit
from cooper_rl.training.negative_sources import NEGATIVE_SOURCES, NegativeSource, SourceContext
from cooper_rl.training.rollout import Group, Scores, places_of
from cooper_rl.verdicts.hybrid import Judge
from cooper_rl.verdicts.verifier import Verifier


@dataclass(frozen=True)
class PairMaker:
    """The sources that are asked for pairs."""

    config: CooperConfig
    rule: Verifier
    assistant: Assistant | None
    """None when `negatives.assistant` is 0."""
    judge: Judge | None
    """Second verifier of rollouts; without it, rule verifier and mention check must both reject."""
    domain: Domain = field(default_factory=default_domain)
    attacks: Sequence[str] = ()
    """Texts of the red team; needed where `negatives.red_team` is above 0."""

    def make(self, groups: Sequence[Group], scores: Scores, *, step: int, seed: int) -> Pairing:
        """Up to `pairs_per_problem` pairs for every problem with a positive, each of another source.

        Both halves lose white space at their ends: which half ends in a newline must not tell them apart.
        Where a source gives nothing, the next one is asked: a server that is down costs no step.

        Args:
            groups: Rollouts of the step.
            scores: What the verifiers say of them.
            step: Written into the pairs.
            seed: Of the choice of positives and sources, and of the rewrites.
        """
        positives = _choose_positives(groups, scores.rule, seed=seed)
        weights = self.config.pairs.negatives.weights()
        orders = {
            item.problem_id: draw_order(weights, random.Random(derive_seed(seed, "source", item.problem_id)))
            for item in positives
        }
        counts: Counter[str] = Counter()
        pairs: list[PreferencePair] = []
        for turn in range(len(self._sources)):
            num_pairs = Counter(pair.problem_id for pair in pairs)
            waiting = [
                item
                for item in positives
                if turn < len(orders[item.problem_id])
                and num_pairs[item.problem_id] < self.config.pairs.per_problem
            ]
            for name, source in self._sources.items():
                asked = [item for item in waiting if orders[item.problem_id][turn] == name]
                if asked:
                    pairs += self._ask(source, asked, groups, scores, counts, step=step, seed=seed)
        pairs.sort(key=lambda pair: (pair.problem_id, pair.source))
        count = self.config.reward.num_audited_rollouts
        audited = audit(groups, scores, self.judge, self.domain, count)
        return Pairing(
            pairs=pairs,
            audited=audited.examples,
            num_positives=len(positives),
            num_rewrites=counts["rewrites"],
            num_unanswered=counts["unanswered"] + audited.num_unanswered,
            num_judged_pairs=counts["judged"],
            num_judged_audits=audited.num_judged,
        )

    @cached_property
    def _sources(self) -> dict[str, NegativeSource]:
        """The sources with a weight, in the order of their names' declaration."""
        context = SourceContext(self.config, self.domain, self.rule, self.assistant, self.judge, self.attacks)
        weights = self.config.pairs.negatives.weights()
        return {name: NEGATIVE_SOURCES[name](context) for name, weight in weights.items() if weight > 0}

    def _ask(
        self,
        source: NegativeSource,
        items: Sequence[RewriteItem],
        groups: Sequence[Group],
        scores: Scores,
        counts: Counter[str],
        *,
        step: int,
        seed: int,
    ) -> list[PreferencePair]:
        """At most one pair for each item, from one source."""
        found = source.find(items, groups, scores, seed=seed)
        counts["rewrites"] += found.num_rewrites
        counts["unanswered"] += found.num_unanswered
        counts["judged"] += found.num_judged
        return [
            PreferencePair(
                step=step,
                problem_id=item.problem_id,
                question=item.question,
                reference_answer=item.reference_answer,
                positive=item.solution.strip(),
                negative=found.texts[item.problem_id],
                source=source.label,
            )
            for item in items
            if item.problem_id in found.texts
        ]


def _choose_positives(
    groups: Sequence[Group], verdicts: Sequence[Verdict], *, seed: int
) -> list[RewriteItem]:
    """One rule-correct rollout of every problem that has any."""
    items: dict[str, RewriteItem] = {}
    for group, places in places_of(groups):
        correct = [
            text for text, place in zip(group.texts, places, strict=True) if verdicts[place] == "correct"
        ]
        if correct and group.problem.id not in items:
            chosen = random.Random(derive_seed(seed, "positive", group.problem.id)).choice(correct)
            items[group.problem.id] = RewriteItem(
                group.problem.id, group.problem.question, group.problem.reference_answer, chosen
            )
    return list(items.values())
