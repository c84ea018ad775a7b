"""Negatives without a server: another number where the answer stands, and only there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cooper_rl.config.data import RuleConfig
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.negatives.perturb import CHANGES, Perturber
from cooper_rl.verdicts.rule import RuleVerifier

FORMS = (
    "#### {}",
    "The answer is {}.",
    "So we get \\boxed{{{}}}.",
    "3 + 4 = 7\n7 - 5 = {}\nFinal answer: {}",
    "Each has 5. In total {0} km = {0} km.\n\\boxed{{{0}}}",
    "It costs ${0}.\n#### {0}",
    "\\boxed{{-{}}}",
)


@pytest.fixture(scope="module")
def rule():
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        yield verifier


def perturb(solution: str, *, seed: int = 0, reference_answer: str = "10") -> str | None:
    item = RewriteItem("p", "How many?", reference_answer, solution)
    return Perturber().rewrite([item], seed=seed)[0]


def test_the_last_result_and_the_answer_change_together() -> None:
    """`5*2=10` is where 10 last stands as a result; the 10 before it and other numbers stay."""
    found = {perturb("10-5=5;5*2=10 in 5 days. #### 10", seed=seed) for seed in range(60)}
    expected = {f"10-5=5;5*2={10 + change} in 5 days. #### {10 + change}" for change in CHANGES}
    assert found == expected


def test_of_several_results_only_the_last_one_changes() -> None:
    """4+6=10 comes first and stays: the steps that lead to the wrong answer are those that end in it."""
    found = {perturb("4+6=10;7-5=2;5*2=10. #### 10", seed=seed) for seed in range(60)}
    assert found == {f"4+6=10;7-5=2;5*2={10 + change}. #### {10 + change}" for change in CHANGES}


def test_without_a_result_the_last_place_changes() -> None:
    assert perturb("I counted 10 times: The answer is 10.") in {
        f"I counted 10 times: The answer is {10 + change}." for change in CHANGES
    }


def test_decimals_keep_their_number_and_zero_does_not_become_negative() -> None:
    """In the last place: 0.05 +-.01, +-.02, +-.10, of which -.05 and the like are left out."""
    assert {perturb("#### 0.05", seed=seed) for seed in range(60)} == {
        "#### 0.03", "#### 0.04", "#### 0.06", "#### 0.07", "#### 0.15"
    }  # fmt: skip
    assert {perturb("#### 0", seed=seed) for seed in range(60)} == {"#### 1", "#### 2", "#### 10"}


@pytest.mark.parametrize(
    "solution",
    ["", "The answer is ten.", "\\boxed{x+y}", "No idea", "\\boxed{1,000}", '{"answer": "\\u0037"}'],
)
def test_a_solution_without_a_plain_number_as_its_answer_gives_none(solution: str) -> None:
    assert perturb(solution) is None


def test_the_same_item_and_seed_give_the_same_text() -> None:
    texts = [perturb("#### 500", seed=seed) for seed in range(20)]
    assert texts == [perturb("#### 500", seed=seed) for seed in range(20)]
    assert len(set(texts)) > 1


@settings(max_examples=150, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    number=st.one_of(st.integers(0, 10**7).map(str), st.decimals(0, 1000, places=2).map(str)),
    seed=st.integers(0, 10),
)
def test_what_comes_back_is_never_right(rule: RuleVerifier, form: str, number: str, seed: int) -> None:
    """Whatever the form of the answer: the rule verifier rejects or abstains, and the text differs."""
    solution = form.format(number, number)
    reference_answer = f"-{number}" if "{-" in form else number
    assert rule.verify([(reference_answer, solution)])[0].verdict == "correct"
    found = perturb(solution, seed=seed, reference_answer=reference_answer)
    assert found is not None
    assert found != solution
    assert rule.verify([(reference_answer, found)])[0].verdict in ("incorrect", "unparsable")


def test_a_number_too_long_to_convert_is_left_alone() -> None:
    item = RewriteItem("1", "How many?", "1", f"The answer is {'1' * 5000}")
    assert Perturber().rewrite([item], seed=0) == [None]
