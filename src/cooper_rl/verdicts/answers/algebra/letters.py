r"""Capital and small letters that are other variables (row 3), where math-verify reads both as the small one.

It finds 0 in `\pi(R^2 - r^2)` and 1 in `\frac{R}{r}`. Texts are normalised and short: a worker compares them.
"""

import re
from typing import NamedTuple

_TOKEN = re.compile(
    r"\\(?:text|operatorname|math(?:bb|cal|frak|scr)|begin|end)\s?\{[^{}]{0,80}\}|\\[A-Za-z]+|[A-Za-z]+"
)
_GREEK = frozenset(
    ("gamma", "delta", "theta", "lambda", "xi", "pi", "sigma", "upsilon", "phi", "psi", "omega")
)
_WORDS = frozenset(("or", "in", "of", "to", "ln", "pi"))
_ALONE = frozenset(("e", "i"))
"""Euler's number and the imaginary unit, which math-verify tells from their capitals itself."""
_OTHERS = "zywvutsqpbarxlmon"
_CONSTANT = re.compile(r"[+-] ?([CcKk])$")


class Apart(NamedTuple):
    """Two texts in which no letter is written in both cases any more."""

    reference: str
    answer: str
    is_meant: bool
    """The reference answer has both cases of each letter, and the answer has both or neither."""


def tell_cases_apart(reference: str, answer: str) -> Apart | None:
    """The two with another letter for each capital whose small letter occurs too; None if there is none."""
    ours, theirs = set(_variables(reference)), set(_variables(answer))
    names = ours | theirs
    clashing = {name.lower() for name in names if name != name.lower() and name.lower() in names} - _ALONE
    constants = _CONSTANT.search(reference), _CONSTANT.search(answer)
    if constants[0] and constants[1] and constants[0][1].lower() == constants[1][1].lower():
        clashing -= {constants[0][1].lower()}  # of integration, whose name does not matter
    if not clashing:
        return None
    used = {name.lower() for name in names}
    free = [letter for letter in _OTHERS if letter not in used]
    # A capital C or K stays, as it may be the constant of integration.
    replaced = [name if name in {"c", "k"} else name.capitalize() for name in sorted(clashing)]
    other_names = dict(zip(replaced, free, strict=False))
    if len(other_names) < len(replaced):
        return None
    is_meant = all(
        {name, name.capitalize()} <= ours and len({name, name.capitalize()} & theirs) != 1
        for name in clashing
    )
    return Apart(_rename(reference, other_names), _rename(answer, other_names), is_meant)


def _variables(text: str) -> list[str]:
    """Letters and names of Greek letters, without words and the names of functions."""
    return [name for token in _TOKEN.findall(text) for name in _names(token)]


def _names(token: str) -> tuple[str, ...]:
    if token.startswith("\\"):
        return (token[1:],) if token[1:].lower() in _GREEK else ()
    return () if len(token) > 2 or token in _WORDS else tuple(token)


def _rename(text: str, other_names: dict[str, str]) -> str:
    def replace(found: re.Match[str]) -> str:
        token = found[0]
        if token.startswith("\\"):
            return f" {other_names[token[1:]]}" if token[1:] in other_names else token
        return "".join(other_names.get(name, name) for name in token) if _names(token) else token

    return _TOKEN.sub(replace, text)
