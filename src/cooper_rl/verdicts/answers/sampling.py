"""Whether two sympy expressions agree at sampled points (row 3): a filter before algebra, and the third vote.

Points are fixed rationals, so the outcome is the same every time. Deliberately left out: anything but
expressions (sets, relations and matrices are compared part by part or by math-verify).
"""

import cmath
from typing import Any, Literal

import sympy  # pyright: ignore[reportMissingTypeStubs] it ships none

_POINTS = (("37/29", "53/41", "61/67", "71/83"), ("113/97", "19/23", "131/101", "43/59"))
"""Positive, not 1, and never two alike: two expressions that agree here by chance are not worth fearing."""
DIGITS = 20


def agree_at_points(left: Any, right: Any, tolerance: float) -> Literal["yes", "no", "unknown"]:
    """Compare by value where both are expressions in the same variables; relative tolerance."""
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return "unknown"
    values = _values_at_points(left, right)
    if values is None:
        return "unknown"
    return "yes" if all(abs(a - b) <= tolerance * max(abs(a), abs(b)) for a, b in values) else "no"


def are_multiples(left: Any, right: Any, tolerance: float) -> bool:
    """Whether two expressions have one ratio at the points; no where that is unknown."""
    values = _values_at_points(left, right)
    if values is None:
        return False
    (a, b), *others = values
    return all(cmath.isclose(a * d, b * c, rel_tol=tolerance) for c, d in others)


def _values_at_points(left: Any, right: Any) -> list[tuple[complex, complex]] | None:
    """Both values at every point, one point where there are no variables; None where one has no value."""
    names = sorted({str(symbol) for symbol in left.free_symbols | right.free_symbols})
    if len(names) > len(_POINTS[0]):
        return None
    values: list[tuple[complex, complex]] = []
    for point in _POINTS[: 2 if names else 1]:
        replaced = {name: sympy.Rational(text) for name, text in zip(names, point, strict=False)}
        first, second = evaluate_at(left, replaced), evaluate_at(right, replaced)
        if first is None or second is None:
            return None
        values.append((first, second))
    return values


def evaluate_at(expression: Any, values: dict[str, Any]) -> complex | None:
    """The value with variables replaced; None where it has none, or none that a float can hold."""
    try:
        chosen = {symbol: values[str(symbol)] for symbol in expression.free_symbols}
        number = complex(expression.subs(chosen).evalf(DIGITS))
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    return number if number == number and abs(number) < 1e300 else None
