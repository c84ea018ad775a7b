"""A reference answer as text, where a file or a trainer's data set holds a number or a list of one."""

from decimal import Context, Decimal
from numbers import Integral, Real
from typing import Any

from cooper_rl.errors import DataError

EXACT_INTEGERS = 2**53
"""Floats keep every integer below it."""
MAX_ZEROS = 30
"""Of a number that is written without an exponent."""


def answer_text(value: Any, *, place: str) -> str:
    """Text of an answer: 145.0 is `145`, a list of one element is that element.

    Raises:
        DataError: it is something else; begins with the place.
    """
    if isinstance(value, list | tuple):
        if len(value) != 1:
            raise DataError(f"{place} has {len(value)} answers, not one")
        return answer_text(value[0], place=place)
    if isinstance(value, bool) or not isinstance(value, str | Real | Decimal):
        raise DataError(f"{place} is {show(value)}, not text or a number")
    if isinstance(value, str | Integral):
        return str(value)
    # NumPy's numbers are among them, which are written in another way.
    return _number_text(value if isinstance(value, Decimal) else float(value), place=place)


def show(value: Any) -> str:
    """A value with its type, for an error."""
    return "null" if value is None else f"{value!r:.60} ({type(value).__name__})"


def _number_text(value: float | Decimal, *, place: str) -> str:
    """The digits of a number without an exponent: .0000001 where Python writes 1e-07."""
    number = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not number.is_finite():
        raise DataError(f"{place} is {value}, not a finite number")
    if not number:
        return "0"
    # Python's own context rounds to 28 digits, and a Parquet decimal has up to 76.
    digits = number.normalize(Context(prec=len(number.as_tuple().digits)))
    if isinstance(value, float) and abs(value) >= EXACT_INTEGERS and len(digits.as_tuple().digits) > 15:
        raise DataError(f"{place} is {value!r}, whose last digits a float does not keep; write it as text")
    return format(digits, "f") if abs(digits.adjusted()) <= MAX_ZEROS else str(digits)
