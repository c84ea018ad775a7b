import time

import pytest

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.verdicts.answers.arithmetic import evaluate
from cooper_rl.verdicts.answers.verify import (
    AnswerCheck,
    AnswerItem,
    Comparison,
    compare_quickly,
    is_another_answer,
    parse_reference,
    state_answer,
    verify_answer,
)

CORRECT = [
    # Numbers in any spelling.
    ("18", r"\boxed{18.}"),
    ("18", r"\boxed{018}"),
    ("1000000", r"\boxed{1\,000\,000}"),
    ("10^{6}", r"\boxed{1{,}000{,}000}"),
    ("13,\\!800", r"\boxed{13800}"),
    ("0.00012", r"\boxed{1.2e-4}"),
    ("6.02e23", r"\boxed{6.02\times10^{23}}"),
    ("-3", "\\boxed{−3}"),
    ("-3", "\\boxed{–3}"),
    ("7", "\\boxed{７}"),
    ("7", "\\boxed{٧}"),
    ("1", "\\boxed{1​}"),
    (r"\frac{1}{2}", "\\boxed{½}"),
    (r"\frac{1}{3}", r"\boxed{0.\overline{3}}"),
    (r"\frac{7}{2}", r"\boxed{3\frac12}"),
    ("-1/2", r"\boxed{\frac{-1}{2}}"),
    ("1000.99", "1000,99"),
    ("50%", r"\boxed{0.5}"),
    ("0.458", r"\boxed{\dfrac{27}{59}}"),
    # Units and words round the number.
    ("12", "The answer is 12 apples."),
    ("12", r"\boxed{\text{12 apples}}"),
    (r"5\text{ km}", r"\boxed{5000\text{ m}}"),
    ("90", r"\boxed{90^\circ}"),
    ("$1,234.50", "#### 1234.5"),
    ("28%", "$28$ percent"),
    # Where the answer stands.
    ("26", "It costs 3.\nA: 26"),
    ("10", "The answer is 10.0."),
    ("7", "First \\boxed{5}. Wait, recompute: \\boxed{7}"),
    ("7", "**Final Answer**\n\n7"),
    ("7", "<think>the answer is 9</think> \\boxed{7}"),
    ("7", "The answer is $7$ because 3+4=7, not 8."),
    ("7", '```json\n{"reasoning": "3+4", "answer": "7"}\n```'),
    ("7", "5 + 2 = 7\n\\boxed{7}"),
    ("7", "#### 7\n\nCheck: 7 × 2 = 14."),
    ("7", "There are 7 clips in total."),
    ("7", "#### Step 2: Add\n5 + 2 = 7\n\n**Answer: 7**"),
    ("7", "The final answer is simply 7."),
    ("7", "So altogether she sold **7 clips**."),
    ("7", '## Step 2: Write the answer in the required format\n{\n"reasoning": "3+4", "answer": "7"\n}'),
    ("15", '{"answer": "20 - 5 = 15 apples"}'),
    ("17", '{"answer": 17, "sure": true}'),
    ("17", '{"answer": "17'),
    ("5", '{"answer": "5 apples"}\n{"answer": "5"}'),
    ("7", "The answer is \\[\n7\n\\]\nThat took 3 steps."),
    ("7", "The answer is $$\n7\n$$\nThat took 3 steps."),
    ("7", "The answer is $$\n7"),
    ("1,2", r"\boxed{1} and \boxed{2}"),
    ("7", r"\boxed{5} and then we get \boxed{7}"),
    ("2", r"\boxed{1} and the other number, which comes out of the second of these equations, is \boxed{2}"),
    ("15", "so we get 20 - 5 = 15 apples left over"),
    ("7", "答案是 7。"),
    ("7", "Ответ: 7"),
    # Answers with parts.
    ("1,2,3", r"\boxed{3,1,2}"),
    ("98,99,100", r"\boxed{100,99,98}"),
    ("{1,2,3}", r"\boxed{1,2,3}"),
    ("1,2", r"\boxed{x=1\text{ or }x=2}"),
    (r"\pm 2", r"\boxed{2,-2}"),
    ("(0,2),(0,-2)", r"\boxed{\{(0,-2), (0, 2)\}}"),
    ("7,4", r"\boxed{7 \text{ goats and } 4 \text{ helicopters}}"),
    (r"(-\infty,-5)", r"\boxed{k < -5}"),
    (r"-4<m\leq0", r"\boxed{(-4, 0]}"),
    ("x>3", r"\boxed{3<x}"),
    (r"4 < m \leq 8 \text{ or } 10 \leq m < 12", r"\boxed{(4, 8] \cup [10, 12)}"),
    (r"\{x|-2<x<3\}", r"\boxed{(-2,\ 3)}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\boxed{[[1,2],[3,4]]}"),
    # Algebra.
    ("f(z)=z", r"\boxed{f(x)=x}"),
    (r"\frac{3 m}{2}-1", r"\boxed{\dfrac{3m - 2}{2}}"),
    (r"2\sqrt{2}", "\\boxed{√8}"),
    ("3+4i", r"\boxed{3+4j}"),
    ("xy=6", r"\boxed{2xy=12}"),
    # Words that are choices, not prose.
    ("B", r"\boxed{B) 15}"),
    ("True", r"\boxed{true}"),
    (r"\emptyset", r"\boxed{\text{no solution}}"),
    (r"164 \pi \text{ square feet}", r"The answer is: 164  pi \mbox{ square feet}"),
    (r"18\pi cm^{2}", r"\boxed{x = 18\pi cm^{2}}"),
    (r"\alpha = \pm 1 + 2m, \beta = \mp 1", r"So the final result is \alpha = \pm 1 + 2m, \beta = \mp 1."),
    (r"\frac{2}{n!(n + k)! \cdot 2^{2n}}", r"So the final result is \frac{2}{n!(n + k)! \cdot 2^{2n}}."),
    (r"\frac{\sin((n+1)a)}{\sin a}", "The answer is: ((sin ((n+1) a))/(sin a))"),
    (r"\lim_{x \to \infty} x = \infty", r"\boxed{\lim_{x \to \infty} (x) = \infty}"),
    (r"n = 101k \text{ where } k \in \mathbb{N}", r"The answer is n = 101k \text{ where } k \in \mathbb{N}."),
]
INCORRECT = [
    (r"1.6\times 10^{-19}", r"\boxed{9.1\times 10^{-31}}"),
    ("0.0000001", r"\boxed{0.0000002}"),
    ("2^{100}", r"\boxed{1267650600228229401496703205377}"),
    ("5 km", r"\boxed{5 m}"),
    ("1011_7", r"\boxed{1011_2}"),
    ("√2", "\\boxed{√3}"),
    (r"\frac{1}{3}", r"\boxed{0.33}"),
    ("10", r"\boxed{9.99}"),
    ("100!", r"\boxed{100}"),
    ("2x", r"\boxed{2}"),
    ("7:05", r"\boxed{7:50}"),
    ("(1,2)", r"\boxed{(2,1)}"),
    ("(1,2)", r"\boxed{[1,2]}"),
    ("5,1", r"\boxed{1,6}"),
    ("1,2,3", r"\boxed{1,2}"),
    ("(3,7),(7,3)", r"\boxed{(3,7),(7,3),(3,7)}"),
    ("40 apples, 60 pears", r"\boxed{40 apples, 50 plums}"),
    (r"x \le 5", r"\boxed{x < 5}"),
    ("1,000", r"\boxed{1, 0}"),
    ("2", r"The solutions are $\boxed{1}$ and $\boxed{2}$."),
    ("5", "First \\boxed{5}. Wait, recompute: \\boxed{7}"),
    ("8", "The answer is $7$ because 3+4=7, not 8."),
    ("3", r"I first had \boxed{3}. The final answer is 4."),
    ("6", "The answer is 5*6=30"),
    ("A", r"\boxed{B}"),
]
HUGE = (
    "99999999!",
    "((9!)!)!",
    "2^{99999999}",
    "9^{9^{9}}",
    "2^{2024!}",
    r"\binom{999999}{3}",
    "(x+1)^{9999}",
)
UNPARSABLE = [
    ("1", r"\boxed{\frac{1}{0}}"),
    ("7", ""),
    ("7", r"We get 7. \boxed{}"),
    ("7", r"We get 7, \boxed{7"),
    ("7", "Let's solve this problem step by step."),
    ("7", "<think>the answer is 7</think>"),
    ("7", "<think>the answer is 7"),
    ("12 apples", r"\boxed{12 pears}"),
    ("204_5", r"\boxed{54}"),
    ("x=5", r"\boxed{y=5}"),
    ("1<x<3", r"\boxed{1<y<3}"),
    ("b < a < d < c", r"\boxed{a < b < c < d}"),
    ("5", "The answer is not 4.\n5"),
    ("(1,204_5)", r"\boxed{(1,54)}"),
    ("(0,204_5)", r"\boxed{[0,54]}"),
    ("5", '{"answer": "5"}\nI was wrong: {"answer": "6"}'),
    ("5 red and 3 blue tiles", r"\boxed{5 tiles}"),
    (r"\forall x: x^2 \ge 0", r"\boxed{\forall x: x \ge 0}"),
    ("60^ 60^ 60^", "Therefore the value is 60^\n90^\n60^\n"),
    ("41^o", "The answer is 41^\no."),
    *(("7", rf"\boxed{{{huge}}}") for huge in HUGE),
    (r"-\arctan 2", "Therefore the value is -\n\\arctan 2"),
    (r"A(0; -\frac{7}{6}; 0)", "Therefore the value is A(0; -((7)/(7)); 0)"),
    (r"f(\frac{\pi}{4}) = 0", "Therefore the value is f(((pi)/(2))) = 0"),
    (r"\frac{3^{2010}+1}{2 \cdot 3^{2010}}", r"Therefore the value is \frac{3^{2010}-1}{2 * 3^{2010}}"),
    (r"\$\frac23 \approx \$0.67", r"\boxed{$\$\frac23 \approx \$0.67$}"),
]


@pytest.mark.parametrize(("reference_answer", "completion"), CORRECT)
def test_an_answer_that_means_the_reference_answer_is_correct(reference_answer: str, completion: str) -> None:
    assert verify_answer(reference_answer, completion).verdict == "correct"


@pytest.mark.parametrize(("reference_answer", "completion"), INCORRECT)
def test_another_answer_is_incorrect(reference_answer: str, completion: str) -> None:
    assert verify_answer(reference_answer, completion).verdict == "incorrect"


@pytest.mark.parametrize(("reference_answer", "completion"), UNPARSABLE)
def test_what_cannot_be_read_or_decided_is_unparsable_with_a_reason(
    reference_answer: str, completion: str
) -> None:
    check = verify_answer(reference_answer, completion)
    assert check.verdict == "unparsable"
    assert check.reason


def test_number_words_are_read_only_where_the_policy_says_so() -> None:
    assert verify_answer("8", r"\boxed{\text{eight}}").verdict == "correct"
    assert verify_answer("32", "The answer is thirty-two.").verdict == "correct"
    assert verify_answer("9", r"\boxed{eight}").verdict == "incorrect"


@pytest.mark.parametrize("completion", ["The answer is ten.", r"\boxed{ten}", r"It is 10, so \boxed{ten}"])
@pytest.mark.parametrize("reference_answer", ["10", "12"])
def test_number_words_that_are_not_read_are_an_abstention(reference_answer: str, completion: str) -> None:
    not_reading = AnswerPolicy(number_words=False)
    assert verify_answer(reference_answer, completion, policy=not_reading).verdict == "unparsable"


def test_each_policy_changes_its_own_verdict_only() -> None:
    rounded = ("0.458", r"\boxed{\frac{27}{59}}")
    assert verify_answer(*rounded, policy=AnswerPolicy(reference_rounding=False)).verdict == "unparsable"
    kilometres = (r"5\text{ km}", r"\boxed{5000\text{ m}}")
    assert verify_answer(*kilometres, policy=AnswerPolicy(convert_units=False)).verdict == "unparsable"
    corrected = ("7", r"First \boxed{5}. Wait: \boxed{7}")
    assert verify_answer(*corrected, policy=AnswerPolicy(several_boxes="abstain")).verdict == "unparsable"
    twice = '{"answer": "5"} {"answer": "6"}'
    assert verify_answer("5", twice, policy=AnswerPolicy(several_json="first")).verdict == "correct"
    assert verify_answer("6", twice, policy=AnswerPolicy(several_json="last")).verdict == "correct"
    thought = ("7", r"<think>so \boxed{7}</think>")
    assert verify_answer(*thought, policy=AnswerPolicy(answer_in_thought=True)).verdict == "correct"
    beside = ("7", "<think>#### 5</think>The answer is 7.")
    assert verify_answer(*beside, policy=AnswerPolicy(answer_in_thought=True)).verdict == "correct"


@pytest.mark.parametrize("thought", ["The answer is 7.", "#### 7", "Final answer: 7", "so 7", "7"])
def test_a_tag_is_no_part_of_an_answer_in_a_thought(thought: str) -> None:
    policy = AnswerPolicy(answer_in_thought=True)
    assert verify_answer("7", f"<think>{thought}</think>", policy=policy).verdict == "correct"
    assert verify_answer("7", f"<think>{thought}</think>").verdict == "unparsable"


def test_a_reference_answer_without_content_is_refused() -> None:
    parse_reference(r"$\frac{1}{2}$")
    with pytest.raises(ValueError, match=r"reference answer ' \$\$ ' holds no number, word or expression"):
        parse_reference(" $$ ")


@pytest.mark.parametrize(
    ("reference_answer", "fault"),
    [
        (r"\frac{", "a brace without its partner"),
        ("1}{2", "a brace without its partner"),
        ("The solution set is } (0, 1)", "a brace without its partner"),
        ("idk (((", "a bracket without its partner"),
        ("idk ((((", "a bracket without its partner"),
        (r"(0, 2-\sqrt{2}])", "a bracket without its partner"),
        (r"x = \frac", r"has \\frac without what it applies to"),
        (r"(2, \sqrt)", r"has \\sqrt without what it applies to"),
        (r"\end{cases} 5", r"has a \\begin or \\end without the other"),
    ],
)
def test_a_reference_answer_that_breaks_off_is_refused(reference_answer: str, fault: str) -> None:
    with pytest.raises(ValueError, match=rf"{fault}; give the whole answer"):
        parse_reference(reference_answer)


@pytest.mark.parametrize(
    "reference_answer",
    [
        "[0,1)", "]0,1[", "[0,1[", "A) 12", "(A) 12", "1) 5; 2) 7", r"\left\{ x=2 \right.", r"\{1, 2\}",
        r"\begin{cases} {x=2} \\{y=1} \end{cases}", r"\frac12", r"\sqrt[3]{2}", "\\emptyset", "第二象限", "∅",
        "ten apples", r"\boxed{7}",
    ],
)  # fmt: skip
def test_a_whole_reference_answer_is_taken(reference_answer: str) -> None:
    parse_reference(reference_answer)


def test_a_reference_answer_may_be_a_whole_solution_with_a_box() -> None:
    assert verify_answer(r"5*2=10, so \boxed{10}", "#### 10").verdict == "correct"
    assert verify_answer(r"5*2=10, so \boxed{10}", "#### 5").verdict == "incorrect"


@pytest.mark.parametrize(
    ("reference_answer", "answer", "verdict"),
    [
        ("7", "7.0", "correct"),
        ("7", "3+4", "correct"),
        ("7", "3+5", "incorrect"),
        ("x^2", "x*x", None),
        ("(1,x^2)", "(1,x*x)", None),
        ("(1,x^2)", "(2,x*x)", "incorrect"),
        ("1" * 2001, "1" * 2001, None),
    ],
)
def test_what_needs_no_algebra_and_is_short_is_compared_at_once(
    reference_answer: str, answer: str, verdict: str | None
) -> None:
    check = compare_quickly(Comparison(reference_answer, answer, ""), AnswerPolicy())
    assert (check and check.verdict) == verdict


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("12", True),
        (r"\frac12", False),
        ("50%", False),
        (" 0.5 ", False),
        ("x", True),
        (r"\boxed{0.5}", False),
    ],
)
def test_another_answer_is_another_by_value(answer: str, expected: bool) -> None:
    assert is_another_answer("", "0.5", answer) is expected


def test_a_long_answer_is_no_other_than_itself() -> None:
    assert not is_another_answer("", "1+" * 2000 + "1", "1+" * 2000 + "1")


def test_algebra_is_not_tried_on_thousands_of_characters() -> None:
    long = "x" + "+x" * 2000
    check = verify_answer("x^2", rf"\boxed{{{long}}}")
    assert check == AnswerCheck("unparsable", "over 3000 characters of mathematics")


def test_arithmetic_is_exact_bounded_and_does_not_recurse() -> None:
    """By hand: -2^2 = -4; 1/(1/2) = 2; 1 - 3/4 = 1/4; 5000 brackets hold a 1."""
    assert evaluate("-2^2") == -4
    assert evaluate(r"\frac{1}{\frac{1}{2}}") == 2
    assert evaluate(r"-\frac{3}{4}+1") == 0.25
    assert evaluate("(" * 5000 + "1" + ")" * 5000) == 1
    assert [
        evaluate(text) for text in ("10^{1000000}", "1/0", "3 4", "x+1", "(3", "3)", r"\frac{1}", "2+")
    ] == [None] * 8


@pytest.mark.parametrize(
    "unit", ["(", "$", "½", "1,", "a,", r"\boxed{", r"\frac{", "answer is ", "x<", "and ", "9", "\\"]
)
def test_no_text_takes_long_where_there_is_no_time_limit(unit: str) -> None:
    """What runs in the calling process is bounded: 20,000 characters of anything in well under a second."""
    started = time.process_time()
    stated = state_answer(
        AnswerItem("1,2", r"\boxed{1" + unit * (20_000 // len(unit)) + "1}"), AnswerPolicy()
    )
    if not isinstance(stated, AnswerCheck):
        compare_quickly(stated, AnswerPolicy())
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("question", "reference_answer", "completion", "verdict"),
    [
        ("(3 + 4) * 2 =", "14", "The answer is (3+4)*2", "unparsable"),
        ("(3 + 4) * 2 =", "14", "x=(3 + 4) * 2 =", "unparsable"),
        ("(3 + 4) * 2 =", "14", "\\boxed{7 * 2}", "correct"),
        ("(3 + 4) * 2 =", "15", "The answer is (3+4)*2", "incorrect"),
        ("Which is larger, 2^3 or 3^2?", "3^2", "\\boxed{3^2}", "correct"),
        ("She ate 3/8 of it. How much is that?", "0.375", "\\boxed{3/8}", "correct"),
    ],
)
def test_a_calculation_of_the_question_is_no_result(
    question: str, reference_answer: str, completion: str, verdict: str
) -> None:
    assert verify_answer(reference_answer, completion, question=question).verdict == verdict
