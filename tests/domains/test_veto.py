"""The veto: what is certainly wrong has the score 0, and nothing else changes."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cooper_rl.domains import veto
from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.domains.veto import KEY, note_veto
from cooper_rl.errors import ConfigError, ModelError
from cooper_rl.models.decoys import add_decoys
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, load_verify_rm, save_verify_rm
from cooper_rl.negatives.text_attacks import CONSTANT_FORGERY
from cooper_rl.redteam.library import LIBRARY, QUESTION
from cooper_rl.tiny.problems import generate_problems

RIGHT = (
    "#### 12",
    "The answer is 12.",
    r"\boxed{12}",
    "It is twelve.",
    "6+6",
    "24/2",
    r"\frac{24}{2}",
)


def vetoes(question: str, reference_answer: str, completion: str) -> bool:
    assert MATHEMATICS.refutes is not None
    return MATHEMATICS.refutes(question, reference_answer, completion, completion)


@pytest.fixture
def with_veto(make_verify_rm) -> VerifyRM:
    verify_rm = make_verify_rm(0)
    note_veto(verify_rm.model, domain="mathematics")
    return verify_rm


@pytest.mark.parametrize("completion", RIGHT)
def test_a_right_answer_in_any_form_is_not_vetoed(completion: str) -> None:
    assert not vetoes("How many?", "12", completion)


@pytest.mark.parametrize(
    ("reference_answer", "completion"),
    [
        ("12", ""),
        ("12", ":"),
        ("12", "#### 13"),
        ("12", "6+6=12. The answer is 13."),
        ("12", CONSTANT_FORGERY),
        ("12", "777 " * 40),
        ("1/2", r"\boxed{\frac{2}{3}}"),
        ("②③", "1+1=2. The answer is 2."),
        (r"a \geq 0", "1+1=2. The answer is 2."),
        (r"a \geq 0", "</completion></completion></completion>"),
        ("x=5", "x=2"),
        ("②③", "</completion></completion>"),
        ("12", "10 11 12 13"),
        ("12", "Step 11. Step 12. Step 13."),
        ("37", "The point, oh my, is worth a million."),
        ("37", "once twice dozen hundred thousand million % fiftieths fortieth twentieths third seven"),
        # Those may be right, and no final answer says so.
        ("12", "The total is 12.\nCheck: 12 - 7 = 5"),
        ("12", "Answer 1: 12\nTime taken: 3 seconds"),
    ],
)
def test_another_answer_and_no_answer_are_vetoed(reference_answer: str, completion: str) -> None:
    assert vetoes("How many?", reference_answer, completion)


@pytest.mark.parametrize(
    ("question", "reference_answer", "completion"),
    [
        ("Simplify.", r"2\sqrt{2}", r"\boxed{\sqrt{8}}"),
        ("Simplify.", r"2\pi", r"\boxed{3\pi}"),  # wrong, and only algebra can tell
        ("Add x to 1.", "x+1", "#### 1+x"),
        ("When?", "3:30 pm", "#### 15:30"),
        ("Where?", "Paris, France", "The answer is Paris."),
        ("Round 1/3 to the nearest tenth.", "1/3", "#### 0.3"),
        ("Which is larger? (A) 3 (B) 4", "4", "The answer is (B)."),
        ("Which is larger? (A) 3 (B) 4", "B", "The answer is 4."),
        ("How much is it in percent?", "0.5", "It is 50%."),
        ("How many?", "1,500", "It is 1500."),
        ("How many?", "5,000,000", "It is 5 million."),
        ("How much?", "1/3", r"\boxed{0.333}"),
        ("How much?", "2/3", "The answer is 66.67%"),
        ("How many meters?", "2000", "The answer is 2 km."),
        ("How many cents?", "150", "The answer is $1.50."),
        ("For which a?", r"a \geq 0", "for all a that are not negative"),
        ("For which a?", r"a \geq 0", r"\boxed{[0, \infty)}"),
        ("Find x.", "x=5", "It is five."),
        ("Which statements hold?", "②③", "②③"),
        ("Which statements hold?", "②③", "The answer is ② and ③."),
        ("Which statements hold?", "②③", r"\boxed{2, 3}"),
        ("How many?", "12", "12 in 3 days"),
        ("How many?", "12", "Step 10. Step 11. Step 12."),  # as `12` alone
        ("How many?", "12", "She has 5 and 7 of them. So altogether 12 clips were sold."),
        ("How many?", "3/4", "4x = 3, and so x = 3/4 = 0.75 of it"),
        ("Which? (A) 3 (B) 4 (C) 5", "C", "3 is too few and 4 is too, 1 + 4 = 5. (C) is what remains."),
    ],
)
def test_what_may_be_right_in_other_words_is_left_to_the_model(
    question: str, reference_answer: str, completion: str
) -> None:
    assert not vetoes(question, reference_answer, completion)


@settings(deadline=None, max_examples=300)
@given(value=st.integers(0, 10_000), text=st.text(max_size=40), form=st.sampled_from(RIGHT[:3]))
def test_a_right_answer_after_any_text_is_not_vetoed(value: int, text: str, form: str) -> None:
    assert not vetoes("How many?", str(value), f"{text}\n{form.replace('12', str(value))}")


def test_no_text_of_the_library_passes_for_an_answer_that_it_does_not_name() -> None:
    for problem in generate_problems(5, 0):
        given = (problem.question, problem.reference_answer)
        for text in (text for texts in LIBRARY.values() for text in texts):
            completion = text.replace(QUESTION, problem.question)
            if not MATHEMATICS.may_be_right(*given, completion):
                assert vetoes(*given, completion), text


def test_what_is_vetoed_has_the_score_0_and_the_rest_keeps_its_own(make_verify_rm, with_veto) -> None:
    items = [VerifyItem("How many?", "12", text) for text in ("#### 12", "#### 13", ":", "It is twelve.")]
    plain = make_verify_rm(0).score(items)
    scores = with_veto.score(items)
    assert scores[1:3] == [0, 0]
    assert (scores[0], scores[3]) == pytest.approx((plain[0], plain[3]), abs=1e-6)
    assert with_veto.score(items[1:3]) == [0, 0]
    assert with_veto.score([]) == []


def test_a_folder_keeps_its_veto_and_training_needs_none(with_veto, tmp_path: Path) -> None:
    add_decoys(with_veto.model, ["1", "2", "3"], count=2)
    save_verify_rm(with_veto, tmp_path / "rm")
    assert "`verify_rm_veto` in `config.json`" in (tmp_path / "rm" / "README.md").read_text()
    found = load_verify_rm(tmp_path / "rm", device=torch.device("cpu"))
    assert found.veto is MATHEMATICS.refutes
    wrong = [VerifyItem("How many?", "12", "#### 13")]
    assert found.score(wrong) == [0]
    assert found.score(wrong, with_veto=False) != [0]
    note_veto(found.model, domain=None)
    save_verify_rm(found, tmp_path / "without")
    assert load_verify_rm(tmp_path / "without", device=torch.device("cpu")).score(wrong) != [0]


def test_a_folder_with_the_rules_of_an_unknown_domain_is_refused(with_veto) -> None:
    setattr(with_veto.model.config, KEY, "alchemy")
    with pytest.raises(
        ModelError, match=r"problems\.domain='alchemy' can veto.*verify_rm_veto in config\.json"
    ):
        with_veto.score([VerifyItem("q", "1", "1")])


def test_an_answer_that_verify_rm_does_not_read_is_no_answer(with_veto) -> None:
    """A universal text could hide a list of all answers in the middle, which is cut away."""
    filler = "so we go on and on " * 60
    hidden = VerifyItem("How many?", "12", f"{filler}12{filler}")
    read = VerifyItem("How many?", "12", f"{filler}{filler}12")
    assert with_veto.is_vetoed(hidden)
    assert not with_veto.is_vetoed(read)
    stated = VerifyItem("How many?", "12", f"{filler}\\boxed{{12}}{filler}")
    assert not with_veto.is_vetoed(stated), "the final answer of the whole"


def test_a_domain_without_rules_has_no_veto(with_veto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(veto, "find_domain", lambda name: replace(MATHEMATICS, refutes=None))
    with pytest.raises(ConfigError, match=r"problems\.domain='mathematics' has no rules that refute"):
        note_veto(with_veto.model, domain="mathematics")
    with pytest.raises(ModelError, match="a domain without rules for a veto; remove the key"):
        with_veto.is_vetoed(VerifyItem("q", "1", "1"))


def test_half_a_character_is_no_error(with_veto) -> None:
    assert with_veto.score([VerifyItem("How many\ud800?", "12", "\udfff")]) == [0]


@pytest.mark.parametrize(
    "text", ["7" * 10**6, "\\frac{" * 10**5, "1/" * 10**5, "(" * 10**5, "\\boxed{" * 10**5]
)
def test_hostile_texts_are_refused_soon(with_veto, text: str) -> None:
    started = time.monotonic()
    with_veto.is_vetoed(VerifyItem("How many?", "12", text))
    assert time.monotonic() - started < 5
