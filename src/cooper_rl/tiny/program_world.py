"""The laptop world of programs: one-line functions, an exact judge and an assistant."""

import random
from collections.abc import Sequence

from cooper_rl.domains.programs import perturb
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.randomness import derive_seed
from cooper_rl.tiny.tasks import POINTS, generate_problems, values_of
from cooper_rl.tiny.world import World
from cooper_rl.verdicts.hybrid import JudgeItem, JudgeResult
from cooper_rl.verdicts.programs import parse_tests

TRIES = 8
"""Changes that are tried before a solution is given up."""


def judge_exactly(item: JudgeItem) -> JudgeResult:
    """Correct when the arithmetic that the completion ends in passes the tests, whatever its format."""
    try:
        expected = [test.expected for test in parse_tests(item.reference_answer)]
    except ValueError as error:
        return JudgeResult("unparsable", f"the reference answer cannot be used: {error}")
    found = values_of(item.completion)
    if len(expected) != len(POINTS) or None in found:
        return JudgeResult("incorrect", "ends in no arithmetic of a and b")
    return JudgeResult("correct" if found == expected else "incorrect", f"gives {found}, expected {expected}")


class ProgramAssistant:
    """Changes one piece of a program, and tries again where it computes the same. Needs no server."""

    name = "tiny"

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        """One rewrite per item, in order; None where no change makes it wrong."""
        return [_rewrite(item, random.Random(derive_seed(seed, "rewrite", *item))) for item in items]


def _rewrite(item: RewriteItem, rng: random.Random) -> str | None:
    right = values_of(item.solution)
    for _ in range(TRIES):
        text = perturb(item.solution, rng)
        if text is not None and None not in (found := values_of(text)) and found != right:
            return text
    return None


WORLD = World(
    generate_problems=generate_problems,
    judge=judge_exactly,
    assistant=ProgramAssistant(),
)
