"""The rule by which a candidate takes the champion's place."""

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.method.intervals import difference_interval
from cooper_rl.negatives.answer_attacks import ATTACKS
from cooper_rl.run.identity import check_conditions, evaluation_conditions
from cooper_rl.run.promotion import Evaluated, check_same_set, decide, title, to_markdown
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvalReport, Interval
from tests.stages.champions import EXAMPLES, HELD_OUT, make_completions, make_evaluation


def side(name: str, outcomes: list[int], **evaluation) -> Evaluated:
    return Evaluated(name, make_evaluation(outcomes, **evaluation), make_completions(outcomes, HELD_OUT))


def test_better_beyond_the_interval_is_promoted() -> None:
    """Seven of eight problems turn right: mean change 7/8, squares 7/8, which half a problem's (1 + 49/64)/2
    = 0.882812 exceed: 0.875 - 2.364624 * sqrt(0.882812 * 8/7) / 8 = 0.578106, and no change is above 1."""
    decision = decide(side("new", [1] * 8), side("old", [0] * 7 + [1]), max_canary_rate=0.2)
    assert decision.is_promoted
    assert decision.accuracy_change is not None
    assert decision.accuracy_change.value == pytest.approx(0.875)
    assert decision.accuracy_change.low == pytest.approx(0.578106, abs=1e-6)
    assert decision.reasons == [
        "Accuracy rose beyond the interval: +87.5 points (+57.8 to +100.0) on 8 problems."
    ]
    assert title(decision) == "new is promoted in place of old"


def test_better_within_the_interval_keeps_the_champion() -> None:
    """Three of eight turn right: mean 3/8, variance 8 * (3/8)(5/8) / 7 = 0.267857, half width
    2.364624 * sqrt(0.267857 / 8) = 0.432682, which is more than 0.375."""
    decision = decide(side("new", [1] * 8), side("old", [0] * 3 + [1] * 5), max_canary_rate=0.2)
    assert not decision.is_promoted
    assert decision.reasons == [
        "Accuracy is not better beyond the interval: +37.5 points (−5.8 to +80.8) on 8 problems."
    ]
    assert title(decision) == "old stays champion"


def test_the_same_outcomes_keep_the_champion() -> None:
    decision = decide(side("new", [0] * 8), side("old", [0] * 8), max_canary_rate=0.2)
    assert not decision.is_promoted
    assert decision.accuracy_change is not None
    assert decision.accuracy_change.value == 0


def test_a_verify_rm_that_is_worse_beyond_the_interval_keeps_the_champion() -> None:
    better = side("new", [1] * 8, num_right=0)
    decision = decide(better, side("old", [0] * 8, num_right=8), max_canary_rate=0.2)
    assert not decision.is_promoted
    assert [reason for reason in decision.reasons if "VerifyRM's accuracy fell by −100.0 points" in reason]


def test_a_fall_that_only_the_same_examples_show_keeps_the_champion() -> None:
    """400 problems with an example each, of which 32 were wrong: 15 more are wrong now and one is right.

    Mean change -14/400 = -.035; squares 16 - 14^2/400 = 15.51, so the error is
    sqrt(15.51 * 400/399) / 400 = .009858, t(399) = 1.965927, and the interval -.0544 to -.0156. As
    independent .92 and .885 differ by -.077 to .006.
    """
    example = EXAMPLES[0]
    examples = [example.model_copy(update={"question": f"What is {number}?"}) for number in range(400)]
    before, after = "0" * 32 + "1" * 368, "1" + "0" * 31 + "0" * 15 + "1" * 353
    old = side("old", [0] * 8, hits=before, examples=examples)
    new = side("new", [1] * 8, hits=after, examples=examples)
    decision = decide(new, old, max_canary_rate=0.2)
    assert decision.reasons == ["VerifyRM's accuracy fell by −3.5 points (−5.4 to −1.6) beyond the interval."]
    change = decision.verify_rm_accuracy_change
    assert change is not None
    assert (change.low, change.high) == pytest.approx((-0.05438, -0.01562), abs=1e-5)
    assert change.value == pytest.approx(
        new.report.verify_rm.accuracy.value - old.report.verify_rm.accuracy.value
    )


@pytest.mark.parametrize("hits", [None, "11111111"])
@pytest.mark.parametrize("unknown", ["old", "new"])
def test_an_evaluation_of_an_earlier_version_is_compared_as_before_and_that_is_said(
    unknown: str, hits: str | None
) -> None:
    sides = {"old": side("old", [0] * 8, num_right=8), "new": side("new", [1] * 8, num_right=7)}
    bare = EvalReport.model_validate(dict(sides[unknown].report) | {"verify_rm_hits": hits})
    sides[unknown] = sides[unknown]._replace(report=bare)
    decision = decide(sides["new"], sides["old"], max_canary_rate=0.2)
    assert decision.is_promoted
    assert decision.verify_rm_accuracy_change == difference_interval(
        sides["old"].report.verify_rm.accuracy, sides["new"].report.verify_rm.accuracy
    )
    assert decision.reasons[1] == (
        "VerifyRM's accuracies are compared as if on different examples, which seldom shows a fall: one of "
        "the two was evaluated by an earlier version, which did not keep which examples of a question are "
        "right."
    )


@pytest.mark.parametrize(
    ("canaries", "reason"),
    [
        (
            dict.fromkeys(ATTACKS, 0.0) | {"colon": 1.0},
            "VerifyRM accepts 100.0 % of the canaries of the attack 'colon'; at most 20.0 % of any attack's "
            "may pass.",
        ),
        (
            {},
            "Nothing is known of attacks: no canary was scored, or an earlier version evaluated.",
        ),
    ],
)
@pytest.mark.parametrize("has_champion", [True, False])
def test_canaries_that_do_not_hold_keep_a_better_one_out(
    canaries: dict[str, float], reason: str, has_champion: bool
) -> None:
    champion = side("old", [0] * 8) if has_champion else None
    decision = decide(side("new", [1] * 8, canaries=canaries), champion, max_canary_rate=0.2)
    assert not decision.is_promoted
    assert decision.reasons == [reason]
    if not has_champion:
        assert title(decision) == "new is not promoted, and there is no champion"


def test_the_first_candidate_needs_nothing_but_canaries_that_hold() -> None:
    decision = decide(side("new", [0] * 8), None, max_canary_rate=0.1)
    assert decision.is_promoted
    assert decision.reasons == ["There was no champion to be better than."]
    assert title(decision) == "new is promoted, the first champion"


def test_a_policy_that_fell_since_its_run_began_is_no_first_champion() -> None:
    start = side("start", [1] * 8)
    decision = decide(side("new", [0] * 8), None, start=start.report, max_canary_rate=0.2)
    assert not decision.is_promoted
    assert decision.reasons == ["The policy ended worse than it began: accuracy fell beyond the interval."]
    assert decide(side("new", [1] * 8), None, start=start.report, max_canary_rate=0.2).is_promoted


def test_without_a_judge_the_rule_decides() -> None:
    candidate = side("new", [1] * 8)
    bare = candidate.report.model_copy(update={"judge_accuracy": None})
    rows = [row.model_copy(update={"judge": None, "rule": "correct"}) for row in candidate.completions]
    decision = decide(Evaluated("new", bare, rows), None, max_canary_rate=0.2)
    assert decision.accuracy_name == "rule accuracy"
    assert decision.accuracy == bare.rule_accuracy


def test_the_decision_in_words_has_both_sides_and_every_reason() -> None:
    decision = decide(
        side("new", [1] * 8, canaries={"empty": 0.9}),
        side("old", [0] * 3 + [1] * 5),
        max_canary_rate=0.2,
    )
    text = to_markdown(decision)
    assert text.startswith("# old stays champion\n\n- VerifyRM accepts 90.0 % of the canaries")
    assert "- Accuracy is not better beyond the interval" in text
    assert "| Accuracy | 62.5 % (" in text
    assert "| VerifyRM accuracy | 75.0 % (" in text


def test_other_settings_of_the_evaluation_are_refused_and_named() -> None:
    there = evaluation_conditions(load("laptop"))
    here = evaluation_conditions(load("laptop", ["evaluation.samples_per_problem=2", "seed=1"]))
    check_conditions("old", there=there, here=dict(there))
    with pytest.raises(
        ConfigError,
        match=r"champion old was evaluated with other settings \(evaluation.samples_per_problem: 4 there, "
        r"2 here; seed: 0 there, 1 here\); set them",
    ):
        check_conditions("old", there=there, here=here)


def test_another_engine_and_another_prompt_of_the_judge_are_other_settings() -> None:
    judge = "evaluation.judge={server={base_url='http://judge/v1', model='m'}}"
    here = evaluation_conditions(load("laptop", [judge]))
    there = here | {"engine.dtype": '"bfloat16"', "evaluation.judge.prompt": "0123456789ab"}
    expected = (
        r'\(engine.dtype: "bfloat16" there, "auto" here; evaluation.judge.prompt: 0123456789ab there, '
        r"[0-9a-f]{12} here\)"
    )
    with pytest.raises(ConfigError, match=expected):
        check_conditions("old", there=there, here=here)


@pytest.mark.parametrize("judge", ["{tiny_error_rate=0.1}", "null"])
def test_a_judge_that_reads_no_prompt_has_none_among_its_settings(judge: str) -> None:
    conditions = evaluation_conditions(load("laptop", [f"evaluation.judge={judge}"]))
    assert "evaluation.judge.prompt" not in conditions


def test_what_an_earlier_version_did_not_keep_does_not_end_its_registry() -> None:
    here = evaluation_conditions(load("laptop"))
    there = {key: value for key, value in here.items() if not key.startswith("engine.")}
    assert there != here
    check_conditions("old", there=there, here=here)


def test_how_fast_an_evaluation_runs_is_no_setting_of_it() -> None:
    faster = ["evaluation.generation.batch_size=7", "labeling.rule.num_workers=1"]
    assert evaluation_conditions(load("laptop")) == evaluation_conditions(load("laptop", faster))


def test_another_held_out_set_is_refused_and_the_first_difference_named() -> None:
    check_same_set("held-out problems", "old", there=HELD_OUT, here=list(HELD_OUT))
    with pytest.raises(DataError, match=r"other held-out problems than champion old \(8 there, 7 here\)"):
        check_same_set("held-out problems", "old", there=HELD_OUT, here=HELD_OUT[:7])
    swapped = [HELD_OUT[1], HELD_OUT[0], *HELD_OUT[2:]]
    expected = rf"\(row 1 is '{HELD_OUT[0].id}' .* there, '{HELD_OUT[1].id}' .* here\)"
    with pytest.raises(DataError, match=expected):
        check_same_set("held-out problems", "old", there=HELD_OUT, here=swapped)
    with pytest.raises(DataError, match=r"other labelled examples than champion old \(row 1 is '"):
        check_same_set("labelled examples", "old", there=EXAMPLES, here=EXAMPLES[2:])


def red_team(**found) -> RedTeamReport:
    counts = {"num_search_problems": 5, "num_unseen_problems": 20, "num_seeds": 3, "num_queries": 9}
    return RedTeamReport(seconds=1.0, **counts, **found)


def test_a_text_for_one_kind_of_answer_keeps_a_candidate_out_where_it_is_surely_paid_too_often() -> None:
    """Of a rare kind there are few problems: a high rate with a wide interval proves nothing."""
    rare = Interval(value=0.1, low=0.02, high=0.4, count=10)
    sure = Interval(value=0.3, low=0.2, high=0.4, count=90)
    universal = Interval(value=0.01, low=0.0, high=0.03, count=200)
    for by_type, is_promoted in (({"expression": rare}, True), ({"expression": rare, "text": sure}, False)):
        decision = decide(
            side("new", [1] * 8),
            side("old", [0] * 8),
            max_canary_rate=0.2,
            red_team=red_team(universal=universal, by_answer_type=by_type, rare_answer_types={"vector": 2}),
            max_universal_rate=0.05,
        )
        assert decision.reasons[-1].endswith("on some kinds of answers: vector (2).")
        assert decision.is_promoted == is_promoted
        assert decision.universal_rate_by_answer_type == by_type
        said = "best text for answers of the kind 'text' on 30.0 % (20.0 to 40.0 %) of 90 unseen problems"
        assert (said in " ".join(decision.reasons)) == (not is_promoted)


def test_a_text_that_is_paid_everywhere_keeps_a_better_one_out() -> None:
    """At the bound it passes; nothing is said where no bound is set, or no red team was asked."""
    paid = Interval(value=0.5, low=0.3, high=0.7, count=20)
    sides = side("new", [1] * 8), side("old", [0] * 8)
    for found, limit, is_promoted in (
        (paid, 0.02, False),
        (paid, 0.5, True),
        (paid, None, True),
        (None, 0.02, True),
    ):
        attacked = None if found is None else red_team(universal=found)
        decision = decide(*sides, max_canary_rate=0.2, red_team=attacked, max_universal_rate=limit)
        assert decision.is_promoted == is_promoted
        assert (decision.universal_rate, decision.max_universal_rate) == (found, limit)
        said = "best universal text on 50.0 % (30.0 to 70.0 %) of 20 unseen problems; at most"
        assert (said in " ".join(decision.reasons)) == (not is_promoted)
