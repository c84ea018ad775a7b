"""Negatives without a server: a correct solution whose answer is another number (row 11).

Implements `core.pairs.Assistant`. Deliberately left out: steps that lead to the other number; the assistant
writes those.
"""

import random
import re
from collections.abc import Sequence

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.randomness import derive_seed
from cooper_rl.verdicts.answers.extraction import find_final_answer

_NUMBER = re.compile(r"(?<![\w.,])\d+(?:\.\d+)?(?![\w]|[.,]\d)")
CHANGES = (-10, -2, -1, 1, 2, 10)


class Perturber:
    """The same item and seed give the same text."""

    name = "numbers"

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        """One text per item, in order; None where the solution's answer holds no number in digits."""
        return [_perturb(item.solution, random.Random(derive_seed(seed, "perturb", *item))) for item in items]


def _perturb(solution: str, rng: random.Random) -> str | None:
    """Another number at every place where the answer stands, from its last appearance as a result on."""
    answer = find_final_answer(solution, AnswerPolicy())
    numbers = _NUMBER.findall(answer.text) if answer is not None else []
    if not numbers:
        return None
    old = numbers[-1]
    places = [match.span() for match in _NUMBER.finditer(solution) if match[0] == old]
    if not places:
        return None
    results = [start for start, _ in places if solution[:start].rstrip().endswith("=")]
    first = results[-1] if results else places[-1][0]
    new = _another(old, rng)
    for start, end in reversed([span for span in places if span[0] >= first]):
        solution = solution[:start] + new + solution[end:]
    return solution


def _another(number: str, rng: random.Random) -> str:
    """Off by 1, 2 or 10 in its last written place, never negative; as many decimals as before."""
    whole, point, decimals = number.partition(".")
    value = int(whole + decimals)
    changed = str(rng.choice([value + change for change in CHANGES if value + change >= 0]))
    if not point:
        return changed
    changed = changed.zfill(len(decimals) + 1)
    return f"{changed[: -len(decimals)]}.{changed[-len(decimals) :]}"
