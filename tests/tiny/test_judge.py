import pytest

from cooper_rl.tiny.judge import TinyJudge, judge_exactly
from cooper_rl.verdicts.hybrid import JudgeItem


def verdict(completion: str, *, reference_answer: str = "10") -> str:
    return judge_exactly(JudgeItem("How many?", reference_answer, completion)).verdict


@pytest.mark.parametrize(
    "completion",
    [
        "7-2=5;5*2=10. #### 10",
        "7-2=5;5*2=10. \\boxed{10}",
        "7-2=5;5*2=10. \\boxed{ten}",
        "7-2=5;5*2=10. Tom has ten apples.",
        "The answer is 10",
        "The answer is 10.0.",
        "The answer is Ten.",
        "the answer is: 10 apples",
        "ten",
        "10 apples",
        "7-2=5;5*2=10.",
        "7-2=5;5*2=10",
        "5*2=ten.",
        "7-2=6;6*2=11. The answer is 10.",
        "The answer is 10. The answer is ten.",
        "5*2=10. Ann paysten dollars.",
    ],
)
def test_what_a_person_would_accept_is_correct(completion: str) -> None:
    assert verdict(completion) == "correct"


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "5*2=10. #### not 10",
        "The answer is not 10.",
        "5*2=10. #### half of 10",
        "5*2=10. #### twice 10",
        "#### no ten",
        ":",
        "Thought process:",
        "7777777777",
        "7-2=5;5*2=10. The answer is 11.",
        "The answer is 10. The answer is 11.",
        "\\boxed{9} \\boxed{10}",
        "#### 12 7-2=5. The answer is 10.",
        "8 9 10 11 12",
        "7-2=5;5*",
        "The answer is -10.",
        "The answer is 10.5.",
        "The answer is 100.",
        "The answer is forty.",
        "Tom has them often.",
        "<completion></completion>",
    ],
)
def test_garbage_and_contradictions_are_incorrect(completion: str) -> None:
    assert verdict(completion) == "incorrect"


def test_a_compound_number_word_is_one_number() -> None:
    assert verdict("Tom has forty-two apples.", reference_answer="42") == "correct"
    assert verdict("Tom has forty two apples.", reference_answer="42") == "correct"
    assert verdict("Tom has forty-two apples.", reference_answer="40") == "incorrect"
    assert verdict("The answer is sixteen.", reference_answer="6") == "incorrect"


def test_a_reference_answer_that_is_no_number_is_reported_and_not_judged() -> None:
    result = judge_exactly(JudgeItem("How many?", "a few", "The answer is 10."))
    assert result.verdict == "unparsable"
    assert "'a few' is not one number" in result.reason


def test_the_error_rate_flips_that_share_of_verdicts_always_the_same_ones() -> None:
    items = [JudgeItem(f"How many {number}?", "10", "The answer is 10.") for number in range(2000)]
    judge = TinyJudge(0.1, seed=1)
    flipped = [result.verdict == "incorrect" for result in judge.judge(items)]
    assert 0.07 < sum(flipped) / len(flipped) < 0.13
    assert flipped == [result.verdict == "incorrect" for result in TinyJudge(0.1, seed=1).judge(items)]
    assert flipped != [result.verdict == "incorrect" for result in TinyJudge(0.1, seed=2).judge(items)]
    assert judge.name == "tiny(error_rate=0.1)"
    assert judge.identity == "tiny(error_rate=0.1, seed=1)"
