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


def find_final_answer(completion: str, policy: AnswerPolicy, *, is_cut: bool = False) -> FinalAnswer | None:
    """The final answer of a completion; None when it states none (empty, cut, or only thought)."""
    text = completion[-MAX_SEARCHED_CHARS:]
    spoken = _after_thinking(text)
    text = _THOUGHT.sub("\n", text) if policy.answer_in_thought and not spoken.strip() else spoken
    if not text.strip():
        return None
    stated = _marked_answer(text, policy, is_cut=is_cut)
    fields = _json_fields(text)
    if policy.several_json == "abstain" and len({_gist(field.value) for field in fields}) > 1:
        return FinalAnswer("", "JSON field")
    if fields:
        after = _marked_answer(text[_end_of_object(text, fields[-1]) :], policy, is_cut=is_cut)
        is_strong = after is not None and (
            after.marker in {"boxed", "####"} or _FINAL.search(after.marker + ":")
        )
        is_quoted = any(map(str.isalpha, text[: text.find("{")].replace("```json", "")))
        if after is not None and any(map(str.isalnum, after.text)) and (is_strong or is_quoted):
            return after  # The text goes on after the JSON, which it quoted.
        return _answer_of_json(fields, text, policy, stated)
    if stated is not None:
        return stated
    if _JSON_FIELD.search(text):
        return FinalAnswer("", "JSON field")
    return None if is_cut else _last_line(text)


def _marked_answer(text: str, policy: AnswerPolicy, *, is_cut: bool) -> FinalAnswer | None:
    """What a marker points at; of a text that was cut, nothing that reaches its end."""
    strong = [c for c in (_boxed(text, policy), _hashes(text), _phrase(text, _FINAL)) if c is not None]
    weak = _phrase(text, _ANSWER) if not strong else None
    found = max(strong, key=lambda candidate: candidate.start) if strong else weak
    if found is None:
        return None
    reaches_end = found.answer.marker != "boxed" and not text[found.end :].strip(" .")
    if is_cut and reaches_end and not text.endswith("\n"):
        return FinalAnswer("", found.answer.marker)
    return found.answer


class _Candidate(NamedTuple):
    start: int
    end: int
    """Where the answer ends in the text."""
    answer: FinalAnswer


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


class _Field(NamedTuple):
    start: int
    end: int
    value: str


def _json_fields(text: str) -> list[_Field]:
    """The answer fields of a text that hold something, also of JSON that is not quite valid."""
    fields: list[_Field] = []
    for match in _JSON_FIELD.finditer(text):
        value, end = _json_value(text, match.end())
        if any(map(str.isalnum, value)) and value.strip() not in {"null", "None"}:
            fields.append(_Field(match.start(), end, value))
    return fields


def _end_of_object(text: str, field: _Field) -> int:
    """Where the innermost braces round a field close; the end of the last brace where they do not."""
    around = [
        (opened, closed) for opened, closed in _closing_braces(text).items() if opened < field.start <= closed
    ]
    return max(around)[1] + 1 if around else max(text.rfind("}") + 1, field.end)


def _answer_of_json(
    fields: list[_Field], text: str, policy: AnswerPolicy, stated: FinalAnswer | None
) -> FinalAnswer:
    """The answer of the fields; empty when a box before them contradicts it."""
    chosen = fields[0] if policy.several_json == "first" else fields[-1]
    before = text[: fields[0].start]
    box = _boxed(before, policy) if stated is not None and _PROSE_BEFORE_JSON.search(before) else None
    if box is not None and box.answer.text and _gist(box.answer.text) != _gist(chosen.value):
        return FinalAnswer("", "JSON field against a box")
    inner = _boxed(chosen.value, policy)
    return inner.answer if inner is not None else FinalAnswer(chosen.value, "JSON field")


_PROSE_BEFORE_JSON = re.compile(r"\}[^{\"]{0,200}(?:```(?:json)?\s{0,9})?\{\s{0,50}$")
"""A box that is closed before the object with the answer opens."""


def _gist(value: str) -> str:
    """What two spellings of an answer share: the number after the last `=`, else the text."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", value.rsplit("=", 1)[-1].replace(",", ""))
    return str(float(numbers[0])) if numbers else value


def _json_value(text: str, start: int) -> tuple[str, int]:
    """The value from a position on, and where it ends."""
    string = _JSON_STRING.match(text, start)
    if string is None:
        if text.startswith('"', start):
            line = text[start + 1 :].split("\n", 1)[0]
            return line.rstrip('}`" '), start + 1 + len(line.rstrip("}` "))
        other = _JSON_OTHER.match(text, start)
        # A number at the very end may go on.
        return (other[0], other.end()) if other and other.end() < len(text) else ("", start)
    try:
        return str(json.loads(f'"{string[1]}"')), string.end()
    except json.JSONDecodeError:
        return string[1].replace("\\\\", "\\"), string.end()


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")
_CONNECTION = re.compile(r"[\s$]*[,;][\s$]*|.*\b(?:and|or)\b.*", re.DOTALL)
_NAMED_NEXT = re.compile(r"[\s$]{0,9},[\s$]{0,9}(?:and )?[a-zA-Z][\s$]{0,3}=[\s$]{0,9}")
"""What stands between the boxes of two unknowns, each with its name."""
_NO_CONNECTION = re.compile(
    r"\.\s|=|\b(?:not|wait|but|so|then|actually|instead|therefore|hence|we)\b", re.IGNORECASE
)
MAX_BETWEEN_BOXES = 70


def _boxed(text: str, policy: AnswerPolicy) -> _Candidate | None:
    inner = _last_boxes(text, policy)
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    return _Candidate(start, len(text), FinalAnswer(inner or "", "boxed"))


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
        if not _NAMED_NEXT.fullmatch(between) and (not is_connected or _NO_CONNECTION.search(between)):
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
    if last is None:
        return None
    return _Candidate(last.start(), last.end(), FinalAnswer(_first_sentence(last[1]), "####"))


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
    if _DENIED_VERB.search(last[0]) or _HEDGE.search(last[0]):
        return _Candidate(last.start(), last.end(), FinalAnswer("", last[0].strip(" *:\n")))
    rest = text[last.end() :]
    sentence = _first_sentence(rest)
    end = last.end() + len(rest) - len(rest.lstrip()) + len(sentence)
    spans = [span for span in _answer_spans(sentence) if span]
    if len(_PROSE_WORD.findall(_TEX.sub(" ", sentence))) >= 3 and len(spans) == 1:
        sentence = spans[0]
    return _Candidate(last.start(), end, FinalAnswer(sentence, last[0].strip(" *:\n") or "answer"))


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


_HEDGE = re.compile(
    r"\b(?:may ?be|might|perhaps|possibly|probably not|could|roughly|either|somewhere|guess|not sure)\b",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    _HEDGE.pattern
    + r"|\b(?:impossible|cannot (?:be )?(?:determine|answer|solve|find|conclude|say)|can't|unable|not able"
    r"|not possible|(?:not enough|insufficient) (?:information|data)|don't know|do not know"
    r"|no (?:unique )?(?:solution|conclusion|answer)|unclear|clarify|would need|without more|sorry"
    r"|did you mean|or does|let me|let's|let us|next,? we|see (?:figure|table|equation|step)|now consider"
    r"|the (?:next )?case|in step \d|hope this|rate it|figure \d)\b",
    re.IGNORECASE,
)
"""Last lines that state no answer, whatever numbers they hold."""
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
            if _NO_ANSWER.search(line) or line.rstrip(" *").endswith(("?", ":", "!")):
                return None
            spans = _answer_spans(line)
            return FinalAnswer(spans[-1], "last line") if spans else None
        return FinalAnswer(line, "last line")
    return None
