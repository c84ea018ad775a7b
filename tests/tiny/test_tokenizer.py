import random
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from cooper_rl.core.prompts import verify_rm_text
from cooper_rl.tiny.problems import generate_stories
from cooper_rl.tiny.solutions import Habits, solve
from cooper_rl.tiny.tokenizer import CHAT_TEMPLATE, build_tokenizer


def world_texts() -> list[str]:
    rng = random.Random(0)
    texts: list[str] = []
    for story in generate_stories(1000, rng):
        solution = solve(story, rng, habits=Habits(slip=0.2, misread=0.2, skip=0.2, misstate=0.2)).text
        texts += [story.question, solution, verify_rm_text(story.question, str(story.answer), solution)]
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
            assert not (len(token.strip()) == 1 and token.isalpha() and token != "a"), (token, text)
            assert not token.startswith("<0x")


def test_words_carry_their_space_and_numbers_do_not() -> None:
    assert build_tokenizer().tokenize("Tom has 42 apples.") == ["Tom", " has", " ", "42", " apples", "."]


def test_the_tags_of_the_template_are_single_tokens() -> None:
    assert build_tokenizer().tokenize(verify_rm_text("q", "7", "8")) == [
        "<question>",
        "q",
        "</question>",
        "\n",
        "<reference_answer>",
        "7",
        "</reference_answer>",
        "\n",
        "<completion>",
        "8",
        "</completion>",
    ]


def test_pad_end_and_unknown_are_distinct() -> None:
    tokenizer = build_tokenizer()
    assert len({tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id}) == 3


def test_a_saved_tokenizer_loads_with_auto_tokenizer_and_makes_the_same_prompt(tmp_path: Path) -> None:
    built = build_tokenizer()
    built.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    messages = [{"role": "user", "content": "How many?"}]
    prompt = loaded.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert prompt == "Question: How many?\nAnswer: "
    assert loaded.chat_template == CHAT_TEMPLATE
    text = verify_rm_text("How many apples?", "10", "7-2=5. \\boxed{ten}")
    assert loaded(text)["input_ids"] == built(text)["input_ids"]
    assert (loaded.pad_token, loaded.eos_token, loaded.unk_token) == ("<pad>", "<end>", "<unk>")
