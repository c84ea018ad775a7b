r"""Numbers in answers, exactly (row 3): `1,234.50`, `-\frac{3}{4}`, `3\frac12`, `1.2e-4`, `50\%`, `12 km`.

The fast path of the rule verifier: no sympy, no floating point. It takes one number with at most
one unit. Patterns are anchored and run in linear time.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from cooper_rl.verdicts.answers.units import read_mixed, read_scale, read_unit

MAX_DIGITS = 400
"""Longer numbers are left to math-verify: big-integer arithmetic is the cheapest way to hang a verifier."""
MAX_EXPONENT = 400
"""Of ten: larger powers have more digits than a number that is written out may have."""

_DIGITS = r"[1-9]\d{0,2}(?:,\d{3})+|\d+"
_UNSIGNED = rf"(?:(?P<whole>{_DIGITS})(?P<decimals>\.\d*)?|(?P<bare>\.\d+))(?:[eE](?P<e>[-+]?\d{{1,4}}))?"
_POWER = (
    r"(?:\s*(?:\\times|\\cdot|\*|x)\s*10\s*(?:\^|\*\*)\s*"
    r"(?:\{\s*(?P<p1>[-+]?\s?\d{1,4})\s*\}|(?P<p2>[-+]?\d{1,4})))"
)
_BASE = r"(?:_\{?(?P<base>\d{1,2})\}?)"
_INTEGER = r"\d{1,400}"
_FRACTION = (
    rf"\\frac\s*(?:\{{\s*(?P<n1>-?{_INTEGER})\s*\}}|(?P<n2>\d))\s*(?:\{{\s*(?P<d1>{_INTEGER})\s*\}}|(?P<d2>\d))"
    rf"|\{{?(?P<n3>{_INTEGER})\s*(?:/|\\over)\s*(?P<d3>{_INTEGER})\}}?"
)
_NUMBER = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<currency>[$€£¥₹]?)\s*"
    rf"(?:(?P<mixed>\d{{1,50}})[ +]?(?:\\frac\s*(?:\{{(?P<mn1>{_INTEGER})\}}|(?P<mn2>\d))\s*"
    rf"(?:\{{(?P<md1>{_INTEGER})\}}|(?P<md2>\d))|(?<=[ +])(?P<mn3>{_INTEGER})/(?P<md3>{_INTEGER}))"
    rf"|{_FRACTION}|{_UNSIGNED}{_POWER}?{_BASE}?)"
    r"\s*(?P<rest>.*)",
    re.DOTALL,
)
_REPEATING = re.compile(
    r"(?P<sign>-?)(?P<whole>\d{1,50})\.(?P<fixed>\d{0,50})"
    r"(?:\\overline\s*\{(?P<r1>\d{1,50})\}|\\overline\s*(?P<r2>\d)|\\bar\s*\{(?P<r3>\d{1,50})\}|\\bar\s*(?P<r4>\d)"
    r"|\\dot\s*\{(?P<r5>\d)\}|\((?P<r6>\d{1,50})\)) ?(?P<percent>%?)"
)

_REPEATING_WORD = re.compile(r"(-?\d{1,50}\.(\d{1,50})),? ?(?:\\text ?\{ ?)?(?:repeating|recurring) ?\}?")
"""`0.6 repeating`; which digits of `0.16 repeating` do is not said."""


class Quantity(NamedTuple):
    """One exact number as it was written."""

    value: Fraction
    unit: str
    """The words after the number, lower case; `%` and `°` are units too."""
    decimals: int | None
    """Digits after the decimal point when it was written as a decimal number."""
    base: int | None
    """The subscript of `204_5`; the value is already converted."""
    digits: str
    """As written, without separators."""
    scale: int = 1
    """The million of `5 million`; the value is already multiplied."""


def parse_quantity(text: str) -> Quantity | None:
    """Read normalised text as one number with an optional unit; None when it is anything else."""
    if len(text) > MAX_DIGITS:
        return None
    repeating = _REPEATING.fullmatch(text)
    if repeating:
        return _repeating(repeating)
    told = _REPEATING_WORD.fullmatch(text)
    if told:
        return parse_quantity(f"{told[1]}({told[2][-1]})") if len(set(told[2])) == 1 else None
    mixed = read_mixed(text)
    if mixed is not None:
        return Quantity(mixed[0], mixed[1], None, None, "")
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    scale, rest = read_scale(match["rest"])
    is_spaced = scale > 1 or text[: match.start("rest")].endswith(" ")
    unit = read_unit(rest, is_spaced=is_spaced)
    if unit is None:
        return None
    value = _value(match)
    if value is None:
        return None
    decimals = match["decimals"] or match["bare"]
    is_decimal = decimals is not None and match["e"] is None and not _power(match)
    base = int(match["base"]) if match["base"] else None
    digits = (match["whole"] or "").replace(",", "")
    if base is not None:
        converted = _convert_base(digits, base)
        if converted is None or decimals:
            return None
        value = Fraction(converted)
    return Quantity(
        (-value if match["sign"] == "-" else value) * scale,
        unit or match["currency"],
        len(decimals) - 1 if is_decimal and decimals else None,
        base,
        digits,
        scale,
    )


def rounds_to(value: Fraction, rounded: Fraction, decimals: int) -> bool:
    """True if a number is another one at so many decimals; a half may go either way."""
    step = Fraction(10) ** -decimals
    return rounded % step == 0 and abs(value - rounded) * 2 <= step


def _value(match: re.Match[str]) -> Fraction | None:
    if match["mixed"]:
        numerator = match["mn1"] or match["mn2"] or match["mn3"]
        denominator = match["md1"] or match["md2"] or match["md3"]
        if int(denominator) == 0:
            return None
        return int(match["mixed"]) + Fraction(int(numerator), int(denominator))
    numerator = match["n1"] or match["n2"] or match["n3"]
    if numerator:
        denominator = int(match["d1"] or match["d2"] or match["d3"])
        return Fraction(int(numerator), denominator) if denominator else None
    whole = (match["whole"] or "0").replace(",", "")
    decimals = (match["decimals"] or match["bare"] or ".")[1:]
    exponent = int(match["e"] or 0) + _power(match)
    if abs(exponent) > MAX_EXPONENT:
        return None
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    return value * Fraction(10) ** exponent if exponent else value


def _power(match: re.Match[str]) -> int:
    return int((match["p1"] or match["p2"] or "0").replace(" ", ""))


def _convert_base(digits: str, base: int) -> int | None:
    try:
        return int(digits, base) if 2 <= base <= 36 else None
    except ValueError:
        return None


def _repeating(match: re.Match[str]) -> Quantity:
    repeated = next(match[f"r{i}"] for i in range(1, 7) if match[f"r{i}"])
    fixed = match["fixed"]
    scale = 10 ** len(fixed)
    value = Fraction(int(match["whole"] + fixed), scale)
    value += Fraction(int(repeated), (10 ** len(repeated) - 1) * scale)
    return Quantity(-value if match["sign"] else value, match["percent"], None, None, "")
