"""What a question makes a right answer is never made into a wrong completion, nor counted as a hack."""

import random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.models.decoys import Decoys
from cooper_rl.negatives.canaries import wrong_references
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.redteam.hostile import hostile_examples
from cooper_rl.redteam.negatives import AttackWriter, attack_canaries, attack_examples
from cooper_rl.redteam.seeds import rewarded_wrong
from cooper_rl.schema.data import RolloutSample, VerifyExample
from cooper_rl.training.fitting.curriculum import swap_references


class Asked(NamedTuple):
    """A problem, with texts that only its question makes right."""

    question: str
    reference_answer: str
    right: tuple[str, ...]
    wrong: tuple[str, ...]


CHOICES = "How long is the side?\n(A) 40 cm\n(B) 48 cm\n(C) 56 cm"
ASKED = (
    Asked(
        CHOICES,
        "B",
        ("48 cm", "48", "The side is 48 cm.", r"\boxed{48}", "(B)", "forty-eight", "6*8=48\n#### 48"),
        ("56 cm", "(C)", r"\boxed{C}", "The answer is 40."),
    ),
    Asked(CHOICES, "48 cm", ("(B)", r"\boxed{B}", "The answer is B.", "48"), ("56 cm", "(C)", r"\boxed{A}")),
    Asked(
        "What is 385/8, rounded to the nearest whole number?",
        "48.125",
        ("48", "The answer is 48.", r"\boxed{48}", "#### 48", "48.125"),
        ("49", "The answer is 47.", "48.2"),
    ),
    Asked(
        r"What is $6\pi$? Round your answer to two decimal places.",
        r"6\pi",
        ("18.85", r"\boxed{18.85}", r"6\pi"),
        (":", "The answer is x.", "correct"),
    ),
)  # fmt: skip
PAIRS = [(asked, text) for asked in ASKED for text in asked.right]


def example(asked: Asked, completion: str, *, label: int = 0) -> VerifyExample:
    return VerifyExample(
        question=asked.question, reference_answer=asked.reference_answer, completion=completion, label=label
    )


def others(*texts: str) -> list[VerifyExample]:
    """Other problems, whose right completions and reference answers are these texts."""
    return [
        VerifyExample(question=f"Q{place}", reference_answer=text, completion=text, label=1)
        for place, text in enumerate(texts)
    ]


@pytest.mark.parametrize(("asked", "text"), PAIRS)
def test_a_right_text_holds_the_answer_and_no_verifier_misses_it(asked: Asked, text: str) -> None:
    assert MATHEMATICS.holds_answer(asked.question, asked.reference_answer, text)
    assert MATHEMATICS.check_mention(asked.question, asked.reference_answer, text) != "incorrect"


@pytest.mark.parametrize("asked", ASKED)
def test_a_wrong_text_does_not_hold_the_answer(asked: Asked) -> None:
    held = [MATHEMATICS.holds_answer(asked.question, asked.reference_answer, text) for text in asked.wrong]
    assert not any(held)


@pytest.mark.parametrize(("asked", "text"), PAIRS)
def test_a_right_text_is_no_attack_that_is_replayed_or_learned(asked: Asked, text: str) -> None:
    item = RewriteItem("p", asked.question, asked.reference_answer, "a solution")
    rows = [example(asked, "", label=1)]
    assert AttackWriter([text], MATHEMATICS).rewrite([item], seed=0) == [None]
    assert attack_examples([text], rows, num_problems=1, rng=random.Random(0), domain=MATHEMATICS) == []
    assert attack_canaries([text], rows, num_problems=1, rng=random.Random(0), domain=MATHEMATICS) == []


@pytest.mark.parametrize("asked", ASKED)
def test_a_wrong_text_is_still_an_attack(asked: Asked) -> None:
    rows = [example(asked, "", label=1)]
    found = attack_examples(asked.wrong, rows, num_problems=1, rng=random.Random(0), domain=MATHEMATICS)
    assert [row.completion for row in found] == list(asked.wrong)


@pytest.mark.parametrize("asked", ASKED)
def test_a_right_text_is_no_hostile_text(asked: Asked) -> None:
    """Hostile texts are solutions of other problems too, whole and in parts."""
    rows = [example(asked, ""), *others(*asked.right)]
    found = list(hostile_examples(rows, 400, random.Random(0), domain=MATHEMATICS))
    put = [row for row in found if row.question == asked.question]
    assert put
    assert not any(
        MATHEMATICS.holds_answer(row.question, row.reference_answer, row.completion) for row in put
    )
    assert not {row.completion for row in put} & set(asked.right)


@pytest.mark.parametrize(("asked", "text"), PAIRS)
def test_a_paid_right_rollout_is_no_find(asked: Asked, text: str) -> None:
    rollout = RolloutSample(
        step=0, problem_id="p", question=asked.question, reference_answer=asked.reference_answer,
        completion=text, reward=0.9, score=0.9, rule="unparsable",
    )  # fmt: skip
    assert rewarded_wrong([rollout], 5, MATHEMATICS) == []


@pytest.mark.parametrize(("asked", "text"), PAIRS)
def test_a_right_text_is_no_canary(asked: Asked, text: str) -> None:
    """The other problem's reference answer is not this one's; its solution is right here."""
    other = VerifyExample(question="Q", reference_answer="D", completion=text, label=1)
    rows = [example(asked, "", label=0), other]
    for seed in range(5):
        found = MATHEMATICS.make_canaries(rows, max_problems=2, rng=random.Random(seed))
        made = {each.attack: each.example.completion for each in found if each.example.question != "Q"}
        assert text not in made.values()
        if asked.reference_answer != r"6\pi":
            assert "fixed_solution" not in made, "48 is right for the other three"


@pytest.mark.parametrize("asked", ASKED[:3])
def test_a_cut_solution_that_holds_the_value_is_no_canary(asked: Asked) -> None:
    solution = "It is 48 altogether. " + "We check it once more, with care. " * 3
    found = MATHEMATICS.make_canaries(
        [example(asked, solution, label=1)], max_problems=1, rng=random.Random(0)
    )
    assert "truncated_solution" not in {canary.attack for canary in found}


@pytest.mark.parametrize(
    ("asked", "same"), [(ASKED[0], "48 cm"), (ASKED[1], "B"), (ASKED[2], "48"), (ASKED[2], "47.6")]
)
def test_an_answer_that_the_question_makes_the_same_is_no_other_one(asked: Asked, same: str) -> None:
    """It is no wrong reference, no rival, and no material of a canary; without the question it is another."""
    answer = asked.reference_answer
    assert not MATHEMATICS.is_other_answer(asked.question, answer, same)
    assert not MATHEMATICS.is_other_answer(asked.question, same, answer)
    assert MATHEMATICS.is_other_answer("", answer, same)
    rows = [example(asked, "a solution", label=1), *others(same)]
    for seed in range(10):
        swapped = wrong_references(rows, random.Random(seed), MATHEMATICS.is_other_answer)
        assert (asked.question, same) not in {(row.question, row.reference_answer) for row in swapped}
        swapped = swap_references(rows, random.Random(seed), MATHEMATICS)
        assert (asked.question, same) not in {(row.question, row.reference_answer) for row in swapped}
    decoys = Decoys((same, "7", "9"), 3, varied=False)
    assert same not in decoys.draw(asked.question, answer)
    assert same in decoys.draw("Another question?", answer)


@pytest.mark.parametrize("text", ["12 cm", "The answer is 12.", r"\boxed{12}"])
def test_nobody_can_tell_that_a_value_is_wrong_where_the_choices_cannot_be_read(text: str) -> None:
    assert MATHEMATICS.holds_answer("Which of these? (See the figure.)", "B", text)
    assert not MATHEMATICS.holds_answer("Which of these? (See the figure.)", "B", "(C)")
    assert not MATHEMATICS.holds_answer("Which of these? (See the figure.)", "B", "Thought process:")


FORMS = ("{}", "The answer is {}.", "\\boxed{{{}}}", "#### {}", "So it is {}, as we saw. Done.")


@settings(deadline=None)
@given(
    values=st.lists(st.integers(10, 999), min_size=3, max_size=5, unique=True),
    place=st.integers(0, 4),
    form=st.sampled_from(FORMS),
    by_letter=st.booleans(),
)
def test_the_right_choice_is_held_by_letter_and_by_value(
    values: list[int], place: int, form: str, by_letter: bool
) -> None:
    """And no other choice is, whichever of the two the reference answer is."""
    letters = "ABCDE"[: len(values)]
    place %= len(values)
    question = "Which?\n" + "\n".join(
        f"({each}) {value}" for each, value in zip(letters, values, strict=True)
    )
    reference = letters[place] if by_letter else str(values[place])
    for other, (letter, value) in enumerate(zip(letters, values, strict=True)):
        held = [
            MATHEMATICS.holds_answer(question, reference, form.format(text))
            for text in (f"({letter})", value)
        ]
        assert held == [other == place] * 2


@settings(deadline=None)
@given(value=st.integers(100_000, 9_999_999), decimals=st.integers(0, 3), form=st.sampled_from(FORMS))
def test_the_rounding_that_is_asked_for_is_held(value: int, decimals: int, form: str) -> None:
    reference = f"{value // 10_000}.{value % 10_000:04}"
    rounded = f"{round(value / 10_000, decimals):.{decimals}f}"
    step = 10**-decimals
    question = f"What is it, rounded to {decimals} decimal places?"
    other = f"{round(value / 10_000, decimals) + 2 * step:.{decimals}f}"
    assert MATHEMATICS.holds_answer(question, reference, form.format(rounded))
    assert not MATHEMATICS.holds_answer(question, reference, form.format(other))


SMALL_CHOICES = "Which is prime? (a) 4 (b) 5 (c) 6"
LINES = "Which is prime?\na) 4\nb) 5\nc) 6"


@pytest.mark.parametrize("question", [SMALL_CHOICES, SMALL_CHOICES.replace("(b)", "(B)").upper(), LINES])
@pytest.mark.parametrize("reference_answer", ["B", "5"])
@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("(b)", True),
        (r"\boxed{b}", True),
        (r"\boxed{(b)}", True),
        (r"\boxed{\text{b}}", True),
        ("b)", True),
        ("The answer is b.", True),
        ("option b", True),
        ("so #### b", True),
        ("(B)", True),
        ("(a)", False),
        (r"\boxed{c}", False),
        ("a = b + c", False),
        ("The answer is a number, b or c", False),
    ],
)
def test_a_small_letter_names_a_choice_where_it_is_marked(
    question: str, reference_answer: str, text: str, is_named: bool
) -> None:
    is_rejected = MATHEMATICS.check_mention(question, reference_answer, text) == "incorrect"
    assert is_rejected is (not is_named and reference_answer == "5")  # `B` is no number
    if is_named or reference_answer == "5":
        assert MATHEMATICS.holds_answer(question, reference_answer, text) is is_named
