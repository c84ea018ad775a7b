"""Agreement of two sympy expressions at sampled points (row 3): a filter before algebra, a check after it.

Points are fixed rationals, so the outcome is the same every time. Sets, relations
and matrices are compared part by part or by math-verify.
"""

import cmath
from collections.abc import Sequence
from typing import Any, Literal

import sympy  # pyright: ignore[reportMissingTypeStubs] it ships none

_POSITIVE = (("37/29", "53/41", "61/67", "71/83"), ("113/97", "19/23", "131/101", "43/59"))
_NEGATIVE = (
    ("-41/31", "-17/29", "-73/61", "-11/13"),
    ("-7/23", "59/37", "-97/89", "29/19"),
    ("-211/9", "97/5", "-45/4", "23/6"),
    ("131/6", "-157/8", "109/12", "-83/5"),
    ("1009/7", "-503/3", "877/11", "-401/13"),
)
"""Never 0, 1 or two alike: two expressions that agree here by chance are not worth fearing.

Some are far from 0, as |x+2| is x+2 near it.
"""
_STEPPED = (
    ("1009/7", "503/3", "877/11", "401/13"),
    ("-211/9", "97/5", "-45/4", "23/6"),
    ("2003/17", "-1201/8", "311/19", "-59/3"),
    ("24", "35", "18", "50"),
    ("7", "12", "31", "9"),
)
"""Far apart, as floor(m/2) is floor(m/8) near 1; partly whole, as floor(x) is ceiling(x) - 1 elsewhere."""
_WHOLE = (("2", "3", "5", "7"), ("3", "5", "2", "4"), ("6", "4", "7", "9"))
_STEPS: tuple[Any, ...] = (
    sympy.floor,
    sympy.ceiling,
    sympy.frac,
    sympy.sign,
    sympy.Mod,
    sympy.Heaviside,
    sympy.Piecewise,
)
DIGITS = 20
"""Of a value that becomes a float, which holds sixteen."""
EXACT_DIGITS = 50
"""Of a difference; its last ten may be rounding."""

Agreement = Literal["yes", "no", "unknown"]


def agree_at_points(left: Any, right: Any, tolerance: float) -> Agreement:
    """Compare by value at positive points where both are expressions; relative tolerance."""
    return _agree(left, right, _POSITIVE, tolerance)


def agree_at_negative_points(left: Any, right: Any, tolerance: float) -> Agreement:
    """The same at points with negative numbers, where `|x|` is not `x`."""
    return _agree(left, right, _NEGATIVE, tolerance)


def agree_at_whole_points(left: Any, right: Any, tolerance: float) -> Agreement:
    """The same at whole numbers, where `(-1)^n` is `\\cos(n\\pi)`."""
    return _agree(left, right, _WHOLE, tolerance)


def are_multiples(left: Any, right: Any, tolerance: float) -> bool:
    """True if two expressions have one ratio at the points; False where that is unknown."""
    values = _values_at_points(left, right, _POSITIVE)
    if values is None:
        return False
    (a, b), *others = values
    return all(cmath.isclose(a * d, b * c, rel_tol=tolerance) for c, d in others)


def differ_by_constant(left: Any, right: Any, tolerance: float) -> Agreement:
    """True if left less right has one value at all points: two antiderivatives of one function."""
    values = _values_at_points(left, right, _POSITIVE)
    if values is None or len(values) < 2:
        return "unknown"
    scale = max(1.0, *(abs(number) for pair in values for number in pair))
    first, *others = [a - b for a, b in values]
    return "yes" if all(abs(other - first) <= tolerance * scale for other in others) else "no"


def are_exactly_equal(left: Any, right: Any) -> bool:
    """True if two numbers without variables agree to fifty digits; False where one has no value."""
    try:
        difference: Any = (left - right).evalf(EXACT_DIGITS)
        size: Any = max(abs(left.evalf(DIGITS)), abs(right.evalf(DIGITS)))
        # As sympy's numbers: a float holds neither 4^{-2016} nor its difference from 4^{-2015}.
        return bool(abs(difference) * 10 ** (EXACT_DIGITS - 10) <= size)
    except (ArithmeticError, AttributeError, RecursionError, TypeError, ValueError):
        return False


def _agree(left: Any, right: Any, points: Sequence[tuple[str, ...]], tolerance: float) -> Agreement:
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return "unknown"
    values = _values_at_points(left, right, (*points, *_STEPPED) if _has_steps(left, right) else points)
    if values is None:
        return "unknown"
    return "yes" if all(abs(a - b) <= tolerance * max(abs(a), abs(b)) for a, b in values) else "no"


def _has_steps(*expressions: Any) -> bool:
    """True if any has a function that is constant over an interval, so that near points tell little."""
    return any(expression.has(*_STEPS) for expression in expressions)


def _values_at_points(
    left: Any, right: Any, points: Sequence[tuple[str, ...]]
) -> list[tuple[complex, complex]] | None:
    """Both values at every point, one point where there are no variables; None where one has no value."""
    names = sorted({str(symbol) for symbol in left.free_symbols | right.free_symbols})
    if len(names) > len(points[0]):
        return None
    values: list[tuple[complex, complex]] = []
    for point in points if names else points[:1]:
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
        value: Any = expression.subs(chosen).evalf(DIGITS)
        number = complex(value)
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    has_underflown = number == 0 and value != 0
    return number if number == number and abs(number) < 1e300 and not has_underflown else None
