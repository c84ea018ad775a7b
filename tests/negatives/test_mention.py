"""The verifier without a parser: it rejects only what states the reference answer's value nowhere."""

import pytest

from cooper_rl.negatives.mention import MAX_CHARS, check_mention


@pytest.mark.parametrize(
    ("reference_answer", "completion"),
    [
        ("10", "#### 12"),
        ("10", "1010 100"),
        ("10", ""),
        ("10", "blah blah ) ) )"),
        ("10", "one zero"),
        ("12", "1,2"),
        ("50", "0.5"),
        ("1/2", "two halves make 1"),
        ("21", "twenty and then two one"),
    ],
)
def test_a_number_that_is_written_nowhere_is_rejected(reference_answer: str, completion: str) -> None:
    assert check_mention("", reference_answer, completion) == "incorrect"


@pytest.mark.parametrize(
    ("reference_answer", "completion"),
    [
        ("10", "I tried 10 and threw it away. #### 12"),
        ("10", "It is 10.0, or so."),
        ("10", "Ten"),
        ("21", "The answer is twenty-one."),
        ("21", "it is twenty one"),
        ("100", "a hundred"),
        ("1000", "1,000."),
        ("1,234", "1234"),
        ("1000", "1e3"),
        ("-3", "x = 3"),
        ("3", "x=-3"),
        ("1/2", "0.5"),
        ("0.5", ".5"),
        ("0.5", "50%"),
        ("50\\%", "0.5"),
        ("\\frac{3}{4}", "\\frac34"),
        ("3.5", "3\\frac{1}{2}"),
        ("3", "8/3"),
        ("2", "1,2"),
        ("2 km", "2"),
        ("$5", "costs $5,$"),
        ("5 million", "5 million"),
        ("5000000", "5 Million"),
        ("1/2", "we get \\dfrac{1}{2} of it"),
        ("1/2", "one half"),
        ("1/2", "½ of it"),
        ("0.75", "three quarters"),
        ("2.5", "2½"),
        ("1500", "1{,}500 apples"),
        ("1500", "one thousand five hundred"),
    ],
)
def test_a_number_that_is_written_somehow_is_an_abstention(reference_answer: str, completion: str) -> None:
    assert check_mention("", reference_answer, completion) == "unparsable"


@pytest.mark.parametrize("reference_answer", ["x", "x^2+1", "(1, 2)", "204_5", "Tuesday", "\\sqrt{2}"])
def test_a_reference_answer_that_is_no_plain_number_is_an_abstention(reference_answer: str) -> None:
    assert check_mention("", reference_answer, "#### 77") == "unparsable"


def test_a_very_long_completion_is_not_searched() -> None:
    assert check_mention("", "10", "a" * MAX_CHARS) == "incorrect"
    assert check_mention("", "10", "a" * (MAX_CHARS + 1)) == "unparsable"
