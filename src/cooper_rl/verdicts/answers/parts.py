"""Comparing answers part by part (row 3): multisets for lists and sets, order for tuples and intervals.

Parts with names, `x=1, y=2`, are compared by name. A part that cannot be compared makes the whole unparsable,
unless another part already differs. The caller brings the comparison of two leaves, with or
without algebra.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

from cooper_rl.verdicts.answers.comparison import AnswerCheck, is_percentage, shorten
from cooper_rl.verdicts.answers.numbers import parse_quantity
from cooper_rl.verdicts.answers.structure import VECTOR, Node

LeafComparison = Callable[[str, str], AnswerCheck | None]
"""Compares two texts without parts; None when it cannot say without algebra."""

MAX_PAIRS = 144
"""Pairs of parts compared by `LeafComparison`; longer lists must be all numbers."""
MAX_LEAF_PAIRS = 2500
"""Pairs of leaves of two lists that hold lists or tuples, each of which may meet each."""


def compare_parts(reference: Node, answer: Node, leaf: LeafComparison) -> AnswerCheck | None:
    """Compare two nodes; None when their kinds do not allow it or a leaf needs more than `leaf` can do."""
    reference, answer = _unwrap(reference), _unwrap(answer)
    kinds = {reference.kind, answer.kind}
    if kinds == {"leaf"}:
        return _compare_leaves(reference, answer, leaf)
    if "leaf" in kinds:
        return _compare_with_leaf(reference, answer)
    if kinds == {"tuple"}:
        return _compare_tuples(reference, answer, leaf)
    if kinds == {"tuple", "union"}:
        return None
    if kinds == {"list", "tuple"}:
        return _compare_tuple_with_list(reference, answer, leaf)
    if reference.variable and answer.variable and _name(reference) != _name(answer):
        return None
    if "{}" in (reference.brackets, answer.brackets) and _repeats_only(reference.parts, answer.parts):
        return AnswerCheck("unparsable", "a set against a list that names an element twice")
    if "union" in kinds and len(reference.parts) != len(answer.parts):
        return AnswerCheck("unparsable", "unions of other parts may be the same set")
    return _compare_lists(reference.parts, answer.parts, leaf)


def _repeats_only(reference: Sequence[Node], answer: Sequence[Node]) -> bool:
    """True if two lists of numbers hold the same ones, some of them more often."""
    left, right = _values(reference), _values(answer)
    return left is not None and right is not None and left != right and left.keys() == right.keys()


def _unwrap(node: Node) -> Node:
    """The one part of a list or set; the set of the empty set is another than that."""
    while node.kind in {"list", "union"} and len(node.parts) == 1 and node.parts[0].text != r"\emptyset":
        node = node.parts[0]
    return node


def _name(node: Node) -> str:
    return _bare(node.variable)


def _bare(text: str) -> str:
    return re.sub(r"[{}\s\\]", "", text)


def _compare_leaves(reference: Node, answer: Node, leaf: LeafComparison) -> AnswerCheck | None:
    if _are_equations(reference, answer):
        return leaf(_statement(reference), _statement(answer))
    name, text = _with_argument(_name(reference), _name(answer), answer.text)
    check = leaf(reference.text, text)
    is_other_name = reference.variable and name and _name(reference) != name
    if check and check.verdict == "correct" and is_other_name:
        return AnswerCheck("unparsable", f"{answer.variable} is given, {reference.variable} was asked for")
    return check


def _with_argument(name: str, other_name: str, text: str) -> tuple[str, str]:
    """`f(t)` and its text with the argument of `f(x)`, unless the text has an x already."""
    left, right = _FUNCTION.fullmatch(name), _FUNCTION.fullmatch(other_name)
    if not left or not right or left[1] != right[1] or re.search(_letter(left[2]), text):
        return other_name, text
    return name, re.sub(_letter(right[2]), left[2], text)


def _letter(name: str) -> str:
    return rf"(?<![A-Za-z\\]){name}(?![A-Za-z])"


_FUNCTION = re.compile(r"(\w+'?)\(([A-Za-z])\)")


def _are_equations(reference: Node, answer: Node) -> bool:
    """`y=2x+1` and `2x-y+1=0`, `y=x` and `x=y`: equations that are not solved for the same variable."""
    left, right = _name(reference), _name(answer)
    if left == right or any(_statement(node).count("=") != 1 for node in (reference, answer)):
        return False
    return left in _bare(answer.text) and right in _bare(reference.text)


def _statement(node: Node) -> str:
    return f"{node.variable} = {node.text}" if node.variable else node.text


def _compare_with_leaf(reference: Node, answer: Node) -> AnswerCheck | None:
    """Several numbers are not one, but `1000,99` is 1000.99 and `2 and 1/2` is 2.5."""
    texts = [_as_one_number(node.text) for node in (reference, answer)]
    left, right = parse_quantity(texts[0]), parse_quantity(texts[1])
    if left is not None and right is not None and (left.value == right.value or is_percentage(left, right)):
        # `3,5` as a reference answer may well be a list; nobody asks for a list with `3.5`.
        is_list = reference.kind == "list" and "." not in reference.text
        may_group = any(_THREE_DIGITS.fullmatch(node.text) for node in (reference, answer))
        is_same_unit = left.unit == right.unit or not (left.unit and right.unit)
        is_clear = is_same_unit and not is_list and not may_group
        verdict = "correct" if is_clear else "unparsable"
        return AnswerCheck(verdict, f"{answer.text} equals {reference.text} if it is read as one number")
    single, several = (reference, answer) if reference.kind == "leaf" else (answer, reference)
    if single.text.count("|") > 1 and _BOUND.search(single.text):
        return AnswerCheck("unparsable", f"{single.text} is not solved")
    number = parse_quantity(single.text)
    if number is not None and re.sub(r"\D", "", single.text) == re.sub(r"\D", "", several.text):
        return AnswerCheck("unparsable", "the comma of one side may group thousands")
    if number is not None and all(map(_is_plain_number, several.parts)):
        if len({part.text for part in several.parts}) > 1 and _values(several.parts) == Counter(
            {number.value: len(several.parts)}
        ):
            return AnswerCheck("unparsable", f"{shorten(answer.text)}: one number in several spellings")
        return AnswerCheck("incorrect", f"{len(several.parts)} numbers against one")
    return None


_BOUND = re.compile(r"[<>]|\\[lg]e(?![a-z])")


_MIXED = re.compile(r"(?:[A-Za-z]\s?=\s?)?(-?\d{1,50})\s{1,3}and\s{1,3}(\S.*)", re.DOTALL)


_THREE_DIGITS = re.compile(r"-?\d+,\d{3}")
"""`5600,000` is 5600, or 5.6 million."""


def _as_one_number(text: str) -> str:
    """`1000,99` as 1000.99, `1.234,56` as 1234.56 and `2 and 1/2` as 2 1/2."""
    mixed = _MIXED.fullmatch(text)
    fraction = parse_quantity(mixed[2]) if mixed else None
    if mixed and fraction and fraction.decimals is None and 0 < fraction.value < 1:
        return f"{mixed[1]} {mixed[2]}"
    text = re.sub(
        r"^(-?\d{1,3}(?:\.\d{3})+)(,\d+)$", lambda found: found[1].replace(".", "") + found[2], text
    )
    return re.sub(r"^(-?\d+),(\d+)$", r"\1.\2", text)


def _is_plain_number(node: Node) -> bool:
    quantity = parse_quantity(node.text) if node.kind == "leaf" else None
    return quantity is not None and not quantity.unit


def _compare_tuples(reference: Node, answer: Node, leaf: LeafComparison) -> AnswerCheck | None:
    if len(reference.parts) != len(answer.parts):
        return _differ_in_number(reference.parts, answer.parts)
    check = _compare_in_order(reference.parts, answer.parts, leaf)
    brackets = {reference.brackets, answer.brackets}
    if len(reference.parts) == 2 and len(brackets) == 2 and brackets != {VECTOR, "()"} and check is not None:
        if check.verdict != "correct":
            return check
        if VECTOR in brackets:
            return AnswerCheck("unparsable", "one side is a vector")
        return AnswerCheck("incorrect", f"brackets {answer.brackets} against {reference.brackets}")
    is_other_name = reference.variable and answer.variable and _name(reference) != _name(answer)
    if check and check.verdict == "correct" and is_other_name:
        return AnswerCheck("unparsable", f"{answer.variable} is bounded, not {reference.variable}")
    return check


def _differ_in_number(reference: Sequence[Node], answer: Sequence[Node]) -> AnswerCheck:
    """Incorrect where the parts are simple: a sentence or a case may be split where it has no parts."""
    is_simple = all(map(_is_simple, (*reference, *answer)))
    verdict = "incorrect" if is_simple else "unparsable"
    return AnswerCheck(verdict, f"{len(answer)} parts against {len(reference)}")


def _is_simple(node: Node) -> bool:
    r"""A number or an expression without words, `\pm` or relations; of tuples and lists, all parts."""
    if node.kind != "leaf":
        return all(map(_is_simple, node.parts))
    return len(node.text) <= 60 and _NOT_SIMPLE.search(node.text) is None


_NOT_SIMPLE = re.compile(
    r"(?<![\\A-Za-z])[A-Za-z]{3,}|\\(?:pm|mp|dots|ldots|cdots|text|in|mathbb)(?![a-z])|[<>=:|]|\.\."
)


def _compare_tuple_with_list(reference: Node, answer: Node, leaf: LeafComparison) -> AnswerCheck | None:
    if len(reference.parts) != len(answer.parts):
        return None
    check = _compare_in_order(reference.parts, answer.parts, leaf)
    brackets = reference.brackets + answer.brackets
    if "{}" in brackets or (len(answer.parts) == 2 and ("[" in brackets or "]" in brackets)):
        if check is None or check.verdict != "correct":
            return check
        return AnswerCheck("unparsable", f"{shorten(answer.text)} may be an interval, a tuple or a set")
    if not (_distinct_names(reference.parts) or _distinct_names(answer.parts)):
        return check if check is None or check.verdict == "correct" else None
    left, right = (sorted(node.parts, key=_name) for node in (reference, answer))
    by_name = _compare_in_order(left, right, leaf)
    if check is None or by_name is None or check.verdict == by_name.verdict:
        return check
    return AnswerCheck("unparsable", "the parts are in another order than their names")


def _compare_in_order(
    reference: Sequence[Node], answer: Sequence[Node], leaf: LeafComparison
) -> AnswerCheck | None:
    open_check: AnswerCheck | None = None
    is_open = False
    for left, right in zip(reference, answer, strict=True):
        check = compare_parts(left, right, leaf)
        if check is not None and check.verdict == "incorrect":
            return check
        if check is None or check.verdict == "unparsable":
            is_open, open_check = True, check
    return open_check if is_open else AnswerCheck("correct", f"all {len(reference)} parts are equal")


def _compare_lists(
    reference: Sequence[Node], answer: Sequence[Node], leaf: LeafComparison
) -> AnswerCheck | None:
    """`x=1, y=2` by name, or in order where one side leaves the names out; other lists have no order."""
    left, right = _distinct_names(reference), _distinct_names(answer)
    if len(reference) != len(answer) or not (left or right):
        return _compare_unordered(reference, answer, leaf)
    if left == right:
        return _compare_in_order(sorted(reference, key=_name), sorted(answer, key=_name), leaf)
    check = _compare_unordered(reference, answer, leaf)
    if check is None or check.verdict != "correct":
        return check
    check = _compare_in_order(reference, answer, leaf)
    if check is None or check.verdict != "incorrect":
        return check
    return AnswerCheck("unparsable", "one side does not say which part is which")


def _distinct_names(nodes: Sequence[Node]) -> set[str]:
    """Names of the parts; nothing where a part has no name, or two have the same."""
    names = {_name(node) for node in nodes}
    return names if len(names) == len(nodes) and "" not in names else set()


def _compare_unordered(
    reference: Sequence[Node], answer: Sequence[Node], leaf: LeafComparison
) -> AnswerCheck | None:
    if len(reference) != len(answer):
        return _differ_in_number(reference, answer)
    left, right = _values(reference), _values(answer)
    if left is not None and right is not None:
        verdict = "correct" if left == right else "incorrect"
        return AnswerCheck(verdict, f"{len(answer)} numbers compared in any order")
    if (
        len(reference) * len(answer) > MAX_PAIRS
        or _num_leaves(reference) * _num_leaves(answer) > MAX_LEAF_PAIRS
    ):
        return None
    free = list(answer)
    unclear: AnswerCheck | None = None
    num_unmatched, is_unclear = 0, False
    for part in reference:
        checks = [compare_parts(part, other, leaf) for other in free]
        matched = next((i for i, each in enumerate(checks) if each and each.verdict == "correct"), None)
        if matched is not None:
            free.pop(matched)
            continue
        num_unmatched += 1
        doubtful = [each for each in checks if each is None or each.verdict == "unparsable"]
        if doubtful:
            is_unclear, unclear = True, doubtful[0]
    if num_unmatched == 0:
        return AnswerCheck("correct", f"all {len(reference)} parts are equal, in any order")
    if is_unclear:
        return unclear
    return AnswerCheck("incorrect", f"{num_unmatched} of {len(reference)} parts are not in the answer")


def _num_leaves(nodes: Sequence[Node]) -> int:
    return sum(_num_leaves(node.parts) if node.parts else 1 for node in nodes)


def _values(nodes: Sequence[Node]) -> Counter[Fraction] | None:
    """The numbers of a list of plain numbers as a multiset."""
    values: list[Fraction] = []
    for node in nodes:
        quantity = parse_quantity(node.text) if node.kind == "leaf" else None
        if quantity is None or quantity.unit or quantity.base is not None or node.variable:
            return None
        values.append(quantity.value)
    return Counter(values)
