"""Votes on a few completions: kept as they come, asked for again where a request failed."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from cooper_rl.config.data import LabelingConfig, RuleConfig
from cooper_rl.domains.base import Domain
from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.domains.programs import PROGRAMS
from cooper_rl.errors import DataError, ServerError
from cooper_rl.schema.reports import JudgeUsage
from cooper_rl.verdicts.hybrid import JudgeItem, JudgeResult
from cooper_rl.verdicts.journal import Journal, KeptVerdict
from cooper_rl.verdicts.verifier import AnswerItem
from cooper_rl.verdicts.votes import Electorate, collect_votes
from tests.verdicts.killing import killing


class SilentJudge:
    """Streams no verdict at all, against the protocol."""

    def announce(self, items: Iterable[JudgeItem], *, is_most: bool = False) -> str:
        return ""

    name = identity = "silent"
    usage = JudgeUsage(
        num_requests=0, num_retries=0, num_failed=0, prompt_tokens=0, completion_tokens=0, seconds=0
    )

    def judge(self, items: Sequence[JudgeItem]) -> list[JudgeResult]:
        return []

    def stream(self, items: Sequence[JudgeItem]) -> Iterator[tuple[int, JudgeResult]]:
        return iter(())


def test_a_judge_that_leaves_out_an_item_is_an_error(tmp_path: Path) -> None:
    items = [JudgeItem("What is 1+1?", "2", "#### 2")]
    with (
        Journal(tmp_path / "journal") as journal,
        pytest.raises(DataError, match=r"was asked for and not given; remove the journal and start again"),
    ):
        ask_all(items, LabelingConfig(), judge=SilentJudge(), third_judge=None, journal=journal)


class UnsteadyJudge:
    """Fails where the completion is in `broken`, agrees otherwise; counts what it is asked."""

    name = "unsteady"

    def __init__(self, *broken: str, failure: Literal["refused", "unreachable"], identity: str = "1") -> None:
        self.identity = identity
        self.asked: list[str] = []
        self._broken = broken
        self._failure: Literal["refused", "unreachable"] = failure

    def judge(self, items: Sequence[JudgeItem]) -> list[JudgeResult]:
        self.asked += [item.completion for item in items]
        return [
            JudgeResult("unparsable", "no answer: ConnectError", self._failure)
            if item.completion in self._broken
            else JudgeResult("correct", "it is")
            for item in items
        ]


ITEMS = [JudgeItem("What is 1+1?", "2", text) for text in ("#### 2", "\\boxed{2}", "It is 2")]


def ask_all(items: Sequence[JudgeItem], config: LabelingConfig, *, finish_reasons=None, **voters):
    """All votes with the rule verifier of mathematics."""
    verifier = MATHEMATICS.open_verifier(config.rule)
    verdict_name = MATHEMATICS.name_verdicts(config.rule)
    electorate = Electorate(config, verifier=verifier, verdict_name=verdict_name, **voters)
    return collect_votes(items, electorate, finish_reasons=finish_reasons)


def ask(journal: Path, judge: UnsteadyJudge) -> list[str | None]:
    with Journal(journal) as kept:
        ballot = ask_all(ITEMS, LabelingConfig(), judge=judge, third_judge=None, journal=kept)
    return [votes.judge.verdict if votes.judge else None for votes in ballot.votes]


def test_a_failed_request_is_no_verdict_and_the_next_run_asks_again(tmp_path: Path) -> None:
    judge = UnsteadyJudge("#### 2", failure="unreachable")
    assert ask(tmp_path / "journal", judge) == ["unparsable", "correct", "correct"]
    second = UnsteadyJudge(failure="unreachable")
    assert ask(tmp_path / "journal", second) == ["correct"] * 3
    assert second.asked == ["#### 2"]
    third = UnsteadyJudge(failure="unreachable")
    assert ask(tmp_path / "journal", third) == ["correct"] * 3
    assert third.asked == []


def test_a_run_in_which_every_request_fails_is_an_error_and_keeps_nothing(tmp_path: Path) -> None:
    texts = [item.completion for item in ITEMS]
    with pytest.raises(ServerError, match=r"judge unsteady: all 3 requests failed, last: no answer: Conn"):
        ask(tmp_path / "journal", UnsteadyJudge(*texts, failure="unreachable"))
    assert ask(tmp_path / "journal", UnsteadyJudge("#### 2", failure="refused"))[0] == "unparsable"
    # What is left over is refused for good: the run goes on; a server that is down still ends it.
    assert ask(tmp_path / "journal", UnsteadyJudge("#### 2", failure="refused"))[0] == "unparsable"
    with pytest.raises(ServerError, match=r"all 1 requests failed"):
        ask(tmp_path / "journal", UnsteadyJudge("#### 2", failure="unreachable"))


def test_another_judge_of_the_same_name_meets_no_kept_verdict(tmp_path: Path) -> None:
    ask(tmp_path / "journal", UnsteadyJudge(failure="refused"))
    other = UnsteadyJudge(failure="refused", identity="2")
    ask(tmp_path / "journal", other)
    assert len(other.asked) == 3


def test_another_version_of_the_rule_gives_its_verdicts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_kept() -> int:
        with Journal(tmp_path / "journal") as journal:
            ask_all(ITEMS, LabelingConfig(), judge=None, third_judge=None, journal=journal)
        return len((tmp_path / "journal").read_text().splitlines())

    assert [count_kept(), count_kept()] == [3, 3]
    monkeypatch.setattr("cooper_rl.domains.mathematics.version", lambda package: f"{package} of tomorrow")
    assert [count_kept(), count_kept()] == [6, 6]


def test_a_second_judge_is_asked_only_where_rule_and_judge_differ(tmp_path: Path) -> None:
    """The judge calls both correct: the rule agrees once."""
    items = [JudgeItem("What is 1+1?", "2", "#### 2"), JudgeItem("What is 1+1?", "2", "#### 3")]
    judge, second = (UnsteadyJudge(failure="refused", identity=name) for name in ("1", "2"))
    with Journal(tmp_path / "journal") as journal:
        votes = ask_all(items, LabelingConfig(), judge=judge, third_judge=second, journal=journal).votes
    assert [vote.third_voter for vote in votes] == [None, "unsteady"]
    assert second.asked == ["#### 3"]


SLOW_PROGRAM = "def f(a):\n    for number in range(3 * 10**7):\n        pass\n    return a"
SLOW = {
    MATHEMATICS: (JudgeItem("", "1", r"\boxed{\prod_{n=1}^{9999} (x+n)}"), "no verdict within 1 s"),
    PROGRAMS: (JudgeItem("", "f(a=1) == 1", SLOW_PROGRAM), "passes 1 tests"),
}


@pytest.mark.parametrize("domain", SLOW, ids=lambda domain: domain.name)
def test_a_verdict_whose_process_was_killed_is_not_kept_and_the_next_run_asks_again(
    tmp_path: Path, domain: Domain
) -> None:
    """The kill itself was kept, as `unparsable` or `incorrect`, and every later run took it from there."""
    item, reason = SLOW[domain]
    config = LabelingConfig(rule=RuleConfig(num_workers=1, timeout_seconds=1 if domain is MATHEMATICS else 9))

    def ask_once(*, times: int) -> KeptVerdict:
        with domain.open_verifier(config.rule) as verifier, Journal(tmp_path / "journal") as journal:
            verifier.verify([AnswerItem("x+1", r"\boxed{1+x}"), AnswerItem("f(1) == 1", "return 1")])
            electorate = Electorate(config, verifier, domain.name_verdicts(config.rule), None, None, journal)
            with killing(verifier, times=times):
                return collect_votes([item], electorate).votes[0].rule

    lost = ask_once(times=9)
    assert (lost.verdict, lost.reason) == ("unparsable", "no verdict: its process was killed by SIGKILL")
    assert (tmp_path / "journal").read_text() == ""
    assert ask_once(times=0).reason == reason
    assert reason in (tmp_path / "journal").read_text()


def test_the_question_and_how_a_completion_ended_count(tmp_path: Path) -> None:
    question = "What is 6 x 7? (A) 40 (B) 42 (C) 44"
    items = [JudgeItem(question, "42", "#### B"), JudgeItem("What is 6 x 7?", "42", "#### B")]
    items += [JudgeItem("What is 6 x 7?", "4", "#### 4")] * 2
    with Journal(tmp_path / "journal") as journal:
        votes = ask_all(
            items,
            LabelingConfig(),
            judge=None,
            third_judge=None,
            journal=journal,
            finish_reasons=["stop", "stop", "stop", "length"],
        ).votes
    assert [vote.rule.verdict for vote in votes] == ["correct", "unparsable", "correct", "unparsable"]
