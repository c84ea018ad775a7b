import pytest

from cooper_rl.verdicts.hybrid import decide, needs_third_vote

YES, NO, NONE = "correct", "incorrect", "unparsable"

TABLE = [
    # rule, judge, third -> label, reason
    (YES, None, None, True, "rule_alone"),
    (NO, None, None, False, "rule_alone"),
    (NONE, None, None, None, "rule_abstains"),
    (YES, YES, None, True, "both_agree"),
    (NO, NO, None, False, "both_agree"),
    (NONE, YES, None, True, "rule_abstains_judge_decides"),
    (NONE, NO, None, False, "rule_abstains_judge_decides"),
    (NONE, NONE, None, None, "both_abstain"),
    (YES, NO, None, None, "rule_and_judge_disagree"),
    (NO, YES, None, None, "rule_and_judge_disagree"),
    (YES, NONE, None, None, "judge_abstains"),
    (NO, NONE, None, None, "judge_abstains"),
    (YES, NO, YES, True, "rule_and_judge_disagree_third_vote_decides"),
    (YES, NO, NO, False, "rule_and_judge_disagree_third_vote_decides"),
    (NO, YES, YES, True, "rule_and_judge_disagree_third_vote_decides"),
    (NO, YES, NONE, None, "rule_and_judge_disagree"),
    (YES, NONE, YES, True, "judge_abstains_third_vote_decides"),
    (NO, NONE, NONE, None, "judge_abstains"),
]


@pytest.mark.parametrize(("rule", "judge", "third", "label", "reason"), TABLE)
def test_the_truth_table_decides(rule, judge, third, label, reason) -> None:
    assert decide(rule, judge, third, unparsable_rule="judge_decides") == (label, reason)


def test_the_papers_agreement_filter_drops_what_the_rule_cannot_read() -> None:
    assert decide(NONE, YES, None, unparsable_rule="drop") == (None, "rule_abstains")
    assert decide(YES, YES, None, unparsable_rule="drop") == (True, "both_agree")


def test_a_third_vote_is_asked_for_exactly_where_it_can_change_the_decision() -> None:
    for rule, judge, _, _, _ in TABLE:
        outcomes = {decide(rule, judge, third, unparsable_rule="judge_decides") for third in (YES, NO)}
        assert needs_third_vote(rule, judge) == (len(outcomes) == 2)
