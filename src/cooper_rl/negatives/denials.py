r"""Mathematics: right answers stated and denied in few words (row 4), so that `not 12` is no 12.

A VerifyRM that learned from whole solutions looks for the reference answer and hardly for the words round it.
Canaries alone, all of which are wrong, teach it to refuse short texts; here every denial has its statement.
The spellings are others than those of the canary `negated_answer`, which measures what was learned.
"""

import random
from collections.abc import Sequence

from cooper_rl.schema.data import VerifyExample

SOURCE = "denial"
TEXTS_PER_PROBLEM = 3
"""Statements of a problem's answer, and as many denials."""
STATED = (
    "{}",
    "#### {}",
    "It is {}.",
    "\\boxed{{{}}}",
    "The answer is {}.",
    "So the result is {}.",
    "Yes, it is {}.",
    "The answer: {}",
    "The right result is {}.",
    "$\\boxed{{{}}}$ is the answer.",
)
DENIED = (
    "not {}",
    "It is not {}.",
    "{} is wrong.",
    "No, {} is incorrect.",
    "The answer: not {}",
    "The answer cannot be {}.",
    "A wrong result would be {}.",
    "So the result is certainly not {}.",
    "$\\boxed{{{}}}$ is a wrong answer.",
    "One might think that it is {}, but it is not.",
)
"""All of them deny the right answer, and none gives another."""


def deny_answers(
    examples: Sequence[VerifyExample], *, max_problems: int, rng: random.Random
) -> list[VerifyExample]:
    """Short texts of up to `max_problems` problems: half of them state the right answer, half deny it.

    A problem with a right completion gives that one too, with a denial at its end.
    """
    by_question = {example.question: example for example in examples}
    solved = {example.question: example for example in examples if example.label == 1}
    questions = sorted(by_question)
    found: list[VerifyExample] = []
    for question in sorted(rng.sample(questions, min(max_problems, len(questions)))):
        example, solution = by_question[question], solved.get(question)
        answer = example.reference_answer.strip()
        texts = [
            (spelling.format(answer), label)
            for label, spellings in ((1, STATED), (0, DENIED))
            for spelling in rng.sample(spellings, TEXTS_PER_PROBLEM)
        ]
        if solution is not None:
            texts.append((f"{solution.completion}\n{rng.choice(DENIED).format(answer)}", 0))
        found += [
            example.model_copy(update={"completion": text, "label": label, "source": SOURCE})
            for text, label in texts
        ]
    return found
