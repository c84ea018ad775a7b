"""Answers that Chinese text states, and takes back."""

import pytest

from cooper_rl.verdicts.answers.verify import verify_answer


@pytest.mark.parametrize(
    "completion",
    [
        "答案是12。",
        "因此，最终答案为：$12$。\n\n以上是全部过程。",
        "所以答案为 \\boxed{12}。",
        "答案应该是12",
        "**答案**：12",
        "【答案】12\n【解析】3+9=12",
        "答案：\n12",
        "Answer：12",
        "Final answer：12",
        "答案不是13，答案是12。",
    ],
)
def test_a_chinese_marker_states_the_answer(completion: str) -> None:
    assert verify_answer("12", completion).verdict == "correct"
    assert verify_answer("13", completion).verdict == "incorrect"


def test_a_chinese_marker_states_a_choice() -> None:
    assert verify_answer("B", "所以只有第二个对。\n故选：B。").verdict == "correct"


@pytest.mark.parametrize(
    "completion",
    [
        "答案不是12",
        "答案是12或13",
        "答案可能是12",
        "答案是12吗？",
        "如果答案是12，那么",
        "答案是12。不对，应该是13。",
        "答案是 \\boxed{12}，但这是错误的。",
        "\\boxed{12} 不对",
        "不是 \\boxed{12}",
        "Ответ: 12. Нет, неверно.",
    ],
)
def test_an_answer_that_chinese_text_denies_is_none(completion: str) -> None:
    assert verify_answer("12", completion).verdict == "unparsable"
