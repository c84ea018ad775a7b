r"""The numeric third vote (row 3): does the answer have the reference answer's value, rounding allowed?

Asked only where rule and judge disagree, so it may be more lenient than the rule verdict: it accepts values
that are rounded or cut to what one side writes (85.71 for 600/7, 118 for 117.95), another name for the only
variable, and an equation solved for the variable that the answer leaves out. Deliberately left out: words.
"""

import re
from fractions import Fraction
from typing import Any, NamedTuple

import sympy  # pyright: ignore[reportMissingTypeStubs] it ships none

from cooper_rl.verdicts.answers.comparison import AnswerCheck, shorten
from cooper_rl.verdicts.answers.numbers import parse_quantity
from cooper_rl.verdicts.answers.parts import compare_parts
from cooper_rl.verdicts.answers.sampling import agree_at_points, evaluate_at
from cooper_rl.verdicts.answers.structure import parse_structure
from cooper_rl.verdicts.answers.symbols import find_doubt, parse_symbols

# Untyped library: its overloads resolve to unknown types.
_SYMPY: Any = sympy

MIN_DIGITS = 3
"""Significant digits below which a rounded value says too little."""
MIN_DIGITS_OF_EXACT = 4
"""The same where the reference answer is exact and the answer is its rounding."""


def vote_numerically(reference: str, answer: str) -> AnswerCheck:
    """Compare two normalised answers by value; `unparsable` is no vote. May take any time."""
    check = compare_parts(parse_structure(reference), parse_structure(answer), _vote_on_leaf)
    return check if check is not None else _vote_on_leaf(reference, answer)


class _Value(NamedTuple):
    number: Fraction
    decimals: int | None
    """Digits after the point as written (0 for an integer), None for an exact form."""
    digits: int
    """Significant digits as written."""
    is_exact: bool
    """False: a floating-point value of an expression."""


def _vote_on_leaf(reference: str, answer: str) -> AnswerCheck:
    left, right = _read(reference), _read(answer)
    if left is not None and right is not None:
        return _compare_values(left, right, f"{shorten(answer)} against {shorten(reference)} by value")
    doubt = find_doubt(reference, answer)
    if doubt is not None:
        return AnswerCheck("unparsable", doubt)
    expected, stated = parse_symbols(reference), parse_symbols(answer)
    if expected is None or stated is None:
        return AnswerCheck("unparsable", "not both can be parsed")
    return _compare_expressions(expected, stated)


def _read(text: str) -> _Value | None:
    """A number as written, or the value of a constant expression."""
    quantity = parse_quantity(text)
    if quantity is not None and quantity.base is None:
        written = re.sub(r"^\D*0*\.?0*|\D", "", re.split(r"[^\d.,]", text.lstrip("-+$ "))[0])
        is_whole = quantity.value.denominator == 1 and quantity.decimals is None
        decimals = 0 if is_whole else quantity.decimals
        if quantity.unit != "%":
            return _Value(quantity.value, decimals, len(written), True)
        percent_decimals = None if decimals is None else decimals + 2
        return _Value(quantity.value / 100, percent_decimals, len(written), True)
    if find_doubt(text, "") is not None:
        return None
    expression = parse_symbols(text)
    if not isinstance(expression, sympy.Expr) or expression.free_symbols:
        return None
    value = evaluate_at(expression, {})
    if value is None or abs(value.imag) > 1e-12:
        return None
    return _Value(Fraction(value.real), None, 16, False)


def _compare_values(reference: _Value, answer: _Value, what: str) -> AnswerCheck:
    are_exact = reference.is_exact and answer.is_exact
    if not are_exact and not reference.decimals and not answer.decimals:
        # A floating-point value could only hide what algebra found.
        return AnswerCheck("unparsable", f"{what}: no decimals to round")
    difference = abs(reference.number - answer.number)
    if difference <= abs(reference.number) * Fraction(1, 10**12):
        return AnswerCheck("correct", what)
    if answer.decimals is not None and (reference.decimals is None or answer.decimals < reference.decimals):
        enough = MIN_DIGITS if reference.decimals is not None else MIN_DIGITS_OF_EXACT
        is_rounded = difference * 2 <= Fraction(1, 10**answer.decimals) and answer.digits >= enough
        return AnswerCheck("correct" if is_rounded else "incorrect", what)
    if reference.decimals and (answer.decimals is None or answer.decimals > reference.decimals):
        is_cut = difference <= Fraction(1, 10**reference.decimals) and reference.digits >= MIN_DIGITS
        return AnswerCheck("correct" if is_cut else "incorrect", what)
    return AnswerCheck("incorrect", what)


def _compare_expressions(expected: Any, stated: Any) -> AnswerCheck:
    if isinstance(expected, sympy.Eq) and isinstance(stated, sympy.Expr):
        solved = _solve_for_missing(expected, stated)
        if solved is None:
            return AnswerCheck("unparsable", "the reference equation does not give the answer's form")
        expected = solved
    names = [
        sorted(map(str, each.free_symbols)) for each in (expected, stated) if isinstance(each, sympy.Expr)
    ]
    is_bare = expected.is_Symbol or stated.is_Symbol
    if not is_bare and len(names) == 2 and len(names[0]) == len(names[1]) == 1 and names[0] != names[1]:
        stated = stated.subs({next(iter(stated.free_symbols)): next(iter(expected.free_symbols))})
    verdict = agree_at_points(expected, stated, 1e-9)
    if verdict == "unknown":
        return AnswerCheck("unparsable", "no values to compare")
    return AnswerCheck("correct" if verdict == "yes" else "incorrect", "compared at sampled points")


def _solve_for_missing(equation: Any, stated: Any) -> Any | None:
    missing = sorted(equation.free_symbols - stated.free_symbols, key=str)
    if len(missing) != 1:
        return None
    try:
        solutions: Any = _SYMPY.solve(equation, missing[0])
    except (NotImplementedError, ArithmeticError, AttributeError, TypeError, ValueError):
        return None
    return solutions[0] if len(solutions) == 1 else None
