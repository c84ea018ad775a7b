r"""Arithmetic in answers, exactly (row 3): `3+4`, `2^{10}-1`, `\frac{1}{\frac{1}{2}}`, `((7))`.

A stack machine over fractions: no recursion, so no depth of brackets can end it, and a bound on the size of
every intermediate result. math-verify reads roots, functions and variables.
"""

import re
from collections.abc import Callable
from fractions import Fraction

MAX_BITS = 4096
"""Of a numerator or denominator, at every step: a short text can ask for numbers of any length."""
MAX_EXPONENT = 512

_TOKEN = re.compile(
    r"\s*(?:(\d{1,300}(?:\.\d{1,300})?|\.\d{1,300})|(\\frac|\\cdot|\\times|\\div|\*\*|[-+*/^(){}]))"
)
_BINARY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
}
_SYNONYMS = {r"\cdot": "*", r"\times": "*", r"\div": "/", "**": "^"}
_NEGATE, _POWER = "negate", "^"
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, _NEGATE: 3, _POWER: 4}


def evaluate(text: str) -> Fraction | None:
    """The value of arithmetic in digits; None when the text is anything else, or too large."""
    tokens = _tokenise(text)
    if tokens is None:
        return None
    try:
        return _run(tokens)
    except (ArithmeticError, IndexError, ValueError):
        return None


def _tokenise(text: str) -> list[str] | None:
    """Tokens with every fraction spelled `((a)/(b))`."""
    tokens: list[str] = []
    closers: list[str] = []
    position, end = 0, len(text.rstrip())
    awaits_group = False
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            return None
        position = match.end()
        token = _SYNONYMS.get(match[1] or match[2], match[1] or match[2])
        if awaits_group and token != "{":
            return None
        if token == r"\frac":
            tokens.append("(")
            awaits_group = True
            closers.append("numerator")
        elif token == "{":
            tokens.append("(")
            if not awaits_group:
                closers.append("group")
            awaits_group = False
        elif token == "}":
            if not closers:
                return None
            closer = closers.pop()
            tokens.append(")")
            if closer == "numerator":
                tokens.append("/")
                closers.append("denominator")
                awaits_group = True
            elif closer == "denominator":
                tokens.append(")")
        else:
            tokens.append(token)
    return None if awaits_group or closers else tokens


def _run(tokens: list[str]) -> Fraction:
    """Shunting-yard over values and operators. Raises ValueError on anything malformed or too large."""
    values: list[Fraction] = []
    operators: list[str] = []
    expects_value = True
    for token in tokens:
        if token[0].isdigit() or token[0] == ".":
            if not expects_value:
                raise ValueError(token)
            values.append(Fraction(token))
            expects_value = False
        elif token == "(":
            if not expects_value:
                raise ValueError(token)
            operators.append(token)
        elif token == ")":
            if expects_value:
                raise ValueError(token)
            while operators[-1] != "(":
                _apply(operators.pop(), values)
            operators.pop()
        elif expects_value:
            if token not in "+-":
                raise ValueError(token)
            if token == "-":
                operators.append(_NEGATE)
        else:
            while operators and operators[-1] != "(" and _binds(operators[-1], token):
                _apply(operators.pop(), values)
            operators.append(token)
            expects_value = True
    if "(" in operators:
        raise ValueError("a bracket that never closes")
    while operators:
        _apply(operators.pop(), values)
    if len(values) != 1 or expects_value:
        raise ValueError("malformed")
    return values[0]


def _binds(stacked: str, token: str) -> bool:
    if token == _POWER:
        return _PRECEDENCE[stacked] > _PRECEDENCE[token]
    return _PRECEDENCE[stacked] >= _PRECEDENCE[token]


def _apply(name: str, values: list[Fraction]) -> None:
    right = values.pop()
    if name == _NEGATE:
        values.append(-right)
        return
    left = values.pop()
    if name == _POWER:
        # Before the power is taken: `9^(9^9)` in a short text would fill the memory.
        size = max(left.numerator.bit_length(), left.denominator.bit_length())
        if right.denominator != 1 or abs(right) > MAX_EXPONENT or size * abs(right) > MAX_BITS:
            raise ValueError("power")
        result = left ** int(right)
    else:
        result = _BINARY[name](left, right)
    if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
        raise ValueError("size")
    values.append(Fraction(result))
