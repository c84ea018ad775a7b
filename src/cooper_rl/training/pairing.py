"""Phase 5 of a step: preference pairs from the rollouts (row 11).

Every pair draws the source of its negative. Four sources write a text against a positive
(`core.pairs.Assistant`), which the rule verifier must call incorrect; the fifth is the policy's own rollout.
"""

import logging
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.errors import ServerError
from cooper_rl.negatives.canaries import CanaryWriter
from cooper_rl.negatives.mention import check_mention
from cooper_rl.negatives.pairs import (
    SOURCES,
    Assistant,
    NegativeSource,
    RemoteAssistant,
    RewriteItem,
    draw_order,
    is_rejected,
    is_valid_negative,
)
from cooper_rl.negatives.perturb import Perturber
from cooper_rl.randomness import derive_seed
from cooper_rl.redteam.negatives import AttackWriter
from cooper_rl.schema.data import Pairing, PreferencePair, Verdict
from cooper_rl.training.rollout import RolloutGroup, Scores
from cooper_rl.verdicts.hybrid import Judge, JudgeItem
from cooper_rl.verdicts.rule import RuleVerifier

logger = logging.getLogger(__name__)


class _Written(NamedTuple):
    texts: dict[str, str]
    """Problem id -> a text that is wrong."""
    num_rewrites: int
    num_unanswered: int
    failure: ServerError | None
    """Why nothing more was asked."""


@dataclass(frozen=True)
class PairMaker:
    """Who is asked for pairs."""

    config: CooperConfig
    rule: RuleVerifier
    assistant: Assistant | None
    """None when `negatives.assistant` is 0."""
    judge: Judge | None
    """Second verifier of rollouts; without it, rule verifier and mention check must both reject."""
    attacks: Sequence[str] = ()
    """Texts of the red team; needed where `negatives.red_team` is above 0."""

    def make(self, groups: Sequence[RolloutGroup], scores: Scores, *, step: int, seed: int) -> Pairing:
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
        for turn in range(len(SOURCES)):
            num_pairs = Counter(pair.problem_id for pair in pairs)
            waiting = [
                item
                for item in positives
                if turn < len(orders[item.problem_id])
                and num_pairs[item.problem_id] < self.config.pairs.per_problem
            ]
            for source in SOURCES:
                asked = [item for item in waiting if orders[item.problem_id][turn] == source]
                if asked:
                    pairs += self._ask(source, asked, groups, scores, counts, step=step, seed=seed)
        pairs.sort(key=lambda pair: (pair.problem_id, pair.source))
        return Pairing(
            pairs=pairs,
            num_positives=len(positives),
            num_rewrites=counts["rewrites"],
            num_unanswered=counts["unanswered"],
            num_hedged=counts["hedged"],
        )

    def _ask(
        self,
        source: NegativeSource,
        items: Sequence[RewriteItem],
        groups: Sequence[RolloutGroup],
        scores: Scores,
        counts: Counter[str],
        *,
        step: int,
        seed: int,
    ) -> list[PreferencePair]:
        """At most one pair for each item, from one source."""
        match source:
            case "rollout":
                found = self._find_rollouts(items, groups, scores, counts)
            case "assistant":
                assert self.assistant is not None, "the configuration asks for an assistant"
                attempts = self.config.pairs.max_attempts
                found = self._write(self.assistant, items, counts, max_attempts=attempts, seed=seed)
            case "perturb":
                found = self._write(Perturber(), items, Counter(), max_attempts=1, seed=seed)
            case "canary":
                found = self._write(CanaryWriter(), items, Counter(), max_attempts=1, seed=seed)
            case "red_team":
                found = self._write(AttackWriter(self.attacks), items, Counter(), max_attempts=1, seed=seed)
        name = f"assistant:{self.assistant.name}" if source == "assistant" and self.assistant else source
        return [
            PreferencePair(
                step=step,
                problem_id=item.problem_id,
                question=item.question,
                reference_answer=item.reference_answer,
                positive=item.solution.strip(),
                negative=found[item.problem_id],
                source=name,
            )
            for item in items
            if item.problem_id in found
        ]

    def _write(
        self,
        writer: Assistant,
        items: Sequence[RewriteItem],
        counts: Counter[str],
        *,
        max_attempts: int,
        seed: int,
    ) -> dict[str, str]:
        """Problem id -> a written text that is wrong.

        Local writers are asked for all items together. Behind a network every item has its attempts on its
        own, so that none waits for the slowest of the others.
        """

        def write(asked: Sequence[RewriteItem]) -> _Written:
            return self._write_together(writer, asked, max_attempts=max_attempts, seed=seed)

        if not isinstance(writer, RemoteAssistant):
            written = [write(items)]
        else:
            writer.begin()
            with ThreadPoolExecutor(writer.max_concurrency, thread_name_prefix="negatives") as threads:
                written = list(threads.map(lambda item: write([item]), items))
            counts["hedged"] += writer.num_hedged
        failure = next((part.failure for part in written if part.failure is not None), None)
        if failure is not None:
            logger.warning("this step asks its other sources for negatives: %s", failure)
        counts["rewrites"] += sum(part.num_rewrites for part in written)
        counts["unanswered"] += sum(part.num_unanswered for part in written)
        return {problem_id: text for part in written for problem_id, text in part.texts.items()}

    def _write_together(
        self, writer: Assistant, items: Sequence[RewriteItem], *, max_attempts: int, seed: int
    ) -> _Written:
        found: dict[str, str] = {}
        num_rewrites = num_unanswered = 0
        failure = None
        for attempt in range(max_attempts):
            waiting = [item for item in items if item.problem_id not in found]
            if not waiting:
                break
            num_rewrites += len(waiting)
            try:
                texts = writer.rewrite(waiting, seed=derive_seed(seed, "rewrite", attempt))
            except ServerError as error:
                num_unanswered += len(waiting)
                failure = error
                break
            answered = [
                (item, text.strip()) for item, text in zip(waiting, texts, strict=True) if text is not None
            ]
            num_unanswered += len(waiting) - len(answered)
            checks = self.rule.verify([(item.reference_answer, text) for item, text in answered])
            is_known_wrong = isinstance(writer, CanaryWriter | AttackWriter)
            found |= {
                item.problem_id: text
                for (item, text), check in zip(answered, checks, strict=True)
                if is_valid_negative(check.verdict, is_known_wrong=is_known_wrong)
            }
        return _Written(found, num_rewrites, num_unanswered, failure)

    def _find_rollouts(
        self,
        items: Sequence[RewriteItem],
        groups: Sequence[RolloutGroup],
        scores: Scores,
        counts: Counter[str],
    ) -> dict[str, str]:
        """Problem id -> its wrong rollout that VerifyRM scores highest, of those that verifiers looked at."""
        asked = {item.problem_id for item in items}
        candidates: list[tuple[JudgeItem, str, Verdict]] = []
        start = 0
        for group in groups:
            places = range(start, start + len(group.texts))
            start += len(group.texts)
            if group.problem.id not in asked:
                continue
            asked.remove(group.problem.id)  # a problem drawn twice in a step has one pair
            wrong = [place for place in places if scores.rule[place] != "correct"]
            wrong.sort(key=lambda place: -scores.verify_rm[place])
            for place in wrong[: self.config.pairs.negatives.max_candidates]:
                text = group.texts[place - places.start]
                item = JudgeItem(group.problem.question, group.problem.reference_answer, text)
                candidates.append((item, group.problem.id, scores.rule[place]))
        verdicts = self._judge([item for item, _, _ in candidates], counts)
        found: dict[str, str] = {}
        for (item, problem_id, rule), judged in zip(candidates, verdicts, strict=True):
            mention = check_mention(item.reference_answer, item.completion)
            if problem_id not in found and is_rejected([rule, judged, mention]):
                found[problem_id] = item.completion.strip()
        return found

    def _judge(self, items: Sequence[JudgeItem], counts: Counter[str]) -> list[Verdict]:
        if self.judge is None or not items:
            return ["unparsable"] * len(items)
        try:
            results = self.judge.judge(items)
        except ServerError as error:
            logger.warning("this step's rollouts are not judged: %s", error)
            counts["unanswered"] += len(items)
            return ["unparsable"] * len(items)
        counts["unanswered"] += sum(result.failure is not None for result in results)
        return [result.verdict for result in results]


def _choose_positives(
    groups: Sequence[RolloutGroup], verdicts: Sequence[Verdict], *, seed: int
) -> list[RewriteItem]:
    """One rule-correct rollout of every problem that has any."""
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
