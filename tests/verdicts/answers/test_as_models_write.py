"""Answers as language models write them: sentences, lists over several lines, corrections, loose notation."""

import pytest

from cooper_rl.verdicts.answers.verify import verify_answer

BOXED = [
    ("2.5", "2 and 1/2", "correct"),
    ("2.5", r"2 \text{ and } \frac{1}{2}", "correct"),
    ("-2.5", "-2 and 1/2", "correct"),
    ("2.5", "x = 2 and 1/2", "correct"),
    ("2, 1/2", "2 and 1/2", "correct"),
    ("3.5", "2 and 1/2", "incorrect"),
    ("4.5", "2 and 5/2", "incorrect"),
    ("2.5 hours", "2 and 1/2 minutes", "unparsable"),
    (r"\frac{16371}{2000}", "8 371/2000", "correct"),
    ("8 371/2000", "8371/2000", "incorrect"),
    ("500", "1 500/3", "correct"),
    ("0.5", "1 500/3 000", "correct"),
    ("12 345 678", "12345678", "correct"),
    # As a reference answer it may be a list.
    (r"2 \text{ and } \frac{1}{2}", "2.5", "unparsable"),
    (r"3.58\overline{3}", "3 + 7/12", "correct"),
    (r"0.\overline{6}", r"1 - \frac{1}{3}", "correct"),
    (r"0.\overline{6}", r"1 - \frac{1}{4}", "incorrect"),
    (r"\frac{11}{3}, 2", r"2, 4 - 0.\overline{3}", "unparsable"),
    ("2, 11/3", r"2, 3 + \frac{2}{3}", "correct"),
    ("3 + 7/12, 2", r"2, 3.58\overline{3}", "correct"),
    ("x = 9 and y = 1", "(9, 1)", "correct"),
    ("x = 9 and y = 1", "(1, 9)", "incorrect"),
    ("(9, 1)", r"x = 1 \text{ and } y = 9", "incorrect"),
    ("(3, -1)", "y = 3 and x = -1", "unparsable"),
    ("x = 9, y = 1 and z = 2", "(1, 9, 2)", "incorrect"),
    (r"\ln 6", r"\log_e 6", "correct"),
    (r"\ln 6", r"\log_{e}(6)", "correct"),
    (r"\ln 6", r"\log_e 5", "incorrect"),
    (r"\log_e x", r"\ln(x)", "correct"),
    (r"5\sqrt{13}", r"5\sqrt 13", "correct"),
    (r"\frac{5\sqrt{13}}{2}", r"\frac{5{\sqrt 13}}{2}", "correct"),
    (r"5\sqrt{17}", r"5\sqrt13", "incorrect"),
    ("16", "16 per hour", "correct"),
    ("17", "16 per hour", "incorrect"),
    ("16", r"\text{There are 16 apples}", "correct"),
    ("15", r"\text{There are 16 apples}", "incorrect"),
    ("16", r"\text{Janet makes } \$16 \text{ every day}", "correct"),
    ("16", r"\text{Total cost} = \$16", "correct"),
    ("16", r"\text{There are at least 16 apples}", "unparsable"),
    ("16", r"\text{There are nearly 16 apples}", "unparsable"),
    ("16", r"\text{There is anything but 16 apples}", "unparsable"),
    ("16", r"\text{There are close to 16 apples}", "unparsable"),
    ("16", r"\text{It is different from 16 apples}", "unparsable"),
    ("16", r"\text{I doubt that there are 16 apples}", "unparsable"),
    ("16", r"\text{Tom has 16 apples and Ann has 4}", "unparsable"),
    ("4", r"\text{Tom has 16 apples and Ann has 4}", "unparsable"),
    ("5", r"\text{The temperature is 5 degrees below zero}", "unparsable"),
    ("5", r"\text{A loss of 5 dollars overall}", "unparsable"),
    ("5", r"\text{The value is 5x for this}", "unparsable"),
    ("0.5", r"50\% \text{ of the people}", "correct"),
    ("5", r"50\% \text{ of the people}", "incorrect"),
    ("12", r"\textbf{12}", "correct"),
    ("3:30", "3:30", "correct"),
    ("1:20", "01:20", "correct"),
    ("3:30", "1:10", "unparsable"),
    ("1:20", "2:40", "unparsable"),
    ("3:30", "3:45", "incorrect"),
    ("10:20", "1:2", "correct"),
    ("90", "1.5 hours", "unparsable"),
    ("150", "$1.50", "unparsable"),
    ("90", "1.6 hours", "incorrect"),
    ("18000", "18k", "unparsable"),
    ("18500", r"\$18.5K", "unparsable"),
    ("12", "12!", "unparsable"),
    ("12!", "12", "incorrect"),
    ("12", r"\frac{36}{3} \approx 12", "correct"),
    ("12", r"11.6 \approx 12", "unparsable"),
    ("13", r"11.6 \approx 12", "incorrect"),
    (r"\frac34", "3 in 4", "unparsable"),
    ("2.5", "2 & 1/2", "unparsable"),
]


@pytest.mark.parametrize(("reference_answer", "answer", "verdict"), BOXED)
def test_a_loose_answer_is_read_as_a_whole_or_not_at_all(
    reference_answer: str, answer: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, rf"\boxed{{{answer}}}").verdict == verdict


SEVERAL_LINES = [
    ("1", "The answers are:\n1\n2", "unparsable"),
    ("1, 2", "The answers are:\n- $x = 1$\n- $x = 2$", "unparsable"),
    ("3", "The final answer is:\n\n$x = 3$\n\n$y = 4$", "unparsable"),
    ("5", "**Answer:**\n\n5 apples\n\n6 pears", "unparsable"),
    ("Monday", "The answer is:\n- Monday\n- Tuesday", "unparsable"),
    ("2", "The solutions are:\n1\n2", "unparsable"),
    ("2", "The roots are\n\n1 and\n2", "unparsable"),
    ("5", "**Answer:**\n\n**5**", "correct"),
    ("5", "Answer:\n5\n\nThis is because 2 + 3 = 5.", "correct"),
    ("5", "The final answer is:\n\\[\n5\n\\]\n", "correct"),
    ("5", "Answer:\n$5$\n\n$\\blacksquare$", "correct"),
    ("5", "From the steps above we get 5.", "correct"),
    ("5", "It takes just under 5 hours.", "unparsable"),
    ("17", "3*4 = 12\n12+5 = 17\n17", "correct"),
    ("5", "The number of apples they have are\n5", "correct"),
]
TAKEN_BACK = [
    ("The answer is 12. Wait, no, it is 10.", "unparsable"),
    ("The answer is 10. Wait, no, it is 12.", "unparsable"),
    (r"\boxed{12}" + "\n\nActually, it is 10.", "unparsable"),
    ("The final answer is 12. But wait, I forgot the tip.", "unparsable"),
    ("The answer is 12. Hmm, no.", "unparsable"),
    ("#### 12\nWait, that is wrong.", "unparsable"),
    ("I got #### 12 which is wrong", "unparsable"),
    (r"$\boxed{12}$ is a wrong answer.", "unparsable"),
    (r"\boxed{12} is the wrong answer", "unparsable"),
    (r"\boxed{12} cannot be right", "unparsable"),
    (r"\boxed{12} is the right answer", "correct"),
    ("The answer is 12. This is an incorrect result.", "unparsable"),
    ("not #### 12", "unparsable"),
    ("#### 12\n\nThe next question is longer.", "correct"),
    (r"\boxed{12}. No, 7.", "unparsable"),
    (r"\boxed{12}. No. 7 is not among them.", "correct"),
    (r"\boxed{12}. Scratch that, 7", "unparsable"),
    (r"\boxed{12}. Correction: 7", "unparsable"),
    (r"\boxed{12}. Or rather 7", "unparsable"),
    (r"\boxed{12}. Hold on, it is 7", "unparsable"),
    (r"\boxed{12}. My mistake, it is 7", "unparsable"),
    (r"\boxed{12}. I was wrong, it is 7", "unparsable"),
    (r"\boxed{12 does not work}", "unparsable"),
    (r"\boxed{12 ppm}", "unparsable"),
    (r"\boxed{10}. Wait, it should be \boxed{12}.", "correct"),
    ("Wait, no. The answer is 12.", "correct"),
    ("The answer is 12. No further work is needed.", "correct"),
    ("The answer is 12.\n\nWaiting time is included.", "correct"),
    ("The answer is **12** apples.", "correct"),
    ("*12*", "correct"),
    ("__12__", "correct"),
    ("The answer is 12!", "unparsable"),
    ("The answer is that 12 apples or more are left.", "unparsable"),
    ("The answer is 12x for all values of that kind.", "incorrect"),
]


OTHER_THINGS = [
    ("7", r"The answer is \boxed{12}. (A common mistake is \boxed{7}.)", "unparsable"),
    ("7", r"\boxed{12}. Had we doubled, we would have got \boxed{7}.", "unparsable"),
    ("12", r"The number of mistakes is \boxed{12}.", "correct"),
    ("2", r"So $x=\boxed{1}$ or $x=\boxed{2}$.", "incorrect"),
    ("x=1 or x=2", r"So $x=\boxed{1}$ or $x=\boxed{2}$.", "correct"),
    ("1,2", r"$x_1=\boxed{1}$ and $x_2=\boxed{2}$", "correct"),
    ("90 minutes", r"\boxed{1:30}", "unparsable"),
    (r"\binom{n}{2}", r"\boxed{{n \choose 2}}", "correct"),
    (r"\{1,2,3\}", r"\boxed{\{1\}\cup\{2,3\}}", "unparsable"),
    (r"(-\infty,1)\cup(1,\infty)", r"\boxed{(-\infty,0]\cup(0,1)\cup(1,\infty)}", "unparsable"),
    ("n", r"\boxed{n!}", "incorrect"),
    ("n!", r"\boxed{n}", "incorrect"),
    ("ABC", r"\boxed{ABC'}", "unparsable"),
    ("Yes", r"\boxed{Yes. Actually no}", "unparsable"),
    ("Yes", "Final answer: Yes. No.", "unparsable"),
    ("No", "The answer is: No, I mean Yes", "unparsable"),
    ("Yes", "The answer is: No, I mean Yes", "unparsable"),
    ("Yes", "The answer is: Yes, because no even number fits.", "correct"),
    ("C", "Final answer: C... no, B", "unparsable"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{\begin{vmatrix}1&2\\3&4\end{vmatrix}}", "unparsable"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{\begin{bmatrix}1&2\\3&4\end{bmatrix}}", "correct"),
]
"""What looks like the reference answer and is another thing."""


@pytest.mark.parametrize(
    ("reference_answer", "completion", "verdict"),
    [*SEVERAL_LINES, *OTHER_THINGS, *(("12", completion, verdict) for completion, verdict in TAKEN_BACK)],
)
def test_one_of_several_lines_or_an_answer_taken_back_is_none(
    reference_answer: str, completion: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, completion).verdict == verdict


CHOICES = "What is 2+2?\n(A) 3\n(B) 4\n(C) 5\n(D) 6"


@pytest.mark.parametrize("reference_answer", ["A", "B", "D", "3", "4"])
@pytest.mark.parametrize(
    "completion",
    [
        "A) 3 B) 4 C) 5 D) 6",
        "The answer is (A) 3 (B) 4 (C) 5 (D) 6",
        "Answer: A) B) C) D)",
        "Answer:\nA) 3\nB) 4\nC) 5\nD) 6",
        r"\boxed{A. 3 B. 4}",
    ],
)
def test_a_list_of_all_choices_chooses_none(reference_answer: str, completion: str) -> None:
    assert verify_answer(reference_answer, completion, question=CHOICES).verdict == "unparsable"


@pytest.mark.parametrize(
    ("reference_answer", "completion", "verdict"),
    [
        ("B", r"\boxed{(b)}", "correct"),
        ("B", r"\boxed{b}", "correct"),
        ("B", r"\boxed{(a)}", "incorrect"),
    ],
)
def test_a_small_letter_names_a_choice_where_the_question_has_some(
    reference_answer: str, completion: str, verdict: str
) -> None:
    question = "Which number is even? (A) 3 (B) 4 (C) 5"
    assert verify_answer(reference_answer, completion, question=question).verdict == verdict
