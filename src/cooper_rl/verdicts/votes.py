"""The votes on each completion (row 3): rule verdict, judge verdict, third vote where the two differ.

Each is kept in the journal as it comes, and taken from there when it is known; a request that failed is no
verdict, and the next run asks again. Deliberately left out: what the votes add up to (`verdicts/hybrid.py`).
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from cooper_rl.config.data import LabelingConfig
from cooper_rl.errors import DataError
from cooper_rl.progress import Progress
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import FinishReason
from cooper_rl.verdicts.hybrid import (
    Judge,
    JudgeItem,
    JudgeResult,
    StreamingJudge,
    check_judged,
    needs_third_vote,
)
from cooper_rl.verdicts.journal import Journal, KeptVerdict, verdict_key
from cooper_rl.verdicts.verifier import AnswerItem, Verifier

logger = logging.getLogger(__name__)

CHUNK_SIZE = 512
"""Completions per call of the rule verifier: what is kept in one go."""
CHARS_PER_TOKEN = 4
"""About, in English; for the estimate of what a judge will cost."""


class Votes(NamedTuple):
    """What was said of one completion; None when nobody was asked."""

    rule: KeptVerdict
    judge: KeptVerdict | None
    third: KeptVerdict | None
    third_voter: str | None


class Ballot(NamedTuple):
    """All votes, in the order of the items, and how many judge verdicts were known before."""

    votes: list[Votes]
    num_known: int


def collect_votes(
    items: Sequence[JudgeItem],
    config: LabelingConfig,
    *,
    verifier: Verifier,
    verdict_name: str,
    judge: Judge | None,
    third_judge: Judge | None,
    journal: Journal,
    finish_reasons: Sequence[FinishReason | None] | None = None,
    answered: Collection[str] = (),
) -> Ballot:
    """Ask the rule verifier, the judge as `config.judge_asked` says, and where they differ the second one.

    Args:
        items: Completions.
        verifier: The rule verifier.
        verdict_name: Names everything that its verdicts depend on beside the texts (`Domain.name_verdicts`).
        judge: None: nobody is asked.
        third_judge: Asked where rule verifier and judge differ; None: nobody is.
        journal: Known verdicts, and where new ones are kept.
        finish_reasons: How each completion ended, in the order of the items.
        answered: Identities of judges that answered earlier in this run.

    Raises:
        ServerError: a judge cannot be used.
    """
    rule = _ask_verifier(
        items, finish_reasons or [None] * len(items), f"rule:{verdict_name}", verifier, journal
    )
    asked = [
        index
        for index, vote in enumerate(rule)
        if config.judge_asked == "always" or vote.verdict == "unparsable" or _is_audited(items[index], config)
    ]
    answers, num_known = _ask_judge([items[index] for index in asked], judge, journal, answered=answered)
    judged: list[KeptVerdict | None] = [None] * len(items)
    for index, vote in zip(asked, answers, strict=True):
        judged[index] = vote
    split = [
        index
        for index, (ours, theirs) in enumerate(zip(rule, judged, strict=True))
        if needs_third_vote(ours.verdict, theirs.verdict if theirs else None)
    ]
    votes = [Votes(ours, theirs, None, None) for ours, theirs in zip(rule, judged, strict=True)]
    if third_judge is not None:
        found, known_too = _ask_judge(
            [items[index] for index in split], third_judge, journal, answered=answered
        )
        num_known += known_too
        for index, vote in zip(split, found, strict=True):
            votes[index] = votes[index]._replace(third=vote, third_voter=third_judge.name)
    return Ballot(votes, num_known)


def _is_audited(item: JudgeItem, config: LabelingConfig) -> bool:
    """By a hash of the texts: the same rows are audited in every run."""
    return derive_seed("audit", *item) / 2**63 < config.audit_fraction


def _ask_verifier(
    items: Sequence[JudgeItem],
    finish_reasons: Sequence[FinishReason | None],
    voter: str,
    verifier: Verifier,
    journal: Journal,
) -> list[KeptVerdict]:
    answers = [
        AnswerItem(item.reference_answer, item.completion, item.question, reason)
        for item, reason in zip(items, finish_reasons, strict=True)
    ]
    keys = [verdict_key(voter, *(part or "" for part in answer)) for answer in answers]
    unknown = [index for index, key in enumerate(keys) if journal.recall(key) is None]
    progress = Progress("rule_verdicts", len(items), logger)
    progress.advance(len(items) - len(unknown))
    for chunk in _chunks(unknown):
        checks = verifier.verify([answers[index] for index in chunk])
        for index, check in zip(chunk, checks, strict=True):
            journal.keep(keys[index], check.verdict, check.reason)
        progress.advance(len(chunk))
    return [_recall(journal, key) for key in keys]


def _ask_judge(
    items: Sequence[JudgeItem], judge: Judge | None, journal: Journal, *, answered: Collection[str]
) -> tuple[list[KeptVerdict | None], int]:
    if judge is None:
        return [None] * len(items), 0
    keys = [verdict_key(f"judge:{judge.identity}", *item) for item in items]
    unknown = list({key: index for index, key in enumerate(keys) if journal.recall(key) is None}.values())
    num_known = sum(journal.recall(key) is not None for key in keys)
    num_chars = sum(len(text) for index in unknown for text in items[index])
    logger.info(
        "judge %s: %d verdicts are known, %d to ask for: %d characters, about %d prompt tokens beside the "
        "instructions",
        judge.name,
        num_known,
        len(unknown),
        num_chars,
        num_chars // CHARS_PER_TOKEN,
    )
    asked: list[JudgeResult] = []
    failed: dict[str, KeptVerdict] = {}
    for place, result in _stream(judge, [items[index] for index in unknown]):
        asked.append(result)
        if result.failure is None:
            journal.keep(keys[unknown[place]], result.verdict, result.reason)
        else:
            failed[keys[unknown[place]]] = KeptVerdict(result.verdict, result.reason, result.failure)
    if judge.identity not in answered:
        check_judged(asked, judge=judge.name, was_answered_before=num_known > 0)
    return [failed[key] if key in failed else _recall(journal, key) for key in keys], num_known


def _stream(judge: Judge, items: Sequence[JudgeItem]) -> Iterator[tuple[int, JudgeResult]]:
    if isinstance(judge, StreamingJudge):
        yield from judge.stream(items)
        return
    for chunk in _chunks(range(len(items))):
        yield from zip(chunk, judge.judge([items[index] for index in chunk]), strict=True)


def _recall(journal: Journal, key: str) -> KeptVerdict:
    kept = journal.recall(key)
    if kept is None:
        raise DataError(
            f"journal: verdict {key} was asked for and not given; remove the journal and start again"
        )
    return kept


def _chunks(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(indices), CHUNK_SIZE):
        yield indices[start : start + CHUNK_SIZE]
