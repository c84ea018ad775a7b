"""Answer text before it is compared (row 3): one spelling for characters, LaTeX spacing and wrappers.

`numbers.py` and `comparison.py` read the meaning of the text. All patterns run in linear time: this code
sees hostile text without a time limit.
"""

import re
import unicodedata

from cooper_rl.verdicts.answers.units import TEXT_COMMAND

_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "‒": "-", "‐": "-", "﹣": "-", "－": "-",
        "\u200b": "", "\u200c": "", "\u200d": "", "\u2060": "", "\ufeff": "", "\u00ad": "",
        "\u200e": "", "\u200f": "", "\ufe0f": "", "\u20e3": "",
        "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2007": " ", "\u200a": " ", "\u3000": " ",
        "“": '"', "”": '"', "‘": "'", "’": "'",
        "，": ",", "、": ",", "；": ";", "：": ":", "（": "(", "）": ")", "＝": "=", "＞": ">", "＜": "<",
        "％": "%", "＋": "+", "．": ".", "／": "/", "～": "~",
        "×": r"\times ", "÷": "/", "⁄": "/", "∕": "/", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
        "π": r"\pi ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "∈": r"\in ",
        "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "≈": r"\approx ",
        "°": r"^\circ ", "∀": r"\forall ", "∃": r"\exists ",
        "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}", "ℕ": r"\mathbb{N}",
        "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ",
    }
)  # fmt: skip

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_VULGAR_FRACTION = re.compile("[¼½¾⅐-⅞]")
_ROOT = re.compile(r"([√∛∜])\s*(?:\(([^()]{0,200})\)|(\d+(?:\.\d+)?|[A-Za-z]))")
_ROOT_INDEX = {"√": "", "∛": "[3]", "∜": "[4]"}
_CIRCLED_RUN = re.compile("[①-⑳㉑-㉟㊱-㊿❶-➓⓪⓫-⓿]+")
_HTML_SCRIPT = re.compile(r"<(sup|sub)>([^<>]{0,100})</\1>")

_FONT = r"\\(?:boldsymbol|bm|pmb|mathbf|mathit|mathsf|mathtt|textbf|textit|textsf|texttt|emph)"
_LATEX_SYNONYMS = (
    # What is set in a font: `units.TEXT_COMMAND` takes `\mathbf` off, but not from round other braces.
    (re.compile(rf"{_FONT}\s?(?=\{{[^{{}}]{{0,200}}\}})"), r"\\mathbf"),
    (re.compile(rf"{_FONT}(?=\s?\{{)(?!\s?\{{[^{{}}]{{0,200}}\}})"), ""),
    (re.compile(r"\\[dt]binom(?![A-Za-z])"), r"\\binom"),
    (re.compile(r"\\(?:dfrac|tfrac|cfrac)(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\(?:leqslant|leq|leqq)(?![A-Za-z])"), r"\\le"),
    (re.compile(r"\\(?:geqslant|geq|geqq)(?![A-Za-z])"), r"\\ge"),
    (re.compile(r"\\neq(?![A-Za-z])|\\not\s?="), r"\\ne"),
    (re.compile(r">=|=>"), r"\\ge "),
    (re.compile(r"<=|=<"), r"\\le "),
    (re.compile(r"\+\s?\\infty"), r"\\infty"),
    (re.compile(r"\\(?:lt)(?![A-Za-z])"), "<"),
    (re.compile(r"\\(?:gt)(?![A-Za-z])"), ">"),
    (re.compile(r"\\(?:left|right|big|Big|bigg|Bigg|bigl|bigr|Bigl|Bigr)(?![A-Za-z])\s*\.?"), ""),
    (re.compile(r"\\(?:displaystyle|textstyle|limits|nolimits|,!)(?![A-Za-z])"), ""),
    (re.compile(r"\\(?:varnothing|emptyset)(?![A-Za-z])"), r"\\emptyset"),
    (re.compile(r"\\(?:R|reals|Reals)(?![A-Za-z])"), r"\\mathbb{R}"),
    (re.compile(
        r"\^\s*(?:\{\s*\\(?:circ|degree)\s*\}|\\(?:circ|degree)(?![A-Za-z]))|\\degree(?![A-Za-z])"
    ), "°"),
    (re.compile(r"\\(?:qquad|quad)(?![A-Za-z])|\\[;:>]|~"), " "),
    (re.compile(r"\\!\s*|\{\s*\}"), ""),
    (re.compile(r"\{\s*,\s*\}"), ","),
    (re.compile(r"(?<!\\)\\[\s,]"), " "),
    (re.compile(r"\.(?=[\])])|\\(?=\")"), ""),
    (re.compile(r"\\%"), "%"),
    (re.compile(r",\s?(?:\.{3}|\\[lc]?dots(?![a-z]))(?=[\s.$)\]}]{0,20}$)"), r", \\dots "),
    (re.compile(r"\\\$"), "$"),
)  # fmt: skip
_DIGIT_GROUPS = re.compile(r"(?<![\d.])(\d{1,3})((?: \d{3})+)(?!\d)(?=(?: ?/ ?(\d{1,15}))?)")
_POWERS = r"[^{}]{1,40}(?:\^ ?\{ ?-?\d ?\}[^{}]{0,20}){1,4}\}"
_UNIT_WITH_POWER = re.compile(rf"(?<=\\mathrm\{{){_POWERS}|(?<=\\text\{{){_POWERS}")
"""`m s^{-2}` inside `\\mathrm{}`: its braces would hide where the command ends."""
_NUMBER_IN_TEXT = re.compile(
    r"\\(?:text|mathrm|mathbf|textrm) ?\{ ?(-?\d{1,15}(?:[.,]\d{1,15})?) ?([A-Za-z]{1,12}) ?\}(?= ?\^)"
)
"""`\text{5 cm}^2`, whose number is not squared."""
_NO_BRACES = str.maketrans("", "", "{}")
_NESTED_ESCAPE = re.compile(
    r"\\\\(?=(?:frac|sqrt|boxed|text|pi|cdot|times|infty|cup|left|right|le|ge|pm|circ|sin|cos|tan|ln|log|exp"
    r"|alpha|beta|theta|lambda|mu|sigma|phi|omega)(?![a-z]))"
)
"""Backslashes that a string literal doubled."""
_JOINED = re.compile(r"(?<=[)\]])\s?U\s?(?=[(\[])")
_SPACES = re.compile(r"\s+")
_WRAPPERS = (
    *((mark, mark) for mark in ("$$", "$", "**", "*", "__", "`", '"')),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
)
_LEADING = " \t\n\r:;,"
_LONE_QUOTE = re.compile(r"[^\"']+\"")
_TRAILING = " \t\n\r:;,.\\。、"


_UNESCAPED = {"\x0c": "\\f", "\x08": "\\b", "\t": "\\t", "\r": "\\r"}
_ESCAPED = re.compile("[\x0c\x08](?=[a-z])|\t(?=imes|ext|heta|an|frac)|\r(?=ight|ho)")
"""LaTeX that went through a JSON or Python string unescaped: a form feed and `rac` was a fraction."""


def escape_latex(text: str) -> str:
    """The text with the backslashes that its LaTeX lost in a string."""
    return _ESCAPED.sub(lambda broken: _UNESCAPED[broken[0]], text)


def normalise_answer(text: str) -> str:
    """One spelling of an answer: ASCII digits and operators, LaTeX synonyms and spacing, no wrappers."""
    if text.isascii() and text.isdigit():  # most answers there are
        return text
    text = _normalise_characters(escape_latex(text))
    text = _NESTED_ESCAPE.sub(r"\\", text) if r"\\" in text and r"\begin" not in text else text
    for pattern, replacement in _LATEX_SYNONYMS:
        text = pattern.sub(replacement, text)
    text = _SPACES.sub(" ", text)
    text = _UNIT_WITH_POWER.sub(lambda unit: unit[0].translate(_NO_BRACES) + "}", text)
    text = _NUMBER_IN_TEXT.sub(r"\1 \\text{\2}", text)
    text = _JOINED.sub(r" \\cup ", text)
    text = _DIGIT_GROUPS.sub(_join_digits, text)
    return unwrap(_drop_math_delimiters(unwrap(text)))


def _join_digits(found: re.Match[str]) -> str:
    """`12 345` as 12345; `8 371/2000` is a mixed number and stays."""
    last = found[2][-3:]
    is_mixed = found[3] and last[0] != "0" and int(last) < int(found[3])
    return found[0] if is_mixed else found[0].replace(" ", "")


_MATH_SPAN = re.compile(r"\$([^$]{1,500})\$(?!\d)|\\\((.{1,500}?)\\\)")


def _drop_math_delimiters(text: str) -> str:
    """`$28$ percent` as `28 percent`; a dollar sign before a price stays."""
    return _MATH_SPAN.sub(lambda span: span[1] or span[2], text)


def _normalise_characters(text: str) -> str:
    if "<su" in text:
        text = _HTML_SCRIPT.sub(lambda tag: f"{'^' if tag[1] == 'sup' else '_'}{{{tag[2]}}}", text)
    if text.isascii():
        return text
    text = _CIRCLED_RUN.sub(lambda run: ",".join(str(int(unicodedata.numeric(c))) for c in run[0]), text)
    text = _VULGAR_FRACTION.sub(_spell_fraction, text)
    text = _SUPERSCRIPT_RUN.sub(lambda run: f"^{{{''.join(_SUPERSCRIPTS[c] for c in run[0])}}}", text)
    text = _SUBSCRIPT_RUN.sub(lambda run: f"_{{{''.join(_SUBSCRIPTS[c] for c in run[0])}}}", text)
    text = _ROOT.sub(lambda root: rf"\sqrt{_ROOT_INDEX[root[1]]}{{{root[2] or root[3]}}}", text)
    text = text.translate(_CHARACTERS)
    text = "".join(_ascii_digit(c) for c in text)
    # Last: NFKC makes x2 of x² and 31⁄2 of 3½, which the lines above read first.
    return unicodedata.normalize("NFKC", text)


def _spell_fraction(match: re.Match[str]) -> str:
    """`3½` is three and a half: the fraction keeps the place after the whole number."""
    numerator, _, denominator = unicodedata.normalize("NFKC", match[0]).partition("\u2044")
    return rf"\frac{{{numerator}}}{{{denominator}}}"


def _ascii_digit(character: str) -> str:
    """Digits of any script as ASCII."""
    if character.isascii() or not character.isdecimal():
        return character
    return str(unicodedata.decimal(character))


_GROUP = re.compile(r"\{(?!.{0,500}\\(?:choose|over)(?![a-z]))(?:[^{},;|]|\{[^{}]{0,200}\}){1,500}(?<!\\)\}")
"""Braces round a whole answer, which hide its unit; `{1, 2}` may be a set, `{n \\choose 2}` needs them."""


def unwrap(text: str) -> str:
    """Take off math delimiters, emphasis, quotes and closing punctuation round the whole text."""
    while True:
        command = TEXT_COMMAND.fullmatch(text)
        text = command[1] if command else text
        bare = text.lstrip(_LEADING).rstrip(_TRAILING)
        bare = bare[1:-1] if _GROUP.fullmatch(bare) else bare
        # Half a pair of quotation marks; with feet before it, inches.
        bare = bare[:-1] if _LONE_QUOTE.fullmatch(bare) else bare
        for opening, closing in _WRAPPERS:
            inner = bare[len(opening) : -len(closing)]
            is_whole = bare.startswith(opening) and bare.endswith(closing) and inner
            if is_whole and opening not in inner and closing not in inner:
                bare = inner
                break
        if bare == text:
            return text
        text = bare
