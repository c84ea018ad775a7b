r"""LaTeX that math-verify reads (row 3). At anything else it stops, so that `12 \lg 5` would be 12.

It also reads `12 \times` as 12 and drops a number's subscript. Texts are normalised.
"""

import re
from itertools import accumulate

_FUNCTIONS = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "arccot", "arcsec"),
        *("arccsc", "sinh", "cosh", "tanh", "arsinh", "arcosh", "artanh", "ln", "log", "exp", "sqrt"),
        *("frac", "binom", "sum", "prod", "int", "lim", "max", "min", "gcd", "lcm"),
    )
)
_LETTERS = frozenset(
    (
        *("alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta"),
        *("iota", "kappa", "lambda", "mu", "nu", "xi", "pi", "rho", "varrho", "sigma", "tau", "upsilon"),
        *("phi", "varphi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Sigma"),
        *("Phi", "Psi", "Omega", "ell", "hbar", "infty", "angle", "triangle", "prime"),
    )
)
_FONTS = frozenset(
    (
        *("text", "mathrm", "mathbf", "mathbb", "mathcal", "mathit", "mathsf", "boldsymbol", "hat"),
        *("vec", "bar", "overline", "overrightarrow", "tilde", "dot", "ddot"),
    )
)
_INFIXES = ("cdot", "times", "div", "cup", "cap", "setminus", "in", "pm", "mp", "le", "ge")
_PAIRS = (("lfloor", "rfloor"), ("lceil", "rceil"), ("lvert", "rvert"), ("begin", "end"), ("{", "}"))
_READ = _FUNCTIONS | _LETTERS | _FONTS | {*_INFIXES, *(name for pair in _PAIRS for name in pair)}
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_INFIX = rf"(?:\\(?:{'|'.join(_INFIXES)})(?![A-Za-z])|[*/^_])"
_WITHOUT_OPERAND = re.compile(
    rf"(?:{_INFIX}|[<>]|(?<![\^{{])[-+]|\\(?:{'|'.join(sorted(_FUNCTIONS))})(?![A-Za-z]))\s*(?:$|[)}}\]])"
    rf"|(?:^|[({{\[])\s*(?!\\[pm][mp]){_INFIX}"
    rf"|\\(?:{'|'.join(sorted(_FONTS))}|binom)(?![A-Za-z])(?!\s*\{{)|\\frac\s*\w\s*(?:$|[)}}\]])"
    r"|\\(?:sum|prod|lim)(?![A-Za-z])(?!\s*_)|\\(?:max|min|gcd|lcm)(?![A-Za-z])(?!\s*[({\\_])"
    r"|(?<![)\]}A-Z] )(?<![)\]}A-Z])\\(?:cup|cap|setminus)(?![A-Za-z])"
)
_UNREAD = re.compile(
    r"[#@`~?;]|%\s?[\w\\(]|\.(?!\d|\s*(?:$|[)\]},]))|[(\[]\s*[)\]]"
    r"|[-+*/^_<>=]\s*(?:[*/^_<>!%]|\\(?:le|ge|times|cdot|div)(?![A-Za-z]))|[-+*/^_]\s*="
)
"""Signs that mean nothing in an expression, and signs after an operator."""


def find_unread(text: str) -> str | None:
    """Why math-verify would read a part of a text only; None where it reads all of it."""
    if _depth(text) > MAX_DEPTH:
        return "brackets within brackets, too deep to read in time"
    unread = sorted(set(_COMMAND.findall(text)) - _READ)
    if unread:
        return f"commands that algebra does not read: {', '.join(unread)[:100]}"
    if _WITHOUT_OPERAND.search(text):
        return "an operator or a function of nothing"
    if _UNREAD.search(text):
        return "signs that algebra does not read"
    return None if _is_paired(text) else "a bracket without its partner"


MAX_DEPTH = 20
"""Of brackets; answers of people have four. math-verify takes seconds for sixty."""


def _depth(text: str) -> int:
    steps = ((bracket in "([{") - (bracket in ")]}") for bracket in text)
    return max(accumulate(steps), default=0)


def _is_paired(text: str) -> bool:
    depth = 0
    for bracket in _ROUND.findall(text):
        depth += 1 if bracket == "(" else -1
        if depth < 0 and "[" not in text and "]" not in text:
            return False
    return text.count("|") % 2 == 0 and all(
        text.count(f"\\{left}") == text.count(f"\\{right}") for left, right in _PAIRS
    )


_ROUND = re.compile(r"[()]")
