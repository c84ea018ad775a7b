"""Negatives without a server: a correct solution whose answer is another number (row 11).

Implements `negatives.pairs.Assistant`. The steps still lead to the old number; an assistant would write
others.
"""

import random
import re
from collections.abc import Sequence

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.randomness import derive_seed
from cooper_rl.verdicts.answers.extraction import find_final_answer

_NUMBER = re.compile(r"(?<![\w.,])\d+(?:\.\d+)?(?![\w]|[.,]\d)")
_EQUALS = re.compile(r"=\s*")
MAX_DIGITS = 300
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
    # Python refuses to convert integers of more than 4,300 digits.
    if not numbers or len(numbers[-1]) > MAX_DIGITS:
        return None
    old = numbers[-1]
    places = [match.span() for match in _NUMBER.finditer(solution) if match[0] == old]
    if not places:
        return None
    results = [match.end() for match in _EQUALS.finditer(solution)]
    starts = {start for start, _ in places}
    first = max(starts.intersection(results), default=places[-1][0])
    new = change_number(old, rng)
    return solution[:first] + _NUMBER.sub(
        lambda match: new if match[0] == old else match[0], solution[first:]
    )


def change_number(number: str, rng: random.Random) -> str:
    """Off by 1, 2 or 10 in its last written place, never negative; as many decimals as before."""
    whole, point, decimals = number.partition(".")
    value = int(whole + decimals)
    changed = str(rng.choice([value + change for change in CHANGES if value + change >= 0]))
    if not point:
        return changed
    changed = changed.zfill(len(decimals) + 1)
    return f"{changed[: -len(decimals)]}.{changed[-len(decimals) :]}"
