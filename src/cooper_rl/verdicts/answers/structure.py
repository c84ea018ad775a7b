r"""Answers with parts (row 3): lists, sets, tuples, intervals, unions, matrices, `x=1 \text{ or } x=2`.

Splits normalised text at its top level, so that the parts can be compared one by one: exactly where they are
numbers, by math-verify where not. Lists and sets are compared as multisets, tuples and intervals in order.
`parts.py` compares them.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from cooper_rl.verdicts.answers.numbers import parse_quantity
from cooper_rl.verdicts.answers.stated.braces import brace_excess
from cooper_rl.verdicts.answers.units import TEXT_COMMAND

MAX_PARTS = 2000
VECTOR = "vector"
"""Brackets of a matrix of one row or column and of angle brackets: coordinates, never an interval."""


@dataclass(frozen=True)
class Node:
    """A leaf with text, or a list, tuple or union with parts."""

    kind: Literal["leaf", "list", "tuple", "union"]
    text: str = ""
    brackets: str = ""
    """`()`, `[]`, `[)` or `(]` of a tuple: the same text can be a point or an interval. `{}` of a set."""
    parts: tuple["Node", ...] = ()
    variable: str = ""
    """What stood left of `=`, or what an inequality bounds."""


def parse_structure(text: str) -> Node:
    """Read normalised text as a node; anything without parts is a leaf."""
    text = QUALIFIER.sub(" ", TEXT_COMMAND.sub(r" \1 ", text)).lstrip(" ,;").rstrip(" ,;.")
    return _parse(_SET_NAME.sub("", text), 0)


def without_brackets(text: str) -> str:
    """Text without round brackets round the whole of it; a point or an interval keeps its own."""
    while len(text) > 2 and text[0] == "(" and text[-1] == ")":
        inner = text[1:-1].strip()
        if not inner or not _is_balanced(inner) or len(_split_list(inner, is_bracketed=True)) > 1:
            return text
        text = inner
    return text


def find_syntax_fault(text: str) -> str | None:
    r"""Why normalised text can be no whole answer, e.g. `\frac{` or `idk (((`; None when nothing is wrong.

    Round and square brackets close each other, in either direction: `[0,1)` and `]0,1[` are intervals.
    """
    if brace_excess(text):
        return "has a brace without its partner"
    round_excess = text.count("(") - text.count(")")
    num_square = text.count("[") + text.count("]")
    possible = (round_excess, round_excess + len(_LIST_LABEL.findall(text)))
    if all(abs(excess) > num_square or (excess + num_square) % 2 for excess in possible):
        return "has a bracket without its partner"
    if text.count(r"\begin") != text.count(r"\end"):
        return r"has a \begin or \end without the other"
    bare = _BARE_COMMAND.search(text)
    return f"has {bare[1]} without what it applies to" if bare else None


_LIST_LABEL = re.compile(r"(?<![^\s,;])\w{1,2}\)(?=\s)")
"""`A) 12`: a closing bracket that never had a partner."""
_BARE_COMMAND = re.compile(r"(\\(?:frac|sqrt)(?![A-Za-z]))\s*(?:\{\s*\}|[)\]},;]|$)")
QUALIFIER = re.compile(
    r"[ ,(]{0,5}(?:\bfor (?:all|any|some|every|each|integer|\$?[a-z]\$? ?(?:\\in|>))|\bwhere\b|\bwith\b"
    r"|\\forall|[,(]\s*[a-z] ?\\in ?\\mathbb)(?:(?!, and|; ).){0,300}",
    re.DOTALL,
)
_MATRIX = re.compile(r"\\begin\s?\{([pbB]?)matrix\}((?:(?!\\begin).)*)\\end\s?\{\1matrix\}", re.DOTALL)
_SUBSCRIPT = r"(?:_(?:\{ ?\\?\w{1,20} ?\}|\w))?"
_LETTER = r"(?:[A-Za-z](?![A-Za-z])|\\[A-Za-z]+|[A-Z][a-z]{2,})"
_NAME = rf"(?:{_LETTER}{_SUBSCRIPT}'?(?: ?\([A-Za-z0-9](?:, ?[A-Za-z0-9])*\))?)"
_POINT_NAME = rf"\( ?{_NAME}(?: ?, ?{_NAME})+ ?\)"
_ASSIGNED = re.compile(rf"({_NAME}|\|[A-Z]{{1,3}}\||[A-Z]:[A-Z]|{_POINT_NAME}) ?(?:=|\\in(?![a-z]))(?!=)")
_CHAIN = re.compile(r"((?:[a-z] ?= ?){2,6})((?:(?!\\(?:pm|mp)(?![a-z]))[^=<>]){1,200})")
_LABEL = re.compile(r"[A-Z][A-Za-z]{2,20}(?: \d+)?: ?")
_SET_BUILDER = re.compile(r"\\\{ ?(\\?[A-Za-z]+) ?(?:\||\\mid|:)(?! ?\\\{)(.*)\\\}", re.DOTALL)
_VARIABLE = rf"{_LETTER}{_SUBSCRIPT}(?: ?\([a-z]\))?"
_BETWEEN = re.compile(rf"(.+?) ?(<|\\le) ?({_VARIABLE}) ?(<|\\le)(?![a-z]) ?(.+)", re.DOTALL)
_FLIPPED_BETWEEN = re.compile(rf"(.+?) ?(>|\\ge) ?({_VARIABLE}) ?(>|\\ge)(?![a-z]) ?(.+)", re.DOTALL)
_BOUND = re.compile(rf"({_VARIABLE}) ?(<|>|\\le|\\ge)(?![a-z]) ?(.+)", re.DOTALL)
_FLIPPED_BOUND = re.compile(rf"(.+?) ?(<|>|\\le|\\ge)(?![a-z]) ?({_VARIABLE})", re.DOTALL)
_RELATION = re.compile(r"[<>=]|\\(?:le|ge|ne|in)(?![a-z])")
_FLIP = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_INFINITY = Node("leaf", r"\infty")
_MINUS_INFINITY = Node("leaf", r"-\infty")


def _parse(text: str, depth: int) -> Node:
    text = text.strip(" ,;")
    angle = _ANGLE.fullmatch(text)
    if angle and len(split_top_level(angle[1], _COMMA)) > 1:
        return Node("tuple", text, VECTOR, tuple(_parse(part, depth + 1) for part in angle[1].split(",")))
    # Hostile text nests without end: what lies deeper stays a leaf, which words or algebra compare.
    if depth > 6 or len(text) > 20_000:
        return Node("leaf", text)
    matrix = _MATRIX.fullmatch(text)
    if matrix:
        rows = [row for row in re.split(r"\\\\", matrix[2]) if row.strip()]
        cells = [cell for row in rows for cell in row.split("&")]
        if len(rows) == 1 or len(cells) == len(rows):
            return Node("tuple", text, VECTOR, tuple(_parse(cell, depth + 1) for cell in cells))
        return Node("tuple", text, "[]", tuple(_row(row, depth) for row in rows))
    union = split_top_level(text, _UNION)
    if len(union) > 1:
        return Node("union", text, parts=tuple(_parse(part, depth + 1) for part in union))
    is_bounded = _INEQUALITY.search(text) is not None
    both = split_top_level(text, _AND) if is_bounded else []
    if len(both) == 2:
        joined = _intersect(_parse(both[0], depth + 1), _parse(both[1], depth + 1), text)
        if joined is not None:
            return joined
    alternatives = split_top_level(text, _OR if is_bounded else _OR_AND)
    if len(alternatives) > 1 and _are_alternatives(text, alternatives):
        parts = [each for part in alternatives for each in _expand_signs(part)]
        return Node("union", text, parts=tuple(_parse(part, depth + 1) for part in parts))
    if is_bounded and len(split_top_level(text, _OR_AND)) > 1:
        return Node("leaf", text)
    parts = _split_list(text)
    if len(parts) > 1 or (len(parts) == 1 and _is_signed(text) and not text.startswith(("{", r"\{"))):
        parts = [each for part in parts[:MAX_PARTS] for each in _expand_signs(part)]
        return Node("list", text, parts=tuple(_parse(part, depth + 1) for part in parts))
    label = _LABEL.match(text)
    if label and len(text) > label.end():
        return _parse(text[label.end() :], depth + 1)
    builder = _SET_BUILDER.fullmatch(text)
    if builder:
        return _parse(builder[2], depth + 1)
    bracketed = _bracketed(text, depth)
    return bracketed if bracketed is not None else _relation_or_leaf(text, depth)


_ANGLE = re.compile(r"\\langle(?![a-z]) ?(.{1,500}?) ?\\rangle")
_SET_NAME = re.compile(
    r"^(?:[A-Z] ?\\c[au]p|\\complement ?_ ?\{? ?(?:[A-Z]|\\mathbb ?\{ ?R ?\}) ?\}?) ?[A-Z] ?= ?"
)
"""`A \\cup B = ...` and `\\complement_U A = ...` name what is asked for."""
_UNION = re.compile(r" ?\\cup(?![A-Za-z]) ?")
_OR = re.compile(r" ?(?:\bor\b|\\vee(?![a-z])|\\lor(?![a-z])) ?")
_OR_AND = re.compile(r" ?(?:\\text\s?\{ ?)?\b(?:or|and)\b(?: ?\})? ?")
_AND = re.compile(r" ?(?:\band\b|\\wedge(?![a-z])|\\land(?![a-z])|, (?=[A-Za-z\d. -]{1,20}[<>\\])) ?")
_SEPARATOR = re.compile(r"[ ,]{1,5}(?:and|or) {1,5}|(?<=[0-9])(?:and|or)\b ?|[,;](?!\d{3}(?!\d)) ?|[,;] ")
_INEQUALITY = re.compile(r"[<>]|\\[lg]e(?![a-z])")
_BOUND_SIGN = re.compile(r"[<>]|\\[lg]e(?![a-z])|=")


def _are_alternatives(text: str, parts: list[str]) -> bool:
    """True for relations, but not for the values of several unknowns: `x=1, y=2 and z=3` is a list."""
    if not all(map(_BOUND_SIGN.search, parts)):
        return False
    found = [_ASSIGNED.match(each) for each in _split_list(text)]
    names = [each[1] for each in found if each]
    return _OR.search(text) is not None or len({*names}) < len(found)


def _intersect(left: Node, right: Node, text: str) -> Node | None:
    """`x>2 and x\\le5` as one interval: a lower and an upper bound of the same variable."""
    lower, upper = (left, right) if _is_infinite(left, 1) else (right, left)
    if not (
        left.variable
        and left.variable == right.variable
        and _is_infinite(lower, 1)
        and _is_infinite(upper, 0)
    ):
        return None
    ends = (lower.parts[0], upper.parts[1])
    low, high = parse_quantity(ends[0].text), parse_quantity(ends[1].text)
    if low is not None and high is not None and low.value > high.value:
        return None  # `x<-1, x>3`: either of the two is meant.
    return Node("tuple", text, lower.brackets[0] + upper.brackets[1], ends, left.variable)


def _is_infinite(node: Node, end: int) -> bool:
    return (
        node.kind == "tuple" and len(node.parts) == 2 and node.parts[end].text == (r"-\infty", r"\infty")[end]
    )


def _row(row: str, depth: int) -> Node:
    return Node("tuple", row, "[]", tuple(_parse(cell, depth + 1) for cell in row.split("&")))


def _split_list(text: str, *, is_bracketed: bool = False) -> list[str]:
    """Elements of a list; `;` binds less than `,`, and outside brackets a comma may also group thousands."""
    groups = split_top_level(text, _SEMICOLON)
    if len(groups) > 1:
        return groups
    if _THOUSANDS.fullmatch(text):
        return text.split(",") if is_bracketed else [text]
    return split_top_level(text, _SEPARATOR if _SPACED.search(text) else _COMMA)


_SIGNS = re.compile(r"\\(pm|mp)(?![A-Za-z]) ?")


def _is_signed(text: str) -> bool:
    r"""True if one `\pm`, that stands for both signs, makes two answers of the text."""
    return len(_SIGNS.findall(text)) == 1


def _expand_signs(text: str) -> list[str]:
    r"""`2\pm\sqrt3` as both values, `(1,\pm2)` as both points; several `\pm` may or may not go together."""
    if not _is_signed(text):
        return [text]
    return [_SIGNS.sub(sign, text).replace("=+", "=").replace("= +", "= ") for sign in "+-"]


_SEMICOLON = re.compile(r" ?; ?")
_COMMA = re.compile(r",")
_SPACED = re.compile(r", | and | or ")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


def _bracketed(text: str, depth: int) -> Node | None:
    """A tuple, interval or set when one pair of brackets spans the whole text."""
    if len(text) < 3:
        return None
    is_set = text.startswith(r"\{") and text.endswith(r"\}")
    opening, inner = text[0], text[2:-2] if is_set else text[1:-1]
    if not is_set and (opening not in "([{" or text[-1] not in ")]}"):
        return None
    if not _is_balanced(inner):
        return None
    parts = _split_list(inner, is_bracketed=True)
    if is_set or opening == "{":
        if not is_set and len(parts) < 2:
            return _parse(inner, depth + 1)
        parts = [each for part in parts[:MAX_PARTS] for each in _expand_signs(part)]
        return Node("list", text, "{}", tuple(_parse(part, depth + 1) for part in parts))
    if len(parts) < 2:
        return _parse(inner, depth + 1) if opening == "(" and text[-1] == ")" else None
    parsed = tuple(_parse(part, depth + 1) for part in parts[:MAX_PARTS])
    return Node("tuple", text, opening + text[-1], parsed)


def _relation_or_leaf(text: str, depth: int) -> Node:
    chain, absolute = _CHAIN.fullmatch(text), _ABSOLUTE.fullmatch(text)
    if chain:
        value = _parse(chain[2], depth + 1)
        parts = (replace(value, variable=name) for name in re.findall(r"[a-z]", chain[1]))
        return Node("list", text, parts=tuple(parts))
    if absolute:
        return _between_signs(text, absolute[1], absolute[2], absolute[3].strip())
    assigned = _ASSIGNED.match(text)
    if assigned and len(_RELATION.findall(text)) == 1 and text[assigned.end() :].strip():
        right = _parse(text[assigned.end() :], depth + 1)
        return Node(right.kind, right.text, right.brackets, right.parts, assigned[1].strip())
    rising = _BETWEEN.fullmatch(text)
    between = rising or _FLIPPED_BETWEEN.fullmatch(text)
    if between and len(_RELATION.findall(text)) == 2:
        low, below, variable, above, high = between.groups() if rising else between.groups()[::-1]
        brackets = ("(" if below in "<>" else "[") + (")" if above in "<>" else "]")
        return Node("tuple", text, brackets, (Node("leaf", low), Node("leaf", high)), variable)
    if len(_RELATION.findall(text)) == 1:
        bound, flipped = _BOUND.fullmatch(text), _FLIPPED_BOUND.fullmatch(text)
        if bound:
            return _half_line(text, bound[1], bound[2], bound[3])
        if flipped:
            return _half_line(text, flipped[3], _FLIP[flipped[2]], flipped[1])
    return Node("leaf", text)


_ABSOLUTE = re.compile(rf"\| ?({_VARIABLE}) ?\| ?(<|>|\\le|\\ge)(?![a-z]) ?([^<>=|]{{1,100}})")


def _between_signs(text: str, variable: str, sign: str, bound: str) -> Node:
    """`|x|<c` as the interval from -c to c, `|x|>c` as the two half-lines outside."""
    if sign in {"<", r"\le"}:
        ends = (Node("leaf", f"-({bound})"), Node("leaf", bound))
        return Node("tuple", text, "()" if sign == "<" else "[]", ends, variable)
    outside = (
        _half_line(text, variable, _FLIP[sign], f"-({bound})"),
        _half_line(text, variable, sign, bound),
    )
    return Node("union", text, parts=outside)


def _half_line(text: str, variable: str, sign: str, bound: str) -> Node:
    end = Node("leaf", bound.strip())
    if sign in {"<", r"\le"}:
        brackets, ends = ("()" if sign == "<" else "(]"), (_MINUS_INFINITY, end)
    else:
        brackets, ends = ("()" if sign == ">" else "[)"), (end, _INFINITY)
    return Node("tuple", text, brackets, ends, variable)


def split_top_level(text: str, separator: re.Pattern[str]) -> list[str]:
    """Split where the separator stands outside all brackets and braces."""
    depths = _depths(text)
    parts: list[str] = []
    start = 0
    for match in separator.finditer(text):
        if depths[match.start()] == 0 and match.end() > match.start():
            parts.append(text[start : match.start()])
            start = match.end()
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _depths(text: str) -> list[int]:
    """Bracket depth before each character; any bracket closes any other, as `[0,1)` does."""
    depths: list[int] = []
    depth = 0
    for character in text:
        if character in ")]}":
            depth -= 1
        depths.append(depth)
        if character in "([{":
            depth += 1
    return depths


def _is_balanced(text: str) -> bool:
    depths = _depths(text)
    return not depths or (min(depths) >= 0 and depths[-1] == (1 if text[-1] in "([{" else 0))
