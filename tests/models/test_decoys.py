"""Decoys: what a completion is compared with, and that one text cannot be ahead everywhere."""

import math
import random
import time
from pathlib import Path

import pytest
import torch

from cooper_rl.errors import ConfigError, ModelError
from cooper_rl.models.decoys import KEY, Decoys, add_decoys, decoys_of, nearest_answers
from cooper_rl.models.packed.packing import count_packed
from cooper_rl.models.template import note_reading
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, load_verify_rm, save_verify_rm
from cooper_rl.verdicts.answer_type import name_answer_type

ANSWERS = tuple(str(number) for number in range(40))
DECOYS = Decoys(ANSWERS, size=3)


@pytest.fixture
def guarded(make_verify_rm) -> VerifyRM:
    verify_rm = make_verify_rm(0)
    add_decoys(verify_rm.model, ANSWERS, count=3)
    return verify_rm


def test_decoys_are_other_answers_and_the_same_for_every_completion() -> None:
    drawn = {DECOYS.draw(f"Question {number}", "7.0") for number in range(50)}
    assert len(drawn) >= 45
    assert all(len(set(answers)) == 3 and "7" not in answers for answers in drawn)
    assert DECOYS.draw("q", "7") == DECOYS.draw("q", "7")
    assert Decoys(("7", "7.0", "7.00"), size=2, varied=False).draw("q", "7") == ()


@pytest.mark.parametrize(
    "reference_answer", [r"(-\infty, 3]", "2x + 5", r"\frac{3}{4}", r"\text{(B)}", "20%"]
)
def test_half_of_the_decoys_of_a_rare_kind_are_made_up(reference_answer: str) -> None:
    decoys = Decoys(ANSWERS, size=8)
    drawn = decoys.draw("q", reference_answer)
    made_up = [answer for answer in drawn if answer not in ANSWERS]
    assert len(drawn) == 8
    assert len(made_up) == 4
    kinds = {name_answer_type(answer) for answer in made_up}
    assert kinds <= {name_answer_type(reference_answer), "integer", "equation or inequality"}
    assert drawn == decoys.draw("q", reference_answer)
    assert set(decoys._replace(varied=False).draw("q", reference_answer)) <= set(ANSWERS), "as it was"


def test_no_decoy_of_a_frequent_kind_is_made_up() -> None:
    decoys = Decoys((*ANSWERS, *(f"{number}x + 1" for number in range(8))), size=8)
    for reference_answer in ("7", "3x + 1"):
        assert set(decoys.draw("q", reference_answer)) <= set(decoys.answers)
    assert decoys.draw("q", "7") == decoys._replace(varied=False).draw("q", "7")


@pytest.mark.parametrize(
    ("logits", "expected"),
    [([2.0], 2.0), ([2.0, -3.0, 1.0], 0.981850), ([2.0, -3.0, -9.0], 2.0), ([-1.0, -9.0], -1.0)],
)
def test_the_lead_over_the_decoys_bounds_the_logit(logits: list[float], expected: float) -> None:
    """log(e^-3 + e) = 1.018150, and 2 - 1.018150 is below 2; a lead of nearly 5 is not."""
    assert DECOYS.compare(torch.tensor(logits)).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("completion", "stated"),
    [("#### 12", ["12"]), ("It is 7.00.", []), ("#### 7", []), ("", []), (r"\boxed{12}", ["12"])],
)
def test_the_answer_that_a_completion_states_is_a_rival_where_it_is_another_one(
    completion: str, stated: list[str]
) -> None:
    drawn = DECOYS.draw("What is 3+4?", "7")
    assert "12" not in drawn
    rivals = DECOYS.rivals("What is 3+4?", "7", completion)
    assert rivals == [*((answer, completion) for answer in (*drawn, *stated)), ("7", "")]


def test_a_stated_answer_that_was_drawn_counts_once() -> None:
    (drawn, *others) = DECOYS.draw("What is 3+4?", "7")
    rivals = DECOYS.rivals("What is 3+4?", "7", f"#### {drawn}")
    assert [answer for answer, _ in rivals] == [drawn, *others, "7"]


@pytest.mark.parametrize(
    ("question", "reference_answer", "completion"),
    [
        ("Simplify the root.", r"2\sqrt{2}", r"\boxed{\sqrt{8}}"),
        ("Add x to 1.", "x+1", "#### 1+x"),
        ("When does the train leave?", "3:30 pm", "#### 15:30"),
        ("Which city?", "Paris, France", "The answer is Paris."),
        ("How many coins are left?", "twelve coins and no more", "#### 12"),
        ("Round 1/3 to the nearest tenth.", "1/3", "#### 0.3"),
        ("Which is larger? (A) 3 (B) 4", "4", "The answer is (B)."),
    ],
)
def test_a_right_answer_in_other_words_is_no_rival(
    question: str, reference_answer: str, completion: str
) -> None:
    answers = {answer for answer, _ in DECOYS.rivals(question, reference_answer, completion)}
    assert answers == {*DECOYS.draw(question, reference_answer), reference_answer}


def test_an_empty_completion_is_never_paid(guarded: VerifyRM) -> None:
    """It is its own rival, beside three decoys: its odds are below 1 to 1."""
    scores = guarded.score([VerifyItem(f"What is {n}+1?", f"{n + 1}", "") for n in range(20)])
    assert max(scores) < 0.5


def test_a_taste_for_answers_alone_is_paid_on_about_one_problem_in_four() -> None:
    """All that a text alone can make of VerifyRM is a taste for some answers. The worst one ranks them all,
    each far above the next: here 40 of those, drawn at random, on 40 answers with 10 questions each."""
    rng = random.Random(0)
    shares: list[float] = []
    for _ in range(40):
        taste = dict(zip(ANSWERS, rng.sample(range(0, 400, 10), 40), strict=True))
        rows = [
            torch.tensor(
                [float(taste[answer]), *(float(taste[name]) if text else -1.0 for name, text in rivals)]
            )
            for answer in ANSWERS
            for number in range(10)
            for rivals in [DECOYS.rivals(f"question {number} of {answer}", answer, "no answer at all")]
        ]
        paid = [DECOYS.compare(row + 1e3).item() > 0 for row in rows]
        shares.append(sum(paid) / len(paid))
    assert sum(shares) / 40 < 0.26
    # Near decoys are not drawn alike for all answers, so that a single taste may do a little better.
    assert max(shares) < 1 / 3


def test_scores_are_what_the_raw_logits_say(guarded: VerifyRM) -> None:
    items = [VerifyItem(f"What is {n}+1?", f"{n + 1}", f"#### {n + 1}") for n in range(12)]
    scores = guarded.score(items, max_tokens_per_batch=60)
    assert scores == pytest.approx(guarded.score(items), abs=1e-5)
    for item, score in zip(items, scores, strict=True):
        with torch.no_grad():
            own, *others = (float(guarded.logits([ids])) for ids in guarded.encode(guarded.compared(item)))
        assert len(others) == 4  # three decoys, and no completion
        lead = own - math.log(sum(map(math.exp, others)))
        assert score == pytest.approx(1 / (1 + math.exp(-min(own, lead))), abs=1e-5)
    assert guarded.score([]) == []


def test_a_text_that_does_not_read_the_reference_answer_is_never_paid(guarded: VerifyRM) -> None:
    """Of 3 decoys, 0 as stated, no completion and the right answer none is ahead: the odds are 1 to 5. Where
    0 is right, they are 1 to 4."""
    with torch.no_grad():
        guarded.model.score.weight.zero_()
    scores = guarded.score([VerifyItem(f"q{n}", f"{n}", "000") for n in range(5)])
    assert scores == pytest.approx([1 / (1 + count) for count in (4, 5, 5, 5, 5)])


def test_with_the_reference_answer_last_a_decoy_costs_its_own_tokens(guarded: VerifyRM) -> None:
    """The other order computes the completion anew for every decoy. Both give what the raw logits say."""
    item = VerifyItem("What is 3+4?", "7", "As everybody knows, 3 and 4 make 7. " * 3 + "#### 7")
    decoys = guarded.decoys
    assert decoys is not None
    [group] = guarded.encode_compared([item])
    assert count_packed(group) > 3 * len(guarded.encode([item])[0])
    note_reading(guarded.model, domain="mathematics", reference_last=True)
    read_last = VerifyRM(guarded.model, guarded.tokenizer)
    [group] = read_last.encode_compared([item])
    [alone], [blank] = (read_last.encode([each]) for each in (item, item._replace(completion="")))
    names = [guarded.tokenizer(answer)["input_ids"] for answer in decoys.draw(item.question, "7")]
    # A decoy, its two separators, and no completion, which shares the question.
    assert count_packed(group) <= len(alone) + sum(len(ids) + 2 for ids in names) + len(blank)
    logits = read_last.logits(group)
    score = torch.sigmoid(decoys.compare(logits)).item()
    assert read_last.score([item]) == [pytest.approx(score, abs=1e-6)]


def test_training_draws_other_decoys_in_every_epoch() -> None:
    drawn = [DECOYS.draw("q", "7", epoch=epoch) for epoch in range(20)]
    assert len(set(drawn)) >= 15
    assert all("7" not in answers and len(set(answers)) == 3 for answers in drawn)
    assert drawn[3] == DECOYS.draw("q", "7", epoch=3)


def test_what_is_trained_is_what_scores_count(guarded: VerifyRM) -> None:
    """One forward pass over groups gives the logits of `score`, and their gradient."""
    items = [VerifyItem(f"What is {n}+1?", f"{n + 1}", f"#### {n + 1}") for n in range(6)]
    logits = guarded.counted_logits(guarded.encode_compared(items))
    assert torch.sigmoid(logits).tolist() == pytest.approx(guarded.score(items), abs=1e-5)
    logits.sum().backward()
    assert guarded.model.score.weight.grad.abs().sum() > 0


def test_decoys_stand_in_the_folder_and_damage_is_named(guarded: VerifyRM, tmp_path: Path) -> None:
    save_verify_rm(guarded, tmp_path / "rm")
    loaded = load_verify_rm(tmp_path / "rm", device=torch.device("cpu"))
    assert loaded.decoys == Decoys(tuple(sorted(ANSWERS)), 3)
    item = VerifyItem("What is 3+1?", "4", "#### 4")
    assert loaded.score([item]) == pytest.approx(guarded.score([item]), abs=1e-6)
    note = getattr(loaded.model.config, KEY)
    setattr(loaded.model.config, KEY, {key: value for key, value in note.items() if key != "varied"})
    assert decoys_of(loaded.model) == Decoys(tuple(sorted(ANSWERS)), 3, varied=False), "an earlier version's"
    setattr(loaded.model.config, KEY, {"answers": ["1"], "size": "many"})
    with pytest.raises(
        ModelError, match=r"(?s)verify_rm_decoys in config.json is damaged or of an .*copy the folder again"
    ):
        decoys_of(loaded.model)
    add_decoys(loaded.model, ANSWERS, count=0)
    assert decoys_of(loaded.model) is None


def test_every_second_decoy_is_near_the_reference_answer() -> None:
    """Of 0 to 39, those next to 27 are 25, 26, 28 and 29; 2, 7, 17 and 20 to 29 share a digit with it."""
    near = nearest_answers(DECOYS, "q", "27")
    assert set(near[:4]) == {"25", "26", "28", "29"}
    assert len(near) == 8
    assert all("2" in answer or "7" in answer for answer in near)
    for number in range(30):
        assert len(set(DECOYS.draw(f"q{number}", "27")) & set(near)) >= 2
    words = Decoys(("ten apples", "two apples", "seven", "x + 1", "x - 1"), size=2)
    assert nearest_answers(words, "q", "x+1")[0] == "x - 1"


def test_answers_of_which_none_is_short_enough_are_refused(make_verify_rm) -> None:
    """The scores would be compared with nothing, as if no decoys had been asked for."""
    with pytest.raises(ConfigError, match="num_decoys=3: none of the 2 reference answers has up to 100 char"):
        add_decoys(make_verify_rm(0).model, ["x" * 101, "y" * 200], count=3)


def test_few_different_answers_are_told(make_verify_rm, caplog: pytest.LogCaptureFixture) -> None:
    add_decoys(make_verify_rm(0).model, ["7"] * 50, count=3)
    assert "verify_rm.num_decoys=3, and the examples have 1 different short reference answers" in caplog.text


def test_a_long_reference_answer_is_ranked_by_its_start() -> None:
    """Spelling takes the product of both lengths: a request of a server could hold it up for minutes."""
    decoys = Decoys(tuple(str(number) * 20 for number in range(100, 200)), size=3)
    started = time.process_time()
    assert len(nearest_answers(decoys, "q", "150" * 40_000)) > 0
    assert time.process_time() - started < 5


def test_half_a_surrogate_pair_is_scored_as_the_replacement_character(guarded: VerifyRM) -> None:
    broken, mended = (VerifyItem(f"1+1?{end}", f"2{end}", f"2{end}") for end in ("\ud800", "\ufffd"))
    assert guarded.score([broken]) == guarded.score([mended])
