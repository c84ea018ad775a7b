import random
from pathlib import Path

import pytest
from transformers import AutoTokenizer, Qwen2Config

from cooper_rl.tiny.problems import generate_stories
from cooper_rl.tiny.solutions import Habits, solve
from cooper_rl.tiny.tokenizer import CHAT_TEMPLATE, build_tokenizer


def world_texts() -> list[str]:
    rng = random.Random(0)
    texts: list[str] = []
    for story in generate_stories(1000, rng):
        solution = solve(story, rng, habits=Habits(slip=0.2, misread=0.2, skip=0.2, misstate=0.2)).text
        texts += [story.question, solution]
    return texts


def test_every_text_of_the_world_comes_back_unchanged() -> None:
    tokenizer = build_tokenizer()
    for text in world_texts():
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.parametrize(
    "text", ["", "naïve 100 €\t\r\n  x", "The answer is 10.0.", "\\frac{1}{2}", "<b>Tom</b>"]
)
def test_text_from_outside_the_world_comes_back_unchanged(text: str) -> None:
    tokenizer = build_tokenizer()
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_no_word_of_the_world_is_spelled_in_characters() -> None:
    tokenizer = build_tokenizer()
    for text in world_texts():
        for token in tokenizer.tokenize(text):
            assert len(token) > 1 or not token.isalpha() or token in {"Ġ", "Ċ"}, (token, text)


def test_words_carry_their_space_and_numbers_do_not() -> None:
    assert build_tokenizer().tokenize("Tom has 42 apples.") == ["Tom", " has", "Ġ", "42", " apples", "."]


def test_pad_and_end_are_distinct() -> None:
    assert build_tokenizer().pad_token_id != build_tokenizer().eos_token_id


def test_beside_a_qwen2_model_it_loads_with_auto_tokenizer_and_makes_the_same_prompt(tmp_path: Path) -> None:
    """AutoTokenizer overrides the class that a folder names when the model beside it is a Qwen2."""
    built = build_tokenizer()
    built.save_pretrained(tmp_path)
    Qwen2Config().save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    messages = [{"role": "user", "content": "How many?"}]
    prompt = loaded.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert prompt == "Question: How many?\nAnswer: "
    assert loaded.chat_template == CHAT_TEMPLATE
    text = "How many apples? 10 7-2=5. \\boxed{ten} <reference_answer>"
    assert loaded(text)["input_ids"] == built(text)["input_ids"]
    assert (loaded.pad_token, loaded.eos_token) == ("<pad>", "<end>")
