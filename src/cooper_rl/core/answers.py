r"""The rule verdict on one completion (row 3): correct, incorrect, or unparsable, with a reason.

In order: find the final answer (`answer_extraction`), bring it and the reference answer to one spelling
(`answer_text`), compare numbers, words and lists exactly (`answer_comparison`), and leave the rest to
math-verify with checks after it (`answer_symbols`). Deliberately left out: time limits and processes, which
`backends/rule_verifier.py` puts round `compare_answers`.
"""

from typing import NamedTuple

from cooper_rl.config import AnswerPolicy
from cooper_rl.core.answer_comparison import AnswerCheck, compare_exactly
from cooper_rl.core.answer_extraction import find_final_answer
from cooper_rl.core.answer_text import normalise_answer

__all__ = ["AnswerCheck", "compare_answers", "parse_reference", "state_answer", "verify_answer"]

MAX_ANSWER_CHARS = 5000


class Comparison(NamedTuple):
    """What is left to compare once the final answer is found; equal comparisons have equal verdicts."""

    reference_answer: str
    answer: str
    marker: str


def verify_answer(
    reference_answer: str, completion: str, *, policy: AnswerPolicy | None = None
) -> AnswerCheck:
    """The rule verdict on a completion, in this process and without a time limit.

    Never raises on a completion. Source of the comparison of last resort: math-verify 0.9.
    """
    stated = state_answer(reference_answer, completion)
    if isinstance(stated, AnswerCheck):
        return stated
    quick = compare_quickly(stated, policy or AnswerPolicy())
    return quick if quick is not None else compare_answers(stated, policy or AnswerPolicy())


def state_answer(reference_answer: str, completion: str) -> Comparison | AnswerCheck:
    """Find and normalise what is to be compared; a verdict already when the completion states no answer."""
    found = find_final_answer(completion)
    if found is None:
        return AnswerCheck("unparsable", "the completion states no answer")
    if not found.text.strip():
        return AnswerCheck("unparsable", f"nothing after the marker {found.marker!r}")
    if len(found.text) > MAX_ANSWER_CHARS:
        return AnswerCheck("unparsable", f"the answer has {len(found.text)} characters")
    return Comparison(_reference_text(reference_answer), normalise_answer(found.text), found.marker)


def compare_quickly(stated: Comparison, policy: AnswerPolicy) -> AnswerCheck | None:
    """The verdict where it needs no algebra and bounded time; None when `compare_answers` must decide."""
    return compare_exactly(stated.reference_answer, stated.answer, policy)


def compare_answers(stated: Comparison, policy: AnswerPolicy) -> AnswerCheck:
    """The verdict on two stated answers, with algebra; may take any time on hostile text."""
    from cooper_rl.core.answer_symbols import compare_by_math_verify

    quick = compare_exactly(stated.reference_answer, stated.answer, policy)
    if quick is not None:
        return quick
    return compare_by_math_verify(stated.reference_answer, stated.answer)


def parse_reference(reference_answer: str) -> None:
    """Check that a reference answer can be compared with at all.

    Raises:
        ValueError: it holds no number, word or expression.
    """
    if not any(character.isalnum() or character in "∅∞" for character in _reference_text(reference_answer)):
        raise ValueError(
            f"reference answer {reference_answer!r} holds no number, word or expression; give one"
        )


def _reference_text(reference_answer: str) -> str:
    found = find_final_answer(reference_answer) if "\\boxed" in reference_answer else None
    return normalise_answer(found.text if found is not None else reference_answer)
