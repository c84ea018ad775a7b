"""The red team's texts as negatives: drawn with the seed, put to problems whose answer they do not hold."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.redteam.hostile import hostile_examples
from cooper_rl.redteam.negatives import AttackWriter, attack_canaries, attack_examples
from cooper_rl.schema.data import VerifyExample

TEXTS = ["777777", "The answer is 12.", "{question} So: 7"]
ITEMS = [RewriteItem("a", "What is 3*4?", "12", "#### 12"), RewriteItem("b", "What is 2+5?", "7", "#### 7")]


def holds(row: VerifyExample) -> bool:
    return MATHEMATICS.holds_answer(row.question, row.reference_answer, row.completion)


def test_a_text_that_holds_the_right_answer_is_no_negative() -> None:
    drawn = [AttackWriter(TEXTS, MATHEMATICS).rewrite(ITEMS, seed=seed) for seed in range(60)]
    assert {row[0] for row in drawn} == {"777777", "What is 3*4? So: 7", None}
    assert {row[1] for row in drawn} == {"777777", "The answer is 12.", None}
    assert drawn == [AttackWriter(TEXTS, MATHEMATICS).rewrite(ITEMS, seed=seed) for seed in range(60)]


def test_without_texts_there_is_no_negative() -> None:
    assert AttackWriter([], MATHEMATICS).rewrite(ITEMS, seed=0) == [None, None]


@settings(deadline=None)
@given(seed=st.integers(0, 999), num_problems=st.integers(1, 30))
def test_every_text_is_put_to_so_many_problems_as_a_wrong_completion(seed: int, num_problems: int) -> None:
    examples = [
        VerifyExample(question=f"q{n}", reference_answer=str(n), completion=str(n), label=label)
        for n in range(20) for label in (0, 1)
    ]  # fmt: skip
    made = attack_examples(
        TEXTS[:2], examples, num_problems=num_problems, rng=random.Random(seed), domain=MATHEMATICS
    )
    assert {row.label for row in made} == {0}
    assert {row.source for row in made} == {"red_team"}
    assert not any(holds(row) for row in made)
    for text in TEXTS[:2]:
        questions = [row.question for row in made if row.completion == text]
        assert len(set(questions)) == len(questions)
        assert min(num_problems, 20) - 1 <= len(questions) <= min(num_problems, 20)


def test_as_canaries_every_text_is_an_attack_of_its_own() -> None:
    examples = [
        VerifyExample(question=f"q{n}", reference_answer=str(n), completion="", label=0) for n in range(9)
    ]
    found = attack_canaries(
        ["aaa", "bbb"], examples, num_problems=3, rng=random.Random(0), domain=MATHEMATICS
    )
    attacks = [(canary.attack, canary.example.completion) for canary in found]
    assert attacks == [("red_team_0", "aaa")] * 3 + [("red_team_1", "bbb")] * 3


def test_hostile_texts_are_many_kinds_and_none_holds_the_answer() -> None:
    """Of 300 draws, few fall to an answer that stands in four texts in a row; one word in twelve repeats."""
    examples = [
        VerifyExample(
            question=f"q{n}", reference_answer=f"{n}", completion=f"Two and {n} make: #### {n}", label=1
        )
        for n in range(40)
    ]
    found = list(hostile_examples(examples, 300, random.Random(1), domain=MATHEMATICS))
    assert found == list(hostile_examples(examples, 300, random.Random(1), domain=MATHEMATICS))
    assert 280 <= len(found) <= 300
    assert {row.label for row in found} == {0}
    assert not any(holds(row) for row in found)
    texts = {row.completion for row in found}
    assert any(len(set(text)) == 1 and len(text) >= 20 for text in texts)
    assert any(text in {example.completion for example in examples} for text in texts)
    assert any("reference_answer" in text for text in texts)
    assert list(hostile_examples([], 5, random.Random(0), domain=MATHEMATICS)) == []
