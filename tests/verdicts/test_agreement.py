"""Agreement of the voters on labels, majorities of judges, and kinds of answers."""

import pytest

from cooper_rl.schema.data import JudgeFailure, JudgeVote, Label, Verdict
from cooper_rl.verdicts.agreement import AgreementCounter
from cooper_rl.verdicts.answer_type import name_answer_type
from cooper_rl.verdicts.journal import KeptVerdict
from cooper_rl.verdicts.panel import take_majority

YES, NO, NONE = "correct", "incorrect", "unparsable"


def labelled(
    rule: Verdict, judge: Verdict | None, third: Verdict | None = None, *, is_correct: bool | None
) -> Label:
    return Label(
        completion_id="c", rule=rule, rule_reason="", judge=judge, judge_model=None, third=third,
        is_correct=is_correct, reason="",
    )  # fmt: skip


def said(*verdicts: Verdict, failures: tuple[JudgeFailure | None, ...] = (None,) * 9) -> list[JudgeVote]:
    return [
        JudgeVote(voter=f"j{place}", verdict=verdict, reason=f"r{place}", failure=failures[place])
        for place, verdict in enumerate(verdicts)
    ]


def test_kappa_is_agreement_beyond_chance() -> None:
    """Cohen (1960). 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: observed 35/50 = .7, by chance
    (25 x 30 + 25 x 20) / 2500 = .5, so kappa = .2 / .5 = .4. Nine abstentions count for neither.
    """
    counter = AgreementCounter()
    for count, rule, judge in ((20, YES, YES), (5, YES, NO), (10, NO, YES), (15, NO, NO), (9, NONE, YES)):
        for _ in range(count):
            counter.add(labelled(rule, judge, is_correct=None), reference_answer="")
    report = counter.report()
    assert report is not None
    assert list(report.pairs) == ["rule~judge"]
    found = report.pairs["rule~judge"]
    assert (found.num_both, found.agreeing_share) == (50, 0.7)
    assert found.kappa == pytest.approx(0.4)
    assert report.by_answer_type == {}


def test_voters_that_call_everything_the_same_have_no_kappa() -> None:
    counter = AgreementCounter()
    counter.add(labelled(YES, YES, is_correct=True), reference_answer="2")
    report = counter.report()
    assert report is not None
    assert (report.pairs["rule~judge"].agreeing_share, report.pairs["rule~judge"].kappa) == (1.0, None)


def test_the_share_of_correct_completions_that_were_dropped_is_by_kind_of_answer() -> None:
    """Expressions: two labelled correct, one dropped that the judge calls correct, one that the rule does
    where the judge abstains: 2 of 4. The dropped one that the judge calls wrong is not correct.
    """
    counter = AgreementCounter(name_answer_type)
    for rule, judge, label, answer in (
        (YES, YES, True, "2x+1"),
        (NONE, YES, True, "2x+1"),
        (NO, YES, None, "2x+1"),
        (YES, NONE, None, "2x+1"),
        (YES, NO, None, "2x+1"),
        (NO, NO, False, "2x+1"),
        (YES, YES, True, "7"),
    ):
        counter.add(labelled(rule, judge, is_correct=label), reference_answer=answer)
    report = counter.report()
    assert report is not None
    found = report.by_answer_type["expression"]
    assert (found.num_completions, found.num_dropped) == (6, 3)
    assert (found.num_correct, found.num_correct_dropped, found.correct_dropped_share) == (4, 2, 0.5)
    assert report.by_answer_type["integer"].correct_dropped_share == 0.0
    assert report.overall.num_correct == 5


def test_where_no_judge_was_asked_there_is_nothing_to_agree_on() -> None:
    counter = AgreementCounter()
    counter.add(labelled(YES, None, is_correct=True), reference_answer="2")
    assert counter.report() is None


def test_every_pair_of_voters_is_compared_and_a_failed_request_is_no_voter() -> None:
    panel = said(YES, NO, YES, failures=(None, None, "refused"))
    label = labelled(NO, YES, YES, is_correct=True).model_copy(update={"judges": tuple(panel)})
    counter = AgreementCounter()
    counter.add(label, reference_answer="2")
    report = counter.report()
    assert report is not None
    assert set(report.pairs) == {
        "rule~judge", "rule~judge_1", "rule~judge_2", "rule~third", "judge~judge_1", "judge~judge_2",
        "judge~third", "judge_1~judge_2", "judge_1~third", "judge_2~third",
    }  # fmt: skip


def test_a_majority_is_more_than_half_of_all_judges() -> None:
    assert take_majority(said(YES, NO, YES)) == KeptVerdict(YES, "2 of 3 judges say so: j0, j2")
    assert take_majority(said(NO, NO, YES))[0] == NO
    assert take_majority(said(YES, NONE, YES))[0] == YES
    for split in (said(YES, NO), said(YES, NONE), said(YES, NO, NONE), said(YES, NONE, NONE)):
        assert take_majority(split)[0] == NONE
    assert take_majority(said(YES)) == KeptVerdict(YES, "r0")


def test_no_majority_says_who_said_what_and_what_failed() -> None:
    found = take_majority(said(YES, NO, NONE, failures=(None, None, "unreachable")))
    assert found.reason == "no majority of 3 judges: j0 correct, j1 incorrect, j2 unreachable"
    assert found.failure == "unreachable"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("42", "integer"), ("1,234", "integer"), ("-3", "integer"),
        ("0.458", "decimal"), ("12.5\\%", "percentage"), ("2.", "integer"),
        ("3/4", "fraction"), ("\\frac{3}{4}", "fraction"), ("$\\frac34$", "fraction"), ("(B)", "choice"),
        ("C", "choice"), ("5 km", "number with a unit"),
        ("1, 2, 3", "list or set"), ("\\{1,2\\}", "list or set"),
        ("(1, 2)", "point, interval or matrix"), ("[0,\\infty)", "point, interval or matrix"),
        ("x > 2", "equation or inequality"), ("y = 2x + 1", "equation or inequality"),
        ("2\\sqrt{3}", "expression"), ("3x^2 + 2", "expression"), ("x", "expression"),
        ("Petya will receive the last token", "text"), ("1" * 400, "text"), ("(" * 250, "text"),
    ],
)  # fmt: skip
def test_kinds_of_answers_are_told_by_their_notation(answer: str, kind: str) -> None:
    assert name_answer_type(answer) == kind
