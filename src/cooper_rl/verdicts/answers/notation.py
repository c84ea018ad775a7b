r"""Answers whose notation algebra would skip over (row 3): congruences, ratios, limits, primes, `and`, `or`.

math-verify takes `x \equiv 3 \pmod 5` for `x \equiv 2 \pmod 5` and `2:3:5` for `2:5:3`. Ratios of two and
number bases are compared in `comparison.py`. `find_doubt` names what it would misread or skip.
"""

import re
from fractions import Fraction

from cooper_rl.verdicts.answers.algebra.commands import find_unread
from cooper_rl.verdicts.answers.arithmetic import evaluate
from cooper_rl.verdicts.answers.comparison import AnswerCheck, shorten

_CONGRUENCE = re.compile(
    r"(?:\\?([A-Za-z]+)\s?(?:\\equiv|≡|=)\s?)?(-?\d{1,18})\s?\(?\s?\\?(?:pmod|bmod|mod)\s?\{?\s?(\d{1,18})\s?\}?\s?\)?"
)
_MODULAR = re.compile(r"\\equiv|≡|\\[pb]?mod|(?<![A-Za-z\\])mod(?![A-Za-z])")
_SUBSCRIPTED_NUMBER = re.compile(r"(?<![A-Za-z_\d{^])(?:[\dA-F]+ ?(?:\})? ?_\s?\{? ?\d|\d+ ?(?:\})? ?_)")
"""math-verify skips the base of `52_5`, which is no number at all."""
_PART = r"\d{1,15}(?:\.\d{1,9})?"
_RATIO = re.compile(rf"{_PART}(?: ?: ?{_PART}){{2,}}")
_OPERATION = re.compile(r"\\(?:lim|int|iint|oint|sum|prod)(?![A-Za-z])")
_STATEMENT = re.compile(
    r"\\(?:forall|exists|ne|subset|subseteq|parallel|perp|cong|sim|to|rightarrow|implies)(?![A-Za-z])"
)
r"""What says something and has no value: `x \ne 2`, `A \parallel B`."""


def compare_notation(reference: str, answer: str) -> AnswerCheck | None:
    """The verdict where either side is a congruence or a ratio of three or more; None for anything else."""
    if _MODULAR.search(reference) or _MODULAR.search(answer):
        return _compare_congruences(reference, answer)
    if _SUBSCRIPTED_NUMBER.search(reference) or _SUBSCRIPTED_NUMBER.search(answer):
        return AnswerCheck("unparsable", "a number with a base in an expression")
    left, right = _RATIO.fullmatch(reference), _RATIO.fullmatch(answer)
    if left and right:
        return _compare_ratios(reference, answer)
    if ":" in reference or ":" in answer:
        values = _value_of_ratio(reference), _value_of_ratio(answer)
        if values[0] is not None and values[0] == values[1]:
            return AnswerCheck("correct", f"{shorten(answer)} against {shorten(reference)} as a ratio")
        return AnswerCheck("unparsable", "a ratio of expressions")
    return None


def _value_of_ratio(text: str) -> Fraction | None:
    """`1 : (4/3)` divided out."""
    parts = text.split(":")
    return evaluate("/".join(f"({part})" for part in parts)) if len(parts) < 3 else None


def differ_in_digits_only(left: str, right: str) -> bool:
    r"""True if two texts have one form, but not the same digits and signs: algebra may have skipped a part.

    `\frac{1}{2}` and `((1)/(2))` are one form.
    """
    bare = [_LAYOUT.sub("", _BETWEEN_BRACES.sub("/", text)) for text in (left, right)]
    forms = [re.sub(r"\d", "0", re.sub(r"[+-]", "", text)) for text in bare]
    return bare[0] != bare[1] and forms[0] == forms[1]


_BETWEEN_BRACES = re.compile(r"\}\s?\{")
_LAYOUT = re.compile(r"\\[dt]?frac(?![A-Za-z])|\\cdot(?![A-Za-z])|\\left|\\right(?![A-Za-z])|[\s\\{}()*]")


def find_clash(reference: str, answer: str) -> str | None:
    """Notation that is not compared and that one side alone has: equal answers may differ in it."""
    pair = (reference, answer)
    is_logic = all(_RELATION.search(text) or not re.search(r"\d", text) for text in pair)
    for ours, theirs in _OPPOSITES if is_logic else _OPPOSITES[1:]:
        signs = [(bool(ours.search(text)), bool(theirs.search(text))) for text in pair]
        if sorted(signs) == [(False, True), (True, False)]:
            return "signs with another meaning"
    if "=" not in reference and _is_unsolved(answer):
        return "an equation that is not solved for its variable"
    left, right = _marks(reference), _marks(answer)
    if any(left[letter] != right[letter] for letter in left.keys() & right.keys()):
        return "a prime, a bar, a transpose or a power is only on one side"
    labels = [{name: float(number) for name, number in _LABELLED.findall(text)} for text in pair]
    if any(labels[0][name] != labels[1][name] for name in labels[0].keys() & labels[1].keys()):
        return "another value stands at the same name"
    is_joined = [_OR.search(text) is not None for text in pair]
    if is_joined[0] != is_joined[1] and any(len(set(_ASSIGNED.findall(text))) > 1 for text in pair):
        return "values of several names, which `or` joins on one side"
    if any(map(_CODE.fullmatch, pair)) and len({_CODE_LAYOUT.sub("", text) for text in pair}) == 2:
        return "a code or a formula, which is no product"
    if all(map(_TWO_NUMBERS.fullmatch, pair)) and any(map(_NO_ENTRY.search, pair)):
        return "a comma may be a decimal one"
    if sum(_INVERSE.search(text) is not None for text in pair) == 1:
        return "an inverse is only on one side"
    prefixes = [_PREFIX.findall(text) for text in pair]
    if all(prefixes) and prefixes[0] != prefixes[1]:
        return "a thousandth and a million have letters that differ in case only"
    for pattern, clash in _NAMED_PARTS:
        parts = [sorted({"".join(sorted(part)) for part in pattern.findall(text)}) for text in pair]
        if all(parts) and parts[0] != parts[1]:
            return clash
    if all(map(_CROSS.search, pair)) and _CROSS.findall(reference) != _CROSS.findall(answer):
        return "factors of a cross product or of sets, whose order counts"
    if _differ_in_order(pair):
        return "matrices in another order"
    if sum(_SIDE.search(text) is not None for text in pair) == 1:
        return "a sign without a number in an exponent"
    if sum(_LOOSE_DIGIT.search(text) is not None for text in pair) == 1:
        return "a number behind its letter, which may be an exponent or a subscript"
    derivatives = [_DERIVATIVE.findall(text) for text in pair]
    return "another derivative" if derivatives[0] != derivatives[1] and all(derivatives) else None


def _is_unsolved(answer: str) -> bool:
    """True for `2x = 6` and `x^2 = 6`, whose right side is no answer to a question for x."""
    left, _, right = answer.partition("=")
    bare = _NAME_OF_VALUE.sub("", left)
    return bool(right) and "=" not in right and all(part.search(bare) for part in (_VARIABLE, _OPERATOR))


_NAME_OF_VALUE = re.compile(r"[A-Za-z] ?\([^()]{0,40}\)|_ ?(?:\{[^{}]{0,40}\}|\w)|\\text ?\{[^{}]{0,80}\}")
"""The argument of `f(2)` and the subscript of `a_{n+1}`."""
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[a-z](?![A-Za-z])|\\(?:alpha|beta|gamma|theta|lambda|mu|phi|omega)\b")
_OPERATOR = re.compile(r"[-+*/^|!]|\d|\\(?:[dt]?frac|sqrt|cdot|times)")


_LABELLED = re.compile(r"([A-Z][A-Za-z]{2,20}(?: \d+)?): ?(-?\d{1,15}(?:\.\d{1,15})?)(?![\d/^])")
"""`Alice: 5, Bob: 3`, whose numbers are compared in any order elsewhere."""
_OR = re.compile(r"\bor\b|\\(?:lor|vee)(?![a-z])")
_ASSIGNED = re.compile(r"(?<![A-Za-z\\])([A-Za-z](?:_\{?\w{1,3}\}?)?) ?=")
_CODE = re.compile(r"[A-Za-z\d]*[A-Z]\d[A-Za-z\d]*")
"""`3A2`, `CO2`: nobody writes a product with a number after its letter."""
_CODE_LAYOUT = re.compile(r"\\(?:text|mathrm|rm)(?![a-z])|[\s_{}\\]")
_TWO_NUMBERS = re.compile(r"-?\d{1,15},\d{1,15}")
_NO_ENTRY = re.compile(r"^-0,|,0\d")
"""`-0,5` and `0,05`, whose parts nobody writes as the numbers of a list."""
_INVERSE = re.compile(r"(?:(?<![A-Za-z\\])[fghFGH]|\([A-Z][A-Z ]{1,9}\)) ?\^ ?\{? ?- ?1 ?\}?")
"""`f^{-1}`, `(AB)^{-1}`: not `1/f`, and not `A^{-1}B^{-1}`."""
_PREFIX = re.compile(r"\d\s?([mM])(?:W|Pa|Hz|A|V|J|F|N|eV)(?![A-Za-z])")


_NAMED_PARTS = (
    (re.compile(r"(?<![A-Za-z\\])[A-Z]{2}(?![A-Za-z])"), "other segments or other products"),
    (re.compile(r"\\partial ?[A-Za-z]"), "another derivative"),
)
"""`AB \\cdot CD`, `\\frac{\\partial f}{\\partial x}`: algebra takes their letters for factors."""
_CAPITALS = re.compile(
    r"(?<!\\)([A-Z]) ?(?:\^ ?(?:\w|\{ ?-? ?\w ?\}) ?)?(?:(?:\\cdot|\*) ?)?(?=([A-Z])(?![a-z]))"
)
_INVERSE_OF_CAPITAL = re.compile(r"(?<![A-Za-z\\])[A-Z] ?\^ ?\{? ?- ?1 ?\}?")


def _differ_in_order(pair: tuple[str, str]) -> bool:
    """True for other products of capitals that are matrices: with an inverse, or in both orders, `AB-BA`."""
    products = [set(_CAPITALS.findall(text)) for text in pair]
    has_order = any(map(_INVERSE_OF_CAPITAL.search, pair)) or any(
        left != right and (right, left) in each for each in products for left, right in each
    )
    return has_order and products[0] != products[1]


_UNREAD = re.compile(
    r"\\frac ?\{ ?(?:d|\\partial)(?:\^ ?\{? ?\d ?\}?)? ?[A-Za-z]? ?\} ?\{ ?(?:d|\\partial) ?[A-Za-z]"
    r"|(?<![A-Za-z\\])(?:d[A-Za-z] ?/ ?d[A-Za-z]|[A-Z] ?\[)"
)
"""math-verify finds 0 in `\\frac{dy}{dx}` and in `E[X^2] - E[X]^2`."""
_LETTER = r"(?:\\(?:vec|mathbf|hat) ?\{ ?)?([A-Za-z])(?![A-Za-z]) ?\}?"
_CROSS = re.compile(rf"(?<![A-Za-z\\]){_LETTER} ?\\times ?{_LETTER}")
_SIDE = re.compile(r"\^ ?(?:[-+*]|\{ ?[-+*] ?\})(?![\w\\(])")
"""`3^+`, the limit from the right."""
_LOOSE_DIGIT = re.compile(r"(?<![A-Za-z\\_^{])(?!(?<=\d)e)[a-z]\d(?!\()")
_DERIVATIVE = re.compile(r"\\frac ?\{ ?d ?(\w) ?\} ?\{ ?d ?(\w) ?\}|(?<![A-Za-z])d(\w) ?/ ?d(\w)(?![A-Za-z])")
_RELATION = re.compile(r"[<>]|\\[lg]e(?![a-z])|\\c[au]p(?![a-z])")
_OPPOSITES = tuple(
    (re.compile(ours), re.compile(theirs))
    for ours, theirs in (
        (
            r"\bor\b|\\(?:lor|vee)(?![a-z])|\\cup(?![a-z])",
            r"\band\b|\\(?:land|wedge)(?![a-z])|\\cap(?![a-z])",
        ),
        (r"\\lfloor|\bfloor\b", r"\\lceil|\bceil\b"),
        (r"(?<![_{])\\?\bmax(?![a-z])", r"(?<![_{])\\?\bmin(?=\s?[({\\])"),
        (r"\\sup(?![a-z])", r"\\inf(?![a-z])"),
        (r"[A-Za-z}] ?\\cdot(?![a-z]) ?[A-Za-z\\]", r"[A-Za-z}] ?\\times(?![a-z]) ?[A-Za-z\\]"),
    )
)
_MARKED = re.compile(
    r"\\(?P<accent>overline|bar|hat|d?dot|tilde|neg|lnot|nabla|det)(?![a-z]) ?\{? ?(?P<under>[A-Za-z]{1,3})"
    r"(?![A-Za-z])|(?<![\\A-Za-z])(?P<letter>[A-Za-z])"
    r"(?P<sign>'{1,4}|\^ ?\{? ?(?:\\prime|\\top|T|\\ast|\\dagger)(?![A-Za-z]))?(?![A-Za-z])"
)


def _marks(text: str) -> dict[str, frozenset[str]]:
    """Every letter that stands alone, with the marks that it carries anywhere."""
    found: dict[str, set[str]] = {}
    for match in _MARKED.finditer(text):
        name = match["under"] or match["letter"]
        found.setdefault(name, set()).add(match["accent"] or (match["sign"] or "").strip("^{ "))
    return {name: frozenset(signs) for name, signs in found.items()}


def value_of_operation(text: str) -> str:
    """The value right of `=` after a limit, an integral or a sum; any other text as it is."""
    head, equals, value = text.rpartition("=")
    # The `=` of a sum's lower bound stands inside its braces.
    is_operation = equals and _OPERATION.match(head.strip()) and head.count("{") == head.count("}")
    return value.strip() if is_operation and value.strip() else text


def _compare_congruences(reference: str, answer: str) -> AnswerCheck:
    left, right = _CONGRUENCE.fullmatch(reference), _CONGRUENCE.fullmatch(answer)
    what = f"{shorten(answer)} against {shorten(reference)}"
    if left is None or right is None or int(left[3]) == 0:
        return AnswerCheck("unparsable", f"{what}: not both are a congruence")
    if left[1] and right[1] and left[1] != right[1]:
        return AnswerCheck("unparsable", f"{what}: other variables")
    modulus = int(left[3])
    is_equal = modulus == int(right[3]) and (int(left[2]) - int(right[2])) % modulus == 0
    return AnswerCheck("correct" if is_equal else "incorrect", f"congruence: {what}")


def _compare_ratios(reference: str, answer: str) -> AnswerCheck:
    left, right = ([Fraction(part.strip()) for part in text.split(":")] for text in (reference, answer))
    what = f"{shorten(answer)} against {shorten(reference)} as a ratio"
    if len(left) != len(right):
        return AnswerCheck("incorrect", what)
    total, other_total = sum(left), sum(right)
    is_equal = [part * other_total for part in left] == [part * total for part in right] and bool(total)
    return AnswerCheck("correct" if is_equal or left == right else "incorrect", what)


_QUANTIFIER = re.compile(r"\\forall|\\exists|[∀∃]")
_SKIPPED = re.compile(
    r"\.\.|…|<>|!=|\?|\\(?:not|neg|mid)(?![A-Za-z])"
    r"|\\(?:c|l|v)?dots|\\x(?:left|right)arrow|\\u[\dA-Fa-f]{4}|\\hline|\\begin ?\{(?![pbBvV]?matrix)"
    r"|\\\{[^{}]{0,200}(?:\\mid|\|)"
)
_STRAY = re.compile(r"(?<!\\)(?:\\\\)*\\(?![A-Za-z{}|\\])|^(?!.*\\begin).*(?:\\\\|(?<!\\)&)", re.DOTALL)
"""A backslash before no command: math-verify reads nothing past it, so `k\\(4k)` would equal `k\\(9k)`."""
_HUGE = re.compile(
    r"\d{6,}\s?!|!\s?\)*\s?!|\^\s?\{?\s?-?\d{6,}|\d\s?\^\s?\{?\s?\d+\s?(?:\^|!)|\\binom\s?\{\s?\d{6,}"
    r"|\([^()]{0,80}[a-z][^()]{0,80}\)\s?\^\s?\{?\s?(?:[3-9]\d{3}|\d{5,})"
)
"""sympy computes these when it parses them, which takes a worker's whole time."""
_INNER_DOLLAR = re.compile(r"[^$\s].*\$.*\w", re.DOTALL)
_NO_EXPONENT = re.compile(r"\^\s*(?:$|\^)")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s?\{[A-Za-z]+\*?\}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}|(?<= )(?:in|of|to|up)(?= )")
_SIDE_BY_SIDE = re.compile(r"(?<![\d._^])(?<!\\frac)(?<!\\frac )[\d.]+ +[\d.]")
"""`1 2`; not `\\frac 1 2`, nor `\\log_2 8`."""
_ONE_SIDED = re.compile(r"^\s?(?:[<>]|\\(?:le|ge)(?![a-z]))|(?:[<>]|\\(?:le|ge))\s?$")
"""math-verify reads `> 0` as 0."""
_MATH_WORDS = frozenset(
    ("sqrt", "sin", "cos", "tan", "log", "ln", "exp", "pi", "and", "or", "min", "max", "mod", "gcd", "lcm")
)
_EXPONENT_T = r"\^ ?(?:T|\{ ?(?:T|\\[A-Za-z]{2,9} ?\{ ?T ?\}) ?\})"
_TRANSPOSE = re.compile(
    r"(?:[A-Za-df-z] ?(?:_ ?(?:\w|\{ ?\w{1,5} ?\}) ?)?"
    rf"|\((?:[a-z +\-]{{1,40}}|(?=[^()]{{0,39}}[A-Z])[^()]{{1,40}})\) ?){_EXPONENT_T}"
)
"""`A^T`, `(2AB)^T`: products of matrices have an order, which algebra does not know."""
_POWER = re.compile(rf"(?<!matrix\}})(?<!matrix\}} ){_EXPONENT_T}")


def may_be_transposed(text: str) -> bool:
    """True if T is the exponent of a letter or of letters in brackets."""
    return _TRANSPOSE.search(text) is not None


def spell_exponent(text: str) -> str:
    """`2^T` as `2^{t}`: math-verify skips the T, as a transpose, and reads any other T as t."""
    return _POWER.sub("^{t}", text)


_DOUBTS = (
    (re.compile(r"[)\]}\d] ?'"), "a prime behind brackets or a number"),
    (_SIDE_BY_SIDE, "two numbers side by side"),
    (re.compile("°"), "degrees in an expression"),
    (_HUGE, "a number or a power too large to compute"),
    (_INNER_DOLLAR, "a dollar sign within an expression"),
    (_NO_EXPONENT, "a power without an exponent"),
    (_STRAY, "a backslash that begins no command"),
    (_QUANTIFIER, "a statement with quantifiers"),
    (_SKIPPED, "notation that math-verify skips"),
    (_STATEMENT, "a statement without a value"),
    (_ONE_SIDED, "a relation without one of its sides"),
    (re.compile('"'), "a quotation mark in an expression"),
    (re.compile(r"[^\x00-\x7f]"), "a character that is no mathematics"),
    (re.compile(r"\d[eE][+-]?\d|0[xXbBoO][\dA-Fa-f]"), "a number as programs write it"),
)


def find_doubt(reference: str, answer: str) -> str | None:
    """Words, and numbers side by side, that math-verify would read as products or sums or skip."""
    for pattern, doubt in _DOUBTS:
        if pattern.search(reference) or pattern.search(answer):
            return doubt
    if any(_UNREAD.search(text) and "=" not in text for text in (reference, answer)):
        return "a derivative or an expectation, which algebra takes for a product"
    unread = find_unread(reference) or find_unread(answer)
    if unread is not None:
        return unread
    words = [word.lower() for word in _WORD.findall(_ENVIRONMENT.sub("", f"{reference} {answer}"))]
    unknown = sorted({word for word in words if word not in _MATH_WORDS})
    return f"words beside the mathematics: {', '.join(unknown)[:100]}" if unknown else None
