"""The laptop's judge: an exact evaluator of meaning that implements `core.labeling.Judge`.

It stands where an LLM judge stands in production, so it can be made to err: a given share of verdicts
is flipped, by a hash of seed and item, so that the same item always gets the same verdict.
"""

import re
from collections.abc import Callable, Sequence

from cooper_rl.randomness import derive_seed
from cooper_rl.tiny.meaning import find_conclusion
from cooper_rl.verdicts.hybrid import JudgeItem, JudgeResult


class TinyJudge:
    """Judges final answers by meaning; never abstains, since a text without an answer is no solution.

    Args:
        error_rate: Share of verdicts to flip, 0..1.
        seed: Other seeds flip other verdicts.
        exact: The world's; None: that of mathematics.
    """

    def __init__(
        self,
        error_rate: float,
        seed: int,
        exact: Callable[[JudgeItem], JudgeResult] | None = None,
    ) -> None:
        self.name = f"tiny(error_rate={error_rate:g})"
        self.identity = f"tiny(error_rate={error_rate!r}, seed={seed})"
        self._error_rate = error_rate
        self._seed = seed
        self._exact = exact or judge_exactly

    def judge(self, items: Sequence[JudgeItem]) -> list[JudgeResult]:
        """One result per item, in order."""
        return [self._judge(item) for item in items]

    def _judge(self, item: JudgeItem) -> JudgeResult:
        result = self._exact(item)
        draw = derive_seed(self._seed, "judge", *item) / 2**63
        if draw >= self._error_rate:
            return result
        verdict = "incorrect" if result.verdict == "correct" else "correct"
        return JudgeResult(verdict, f"flipped by the error rate: {result.reason}")


def judge_exactly(item: JudgeItem) -> JudgeResult:
    """Correct when the completion states one value and it is the reference answer's."""
    expected = find_conclusion(item.reference_answer).values
    if len(expected) != 1:
        return JudgeResult(
            "unparsable", f"reference answer {item.reference_answer!r} is not one number in digits or words"
        )
    conclusion = find_conclusion(item.completion)
    stated = conclusion.values
    if len(stated) == 0:
        return JudgeResult("incorrect", "states no answer")
    if len(stated) > 1:
        return JudgeResult("incorrect", f"states different answers: {', '.join(map(_show, stated[:5]))}")
    if _CHANGED.search(item.completion[: conclusion.spans[-1][0]]):
        return JudgeResult("incorrect", "words before the number make another one of it")
    verdict = "correct" if stated == expected else "incorrect"
    return JudgeResult(verdict, f"states {_show(stated[0])}, reference answer {_show(expected[0])}")


_CHANGED = re.compile(
    r"\b(?:not|no|half(?: of)?|twice|double|minus|more than|less than)[\s:*$]{1,3}$", re.IGNORECASE
)


def _show(value: float) -> str:
    return f"{value:g}"
