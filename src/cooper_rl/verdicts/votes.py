"""The votes on each completion (row 3): rule verdict, judge verdict, third vote where the two differ.

Each is kept in the journal as it comes, and taken from there when it is known; a request that failed is no
verdict, and the next run asks again. Deliberately left out: what the votes add up to (`verdicts/hybrid.py`).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from cooper_rl.config.data import LabelingConfig
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.progress import Progress
from cooper_rl.verdicts.hybrid import (
    Judge,
    JudgeItem,
    JudgeResult,
    StreamingJudge,
    check_judged,
    needs_third_vote,
)
from cooper_rl.verdicts.journal import Journal, KeptVerdict, verdict_key
from cooper_rl.verdicts.verifier import Check, Verifier, VotingVerifier

logger = logging.getLogger(__name__)

CHUNK_SIZE = 512
"""Completions per call of the rule verifier: what is kept in one go."""


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
) -> Ballot:
    """Ask the rule verifier, the judge, and where they differ the third voters.

    Args:
        items: Completions.
        config: Section `labeling`.
        verifier: The rule verifier; closed when it is not needed any more.
        verdict_name: Names everything that its verdicts depend on beside the texts (`Domain.name_verdicts`).
        judge: None: nobody is asked.
        third_judge: Asked where the numeric vote abstains.
        journal: Known verdicts, and where new ones are kept.

    Raises:
        ConfigError: the numeric third vote is configured, and the verifier has none.
        ServerError: a judge cannot be used.
    """
    with closing(verifier):
        rule = _ask_verifier(items, f"rule:{verdict_name}", verifier.verify, journal=journal)
        judged, num_known = _ask_judge(items, judge, journal)
        split = [
            index
            for index, (ours, theirs) in enumerate(zip(rule, judged, strict=True))
            if needs_third_vote(ours.verdict, theirs.verdict if theirs else None)
        ]
        votes = [Votes(ours, theirs, None, None) for ours, theirs in zip(rule, judged, strict=True)]
        if config.third_vote is None:
            return Ballot(votes, num_known)
        if config.third_vote.numeric:
            if not isinstance(verifier, VotingVerifier):
                raise ConfigError(
                    "labeling.third_vote.numeric=true: the verifier of problems.domain has no second vote; "
                    "set it to false and labeling.third_vote.judge"
                )
            chosen = [items[index] for index in split]
            found = _ask_verifier(chosen, f"numeric:{verdict_name}", verifier.vote, journal=journal)
            for index, vote in zip(split, found, strict=True):
                votes[index] = votes[index]._replace(third=vote, third_voter="numeric")
    undecided = [
        index for index in split if (vote := votes[index].third) is None or vote.verdict == "unparsable"
    ]
    if third_judge is not None:
        found, known_too = _ask_judge([items[index] for index in undecided], third_judge, journal)
        num_known += known_too
        for index, vote in zip(undecided, found, strict=True):
            votes[index] = votes[index]._replace(third=vote, third_voter=third_judge.name)
    return Ballot(votes, num_known)


def _ask_verifier(
    items: Sequence[JudgeItem],
    voter: str,
    ask: Callable[[list[tuple[str, str]]], Sequence[Check]],
    *,
    journal: Journal,
) -> list[KeptVerdict]:
    keys = [verdict_key(voter, item.reference_answer, item.completion) for item in items]
    unknown = [index for index, key in enumerate(keys) if journal.recall(key) is None]
    progress = Progress(f"{voter.partition(':')[0]}_verdicts", len(items), logger)
    progress.advance(len(items) - len(unknown))
    for chunk in _chunks(unknown):
        checks = ask([(items[index].reference_answer, items[index].completion) for index in chunk])
        for index, check in zip(chunk, checks, strict=True):
            journal.keep(keys[index], check.verdict, check.reason)
        progress.advance(len(chunk))
    return [_recall(journal, key) for key in keys]


def _ask_judge(
    items: Sequence[JudgeItem], judge: Judge | None, journal: Journal
) -> tuple[list[KeptVerdict | None], int]:
    if judge is None:
        return [None] * len(items), 0
    keys = [verdict_key(f"judge:{judge.identity}", *item) for item in items]
    unknown = list({key: index for index, key in enumerate(keys) if journal.recall(key) is None}.values())
    num_known = sum(journal.recall(key) is not None for key in keys)
    asked: list[JudgeResult] = []
    failed: dict[str, KeptVerdict] = {}
    for place, result in _stream(judge, [items[index] for index in unknown]):
        asked.append(result)
        if result.failure is None:
            journal.keep(keys[unknown[place]], result.verdict, result.reason)
        else:
            failed[keys[unknown[place]]] = KeptVerdict(result.verdict, result.reason)
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
