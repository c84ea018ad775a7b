r"""Units after a number (row 3): `5 km`, `12 apples`, `125\textnormal{ miles}`, `90^\circ`, `28 percent`.

Words that change the number are no units: `5 million` is 5,000,000, and `5 more than x` is no number.
Compound units with products stay unknown words and are compared as text.
"""

import re
from collections import Counter
from fractions import Fraction
from math import prod
from typing import NamedTuple


class Unit(NamedTuple):
    """The dimension of a unit, and its size in the dimension's base unit."""

    dimension: str
    factor: Fraction


def read_unit(rest: str, *, is_spaced: bool = True) -> str | None:
    """The unit in the text after a number: empty when there is none, None when the text is no unit.

    `is_spaced`: a space stood between the number and the text.
    """
    if not rest:
        return ""
    is_spelled_out = rest.startswith("\\") or rest.startswith("^{")
    if _GLUED_LETTER.match(rest) and not is_spaced:
        return None  # `6s` may be six times s: algebra compares it.
    words = TEXT_COMMAND.sub(r" \1 ", rest)
    words = _ORDINAL.sub("", words.strip(" .,;{}")).strip(" .,;{}").replace("{", "").replace("}", "")
    if not words:
        return ""
    if words in _SYMBOLS:
        return _SYMBOLS[words]
    if len(words) > MAX_UNIT_CHARS or _WORDS.fullmatch(words) is None:
        return None
    name = words.lower()
    if not _NOT_ANYWHERE.isdisjoint(re.split(r"[ ^/.]", name)):
        return None
    first = re.split(r"[ ^/.]", name, maxsplit=1)[0]
    if _SYMBOLS.get(first) == "%":
        return "%"  # `50 percent of the apples`
    if _canonical(name) in _UNITS or _canonical(first) in _UNITS:
        return name
    if len(first) < 3 and not is_spelled_out:
        return None
    return None if first in _NOT_FIRST else name


def read_scale(rest: str) -> tuple[int, str]:
    """The factor in the words after a number, and the text after them: `million people`."""
    words = TEXT_COMMAND.sub(r" \1 ", rest).lstrip()
    found = _SCALE.match(words)
    if found is None:
        return 1, rest
    return prod(SCALES[word.lower()] for word in found[0].split()), words[found.end() :]


def split_unit(text: str) -> tuple[str, str]:
    r"""An expression and the unit of the table that ends it, if any: `5\sqrt2 \text{ cm}`, `16\pi cm^2`."""
    found = _TRAILING_UNIT.fullmatch(text)
    if found is None or _TRAILING_UNIT.fullmatch(found[1]) or (found[3] and _LETTER.search(found[1])):
        return text, ""
    unit = (found[2] or found[3]).strip() + re.sub(r"[{}\s]", "", found[4] or "")
    table = known(unit)
    is_unit = is_generic(unit) or (table is not None and table.dimension not in {"angle", "share"})
    return (found[1].strip(), unit) if is_unit else (text, "")


def read_mixed(text: str) -> tuple[Fraction, str] | None:
    """Value and first unit of `3 m 20 cm`, `2 hours and 30 minutes` or `5'6"`; None for anything else."""
    feet = _FEET.fullmatch(text)
    if feet:
        return Fraction(feet[1]) + Fraction(feet[2] or 0) / 12, "foot"
    found = _MIXED.fullmatch(TEXT_COMMAND.sub(r" \1 ", text).strip())
    if found is None:
        return None
    large, small = known(found[2]), known(found[4])
    if large is None or small is None or large.dimension != small.dimension or small.factor >= large.factor:
        return None
    return Fraction(found[1]) + Fraction(found[3]) * small.factor / large.factor, found[2].lower()


_AMOUNT = r"(\d{1,9}(?:\.\d{1,9})?)"
_MIXED = re.compile(
    rf"{_AMOUNT}\s{{0,3}}([A-Za-z]{{1,12}})\.?,?\s{{1,3}}(?:and\s{{1,3}})?{_AMOUNT}\s{{0,3}}([A-Za-z]{{1,12}})\.?"
)
_FEET = re.compile(r"(\d{1,6})'\s?(?:(\d{1,3}(?:\.\d{1,4})?)(?:\"|''))?")


def same_unit(left: str, right: str) -> bool:
    """True if two units are the same word, up to plural and spelling."""
    return _canonical(left) == _canonical(right) or (known(left) is not None and known(left) == known(right))


def known(unit: str) -> Unit | None:
    """Dimension and factor of a unit of the table or of a product of such; None for anything else."""
    simple = _UNITS.get(_canonical(unit))
    return simple if simple is not None else _compound(unit)


def is_converted(number: Fraction, unit: str, bare: Fraction) -> bool:
    """True if a number with a unit is the bare number in another unit of the table: `2 hours` and 120."""
    ours = known(unit)
    return ours is not None and any(
        ours.dimension == other.dimension and number * ours.factor == bare * other.factor
        for other in _UNITS.values()
    )


def is_word(unit: str) -> bool:
    """True if a unit is spelled out, `apples`: an abbreviation may be one that the table lacks."""
    return len(unit) >= 4 and unit.replace(" ", "").isalpha()


def _compound(unit: str) -> Unit | None:
    """`km/h`, `m s^-2`, `miles per hour`: dimensions with their powers, and the product of the factors."""
    powers: Counter[str] = Counter()
    factor = Fraction(1)
    sign = 1
    for token in _UNIT_TOKEN.findall(re.sub(r" ?\^ ?", "^", unit.lower())[:MAX_UNIT_CHARS]):
        if token in {"/", "per"}:
            sign = -1
            continue
        name, _, power = token.partition("^")
        base = _UNITS.get(_canonical(name))
        exponent = sign * int(power or 1)
        if base is None or abs(exponent) > 4 or base.dimension in {"angle", "share"}:
            return None
        powers[base.dimension] += exponent
        factor *= base.factor**exponent
    dimension = " ".join(f"{name}^{power}" for name, power in sorted(powers.items()) if power)
    return Unit(dimension, factor) if len(powers) > 1 else None


def is_generic(unit: str) -> bool:
    """True if the words say nothing of what is counted: `units`, `square units`, `in total`."""
    return _canonical(unit) in _GENERIC


MAX_UNIT_CHARS = 60
SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_SCALE = re.compile(rf"(?:(?:{'|'.join(SCALES)})(?![A-Za-z]) *){{1,3}}", re.IGNORECASE)
TEXT_COMMAND = re.compile(
    r"\\(?:text|mathrm|textbf|textit|textnormal|textrm|mbox|mathbf|operatorname|rm|hbox)\s*\{([^{}]*)\}"
)
_TRAILING_UNIT = re.compile(
    r"(.*[^\s\\])\s*(?:\\(?:text|mathrm|textnormal|textrm|mbox|rm)\s?\{([A-Za-z. ]+)\}|\s([A-Za-z]{2,}))"
    r"\s*(\^\s?(?:\d|\{\s?\d\s?\}))?",
    re.DOTALL,
)
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")
"""A variable: where there is one, only a unit in `\\text{}` is sure to be no product of variables."""
_UNIT_TOKEN = re.compile(r"/|[^\s/^.*]+(?:\^-?\d)?")
_GLUED_LETTER = re.compile(r"[A-Za-z](?![A-Za-z/])")
_ORDINAL = re.compile(r"^\^?\{?\s*(?:th|st|nd|rd)\s*\}?(?![A-Za-z])")
_WORDS = re.compile(r"[A-Za-zµμΩ°%$€][A-Za-zµμΩ°%$€ ./'\-]*(?:\^\s?-?\d[A-Za-z ./]*)?(?:\([A-Za-z ]*\))?")
_SYMBOLS = {"%": "%", "°": "°", "$": "$", "€": "€", "£": "£", "¥": "¥", "percent": "%", "pct": "%",
            "per cent": "%", "percentage": "%", "percents": "%",
            # `mW` is a thousandth of a watt.
            "MW": "megawatt", "MJ": "megajoule", "MPa": "megapascal", "MHz": "megahertz"}  # fmt: skip
_NOT_FIRST = frozenset(
    (
        *("and", "or", "to", "if", "when", "where", "which", "since", "because", "but", "then", "than"),
        *("from", "with", "for", "not", "over", "so", "is", "are", "was", "plus", "minus", "times", "mod"),
        *("div", "equals", "factorial", "choose", "pi", "sqrt", "sin", "cos", "tan", "log", "exp", "infty"),
        *("frac", "cdot", "squared", "cubed", "half", "halves", "third", "thirds", "quarter", "quarters"),
        *("fourth", "fourths", "fifth", "fifths", "sixth", "sixths", "seventh", "sevenths", "eighth"),
        *("eighths", "ninth", "ninths", "tenth", "tenths", "hundredth", "hundredths", "thousandth"),
        *("thousandths", "millionth", "millionths", "billionth", "billionths"),
    )
)
"""Words that go on with the mathematics when they stand after the number."""
_NOT_ANYWHERE = frozenset(
    (
        *("than", "by", "plus", "minus", "above", "below", "except", "unless", "zero", "one", "two", "three"),
        *("four", "five", "six", "seven", "eight", "nine", "ten", *SCALES, *(f"{name}s" for name in SCALES)),
        *("lakh", "lakhs", "crore", "crores", "doubled", "tripled", "halved", "raised", "or", "more", "less"),
        *("wrong", "incorrect", "twice", "half", "not", "does", "fails", "false", "impossible", "invalid"),
        *("rejected", "mille", "ppm", "ppb", "negative", "kilo", "mega", "giga", "tens"),
    )
)
"""`5 more than x`, `6 increased by x`: words that no unit holds."""
_GENERIC = frozenset(
    {"unit", "square unit", "cubic unit", "sq unit", "in total", "total", "altogether", "time"}
)
_IRREGULAR = {"feet": "foot", "inches": "inch", "people": "person", "men": "man", "women": "woman",
              "children": "child", "centimetre": "cm", "centimeter": "cm", "millimetre": "mm", "boxes": "box",
              "millimeter": "mm", "kilometre": "km", "kilometer": "km", "metre": "m", "meter": "m",
              "gram": "g", "kilogram": "kg", "kg": "kg", "second": "s", "sec": "s", "minute": "min",
              "hour": "h", "hr": "h", "litre": "l", "liter": "l", "millilitre": "ml", "milliliter": "ml",
              "degree": "°", "deg": "°", "dollar": "$", "usd": "$", "euro": "€", "pound sterling": "£",
              "mi": "mile", "joule": "j", "kilojoule": "kj", "watt": "w", "kilowatt": "kw", "newton": "n",
              "volt": "v", "hertz": "hz", "kilohertz": "khz", "pascal": "pa", "ampere": "a", "calorie": "cal",
              "cc": "cm^3", "kmh": "km/h", "kph": "km/h",
              "ft": "foot", "in": "inch", "yd": "yard", "lb": "pound", "lbs": "pound",
              "oz": "ounce", "yr": "year", "percent": "%", "milligram": "mg", "ton": "tonne",
              "centuries": "century", "gal": "gallon", "qt": "quart"}  # fmt: skip


def _canonical(unit: str) -> str:
    words = re.sub(r" ?\^ ?", "^", unit.lower()).strip(" .")
    words = re.sub(r"^(?:square|sq\.?) ([a-z]+)$", r"\1^2", words)
    words = re.sub(r"^cubic ([a-z]+)$", r"\1^3", words)
    name, caret, power = words.partition("^")
    name = _IRREGULAR.get(name, name)
    if len(name) > 3 and name.endswith("s") and not name.endswith("ss"):
        name = name[:-1]
    return _IRREGULAR.get(name, name) + caret + power


def _table() -> dict[str, Unit]:
    lengths = {"mm": "1/1000", "cm": "1/100", "dm": "1/10", "m": "1", "km": "1000", "inch": "127/5000",
               "foot": "381/1250", "yard": "1143/1250", "mile": "201168/125"}  # fmt: skip
    others = {
        "mass": {"mg": "1/1000", "g": "1", "kg": "1000", "tonne": "1000000",
                 "ounce": "28349523125/1000000000", "pound": "45359237/100000"},
        "time": {"ms": "1/1000", "s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
        "volume": {"ml": "1/1000", "cl": "1/100", "dl": "1/10", "l": "1", "cm^3": "1/1000",
                   "dm^3": "1", "m^3": "1000", "gallon": "3.785411784", "quart": "0.946352946"},
        "money": {"$": "1", "cent": "1/100"},
        "angle": {"°": "1"},
        "share": {"%": "1/100"},
        "energy": {"j": "1", "kj": "1000", "megajoule": "1000000", "cal": "4.184",
                   "kcal": "4184", "wh": "3600", "kwh": "3600000"},
        "power": {"w": "1", "kw": "1000", "megawatt": "1000000"},
        "force": {"n": "1", "kn": "1000"},
        "pressure": {"pa": "1", "kpa": "1000", "megapascal": "1000000", "atm": "101325"},
        "voltage": {"v": "1", "kv": "1000", "mv": "1/1000"},
        "current": {"a": "1", "ma": "1/1000"},
        "frequency": {"hz": "1", "khz": "1000", "megahertz": "1000000"},
        "amount": {"mol": "1", "mmol": "1/1000"},
        "calendar": {"month": "1", "year": "12", "decade": "120", "century": "1200"},
    }  # fmt: skip
    units = {name: Unit("length", Fraction(factor)) for name, factor in lengths.items()}
    units |= {f"{name}^2": Unit("area", Fraction(factor) ** 2) for name, factor in lengths.items()}
    for dimension, factors in others.items():
        for name, factor in factors.items():
            units[name] = Unit(dimension, Fraction(factor))
    units["mph"] = Unit("length^1 time^-1", Fraction("201168/125") / 3600)
    units["knot"] = Unit("length^1 time^-1", Fraction(1852, 3600))
    return units


_UNITS = _table()
