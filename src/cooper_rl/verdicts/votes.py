"""The votes on each completion (row 3): rule verdict, judge verdict, third vote where the two differ.

Each is kept in the journal as it comes, and taken from there when it is known; a request that failed, or a
check whose process was killed, is no verdict, and the next run asks again. `verdicts/hybrid.py` makes a label
of them.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cooper_rl.config.data import LabelingConfig
from cooper_rl.errors import DataError
from cooper_rl.progress import Progress
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import FinishReason, JudgeVote
from cooper_rl.verdicts.hybrid import (
    Decision,
    Judge,
    JudgeItem,
    JudgeResult,
    StreamingJudge,
    check_judged,
    decide,
    needs_third_vote,
)
from cooper_rl.verdicts.journal import Journal, KeptVerdict, verdict_key
from cooper_rl.verdicts.panel import take_majority
from cooper_rl.verdicts.verifier import AnswerItem, Unkept, Verifier

logger = logging.getLogger(__name__)

CHUNK_SIZE = 512
"""Completions per call of the rule verifier: what is kept in one go."""


class Votes(NamedTuple):
    """The votes on one completion; None when nobody was asked."""

    rule: KeptVerdict
    judge: KeptVerdict | None
    third: KeptVerdict | None
    third_voter: str | None
    panel: tuple[JudgeVote, ...] = ()
    """Each judge's verdict, in their order; `judge` is the majority."""

    def decide(self, config: LabelingConfig) -> Decision:
        """The label that they make."""
        judge = self.judge.verdict if self.judge else None
        third = self.third.verdict if self.third else None
        return decide(self.rule.verdict, judge, third, unparsable_rule=config.unparsable_rule)


class Electorate(NamedTuple):
    """Everybody who may be asked, and the settings that say about which completions."""

    config: LabelingConfig
    verifier: Verifier
    """The rule verifier."""
    verdict_name: str
    """Names everything that its verdicts depend on beside the texts (`Domain.name_verdicts`)."""
    judge: Judge | None
    """None: nobody is asked."""
    third_judge: Judge | None
    """Asked where rule verifier and judge differ; None: nobody is."""
    journal: Journal
    """Known verdicts, and where new ones are kept."""
    other_judges: Sequence[Judge] = ()
    """Asked about the same completions as `judge`; the majority is the judge verdict."""


class Batch(NamedTuple):
    """Completions, and how each ended."""

    items: Sequence[JudgeItem]
    finish_reasons: Sequence[FinishReason | None]


class Ballot(NamedTuple):
    """All votes, in the order of the items, and how many judge verdicts were known before."""

    votes: list[Votes]
    num_known: int


def collect_votes(
    items: Sequence[JudgeItem],
    electorate: Electorate,
    *,
    finish_reasons: Sequence[FinishReason | None] | None = None,
    answered: Collection[str] = (),
    is_announced: bool = False,
) -> Ballot:
    """Ask the rule verifier, the judge as `config.judge_asked` says, and where they differ the second one.

    Args:
        items: Completions.
        electorate: Everybody who may be asked.
        finish_reasons: How each completion ended, in the order of the items.
        answered: Identities of judges that answered earlier in this run.
        is_announced: Whether `announce_votes` said already what these take.

    Raises:
        ServerError: a judge cannot be used.
    """
    judge, third_judge, journal = electorate.judge, electorate.third_judge, electorate.journal
    batch = Batch(items, finish_reasons or [None] * len(items))
    if not is_announced:
        announce_votes(lambda: [batch], electorate)
    rule = _ask_verifier(batch, electorate)
    votes = [Votes(ours, None, None, None) for ours in rule]
    num_known = 0
    if judge is not None:
        asked = _find_asked(rule, items, electorate.config)
        panel = [judge, *electorate.other_judges]
        num_known = _ask_panel(panel, votes, asked, items, journal, answered=answered)
    split = [
        index
        for index, vote in enumerate(votes)
        if needs_third_vote(vote.rule.verdict, vote.judge.verdict if vote.judge else None)
    ]
    if third_judge is not None:
        found, known_too = _ask_judge(
            [items[index] for index in split], third_judge, journal, answered=answered
        )
        num_known += known_too
        for index, vote in zip(split, found, strict=True):
            votes[index] = votes[index]._replace(third=vote, third_voter=third_judge.name)
    return Ballot(votes, num_known)


def announce_votes(
    read_batches: Callable[[], Iterable[Batch]],
    electorate: Electorate,
    *,
    is_new: Callable[[str], bool] | None = None,
) -> None:
    """Say for each judge, before any is asked, what that takes. The rule verdicts, which tell who is asked
    about what, are given on the way and kept.

    Args:
        read_batches: All completions, from the start; called once for each judge.
        electorate: Everybody who may be asked.
        is_new: Whether a key is seen for the first time; None: they are kept in memory.
    """
    judge, third_judge, journal = electorate.judge, electorate.third_judge, electorate.journal
    if judge is None:
        return
    seen: set[str] = set()

    def is_first(key: str) -> bool:
        is_known = key in seen
        seen.add(key)
        return not is_known

    def read_asked(*, is_decisive: bool) -> Iterator[JudgeItem]:
        """The items to ask about; for the third vote, those that the rule verifier decides, since no others
        can be split."""
        for batch in read_batches():
            rule = _ask_verifier(batch, electorate)
            for index in _find_asked(rule, batch.items, electorate.config):
                if not is_decisive or rule[index].verdict != "unparsable":
                    yield batch.items[index]

    for member in (judge, *electorate.other_judges):
        _announce(member, read_asked(is_decisive=False), journal, is_new=is_new or is_first)
    if third_judge is not None:
        _announce(third_judge, read_asked(is_decisive=True), journal, is_new=is_new or is_first, is_most=True)


def _find_asked(rule: Sequence[KeptVerdict], items: Sequence[JudgeItem], config: LabelingConfig) -> list[int]:
    """The completions that the judges see."""
    return [
        index
        for index, vote in enumerate(rule)
        if config.judge_asked == "always" or vote.verdict == "unparsable" or _is_audited(items[index], config)
    ]


def _is_audited(item: JudgeItem, config: LabelingConfig) -> bool:
    """True by a hash of the texts: the same rows are audited in every run."""
    return derive_seed("audit", *item) / 2**63 < config.audit_fraction


def _ask_verifier(batch: Batch, electorate: Electorate) -> list[KeptVerdict]:
    verifier, journal = electorate.verifier, electorate.journal
    answers = [
        AnswerItem(item.reference_answer, item.completion, item.question, reason)
        for item, reason in zip(*batch, strict=True)
    ]
    voter = f"rule:{electorate.verdict_name}"
    keys = [verdict_key(voter, *(part or "" for part in answer)) for answer in answers]
    unknown = [index for index, key in enumerate(keys) if journal.recall(key) is None]
    progress = Progress("rule_verdicts", len(answers), logger)
    if unknown:
        progress.advance(len(answers) - len(unknown))
    lost: dict[str, KeptVerdict] = {}
    for chunk in _chunks(unknown):
        checks = verifier.verify([answers[index] for index in chunk])
        for index, check in zip(chunk, checks, strict=True):
            if isinstance(check, Unkept):
                lost[keys[index]] = KeptVerdict(check.verdict, check.reason)
            else:
                journal.keep(keys[index], check.verdict, check.reason)
        progress.advance(len(chunk))
    return [_recall(journal, key, lost) for key in keys]


def _announce(
    judge: Judge,
    items: Iterable[JudgeItem],
    journal: Journal,
    *,
    is_new: Callable[[str], bool],
    is_most: bool = False,
) -> None:
    """`is_most`: only some of the items may be asked about."""
    num_known = 0

    def read_unknown() -> Iterator[JudgeItem]:
        nonlocal num_known
        for item in items:
            key = verdict_key(f"judge:{judge.identity}", *item)
            if journal.recall(key) is None and is_new(key):
                yield item
            else:
                num_known += 1

    if isinstance(judge, StreamingJudge):
        takes = judge.announce(read_unknown(), is_most=is_most)
    else:
        takes = f"{'at most' if is_most else 'about'} {sum(1 for _ in read_unknown())} requests"
    logger.info("judge %s: %d verdicts are known or asked for once; %s", judge.name, num_known, takes)


def _ask_panel(
    panel: Sequence[Judge],
    votes: list[Votes],
    asked: Sequence[int],
    items: Sequence[JudgeItem],
    journal: Journal,
    *,
    answered: Collection[str],
) -> int:
    """Ask every judge about the same completions and note the majority in `votes`; how many were known."""
    total = 0
    for member in panel:
        answers, num_known = _ask_judge([items[index] for index in asked], member, journal, answered=answered)
        total += num_known
        for index, vote in zip(asked, answers, strict=True):
            said = JudgeVote(
                voter=member.name, verdict=vote.verdict, reason=vote.reason, failure=vote.failure
            )
            votes[index] = votes[index]._replace(panel=(*votes[index].panel, said))
    for index in asked:
        votes[index] = votes[index]._replace(judge=take_majority(votes[index].panel))
    return total


def _ask_judge(
    items: Sequence[JudgeItem], judge: Judge, journal: Journal, *, answered: Collection[str]
) -> tuple[list[KeptVerdict], int]:
    keys = [verdict_key(f"judge:{judge.identity}", *item) for item in items]
    # By key: equal texts are one request.
    unknown = list({key: index for index, key in enumerate(keys) if journal.recall(key) is None}.values())
    known = [kept for key in keys if (kept := journal.recall(key)) is not None]
    num_known = sum(not kept.is_new for kept in known)
    asked: list[JudgeResult] = []
    failed: dict[str, KeptVerdict] = {}
    for place, result in _stream(judge, [items[index] for index in unknown]):
        asked.append(result)
        if result.failure is None:
            journal.keep(keys[unknown[place]], result.verdict, result.reason)
        else:
            failed[keys[unknown[place]]] = KeptVerdict(result.verdict, result.reason, result.failure)
    if judge.identity not in answered:
        check_judged(asked, judge=judge.name, was_answered_before=bool(known))
    return [failed[key] if key in failed else _recall(journal, key, {}) for key in keys], num_known


def _stream(judge: Judge, items: Sequence[JudgeItem]) -> Iterator[tuple[int, JudgeResult]]:
    if isinstance(judge, StreamingJudge):
        yield from judge.stream(items)
        return
    for chunk in _chunks(range(len(items))):
        yield from zip(chunk, judge.judge([items[index] for index in chunk]), strict=True)


def _recall(journal: Journal, key: str, lost: Mapping[str, KeptVerdict]) -> KeptVerdict:
    kept = journal.recall(key) or lost.get(key)
    if kept is None:
        raise DataError(
            f"journal: verdict {key} was asked for and not given; remove the journal and start again"
        )
    return kept


def _chunks(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(indices), CHUNK_SIZE):
        yield indices[start : start + CHUNK_SIZE]
