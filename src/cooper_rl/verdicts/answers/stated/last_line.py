r"""An answer that no marker points at (row 3): the mathematics that the last line says something is.

`The derivative is 2x+1`, `So she needs 5 apples`, `Hence $x = 2$`. The whole expression counts, never a
number out of it; a line that is read in part only states nothing.
"""

import re

from cooper_rl.verdicts.answers.plain import NAMES
from cooper_rl.verdicts.answers.stated.doubt import DENIED, HEDGE
from cooper_rl.verdicts.answers.units import SCALES

MAX_LINE_CHARS = 1000
TEX = re.compile(r"\\(?:begin|end)\{[a-z*]*\}|\$[^$]{1,500}\$|\\\(.{1,500}?\\\)|\\[A-Za-z]+")
PROSE_WORD = re.compile(r"[A-Za-z]{2,}")
_NO_ANSWER = re.compile(
    HEDGE.pattern
    + r"|\b(?:impossible|cannot (?:be )?(?:determine|answer|solve|find|conclude|say)|can't|unable|not able"
    r"|not possible|(?:not enough|insufficient) (?:information|data)|don't know|do not know"
    r"|no (?:unique )?(?:solution|conclusion|answer)|unclear|clarify|would need|without more|sorry"
    r"|did you mean|or does|let me|let's|let us|next,? we|see (?:figure|table|equation|step)|now consider"
    r"|the (?:next )?case|in step \d|hope this|rate it|figure \d|give up|too hard|wrong|incorrect"
    r"|contradiction|it is false|I doubt|suppose|assume|error|unknowns|approximately|about \d|I need|I have"
    r"|I am|I will)\b"
    r"|^(?:if|unless|in case)\b",
    re.IGNORECASE,
)
"""Last lines that state no answer, whatever numbers they hold."""
_VERB = re.compile(
    r"(?:\b(?:is|are|was|were|be|equals?|equal to|gives?|gave|gets?|got|yields?|obtain(?:s|ed)?|have|has|had"
    r"|find|makes?|made|earns?|earned|needs?|takes?|costs?|pays?|paid|spends?|spent|left with|worth|contains?"
    r"|requires?|saves?|saved|sold|sells?|buys?|bought|reads?|runs?|walks?|collects?|receives?|becomes?"
    r"|totals|equalling)\b|(?<!\\)\b(?!(?:alpha|beta|gamma|theta|lambda|phi|pi)\s?=)[A-Za-z]{2,}\s?[=:])(?:\s+(?:exactly|just|simply|now|then|thus|therefore|only"
    r"|a total of|equal to|given by))?\s*",
    re.IGNORECASE,
)
_LEAD_IN = re.compile(
    r"(?:(?:and|so|therefore|thus|hence|finally|then|consequently|thereby|in total|altogether|overall"
    r"|we conclude that|this means(?: that)?|it follows that|total|result|answer|that)\b[,:]?\s*){1,4}",
    re.IGNORECASE,
)
_IS_ANSWER = re.compile(
    r"\s(?:is|are|was|were) (?:the|our|my|left|needed|required|remaining|all)\b[^\d$\\]{0,60}$"
)
_CONCLUDING = re.compile(r"\b(?:so|then|thus|hence|therefore|that)[,:]?\s{0,3}$", re.IGNORECASE)
_NAME = "|".join(sorted((*NAMES, "sqrt", "cbrt", "exp", "abs"), key=len, reverse=True))
_TOKEN = re.compile(
    r"\s+|\$[^$]{1,500}\$|\\\(.{1,500}?\\\)|\\\[.{1,500}?\\\]|\\(?:text|mathrm|textbf)\s?\{[^{}]{0,40}\}"
    r"|\\(?:[A-Za-z]+|.)|(?:\d[\d,]*\d|\d)(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+"
    rf"|(?:{_NAME})(?:\d+(?=\())?(?![A-Za-z])|(?:and|or|U)(?![A-Za-z])"
    r"|[A-Za-z](?![A-Za-z])(?!\s+[A-Za-z]{2})|[A-Za-z](?=\s+(?:and|or)\b)|[^\w\s.?`\\]|_",
    re.DOTALL,
)
_UNIT_WORDS = re.compile(
    r"(?:[A-Za-zµ][A-Za-z'-]*(?:/[A-Za-z]+)?(?:\s?\^\s?\d)?)(?: [A-Za-z/'-]+){0,7}"
    r"|(?:[A-Za-z]{1,10} \d[\d.]* [A-Za-z]{1,10})"
)
_PAST_UNIT = re.compile(
    r"\s(?:of them|in|for|on|at|every|each|to|from|left|after|altogether|total|because|i\.?e|with|when)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_COMPOUND = re.compile(r"[A-Za-z]+-[A-Za-z]+")
"""`12 hundred-dollar bills` are twelve of them."""
_GOES_ON = re.compile(
    r"\b(?:of|or|and|times|more|less|fewer|than|squared|cubed|plus|minus|over|divided|multiplied|remain|not|but"
    r"|if|percent of|as many|by|is|are|was|were|choose)\b",
    re.IGNORECASE,
)
_CHANGES = re.compile(
    rf"\s{{0,3}}(?:(?:of|or|and|times|more|less|fewer|than|squared|cubed|plus|minus|over|divided|multiplied)\b|percent|{'|'.join(SCALES)})",
    re.IGNORECASE,
)
_COUNTED = rf"(?:\s?(?:\\?%|percent)|(?: (?i:{'|'.join(SCALES)})(?![\w-])){{1,3}})?"
"""What belongs to a number in prose: without its million, 5 million would be 5."""
_SPAN = re.compile(
    rf"\$\$?[^$]{{1,500}}\$\$?{_COUNTED}|\\\(.{{1,500}}?\\\){_COUNTED}|\\\[.{{1,500}}?\\\]"
    rf"|(?<![\w.])-?[$€£]?\d[\d,]*(?:\.\d+)?(?:/\d+)?{_COUNTED}",
    re.DOTALL,
)
_ENUMERATOR = re.compile(r"^\d{1,2}[.)]\s+(?=\S)")
_FENCE = re.compile(r"[`\s\\\]\[$)]*")
_SENTENCE_BREAK = re.compile(r"(?:(?<!\\)[.?]|(?<=[a-z]{2})!)\s+(?=[A-Z\d$\\])")
"""`n! \\cdot 2` holds a factorial."""


def read_sentence(sentence: str) -> str | None:
    """The one number of a sentence after `the answer is`; None where it holds none, or several."""
    # `No, not at the 0.05 level` says no, whatever number it holds.
    spans = [] if _YES_OR_NO.match(sentence) else [span for span in answer_spans(sentence) if span]
    is_sentence = len(PROSE_WORD.findall(TEX.sub(" ", sentence))) >= 3
    if not is_sentence or len(spans) != 1 or _NO_ANSWER.search(sentence) or _EXCEPTED.search(sentence):
        return None
    found = read_mathematics(sentence)
    return spans[0] if found is None and not is_part_of_expression(sentence, spans[0]) else found


def read_statement(sentence: str) -> str | None:
    """The number that a sentence with one number states, `there are 16 apples`, `total = 16`."""
    return _read_line(sentence.strip()) if len(answer_spans(sentence)) == 1 else None


_YES_OR_NO = re.compile(r"(?:yes|no)\b", re.IGNORECASE)
_EXCEPTED = re.compile(r"\b(?:or|no|except|unless)\b", re.IGNORECASE)
"""Makes more or less of a sentence's one number: `5 apples or more`."""


def answer_spans(text: str) -> list[str]:
    """Formulas and numbers in prose that hold a digit or a relation; empty where denied: `not 5`."""
    spans = [span for span in _SPAN.finditer(text) if re.search(r"\d|[<>=]", span[0])]
    starts = [text[max(0, span.start() - 60) : span.start()] for span in spans]
    return ["" if DENIED.search(start) else span[0] for span, start in zip(spans, starts, strict=True)]


def is_part_of_expression(text: str, span: str) -> bool:
    """True if mathematics goes on beside a number, in signs or words: `164 pi`, `e^{1}`, `half of 10`."""
    before, _, after = text.partition(span)
    found = (
        _GOES_BEFORE.search(before),
        _DONE_TO.search(before),
        _GOES_AFTER.match(after),
        _DONE_WITH.match(after),
    )
    return any(found)


_GOES_BEFORE = re.compile(r"(?:[{\[^_+/]|\\to)\s?$")
_GOES_AFTER = re.compile(
    rf"[A-Za-z](?![A-Za-z])|(?:th|st|nd|rd)\s[A-Za-z]|!\s\w|\s{{0,3}}(?:[{{\[^_+/]|(?:{'|'.join(NAMES)})(?![A-Za-z]))"
)
_QUANTITY = (
    "total|sum|amount|count|number|score|average|mean|median|maximum|minimum|cost|price|profit|loss|savings?"
    "|discount|income|balance|weight|mass|distance|length|width|height|depth|radius|diameter|perimeter"
    "|circumference|area|volume|speed|rate|age|duration|probability|chance|answer|result|solution"
)
"""`a total of 16` is 16."""
_DONE_TO = re.compile(
    rf"\b(?:(?!(?:{_QUANTITY}) of)\w+ of(?: the)?|minus|negative|twice|half|double|triple|than|plus|times|by)"
    r"[\s$\\(]*$",
    re.IGNORECASE,
)
"""Words that make, or may make, another number: `the square root of 16`, `a tithe of 16`."""
_DONE_WITH = re.compile(
    r"[\s$\\)]{0,3}(?:(?:more|less|fewer|greater|larger|smaller) than|times the|squared|cubed|plus|minus|over"
    r"|divided|multiplied|and)\b",
    re.IGNORECASE,
)


def read_last_line(text: str) -> str | None:
    """The answer that the last line with more than delimiters states; None where it states nothing."""
    text = text.split("<|", 1)[0].rstrip()
    if text.endswith(("$$", "\\]")):
        opening = text.rfind(text[-2:] if text[-1] == "$" else "\\[", 0, -2)
        if opening >= 0 and len(text) - opening <= 500:
            return " ".join(text[opening:].split())
    lines = [line for line in text.splitlines() if not _FENCE.fullmatch(line)]
    if not lines or (len(lines) > 1 and _UNFINISHED.search(lines[-2])):
        return None
    announced = max(
        (place for place, line in enumerate(lines) if _ANNOUNCED.search(line)), default=len(lines)
    )
    several = lines[announced + 1 :]
    if len(several) > 1 and all(goes_on_below(several[0], line) for line in several[1:]):
        return None
    return _read_line(_ENUMERATOR.sub("", lines[-1].strip()[-MAX_LINE_CHARS:]))


_UNFINISHED = re.compile(r"\w[^\n]{0,200}(?:[-+/^]|\b(?:and|or))\s{0,9}$")
"""A line that ends in an operator or a joining word: the last line alone would lose it."""
_ANNOUNCED = re.compile(r"\bare\W*$|\b(?:answer|solution)s\W*$", re.IGNORECASE)


def goes_on_below(line: str, text: str) -> bool:
    """True if the text after a line of an answer begins with another such line: a bullet, or mathematics."""
    following = next((each.strip() for each in text.splitlines() if not _FENCE.fullmatch(each)), "")
    bare = _ENUMERATOR.sub("", following[:MAX_LINE_CHARS])
    is_bullet = following[:2] == line.strip()[:2] and following[:2] in {"- ", "* ", "• "}
    says_something = re.search(r"\w", _COMMAND.sub("", bare)) is not None  # `$\blacksquare$` ends a proof
    return is_bullet or (says_something and read_mathematics(bare) == bare.rstrip(" ."))


_COMMAND = re.compile(r"\\[A-Za-z]+")


def _read_line(line: str) -> str | None:
    if PROSE_WORD.search(TEX.sub(" ", line)) is None:
        return line
    sentence = _SENTENCE_BREAK.split(line)[-1]
    if sentence.count("**") % 2 == 0:
        sentence = sentence.replace("**", "")
    sentence = sentence.strip(" *_")
    if _NO_ANSWER.search(sentence) or sentence.endswith(("?", ":", "!")):
        return None
    sentence = sentence.rstrip(". ")
    if read_mathematics(sentence) == sentence:
        return sentence
    verbs = list(_VERB.finditer(sentence))
    if verbs:
        start = verbs[-1].end()
        if DENIED.search(sentence[max(0, start - 60) : start]):
            return None
        stated = read_mathematics(sentence[start:].strip(" *=:"))
        if stated is not None:
            return stated
    lead_in = _LEAD_IN.match(sentence)
    start = lead_in.end() if lead_in else 0
    answer = _IS_ANSWER.search(sentence)
    for part in (sentence[start : answer.start()] if answer else "", sentence[start:] if lead_in else ""):
        stated = read_mathematics(part) if part else None
        if stated is not None:
            return stated
    return _only_formula(sentence)


def _only_formula(sentence: str) -> str | None:
    """The formula of a sentence without another one or a number outside, or the conclusion at its end."""
    formulas = [match for match in TEX.finditer(sentence) if match[0][0] == "$" or match[0][:2] == r"\("]
    if not formulas:
        return None
    found = formulas[-1]
    before, after = sentence[: found.start()], sentence[found.end() :]
    is_alone = not re.search(r"[\d\\^*/=<>$]", before + after) and _CHANGES.match(after) is None
    is_conclusion = not after.strip() and _CONCLUDING.search(before) is not None
    is_answer = re.search(r"\d|[<>=]", found[0]) is not None and DENIED.search(before[-60:]) is None
    return found[0] if (is_alone or is_conclusion) and is_answer else None


def read_mathematics(text: str) -> str | None:
    """Text that is mathematics from its beginning, with the unit after it; None where words go on with it."""
    end = 0
    while (token := _TOKEN.match(text, end)) is not None:
        end = token.end()
    rest = text[end:].strip(" .")
    found = _without_joiner(text[:end])
    if not re.search(r"\w", found):
        return None
    if not rest:
        return found
    unit = _PAST_UNIT.sub("", " " + rest).strip(" ,")
    if "=" not in found and unit != rest and re.search(r"\d", rest.replace(unit, "", 1)):
        return None  # `7 apples in 2 baskets`: either number may be the answer.
    if not unit or _COMPOUND.match(unit):
        return found
    if _JOINER.search(text[:end]):
        return None  # `12 or eleven`
    if _GOES_ON.search(unit) or _UNIT_WORDS.fullmatch(unit) is None or unit.count(" ") > 3:
        return None
    return f"{found} {unit}" if re.search(r"\d\W*$|[\w}]$", found) else None


_JOINER = re.compile(r"\b(?:and|or)\s{0,9}$")


def _without_joiner(text: str) -> str:
    """Without separators and joining words at the end: what they join is not mathematics."""
    while (bare := text.rstrip(" \t\n,;:(*").removesuffix(" and").removesuffix(" or")) != text:
        text = bare
    return text
