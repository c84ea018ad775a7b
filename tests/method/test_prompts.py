"""The one template of VerifyRM, and its one truncation rule."""

from cooper_rl.method.prompts import truncate, verify_rm_text


def test_the_template_is_the_released_one_to_the_letter() -> None:
    assert verify_rm_text("1+1?", "2", "It is 2.") == (
        "<question>1+1?</question>\n<reference_answer>2</reference_answer>\n<completion>It is 2.</completion>"
    )


def test_a_long_text_keeps_its_first_500_and_last_1000_characters() -> None:
    text = "a" * 500 + "b" * 700 + "c" * 1000
    assert truncate(text) == "a" * 500 + "c" * 1000


def test_a_text_of_1500_characters_is_left_alone() -> None:
    text = "".join(chr(97 + place % 26) for place in range(1500))
    assert truncate(text) == text
    assert truncate(text + "!") == text[:500] + text[501:] + "!"


def test_the_final_answer_of_a_long_completion_survives() -> None:
    assert r"\boxed{42}" in verify_rm_text("q", "42", "step\n" * 2000 + r"so \boxed{42}")
