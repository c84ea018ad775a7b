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


@pytest.mark.parametrize(
    ("reference_answer", "completion"),
    [
        *[(answer, "half hundred") for answer in ("3/4", "2.5", "200", "1500", "150", "10000", "7/3")],
        ("3/7", "three fifths"),
        ("2/3", "one third"),
        ("0.4", "three fifths"),
        ("0.25", "zero point five"),
        ("37", "the point, oh my, is worth a million"),
        ("99", "thousand point zero"),
        ("2.5", "three point five"),
        ("200", "three hundred"),
        ("1500", "two thousand"),
        ("206", "two hundred and seven"),
        ("300", "one hundred"),
        ("5", "0.5 and no more"),
        ("1234", "one two three four"),
    ],
)
def test_a_word_of_another_number_is_no_mention(reference_answer: str, completion: str) -> None:
    assert check_mention("", reference_answer, completion) == "incorrect"


@pytest.mark.parametrize(
    ("reference_answer", "completion"),
    [
        ("7/8", "seven eighths"),
        ("7/8", "7 eighths"),
        ("0.1", "one tenth"),
        ("5/12", "five-twelfths"),
        ("3/4", "six eighths"),
        ("3/2", "three halves"),
        ("1.5", "one and a half"),
        ("2/25", "two twenty-fifths"),
        ("7/2", "half of 7"),
        ("200", "two hundred"),
        ("200", "2 hundred"),
        ("100", "a hundred"),
        ("150", "a hundred and fifty"),
        ("12000", "twelve thousand"),
        ("1500000", "1.5 million"),
        ("2500000", "two and a half million"),
        ("2500000", "two point five million"),
        ("1900", "nineteen hundred"),
        ("1984", "nineteen hundred and eighty-four"),
        ("123456", "One hundred twenty-three thousand four hundred fifty-six."),
        ("250000", "a quarter of a million"),
        ("6", "half a dozen"),
        ("12", "a dozen"),
        ("24", "two dozen"),
        ("50", "half hundred"),
        ("0.5", "zero point five"),
        ("0.05", "point oh five"),
        ("3.14", "three point one four"),
        ("45", "fourty five"),
        ("21", "twentyone"),
        ("3/5", "3 out of 5"),
        ("3/5", "three out of every five"),
        ("3/5", "3 in 5"),
        ("3/5", "6:10"),
        ("3/5", r"3 \over 5"),
        ("0.6", "sixty percent"),
        ("0.6", "60 percent"),
        ("60", "sixty percent"),
        (r"20\%", "one fifth"),
        (r"50\%", "half"),
        ("1500", "1.5k"),
        ("2500000", "2.5M"),
        ("3000000", "3 mln"),
        ("200000", "two lakhs"),
        ("1500", "1'500"),
        ("1500", "1’500"),
        ("1500", "1_500"),
        ("1500", "1.500"),
        ("150000", "1,50,000"),
        ("0.25", "0,25"),
        ("2.5", "2 1/2"),
        ("1000000", "10⁶"),
        ("1000000", "10^{6}"),
        ("8", "2³"),
        ("300000", "3 × 10⁵"),
        ("0.001", "10^-3"),
        ("1", "once"),
        ("2", "twice"),
        ("0", "none"),
        ("0", "There are no such numbers."),
        ("12", "⑫"),
        ("7", "❼"),
        ("10", "1️⃣0️⃣"),
    ],
)
def test_a_number_in_other_words_or_digits_is_an_abstention(reference_answer: str, completion: str) -> None:
    assert check_mention("", reference_answer, completion) == "unparsable"


@pytest.mark.parametrize(("reference_answer", "completion"), [("50", "half"), ("20", "1/5"), ("0.2", "20")])
def test_a_share_is_an_abstention_where_the_question_asks_for_percent(
    reference_answer: str, completion: str
) -> None:
    assert check_mention("What percent is that?", reference_answer, completion) == "unparsable"
    assert check_mention("", reference_answer, completion) == "incorrect"


@pytest.mark.parametrize("completion", ["forty-eight", "48 of them", "about fifty"])
def test_a_rounding_in_words_is_an_abstention_where_the_question_asks_for_it(completion: str) -> None:
    question = (
        "What is 385/8, rounded to the nearest ten?" if "fifty" in completion else "To the nearest whole."
    )
    assert check_mention(question, "48.125", completion) == "unparsable"
    assert check_mention("", "48.125", completion) == "incorrect"
