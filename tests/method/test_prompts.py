"""The one rule by which VerifyRM's fields are cut."""

from cooper_rl.method.prompts import cut_field


def test_a_long_text_keeps_its_first_500_and_last_1000_characters() -> None:
    text = "a" * 500 + "b" * 700 + "c" * 1000
    assert cut_field(text) == ("a" * 500, "c" * 1000)


def test_a_text_of_1500_characters_is_left_alone() -> None:
    text = "".join(chr(97 + place % 26) for place in range(1500))
    assert cut_field(text) == (text,)
    assert cut_field(text + "!") == (text[:500], text[501:] + "!")


def test_the_final_answer_of_a_long_completion_survives() -> None:
    assert cut_field("step\n" * 2000 + r"so \boxed{42}")[-1].endswith(r"\boxed{42}")
