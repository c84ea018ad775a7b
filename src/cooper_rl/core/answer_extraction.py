r"""Where a completion states its final answer (row 3).

Only what the last explicit marker marks counts: `\boxed{}`, `####`, a JSON field `answer`, `The answer is`,
`Answer:`, `A:` on a line of its own. A marker whose content cannot be read later on is never replaced by a
number of the chain of thought. Deliberately left out: what the answer means.
All patterns run in linear time: this code sees hostile text without a time limit.
"""

import json
import re
from collections import deque
from typing import NamedTuple

MAX_SEARCHED_CHARS = 20_000
"""Markers are looked for in the end of longer completions."""


class FinalAnswer(NamedTuple):
    """The stretch of text that a completion gives as its answer."""

    text: str
    marker: str
    """Which kind of marker pointed at it; `last line` when there was none."""


def find_final_answer(completion: str) -> FinalAnswer | None:
    """The final answer of a completion; None when it states none (empty, cut, or only thought)."""
    text = _after_thinking(completion[-MAX_SEARCHED_CHARS:])
    if not text.strip():
        return None
    found = _json_field(text)
    if found is not None:
        inner = _last_boxes(found)
        return FinalAnswer(inner if inner is not None else found, "JSON field")
    strong = [c for c in (_boxed(text), _hashes(text), _phrase(text, _FINAL)) if c is not None]
    if strong:
        return max(strong, key=lambda candidate: candidate[0])[1]
    weak = _phrase(text, _ANSWER)
    return weak[1] if weak is not None else _last_line(text)


_Candidate = tuple[int, FinalAnswer]


def _after_thinking(text: str) -> str:
    """What follows the thought; nothing when the thought never ends."""
    closed = text.rfind("</think>")
    if closed >= 0:
        return text[closed + len("</think>") :]
    opened = text.find("<think>")
    return text[:opened] if opened >= 0 else text


_JSON_FIELD = re.compile(r'"(?:final[_ ]?)?answer"\s*:\s*', re.IGNORECASE)
_JSON_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_JSON_OTHER = re.compile(r"[^,}\n]*")


def _json_field(text: str) -> str | None:
    field = _last_match(_JSON_FIELD, text)
    if field is None:
        return None
    string = _JSON_STRING.match(text, field.end())
    if string is None:
        if text.startswith('"', field.end()):
            return text[field.end() + 1 :].split("\n", 1)[0].rstrip('}`" ')
        other = _JSON_OTHER.match(text, field.end())
        return other[0] if other else ""
    try:
        return str(json.loads(f'"{string[1]}"'))
    except json.JSONDecodeError:
        return string[1].replace("\\\\", "\\")


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")
_BETWEEN_BOXES = re.compile(
    r"[\s$,;.:\\()\[\]]{0,12}(?:\\text\s?\{)?\s?(?:and|or|,|;)\s?\}?[^\\.]{0,40}[\s$\\()\[\]]{0,12}"
)


def _boxed(text: str) -> _Candidate | None:
    inner = _last_boxes(text)
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    return start, FinalAnswer(inner or "", "boxed")


def _last_boxes(text: str) -> str | None:
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
        if _BETWEEN_BOXES.fullmatch(text, left[1], right[0]) is None:
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
    r"\banswer(?:[^\n:.=$\\]{0,60}?\b(?:is|are|be|equals)\b|\s*\**\s*[:=])[*:\s]*"
    r"|^[ \t]*A:[ \t]*|答案[是为:：]?|[Оо]твет\s*:?",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE_END = re.compile(
    r"\n|<\||[.,;]?\s*I hope|\.(?=\s+[A-Z\[(])|。"
    r"|,?\s(?:because|since|which|where|so that)\b|,\s(?:so|as|not)\b"
)


def _phrase(text: str, pattern: re.Pattern[str]) -> _Candidate | None:
    last = _last_match(pattern, text)
    if last is None:
        return None
    return last.start(), FinalAnswer(_first_sentence(text[last.end() :]), last[0].strip(" *:\n") or "answer")


def _first_sentence(text: str) -> str:
    text = text.lstrip()
    if text.startswith(("\\[", "$$")):
        closing = text.find("\\]" if text[0] == "\\" else "$$", 2)
        return text[: closing + 2] if closing >= 0 else text
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)


_FENCE = re.compile(r"[`\s\\\]\[$)]*")


def _last_line(text: str) -> FinalAnswer | None:
    """The last line that holds more than delimiters; cut to its last 300 characters."""
    for line in reversed(text.splitlines()):
        if not _FENCE.fullmatch(line):
            return FinalAnswer(line.strip()[-300:], "last line")
    return None
