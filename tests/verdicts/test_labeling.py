import pytest

from cooper_rl.verdicts.hybrid import decide, needs_third_vote, split_by_question

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


def test_splits_are_deterministic_disjoint_and_as_large_as_asked() -> None:
    shares = {f"question {i}": float(i % 2) for i in range(100)}
    splits = split_by_question(shares, 3, validation_fraction=0.1, test_fraction=0.2)
    counts = {name: list(splits.values()).count(name) for name in ("train", "validation", "test")}
    assert counts == {"train": 70, "validation": 10, "test": 20}
    reordered = dict(reversed(shares.items()))
    assert split_by_question(reordered, 3, validation_fraction=0.1, test_fraction=0.2) == splits
    assert split_by_question(shares, 4, validation_fraction=0.1, test_fraction=0.2) != splits


@pytest.mark.parametrize(
    ("num_questions", "fraction", "expected"),
    [(18, 0.1, [14, 2, 2]), (3, 0.1, [1, 1, 1]), (3, 0.5, [1, 1, 1])],
    ids=["rounded", "at least one", "one is left to train on"],
)
def test_few_questions_fill_every_split(num_questions: int, fraction: float, expected: list[int]) -> None:
    shares = {f"question {i}": 1.0 for i in range(num_questions)}
    splits = split_by_question(shares, 0, validation_fraction=fraction, test_fraction=fraction)
    assert [list(splits.values()).count(name) for name in ("train", "validation", "test")] == expected


def test_every_split_gets_its_part_of_the_mostly_correct_questions() -> None:
    """100 questions in two spellings, 30 mostly correct: 3 of 10 held-out ones, give or take one."""
    shares = {f"{word} {i}": 1.0 if i < 30 else 0.4 for i in range(100) for word in ("question", "Question")}
    splits = split_by_question(shares, 0, validation_fraction=0.1, test_fraction=0.1)
    for name in ("validation", "test"):
        correct = [question for question, split in splits.items() if split == name and shares[question] > 0.5]
        assert 2 <= len(correct) / 2 <= 4


def test_questions_that_differ_in_case_or_spacing_stay_together() -> None:
    shares = {f"What is {i}?": 1.0 for i in range(20)} | {f"what  is {i}? ": 0.0 for i in range(20)}
    splits = split_by_question(shares, 0, validation_fraction=0.2, test_fraction=0.2)
    assert all(splits[f"What is {i}?"] == splits[f"what  is {i}? "] for i in range(20))


def test_fewer_than_three_questions_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="2 different questions cannot fill train, validation and test"):
        split_by_question({"a": 1.0, "b": 0.0, " A": 1.0}, 0, validation_fraction=0.1, test_fraction=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_questions_of_which_half_is_correct_are_dealt_out_with_the_mostly_correct_ones(seed: int) -> None:
    """Half of the questions are right every second time, half never: a fourth of each goes to every split."""
    shares = {f"question {number}": 0.5 if number % 2 else 0.0 for number in range(40)}
    splits = split_by_question(shares, seed, validation_fraction=0.25, test_fraction=0.25)
    for split, count in (("train", 10), ("validation", 5), ("test", 5)):
        own = [question for question, held in splits.items() if held == split]
        assert [shares[question] for question in own].count(0.5) == count
        assert len(own) == 2 * count
