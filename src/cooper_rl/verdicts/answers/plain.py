r"""Plain-text mathematics as LaTeX (row 3): `pi/4`, `ln(2)`, `3*x**2`, `sqrt(5)/2`, `e^(2x)`, `{a \over b}`.

math-verify reads `pi` as a product of p and i, and `ln(2)` as one of l, n and 2. LaTeX stays as it is.
"""

import re

_FUNCTIONS = (
    *(
        "arcsin",
        "arccos",
        "arctan",
        "arccot",
        "arcsec",
        "arccsc",
        "sinh",
        "cosh",
        "tanh",
        "coth",
        "sin",
        "cos",
    ),
    *("tan", "cot", "sec", "csc", "ln", "log", "lg", "max", "min", "gcd", "lcm"),
)
_LETTERS = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "theta", "lambda", "mu", "sigma", "phi", "omega", "pi"),
    *("Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi", "Omega"),
)
_INVERSE = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
NAMES = {
    **{name: rf"\{name} " for name in (*_FUNCTIONS, *_LETTERS)},
    **{short: rf"\{name} " for short, name in _INVERSE.items()},
    **dict.fromkeys(("infinity", "infty", "inf", "Infinity", "oo"), r"\infty "),
    **{"Pi": r"\pi ", "tg": r"\tan ", "ctg": r"\cot "},
}

_WORD = re.compile(r"(?<![\\A-Za-z])([A-Za-z]{2,12})(?![A-Za-z])")
_FUNCTION_OF_LETTER = re.compile(r"(?<![\\A-Za-z])(sin|cos|tan|cot|sec|csc|ln|log)([xytzn])(?![A-Za-z])")
_INVERSE_POWER = re.compile(r"\\(sin|cos|tan|cot)\s?\^\s?(?:\{\s?-\s?1\s?\}|\(\s?-\s?1\s?\)|-1)")
_PLUS_INFINITY = re.compile(r"(?<![\w)}\s])(\s?)\+\s{0,5}\\infty(?![A-Za-z])")
_LATEX_TAN = re.compile(r"\\(tg|ctg)(?![A-Za-z])")
_OPERATORNAME = re.compile(r"\\operatorname\s?\{ ?(\w{2,8}) ?\}")
_ROOT_WITHOUT_BRACES = re.compile(r"(?<![\\A-Za-z])sqrt\s?(\d+|[A-Za-z])(?![A-Za-z])")
_LATEX_ROOT_WITHOUT_BRACES = re.compile(r"\\sqrt\s?(\d{2,})")
"""`\\sqrt 13`: TeX puts the first digit alone under the root, and nobody means that."""
_GROUPS = re.compile(r"(?<![\\A-Za-z])(sqrt|cbrt|exp|abs)\s?\(|\\(sqrt|exp)\s?\(|\^\s?\(|[(){}]")
_OPENING = {"sqrt": r"\sqrt{", "cbrt": r"\sqrt[3]{", "exp": "e^{", "abs": "|"}
_TEX_CHOOSE = re.compile(r"\{ ?([^{}\\]{1,40}?) ?\\choose(?![a-z]) ?([^{}\\]{1,40}?) ?\}")
_CHOOSE = re.compile(r"(?<![\\A-Za-z])n?C\s?\(\s?(\d{1,4})\s?,\s?(\d{1,4})\s?\)")
_SUBSCRIPT_OF_LOG = re.compile(r"\\log\s_?\s?(?:_\s?)(\d+|[a-z])(?![A-Za-z\d])")
_LOG_TO_E = re.compile(r"\\log\s?_\s?(?:e(?![A-Za-z\d])|\{\s?e\s?\})")
_NUMBERED = re.compile(r"(?<![\\A-Za-z])([A-Za-z])(\d{1,2})(?![\d(])")
_LOG_TO_BASE = re.compile(r"(?<![\\A-Za-z])log(\d{1,2})\s?(?=\()")
_OVER = re.compile(r"\{([^{}\\]{1,100})\\over(?![A-Za-z])([^{}\\]{1,100})\}")
_FRACTION_OF = re.compile(
    r"(?<![\w.^/}])(\d{1,9})/(\d{1,9})(?= \s?\\?(?:ln|log|sin|cos|tan|sqrt|pi)(?![A-Za-z]))"
)
"""`1/2 ln x`: math-verify divides by all that follows the slash."""
_BARE_OVER = re.compile(r"([^{}\\,;=]{1,100})\\over(?![A-Za-z])([^{}\\,;=]{1,100})")


def with_subscripts(left: str, right: str) -> tuple[str, str]:
    """`x1 + x2` as `x_1 + x_2` where the other side writes subscripts."""
    if "_" in left and "_" not in right:
        return left, _NUMBERED.sub(r"\1_{\2}", right)
    return (_NUMBERED.sub(r"\1_{\2}", left), right) if "_" in right and "_" not in left else (left, right)


def to_latex(text: str) -> str:
    """Normalised text with plain-text functions, letters, powers and roots as LaTeX."""
    if r"\over" in text:
        text = _OVER.sub(r"\\frac{\1}{\2}", text)
        whole = _BARE_OVER.fullmatch(text)
        text = rf"\frac{{{whole[1].strip()}}}{{{whole[2].strip()}}}" if whole else text
    text = _OPERATORNAME.sub(r"\1", text).replace("**", "^")
    text = _FRACTION_OF.sub(r"\\frac{\1}{\2}", text)
    text = _LOG_TO_BASE.sub(r"\\log_{\1}", text)
    text = _CHOOSE.sub(r"\\binom{\1}{\2}", text)
    text = _TEX_CHOOSE.sub(r"\\binom{\1}{\2}", text)
    text = _LATEX_ROOT_WITHOUT_BRACES.sub(r"\\sqrt{\1}", text)
    text = _ROOT_WITHOUT_BRACES.sub(r"\\sqrt{\1}", text)
    text = _close_groups(text)
    text = _FUNCTION_OF_LETTER.sub(r"\\\1 \2", text)
    text = _WORD.sub(_spell_name, text)
    text = _PLUS_INFINITY.sub(r"\\infty", text)
    text = _LATEX_TAN.sub(lambda name: r"\tan" if name[1] == "tg" else r"\cot", text)
    text = _INVERSE_POWER.sub(r"\\arc\1 ", text)
    text = _LOG_TO_E.sub(r"\\ln ", text)
    return _SUBSCRIPT_OF_LOG.sub(r"\\log_{\1}", text)


def _spell_name(word: re.Match[str]) -> str:
    # Minutes are written min, too.
    is_unit = word[1] in {"min", "max"} and not word.string.startswith("(", word.end())
    return word[1] if is_unit else NAMES.get(word[1], word[1])


def _close_groups(text: str) -> str:
    """`sqrt(x+1)` as `\\sqrt{x+1}` and `e^(2x)` as `e^{2x}`: one pass, brackets matched by a stack."""
    if "(" not in text:
        return text
    closers: list[str] = []

    def replace(match: re.Match[str]) -> str:
        found = match[0]
        if found in "{(" and len(found) == 1:
            closers.append("}" if found == "{" else ")")
            return found
        if found in "})":
            # A bracket that closes nothing, or another kind, is left: it may end an interval.
            return closers.pop() if closers and (closers[-1] == found or found == ")") else found
        if found.startswith("^"):
            closers.append("}")
            return "^{"
        name = match[1] or match[2]
        closers.append("|" if name == "abs" else "}")
        return _OPENING[name]

    replaced = _GROUPS.sub(replace, text)
    return text if closers else replaced
