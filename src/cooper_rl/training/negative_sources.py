"""The sources of negatives (row 11): one class for every source, found by its name in the configuration.

`Writing` is the source made of a writer against positives, whose texts the rule verifier must call incorrect;
`OwnRollouts` takes the policy's own wrong rollouts. A program registers its own in `NEGATIVE_SOURCES`.
"""

import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cooper_rl.config import names
from cooper_rl.config.cooper import CooperConfig
from cooper_rl.domains.base import Domain
from cooper_rl.errors import ServerError
from cooper_rl.machine.daemon_pool import DaemonPool
from cooper_rl.negatives.pairs import (
    Assistant,
    RemoteAssistant,
    RewriteItem,
    is_rejected,
    is_valid_negative,
)
from cooper_rl.randomness import derive_seed
from cooper_rl.redteam.negatives import AttackWriter
from cooper_rl.registry import Registry
from cooper_rl.schema.data import Verdict
from cooper_rl.training.rollout import Group, Scores, places_of
from cooper_rl.verdicts.hybrid import Judge, JudgeItem
from cooper_rl.verdicts.verifier import AnswerItem, Verifier

logger = logging.getLogger(__name__)


class Found(NamedTuple):
    """Negatives of one source, with what they cost."""

    texts: dict[str, str]
    """Problem id -> a text that is wrong; a problem without one asks its next source."""
    num_rewrites: int = 0
    """Requests to an assistant."""
    num_unanswered: int = 0
    """Requests to an assistant or judge that came to nothing."""
    num_judged: int = 0
    """Rollouts that a judge was asked about."""


class NegativeSource(Protocol):
    """Finds wrong texts for problems that have a correct one, and answers for their being wrong."""

    @property
    def label(self) -> str:
        """Written into every pair: the source's name, or its name, a colon and a model (`assistant:M`)."""
        ...

    def find(
        self, items: Sequence[RewriteItem], groups: Sequence[Group], scores: Scores, *, seed: int
    ) -> Found:
        """At most one negative for each item.

        Args:
            items: Problems with the positive that the negative stands against.
            groups: All rollouts of the step.
            scores: What the verifiers say of them.
            seed: Of the step; the same seed and items give the same texts.
        """
        ...


class SourceContext(NamedTuple):
    """Whom a source may ask."""

    config: CooperConfig
    domain: Domain
    rule: Verifier
    assistant: Assistant | None
    """None when `negatives.assistant` is 0."""
    judge: Judge | None
    """Second verifier of rollouts; without it, rule verifier and mention check must both reject."""
    attacks: Sequence[str] = ()
    """Texts of the red team; needed where `negatives.red_team` is above 0."""


NEGATIVE_SOURCES: Registry[Callable[[SourceContext], NegativeSource]] = Registry(names.NEGATIVE_SOURCES)
"""Name in `cooper.pairs.negatives` -> what makes the source."""


@dataclass(frozen=True)
class Writing:
    """A source whose writer rewrites positives; the rule verifier must call the text incorrect."""

    label: str
    writer: Assistant
    rule: Verifier
    max_attempts: int = 1
    """Texts asked for per positive before the source gives up."""
    is_known_wrong: bool = False
    """The texts are wrong by construction: they only must not be right by chance."""
    is_counted: bool = False
    """Its texts cost requests, which the step counts."""

    def find(
        self, items: Sequence[RewriteItem], groups: Sequence[Group], scores: Scores, *, seed: int
    ) -> Found:
        """See `NegativeSource.find`.

        Local writers are asked for all items together. Behind a network every item has its attempts on its
        own, so that none waits for the slowest of the others.
        """
        if not isinstance(self.writer, RemoteAssistant):
            written = [self._write(items, seed)]
        else:
            self.writer.begin()
            with DaemonPool(self.writer.max_concurrency, "negatives") as threads:
                written = list(threads.map(lambda item: self._write([item], seed), items))
        failure = next((part.failure for part in written if part.failure is not None), None)
        if failure is not None:
            logger.warning("this step asks its other sources for negatives: %s", failure)
        texts = {problem_id: text for part in written for problem_id, text in part.texts.items()}
        if not self.is_counted:
            return Found(texts)
        return Found(
            texts,
            num_rewrites=sum(part.num_rewrites for part in written),
            num_unanswered=sum(part.num_unanswered for part in written),
        )

    def _write(self, items: Sequence[RewriteItem], seed: int) -> "_Written":
        found: dict[str, str] = {}
        num_rewrites = num_unanswered = 0
        failure = None
        for attempt in range(self.max_attempts):
            waiting = [item for item in items if item.problem_id not in found]
            if not waiting:
                break
            num_rewrites += len(waiting)
            try:
                # With its own seed: with the same one a writer gives the text that was just refused.
                texts = self.writer.rewrite(waiting, seed=derive_seed(seed, "rewrite", attempt))
            except ServerError as error:
                num_unanswered += len(waiting)
                failure = error
                break
            answered = [
                (item, text.strip()) for item, text in zip(waiting, texts, strict=True) if text is not None
            ]
            num_unanswered += len(waiting) - len(answered)
            # With the question, as rollouts are checked: only its choices tell that `5` is right where the
            # reference answer is `B`, and only the digits that it asks for, that `12` is where it is 12.37.
            checks = self.rule.verify(
                [AnswerItem(item.reference_answer, text, item.question) for item, text in answered]
            )
            found |= {
                item.problem_id: text
                for (item, text), check in zip(answered, checks, strict=True)
                if is_valid_negative(check.verdict, is_known_wrong=self.is_known_wrong)
            }
        return _Written(found, num_rewrites, num_unanswered, failure)


class _Written(NamedTuple):
    texts: dict[str, str]
    num_rewrites: int
    num_unanswered: int
    failure: ServerError | None
    """Why nothing more was asked."""


class Judged(NamedTuple):
    """Verdicts of a judge that may be missing or out of reach."""

    verdicts: list[Verdict]
    """Abstentions where nobody answered."""
    num_asked: int = 0
    """Rollouts that a judge was asked about; 0 without one."""
    num_unanswered: int = 0


def ask_judge(judge: Judge | None, items: Sequence[JudgeItem]) -> Judged:
    """Ask about every item; a server that cannot be used is logged, and abstains."""
    if judge is None or not items:
        return Judged(["unparsable"] * len(items))
    try:
        results = judge.judge(items)
    except ServerError as error:
        logger.warning("this step's rollouts are not judged: %s", error)
        return Judged(["unparsable"] * len(items), len(items), len(items))
    failures = sum(result.failure is not None for result in results)
    return Judged([result.verdict for result in results], len(items), failures)


@dataclass(frozen=True)
class OwnRollouts:
    """The policy's own wrong rollout that VerifyRM scores highest, of those that verifiers looked at."""

    context: SourceContext
    label: str = "rollout"

    def find(
        self, items: Sequence[RewriteItem], groups: Sequence[Group], scores: Scores, *, seed: int
    ) -> Found:
        """See `NegativeSource.find`."""
        candidates = self._candidates({item.problem_id for item in items}, groups, scores)
        judged = ask_judge(self.context.judge, [candidate.item for candidate in candidates])
        found: dict[str, str] = {}
        for (problem_id, item, rule, _), verdict in zip(candidates, judged.verdicts, strict=True):
            mention = self.context.domain.check_mention(item.question, item.reference_answer, item.completion)
            if problem_id not in found and is_rejected([rule, verdict, mention]):
                found[problem_id] = item.completion.strip()
        return Found(found, num_unanswered=judged.num_unanswered, num_judged=judged.num_asked)

    def _candidates(
        self, problem_ids: Set[str], groups: Sequence[Group], scores: Scores
    ) -> list["_Candidate"]:
        """The best paid texts of each problem that may be rejected, by falling score."""
        wrong: dict[str, dict[str, _Candidate]] = {}
        for group, places in places_of(groups):
            # A problem drawn twice in a step has one pair, from all of its rollouts.
            texts = wrong.setdefault(group.problem.id, {})
            for text, place in zip(group.texts, places, strict=True):
                score, rule = scores.verify_rm[place], scores.rule[place]
                item = JudgeItem(group.problem.question, group.problem.reference_answer, text)
                # Copies of one text, which is what a hack looks like, must not take the places of others. The
                # rule verifier may abstain on one of them alone, which ended at the token limit.
                known = texts.get(text.strip())
                if known is None or (known.rule == "unparsable" and rule != "unparsable"):
                    texts[text.strip()] = _Candidate(group.problem.id, item, rule, score)
        # Two verifiers must reject a negative. Without a judge, the rule verifier is one of them.
        possible = {"incorrect"} if self.context.judge is None else {"incorrect", "unparsable"}
        count = self.context.config.pairs.negatives.max_candidates
        return [
            candidate
            for problem_id, texts in wrong.items()
            if problem_id in problem_ids
            for candidate in sorted(
                (each for each in texts.values() if each.rule in possible), key=lambda each: -each.score
            )[:count]
        ]


class _Candidate(NamedTuple):
    """A rollout that may be a negative."""

    problem_id: str
    item: JudgeItem
    rule: Verdict
    score: float


def _assistant(context: SourceContext) -> NegativeSource:
    assert context.assistant is not None, "the configuration asks for an assistant"
    attempts = context.config.pairs.max_attempts
    label = f"assistant:{context.assistant.name}"
    return Writing(label, context.assistant, context.rule, max_attempts=attempts, is_counted=True)


def _perturb(context: SourceContext) -> NegativeSource:
    return Writing("perturb", context.domain.perturber, context.rule)


def _canary(context: SourceContext) -> NegativeSource:
    return Writing("canary", context.domain.canary_writer, context.rule, is_known_wrong=True)


def _red_team(context: SourceContext) -> NegativeSource:
    return Writing(
        "red_team", AttackWriter(context.attacks, context.domain), context.rule, is_known_wrong=True
    )


NEGATIVE_SOURCES.register("assistant", _assistant)
NEGATIVE_SOURCES.register("rollout", OwnRollouts)
NEGATIVE_SOURCES.register("perturb", _perturb)
NEGATIVE_SOURCES.register("canary", _canary)
NEGATIVE_SOURCES.register("red_team", _red_team)
