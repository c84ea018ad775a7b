r"""Where a completion states its final answer (row 3).

A JSON field `answer` counts before all else, then the last of `\boxed{}`, `####` and `Final answer:`, then
the last of `The answer is`, `Answer:` and a line's `A:`. A marker whose content cannot be read later on is
never replaced by a number of the chain of thought. Deliberately left out: what the answer means.
This code sees hostile text without a time limit: every repeat that can fail is bounded, and
`tests/verdicts/test_linear_time.py` doubles texts to show it.
"""

import json
import re
from collections import deque
from typing import NamedTuple

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.verdicts.answers.units import SCALES

MAX_SEARCHED_CHARS = 20_000
"""Markers are looked for in the end of longer completions."""


class FinalAnswer(NamedTuple):
    """The stretch of text that a completion gives as its answer."""

    text: str
    marker: str
    """Which kind of marker pointed at it; `last line` when there was none."""


def find_final_answer(completion: str, policy: AnswerPolicy) -> FinalAnswer | None:
    """The final answer of a completion; None when it states none (empty, cut, or only thought)."""
    text = completion[-MAX_SEARCHED_CHARS:]
    spoken = _after_thinking(text)
    text = _THOUGHT.sub("\n", text) if policy.answer_in_thought and not spoken.strip() else spoken
    if not text.strip():
        return None
    found = _json_field(text, policy)
    if found is not None:
        boxed = _boxed(found, policy)
        return boxed[1] if boxed is not None else FinalAnswer(found, "JSON field")
    strong = [c for c in (_boxed(text, policy), _hashes(text), _phrase(text, _FINAL)) if c is not None]
    if strong:
        return max(strong, key=lambda candidate: candidate[0])[1]
    weak = _phrase(text, _ANSWER)
    return weak[1] if weak is not None else _last_line(text)


_Candidate = tuple[int, FinalAnswer]
_THOUGHT = re.compile(r"</?think>")


def _after_thinking(text: str) -> str:
    """What follows the thought; nothing when the thought never ends."""
    closed = text.rfind("</think>")
    if closed >= 0:
        return text[closed + len("</think>") :]
    opened = text.find("<think>")
    return text[:opened] if opened >= 0 else text


_JSON_FIELD = re.compile(r'"(?:final[_ ]?)?answer"\s*:\s*', re.IGNORECASE)
_JSON_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_JSON_OTHER = re.compile(r"[^,}\n]{0,500}")


def _json_field(text: str, policy: AnswerPolicy) -> str | None:
    """Value of the answer field, also of JSON that is not quite valid; empty when several contradict."""
    values = [_json_value(text, field.end()) for field in _JSON_FIELD.finditer(text)]
    if not values:
        return None
    if len({_gist(value) for value in values}) == 1 or policy.several_json == "last":
        return values[-1]
    return values[0] if policy.several_json == "first" else ""


def _gist(value: str) -> str:
    """What two spellings of an answer share: the number after the last `=`, else the text."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", value.rsplit("=", 1)[-1].replace(",", ""))
    return str(float(numbers[0])) if numbers else value


def _json_value(text: str, start: int) -> str:
    string = _JSON_STRING.match(text, start)
    if string is None:
        if text.startswith('"', start):
            return text[start + 1 :].split("\n", 1)[0].rstrip('}`" ')
        other = _JSON_OTHER.match(text, start)
        return other[0] if other else ""
    try:
        return str(json.loads(f'"{string[1]}"'))
    except json.JSONDecodeError:
        return string[1].replace("\\\\", "\\")


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")
_CONNECTION = re.compile(r"[\s$]*[,;][\s$]*|.*\b(?:and|or)\b.*", re.DOTALL)
_NO_CONNECTION = re.compile(
    r"\.\s|=|\b(?:not|wait|but|so|then|actually|instead|therefore|hence|we)\b", re.IGNORECASE
)
MAX_BETWEEN_BOXES = 70


def _boxed(text: str, policy: AnswerPolicy) -> _Candidate | None:
    inner = _last_boxes(text, policy)
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    return start, FinalAnswer(inner or "", "boxed")


def _last_boxes(text: str, policy: AnswerPolicy) -> str | None:
    """Content of the last box; boxes that `and`, `or` or a comma connect count as one list.

    An inner box wins over its outer one, and a last box that never closes states nothing.
    """
    closing = _closing_braces(text)
    boxes: list[tuple[int, int, str]] = []
    for match in _BOX.finditer(text):
        end = closing.get(match.end())
        if boxes and match.start() < boxes[-1][1]:
            boxes.pop()
        boxes.append((match.start(), len(text) if end is None else end + 1, text[match.end() + 1 : end or 0]))
    if not boxes:
        return None
    joined = [boxes[-1][2]]
    for left, right in zip(boxes[-2::-1], boxes[:0:-1], strict=False):
        between = text[left[1] : right[0]]
        is_connected = len(between) <= MAX_BETWEEN_BOXES and _CONNECTION.fullmatch(between)
        if not is_connected or _NO_CONNECTION.search(between):
            if policy.several_boxes == "abstain" and left[2] != joined[0]:
                return None
            break
        if left[2] not in joined:
            joined.insert(0, left[2])
    return ", ".join(joined)


def _closing_braces(text: str) -> dict[int, int]:
    """Position of each opening brace -> position of the brace that closes it."""
    opened: list[int] = []
    closing: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")


def _hashes(text: str) -> _Candidate | None:
    last = _last_match(_HASHES, text)
    return None if last is None else (last.start(), FinalAnswer(_first_sentence(last[1]), "####"))


_FINAL = re.compile(r"final answer\b[^\n:.]{0,60}?(?:\bis\b|:)[*:\s]*", re.IGNORECASE)
_ANSWER = re.compile(
    r"\banswer(?:[^\n:.=$\\]{0,60}?\b(?:is|are|be|equals)\b|[\s*]{0,12}[:=])[*:\s]*"
    r"|^[ \t]*A:[ \t]*|答案[是为:：]?|[Оо]твет\s*:?",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE_END = re.compile(
    r"\n|<\||[.,;]?\s{0,3}I hope|\.(?=\s+[A-Z\[(])|。"
    r"|,?\s(?:because|since|which|where|so that)\b|,\s(?:so|as|not)\b"
)


def _phrase(text: str, pattern: re.Pattern[str]) -> _Candidate | None:
    last = _last_match(pattern, text)
    if last is None:
        return None
    if _DENIED_VERB.search(last[0]):
        return last.start(), FinalAnswer("", last[0].strip(" *:\n"))
    sentence = _first_sentence(text[last.end() :])
    spans = [span for span in _answer_spans(sentence) if span]
    if len(_PROSE_WORD.findall(_TEX.sub(" ", sentence))) >= 3 and len(spans) == 1:
        sentence = spans[0]
    return last.start(), FinalAnswer(sentence, last[0].strip(" *:\n") or "answer")


def _first_sentence(text: str) -> str:
    text = text.lstrip()
    if text.startswith(("\\[", "$$")):
        closing = text.find("\\]" if text[0] == "\\" else "$$", 2)
        return text[: closing + 2] if closing >= 0 else text
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


_TEX = re.compile(r"\\(?:begin|end)\{[a-z*]*\}|\$[^$]{1,500}\$|\\\(.{1,500}?\\\)|\\[A-Za-z]+")
_PROSE_WORD = re.compile(r"[A-Za-z]{2,}")
_COUNTED = rf"(?:\s?(?:\\?%|percent)|(?: (?i:{'|'.join(SCALES)})(?![\w-])){{1,3}})?"
"""What belongs to a number in prose: without its million, 5 million would be 5."""
_SPAN = re.compile(
    rf"\$\$?[^$]{{1,500}}\$\$?{_COUNTED}|\\\(.{{1,500}}?\\\){_COUNTED}|\\\[.{{1,500}}?\\\]"
    rf"|(?<![\w.])-?[$€£]?\d[\d,]*(?:\.\d+)?(?:/\d+)?{_COUNTED}",
    re.DOTALL,
)


def _answer_spans(text: str) -> list[str]:
    """Formulas and numbers in prose that hold a digit or a relation; empty where denied: `not 5`."""
    spans = [span for span in _SPAN.finditer(text) if re.search(r"\d|[<>=]", span[0])]
    starts = [text[max(0, span.start() - 60) : span.start()] for span in spans]
    return ["" if _DENIED.search(start) else span[0] for span, start in zip(spans, starts, strict=True)]


def _ends_with(words: str) -> re.Pattern[str]:
    """Text that ends with one of the words, or two words after it."""
    return re.compile(rf"(?:\b(?:{words})|n't)\b(?:\s+[A-Za-z]+){{0,2}}[\s:*]*$", re.IGNORECASE)


_DENIED_VERB = _ends_with("not|cannot|never")
_DENIED = _ends_with("not|cannot|never|than|at most|at least|exceeds?|unequal")


_ENUMERATOR = re.compile(r"^\d{1,2}[.)]\s+(?=\S)")
_FENCE = re.compile(r"[`\s\\\]\[$)]*")


def _last_line(text: str) -> FinalAnswer | None:
    """The last line that holds more than delimiters; of prose, its last formula or number."""
    text = text.split("<|", 1)[0].rstrip()
    if text.endswith(("$$", "\\]")):
        opening = text.rfind(text[-2:] if text[-1] == "$" else "\\[", 0, -2)
        if opening >= 0 and len(text) - opening <= 500:
            return FinalAnswer(" ".join(text[opening:].split()), "last line")
    for line in reversed(text.splitlines()):
        if _FENCE.fullmatch(line):
            continue
        line = _ENUMERATOR.sub("", line.strip()[-1000:])
        if _PROSE_WORD.search(_TEX.sub(" ", line)):
            spans = _answer_spans(line)
            return FinalAnswer(spans[-1], "last line") if spans else None
        return FinalAnswer(line, "last line")
    return None
