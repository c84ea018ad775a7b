"""The laptop's assistant: rewrites a correct solution into a plausible wrong one (`core.pairs.Assistant`).

It slips in one step and carries the error through to the answer, in the format that it found, so that
neither length nor form tells the two apart.
"""

import random
import re
from collections.abc import Sequence

from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.randomness import derive_seed
from cooper_rl.tiny.meaning import find_conclusion, spell
from cooper_rl.tiny.problems import MAX_VALUE
from cooper_rl.tiny.solutions import SLIPS

_EQUATION = re.compile(r"(\d+)([-+*/])(\d+)=(\d+)")


class TinyAssistant:
    """Needs no server; the same item and seed give the same rewrite."""

    name = "tiny"

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        """One rewrite per item, in order; None where the solution states no single whole number."""
        return [_rewrite(item, random.Random(derive_seed(seed, "rewrite", *item))) for item in items]


def _rewrite(item: RewriteItem, rng: random.Random) -> str | None:
    conclusion = find_conclusion(item.solution)
    if len(conclusion.values) != 1 or not conclusion.values[0].is_integer():
        return None
    expected = find_conclusion(item.reference_answer).values
    equations = list(_EQUATION.finditer(item.solution))
    # A slip in the closing statement alone is the last resort, and the only one without equations.
    choices = [(place, change) for place in range(len(equations)) for change in SLIPS]
    rng.shuffle(choices)
    closing = [(len(equations), change) for change in SLIPS]
    rng.shuffle(closing)
    for place, change in [*choices, *closing]:
        rewritten = _slip_at(item.solution, equations, place=place, change=change)
        if rewritten is not None and find_conclusion(rewritten).values not in ((), expected):
            return rewritten
    return None


def _slip_at(solution: str, equations: list[re.Match[str]], *, place: int, change: int) -> str | None:
    """The solution with equation `place` off by `change`, and everything that follows from it."""
    replaced: dict[tuple[int, int], int] = {}
    conclusion = find_conclusion(solution)
    before = after = int(conclusion.values[0])
    for index, match in enumerate(equations):
        left, operation, right, result = int(match[1]), match[2], int(match[3]), int(match[4])
        if index < place:
            continue
        if index == place:
            value: int | None = result + change
        else:
            left = after if left == before else left
            value = _calculate(left, operation, right)
        if value is None or not 0 <= value <= MAX_VALUE:
            return None
        replaced |= {match.span(1): left, match.span(4): value}
        before, after = result, value
    if place == len(equations):
        before, after = after, after + change
    if int(conclusion.values[0]) != before or not 0 <= after <= MAX_VALUE:
        return None
    replaced |= dict.fromkeys(conclusion.spans, after)
    return _replace(solution, replaced)


def _calculate(left: int, operation: str, right: int) -> int | None:
    if operation == "/":
        return left // right if right and left % right == 0 else None
    return {"+": left + right, "-": left - right, "*": left * right}[operation]


def _replace(solution: str, replaced: dict[tuple[int, int], int]) -> str:
    text = solution
    for (start, end), value in sorted(replaced.items(), reverse=True):
        text = text[:start] + _in_the_form_of(solution[start:end], value) + text[end:]
    return text


def _in_the_form_of(old: str, value: int) -> str:
    """Digits stay digits, `10.0` keeps its zeros, words stay words with their capital."""
    if not old[0].isalpha():
        return str(value) + ("." + old.partition(".")[2] if "." in old else "")
    word = spell(value)
    return word.capitalize() if old[0].isupper() else word
