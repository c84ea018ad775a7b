r"""Answers in `<answer>`: the last of all that a completion marks, and none where two of them differ."""

import pytest

from cooper_rl.verdicts.answers.verify import verify_answer

THOUGHT = "<think>\nIs it 41? I put it as <answer>41</answer>. No: 40+2=42.\n</think>\n"


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("<answer>42</answer>", "correct"),
        ("<answer>43</answer>", "incorrect"),
        ("<answer>\n42\n</answer>\n", "correct"),
        ("<Answer> 42 apples. </Answer>", "correct"),
        (r"<answer>\boxed{42}</answer>", "correct"),
        (r"<answer>The result is \(\boxed{42}\).</answer>", "correct"),
        ("<answer>The final answer is 42</answer>", "correct"),
        ("<answer>The answer is 42.</answer>", "correct"),
        ("<answer>\n40+2=42\n#### 42</answer>", "correct"),
        ('<answer>{"answer": 42}</answer>', "correct"),
        ("<answer>40+2=42\nSo she has 42 apples.</answer>", "correct"),
        ("<answer>She has 42 apples.\nHe has others.</answer>", "unparsable"),
        ("<answer>42</answer> I hope this helps!", "correct"),
        ("She has 42. <answer>42</answer>\n\nAsk again if you have 7 more questions.", "correct"),
        ("<answer>42", "correct"),
        ("<answer>42</answer><answer>42</answer>", "correct"),
        ("<answer></answer> <answer>...</answer> <answer>42</answer>", "correct"),
        ("I answer in the format <answer>number</answer>.\n<answer>42</answer>", "correct"),
        (r"\boxed{41} <answer>42</answer>", "correct"),
        (r"<answer>41</answer> \boxed{42}", "correct"),
        (r"<answer>42</answer> \boxed{41}", "incorrect"),
        ('{"answer": 41}\n<answer>42</answer>', "correct"),
        ("<answer>41</answer><answer>42</answer>", "unparsable"),
        ("<answer>42<answer>41</answer>", "unparsable"),
        (r"<answer>\boxed{41}</answer> <answer>\boxed{42}</answer>", "unparsable"),
        ("<answer>42</answer> Wait, that's wrong.", "unparsable"),
        ("<answer>42</answer>\nNo, 42 is not correct.", "unparsable"),
        ("It is not <answer>42</answer>", "unparsable"),
        ("<answer>not 42</answer>", "unparsable"),
        ("<answer>maybe 42</answer>", "unparsable"),
        ("<answer>41 or 42</answer>", "incorrect"),
        (r"<answer>\boxed{42} is wrong</answer>", "unparsable"),
        (r"<answer>\boxed{42}</answer> is wrong", "unparsable"),
    ],
)
def test_a_tag_states_the_answer(completion: str, verdict: str) -> None:
    assert verify_answer("42", completion).verdict == verdict
    assert verify_answer("42", THOUGHT + completion).verdict == verdict


@pytest.mark.parametrize(
    ("reference_answer", "content"),
    [
        ("Tuesday", "Tuesday"),
        (r"\frac{1}{2}", "1/2"),
        ("x^2+1", r"$x^2 + 1$"),
        ("(1, 2)", "(1, 2)"),
        (r"\emptyset", "∅"),
        (
            r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
            "\n$$\n\\begin{pmatrix}\n1 \\\\\n2\n\\end{pmatrix}\n$$\n",
        ),
    ],
)
def test_a_tag_may_hold_any_answer(reference_answer: str, content: str) -> None:
    assert verify_answer(reference_answer, f"<answer>{content}</answer>").verdict == "correct"


def test_a_tag_that_was_cut_states_nothing() -> None:
    for completion, verdict in (("<answer>42", "unparsable"), ("<answer>42</answer>", "correct")):
        assert verify_answer("42", completion, finish_reason="length").verdict == verdict


def test_a_tag_in_the_thought_states_nothing() -> None:
    assert verify_answer("42", "<think>It is <answer>42</answer></think>").verdict == "unparsable"
