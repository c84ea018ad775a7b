r"""math-verify on two normalised answers, with checks round it (row 3): the only file that imports it.

Its time limits are off (they need the main thread's signals); `verdicts/rule.py` kills the worker
instead. `extraction.py` finds the answer in a completion.
"""

import itertools
import logging
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import sympy  # pyright: ignore[reportMissingTypeStubs] it ships none
from latex2sympy2_extended import NormalizationConfig  # pyright: ignore[reportMissingTypeStubs] it ships none
from math_verify import (  # pyright: ignore[reportMissingTypeStubs] it ships none
    ExprExtractionConfig,
    LatexExtractionConfig,
    parse,
    verify,
)
from sympy.core import random as sympy_random  # pyright: ignore[reportMissingTypeStubs] it ships none

from cooper_rl.verdicts.answers.algebra.letters import tell_cases_apart
from cooper_rl.verdicts.answers.algebra.sampling import (
    agree_at_negative_points,
    agree_at_points,
    agree_at_whole_points,
    are_exactly_equal,
    are_multiples,
    differ_by_constant,
    evaluate_at,
)
from cooper_rl.verdicts.answers.comparison import MIN_DIGITS, AnswerCheck, shorten
from cooper_rl.verdicts.answers.notation import (
    compare_notation,
    differ_in_digits_only,
    find_doubt,
    may_be_transposed,
    spell_exponent,
    value_of_operation,
)
from cooper_rl.verdicts.answers.numbers import rounds_to
from cooper_rl.verdicts.answers.structure import find_syntax_fault

_LATEX = LatexExtractionConfig(
    normalization_config=NormalizationConfig(
        # Its units are the letters c, d, k, l, m, n, p, s and t as well: it read 3+2t as 5.
        basic_latex=True,
        units=False,
        malformed_operators=True,
        nits=True,
        boxed="all",
        equations=False,
    )
)
_SYMPY: Any = sympy  # untyped library: its overloads resolve to unknown types

# It warns once per process that its time limit is off, which is the point here.
logging.getLogger("math_verify").setLevel(logging.ERROR)


def compare_by_math_verify(reference: str, answer: str) -> AnswerCheck:
    """Check two normalised answers by value or by math-verify.

    No time limit. `incorrect` means that the two differ in value at every sampled point; whatever cannot be
    parsed, has no value, or is equal under another reading of the notation is unparsable.
    """
    # sympy tests equality at random points: the verdict must not depend on what was compared before.
    sympy_random.seed(0)  # pyright: ignore[reportUnknownMemberType] untyped library
    if may_be_transposed(reference) or may_be_transposed(answer):
        return AnswerCheck("unparsable", "a transpose or a power")
    apart = tell_cases_apart(reference, answer)
    if apart is None:
        return _compare_expressions(reference, answer)
    what = f"{shorten(answer)} against {shorten(reference)}"
    check = _compare_expressions(apart.reference, apart.answer)
    if check.verdict == "correct" or apart.is_meant:
        return AnswerCheck(check.verdict, f"{what}: small and capital letters are other variables")
    check = _compare_expressions(reference, answer)
    if check.verdict == "correct":
        return AnswerCheck("unparsable", f"{what}: equal if capital letters are small ones")
    return check


def _compare_expressions(reference: str, answer: str) -> AnswerCheck:
    reference, answer = _exact_part(reference), _exact_part(answer)
    notation = compare_notation(reference, answer)
    if notation is not None:
        return notation
    check = _compare_values(reference, answer)
    if check.verdict != "correct":
        return check
    is_doubtful = differ_in_digits_only(reference, answer)
    if is_doubtful and not (_reads_every_number(reference) and _reads_every_number(answer)):
        return AnswerCheck("unparsable", f"{shorten(answer)}: equal, though a digit or a sign differs")
    if _skips_a_number(answer):
        return AnswerCheck("unparsable", f"{shorten(answer)}: equal, though a part of it is not read")
    return check


def _reads_every_number(text: str) -> bool:
    """True if a change to any of its numbers or signs changes the value: the parser skips none of them."""
    places = list(_NUMBER_OR_SIGN.finditer(text))
    value = parse_symbols(text) if len(places) <= MAX_NUMBERS else None
    if value is None:
        return False
    return all(
        other is not None and agree_at_points(value, other, 1e-7) == "no" for other in _changed(text, places)
    )


def _skips_a_number(text: str) -> bool:
    """True if an expression stays what it is when one of its numbers changes.

    math-verify skips what it cannot read: it finds 6 in `5 \\mid 6`, which also says 5.
    """
    text = _GROUP.sub("", text)
    value = parse_symbols(text)
    if not isinstance(value, sympy.Expr):
        return False
    return any(
        other is not None and (other == value or agree_at_points(value, other, 1e-7) == "yes")
        for other in _changed(text, itertools.islice(_NUMBER.finditer(text), MAX_NUMBERS))
    )


def _changed(text: str, places: Iterable[re.Match[str]]) -> Iterator[Any | None]:
    """Values of a text in which one number is greater by 1, or one sign turned; None: cannot be read."""
    for place in places:
        other = str(int(place[0]) + 1) if place[0].isdigit() else {"+": "-", "-": "+"}[place[0]]
        yield parse_symbols(text[: place.start()] + other + text[place.end() :])


_NUMBER = re.compile(r"\d{1,15}")
_GROUP = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBER_OR_SIGN = re.compile(r"\d{1,15}|[+-]")
MAX_NUMBERS = 12


def _compare_values(reference: str, answer: str) -> AnswerCheck:
    reference, answer = value_of_operation(reference), value_of_operation(answer)
    doubt = find_doubt(reference, answer)
    if doubt is not None:
        return AnswerCheck("unparsable", doubt)
    fault = find_syntax_fault(answer)
    if fault is not None:  # math-verify reads what stands before a brace
        return AnswerCheck("unparsable", f"the answer {shorten(answer)} {fault}")
    if "=" in reference and "=" in answer:
        equations = _compare_equations(reference, answer)
        return equations if equations is not None else _compare_sides(reference, answer)
    left, right = parse_symbols(reference), parse_symbols(_same_imaginary_unit(reference, answer))
    if left is None:
        return AnswerCheck("unparsable", f"the reference answer {shorten(reference)} cannot be parsed")
    if right is None:
        return AnswerCheck("unparsable", f"the answer {shorten(answer)} cannot be parsed")
    what = f"{shorten(answer)} against {shorten(reference)}"
    has_constant = _CONSTANT.search(reference) is not None
    constants = _compare_antiderivatives(left, right, what, is_named=has_constant)
    if constants is not None:
        return constants
    if isinstance(left, sympy.Eq) and isinstance(right, sympy.Expr):
        return _compare_solution(left, right, what)
    if isinstance(right, sympy.Eq) and not right.lhs.free_symbols and not _is_identity(right.lhs, right.rhs):
        return AnswerCheck("unparsable", f"{what}: an equation of two values")
    # Cheap, and right about what differs: algebra would try every simplification first.
    if not _is_percent(left, right):
        agreement = agree_at_points(left, right, 1e-7)
        if agreement == "no":
            return _explain_difference(reference, answer, left, right, what)
        if agreement == "yes" and _is_identity(left, right):
            return AnswerCheck("correct", f"{what}: equal in value at all points")
    try:
        equal = verify(left, right, timeout_seconds=None, raise_on_error=True)
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
        MemoryError,
    ) as error:
        return AnswerCheck("unparsable", f"math-verify failed: {type(error).__name__}")
    if not equal:
        return AnswerCheck(
            "unparsable", f"{what}: math-verify finds them different, their values do not tell"
        )
    if _are_far_apart(left, right):
        return AnswerCheck("incorrect", f"{shorten(answer)} is only rounded to {shorten(reference)}")
    if isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr) and _is_rounded(left, right):
        return AnswerCheck("unparsable", f"{what}: equal after rounding only")
    return AnswerCheck("correct", f"math-verify: {shorten(answer)} equals {shorten(reference)}")


def _exact_part(text: str) -> str:
    r"""`\frac{1}{3} \approx .333` as `\frac{1}{3}`: math-verify reads one of the two. Others stay."""
    found = _APPROXIMATED.fullmatch(text)
    value = read_value(found[1]) if found else None
    if found is None or value is None:
        return text
    return found[1] if rounds_to(value, Fraction(found[2]), len(found[3] or "")) else text


_APPROXIMATED = re.compile(r"(.+?) ?\\approx ?(-?\d{1,15}(?:\.(\d{1,15}))?)")


def _is_identity(left: Any, right: Any) -> bool:
    """Equal to fifty digits without variables and floats, or at points of either sign with them."""
    if left == right:
        return True
    if left.free_symbols or right.free_symbols:
        return (
            agree_at_points(left, right, 1e-14) == "yes"
            and agree_at_negative_points(left, right, 1e-14) == "yes"
        )
    return not (left.has(sympy.Float) or right.has(sympy.Float)) and are_exactly_equal(left, right)


def _explain_difference(reference: str, answer: str, left: Any, right: Any, what: str) -> AnswerCheck:
    """Incorrect, unless another reading of the notation makes the two equal: then nobody can know."""
    readings = {
        "equal if i is the imaginary unit": lambda: _agree_with_imaginary_i(left, right),
        "equal at whole numbers": lambda: _are_equal_at_whole_numbers(left, right),
        "equal with other names for the variables": lambda: _agree_with_other_names(left, right),
        "equal if log is the natural logarithm": lambda: _agree_with_natural_log(reference, answer),
        "equal after rounding": lambda: (
            is_rounding(reference, answer, left, right) or _has_rounded_terms(reference, answer, left, right)
        ),
        "equal with degrees for radians": lambda: _differ_by_degrees(left, right),
        "equal if the letter is a unit, or the sign no factorial": lambda: _equal_without_letter(
            reference, answer
        ),
    }
    for reading, is_equal in readings.items():
        if is_equal():
            return AnswerCheck("unparsable", f"{what}: {reading}")
    return AnswerCheck("incorrect", f"{what}: they differ in value")


def _are_equal_at_whole_numbers(left: Any, right: Any) -> bool:
    """`(-1)^n` and `\\cos(n\\pi)`: variables whose names stand for whole numbers."""
    names = {str(symbol) for symbol in left.free_symbols | right.free_symbols}
    is_whole = bool(names) and names <= {"n", "k", "m", "j", "l", "r", "N"}
    return is_whole and agree_at_whole_points(left, right, 1e-12) == "yes"


def _agree_with_other_names(left: Any, right: Any) -> bool:
    """True if there are as many other variables, and the sides are equal after renaming these in order."""
    ours = sorted(left.free_symbols - right.free_symbols, key=str)
    theirs = sorted(right.free_symbols - left.free_symbols, key=str)
    if not ours or len(ours) != len(theirs) or left.is_Symbol or right.is_Symbol:
        return False
    renamed = right.subs(dict(zip(theirs, ours, strict=True)), simultaneous=True)
    return agree_at_points(left, renamed, 1e-12) == "yes"


def _agree_with_natural_log(reference: str, answer: str) -> bool:
    if r"\log" not in reference + answer:
        return False
    left, right = (parse_symbols(_PLAIN_LOG.sub(r"\\ln ", text)) for text in (reference, answer))
    return agree_at_points(left, right, 1e-12) == "yes"


_PLAIN_LOG = re.compile(r"\\log(?![A-Za-z])(?!\s?_)")


def read_value(text: str) -> Fraction | None:
    """The real value of an expression without variables, to fifteen digits; None where it has none."""
    expression = None if find_doubt(text, text) else parse_symbols(text)
    value = _real_value(expression) if isinstance(expression, sympy.Expr) else None
    return None if value is None else Fraction(value)


def _real_value(expression: Any) -> float | None:
    """The value of an expression without variables; None where it has none, or is not real."""
    value = None if expression.free_symbols else evaluate_at(expression, {})
    return None if value is None or abs(value.imag) > 1e-12 else value.real


def is_rounding(reference: str, answer: str, left: Any, right: Any) -> bool:
    """True if one side, written in decimals, is the other one rounded or cut to its digits."""
    for text, other in ((answer, left), (reference, right)):
        written = _DECIMAL.fullmatch(text)
        value = _real_value(other) if written else None
        if written is None or value is None:
            continue
        digits = _count_digits(text.removeprefix("-"))
        step = 10.0 ** -len(written[2] or "")
        # A little more than one step, since both sides are rounded to floats.
        if digits >= MIN_DIGITS and abs(float(text.replace(",", "")) - value) <= step * 1.0000001:
            return True
    return False


def _has_rounded_terms(reference: str, answer: str, left: Any, right: Any) -> bool:
    """`0.667x` for `\\frac{2}{3}x`: nearly equal, and numbers of one side have fewer digits."""
    digits = [sorted(map(_count_digits, _DECIMAL_PART.findall(text))) for text in (reference, answer)]
    rounded = [number for number in digits[0] + digits[1] if number >= MIN_DIGITS]
    if not rounded or digits[0] == digits[1] or not (left.free_symbols and right.free_symbols):
        return False
    return agree_at_points(left, right, 0.5 * 10.0 ** (1 - min(rounded))) == "yes"


_DECIMAL_PART = re.compile(r"(?<![\d.])\d{0,15}\.\d{1,15}(?![\d.])")


def _count_digits(decimal: str) -> int:
    return len(decimal.replace(".", "").lstrip("0"))


_DECIMAL = re.compile(r"-?(\d{1,15})(?:\.(\d{1,15}))?")


def _equal_without_letter(reference: str, answer: str) -> bool:
    """`15d` against `15`, which may be days; `15k` against `15000`; the answer `15!`, which may exclaim."""
    return any(
        float(found[1]) * _THOUSANDS.get(found[2], 1) == _plain_value(other)
        for text, other in ((reference, answer), (answer, reference))
        if (found := _NUMBER_AND_LETTER.fullmatch(text)) and (found[2] != "!" or text is answer)
    )


_NUMBER_AND_LETTER = re.compile(r"\$?(\d{1,15}(?:\.\d{1,15})?)([cdghklmstLMNJKVW!])")
_THOUSANDS = {"k": 1000, "K": 1000, "M": 10**6}


def _plain_value(text: str) -> float | None:
    return float(text.replace(",", "")) if _DECIMAL.fullmatch(text.replace(",", "")) else None


def _differ_by_degrees(left: Any, right: Any) -> bool:
    """`150` against `\\frac{5\\pi}{6}`."""
    if left.free_symbols or right.free_symbols or not (left.has(_SYMPY.pi) or right.has(_SYMPY.pi)):
        return False
    factor: Any = _SYMPY.pi / 180
    return any(agree_at_points(a * factor, b, 1e-12) == "yes" for a, b in ((left, right), (right, left)))


def _compare_solution(equation: Any, stated: Any, what: str) -> AnswerCheck:
    """`\\frac6x` against `xy=6`: an equation linear in the one variable that the answer leaves out."""
    missing = sorted(equation.free_symbols - stated.free_symbols, key=str)
    # `x = 9 \\pm \\sqrt6` has a set on its right.
    is_single = isinstance(equation.lhs, sympy.Expr) and isinstance(equation.rhs, sympy.Expr)
    difference: Any = equation.lhs - equation.rhs if is_single else None
    if is_single and len(missing) == 1 and stated.free_symbols <= equation.free_symbols:
        slope: Any = _SYMPY.diff(difference, missing[0])
        if missing[0] not in slope.free_symbols and slope != 0:
            solved: Any = -difference.subs(missing[0], 0) / slope
            if _is_identity(solved, stated):
                return AnswerCheck("correct", f"{what}: solved for {missing[0]}")
    return AnswerCheck("unparsable", f"{what}: an equation against an expression")


_CONSTANT = re.compile(r"(?<![A-Za-z\\_])[CK](?![A-Za-z_(])")
"""A constant of integration as people write it; small letters are parameters as often."""


def _compare_antiderivatives(left: Any, right: Any, what: str, *, is_named: bool) -> AnswerCheck | None:
    """Two antiderivatives with a constant, which may have another name; None where the reference has none.

    Args:
        left: The reference answer's value.
        right: The answer's.
        what: Both, for the reason.
        is_named: The reference answer has a capital letter for it, so that it is no parameter.
    """
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return None
    ours = _constant(left)
    if ours is None or len(left.free_symbols) < 2:
        return None
    theirs = _constant(right)
    if theirs is None:
        is_bare = differ_by_constant(left - ours, right, 1e-9) == "yes"
        return AnswerCheck("unparsable", f"{what}: without the constant") if is_bare else None
    agreement = differ_by_constant(left - ours, right - theirs, 1e-9)
    if not is_named or len(left.free_symbols) > 2:
        is_other = agreement != "no" and agree_at_points(left, right, 1e-7) != "yes"
        return AnswerCheck("unparsable", f"{what}: equal up to a constant") if is_other else None
    if agreement == "unknown":
        return AnswerCheck("unparsable", f"{what}: no values to compare")
    return AnswerCheck("correct" if agreement == "yes" else "incorrect", f"{what}: compared up to a constant")


def _constant(expression: Any) -> Any | None:
    """The symbol of an additive constant of integration. math-verify reads `C` as `c`."""
    for term in _SYMPY.Add.make_args(expression):
        if (
            term.is_Symbol
            and str(term) in {"C", "c", "K", "k"}
            and term not in (expression - term).free_symbols
        ):
            return term
    return None


def _compare_equations(reference: str, answer: str) -> AnswerCheck | None:
    """Correct where left side less right side differs by a factor only; None where math-verify decides.

    It cannot where one equation is solved for a variable: then it compares what stands right of `=`.
    """
    left, right = _difference(reference), _difference(answer)
    if left is not None and right is not None and not left.free_symbols and not right.free_symbols:
        # Two that are true, or wrong by some rounding, are not therefore one.
        return AnswerCheck(
            "unparsable", f"{shorten(answer)} and {shorten(reference)}: no variable to compare"
        )
    if left is None or right is None or left.free_symbols != right.free_symbols or right == 0:
        return None
    # Cheap, so that powers which nobody can expand never reach `cancel`.
    if are_multiples(left, right, 1e-7):
        ratio: Any = _SYMPY.cancel(left / right)
        if ratio.is_number and ratio.is_finite and ratio != 0:
            return AnswerCheck("correct", f"{shorten(answer)} is the same equation as {shorten(reference)}")
    if any(differ_by_constant(left, sign * right, 1e-12) == "yes" for sign in (1, -1)):
        return AnswerCheck("incorrect", f"{shorten(answer)} and {shorten(reference)} contradict each other")
    if _IS_SOLVED.match(reference) or _IS_SOLVED.match(answer):
        return AnswerCheck("unparsable", f"{shorten(answer)} may be another form of {shorten(reference)}")
    return None


def _compare_sides(reference: str, answer: str) -> AnswerCheck:
    """Other equations by their sides: math-verify reads the last one only."""
    ours, theirs = reference.split("="), answer.split("=")
    what = f"{shorten(answer)} against {shorten(reference)}"
    if len(ours) == len(theirs) and all(side.strip() for side in (*ours, *theirs)):
        checks = [compare_by_math_verify(left, right) for left, right in zip(ours, theirs, strict=True)]
        if all(check.verdict == "correct" for check in checks):
            return AnswerCheck("correct", f"{what}: side by side")
    return AnswerCheck("unparsable", f"{what}: equations that differ in form")


_IS_SOLVED = re.compile(r"\s*[A-Za-z](?:_\w)?\s*=")


def _difference(equation: str) -> Any | None:
    """Left side less right side of an equation."""
    sides = [parse_symbols(side) for side in equation.split("=")]
    if len(sides) != 2 or not all(isinstance(side, sympy.Expr) for side in sides):
        return None
    left: Any = sides[0]
    return left - sides[1]


def parse_symbols(text: str) -> Any | None:
    """The sympy object of normalised text; None when there is none."""
    try:
        found: Any = parse(  # pyright: ignore[reportUnknownVariableType] untyped library
            f"${spell_exponent(text)}$",
            extraction_config=[_LATEX, ExprExtractionConfig()],
            fallback_mode="no_fallback",
            parsing_timeout=None,  # pyright: ignore[reportArgumentType] its docstring allows None
        )
    except (RecursionError, MemoryError):
        return None
    return found[0] if found else None


_IMAGINARY_I = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
_IMAGINARY_J = re.compile(r"(?<![A-Za-z\\])j(?![A-Za-z])")


def _same_imaginary_unit(reference: str, answer: str) -> str:
    """Engineers write j for i."""
    is_other = _IMAGINARY_I.search(reference) and not _IMAGINARY_I.search(answer)
    return _IMAGINARY_J.sub("i", answer) if is_other and not _IMAGINARY_J.search(reference) else answer


def _agree_with_imaginary_i(left: Any, right: Any) -> bool:
    """math-verify holds i as a letter like any other, so that i^2 is not -1."""
    letters: dict[Any, Any] = {
        symbol: _SYMPY.I for symbol in left.free_symbols | right.free_symbols if str(symbol) == "i"
    }
    return bool(letters) and agree_at_points(left.subs(letters), right.subs(letters), 1e-7) == "yes"


def _is_percent(left: Any, right: Any) -> bool:
    """math-verify holds 50% as 50 times an unevaluated 1/100, and takes it as 50 or as .5."""
    return any(
        "UnevaluatedExpr" in sympy.srepr(each) for each in (left, right) if isinstance(each, sympy.Mul)
    )


def _is_rounded(left: Any, right: Any) -> bool:
    """Two numbers, one of them written in decimals, that are not the same: `\\pi` is not 3.14159265358979."""
    if left == right or left.free_symbols or right.free_symbols or _is_percent(left, right):
        return False
    return not are_exactly_equal(
        _SYMPY.nsimplify(left, rational=True), _SYMPY.nsimplify(right, rational=True)
    )


def _are_far_apart(left: Any, right: Any) -> bool:
    """Two numbers that math-verify took as equal after rounding to six decimals, but that differ."""
    if not (isinstance(left, sympy.Number) and isinstance(right, sympy.Number)):
        return False
    if not (left.is_finite and right.is_finite):
        return left is not right  # sympy holds one object of each infinity
    difference: Any = left - right
    return bool(abs(difference) > sympy.Rational(1, 10**9) * abs(left))
