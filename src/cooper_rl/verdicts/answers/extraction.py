r"""The place where a completion states its final answer (row 3).

A JSON field `answer` counts before all else, then the last of `\boxed{}`, `<answer>`, `####` and `Final
answer:`, then the last of `The answer is`, `Answer:` and a line's `A:`. A marker whose content cannot be read
later on is never replaced by a number of the chain of thought. `The answer is 46` takes back what a stronger
marker before it says, unless that is the same number.
This code sees hostile text without a time limit: every repeat that can fail is bounded, and
`tests/verdicts/test_linear_time.py` doubles texts to show it.
"""

import re
from collections import deque
from typing import NamedTuple

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.verdicts.answers.numbers import parse_quantity
from cooper_rl.verdicts.answers.stated.braces import closing_braces
from cooper_rl.verdicts.answers.stated.doubt import (
    DENIED_VERB,
    HEDGE,
    is_box_denied,
    is_denied_in_the_end,
    is_example,
    is_supposed,
)
from cooper_rl.verdicts.answers.stated.factors import is_factor
from cooper_rl.verdicts.answers.stated.json_fields import (
    JSON_FIELD,
    Field,
    end_of_object,
    gist,
    is_quoted,
    read_fields,
)
from cooper_rl.verdicts.answers.stated.last_line import (
    PROSE_WORD,
    TEX,
    goes_on_below,
    read_last_line,
    read_sentence,
)
from cooper_rl.verdicts.answers.stated.tags import read_tags
from cooper_rl.verdicts.answers.text import escape_latex, normalise_answer

MAX_SEARCHED_CHARS = 20_000
"""Markers are looked for in the end of longer completions."""


class FinalAnswer(NamedTuple):
    """The stretch of text that a completion gives as its answer."""

    text: str
    marker: str
    """Which kind of marker pointed at it; `last line` when there was none."""


def find_final_answer(completion: str, policy: AnswerPolicy, *, is_cut: bool = False) -> FinalAnswer | None:
    """The final answer of a completion; None when it states none (empty, cut, or only thought).

    Its text is empty where it cannot be told, or where the completion denies it later on.
    """
    text = completion[-MAX_SEARCHED_CHARS:]
    spoken = _after_thinking(text)
    text = _THOUGHT.sub("\n", text) if policy.answer_in_thought and not spoken.strip() else spoken
    if not text.strip():
        return None
    found = _find_in(text, policy, is_cut=is_cut)
    if found is None or not is_denied_in_the_end(text, escape_latex(found.text)):
        return found
    return FinalAnswer("", found.marker)


def _find_in(text: str, policy: AnswerPolicy, *, is_cut: bool) -> FinalAnswer | None:
    stated = _marked_answer(text, policy, is_cut=is_cut)
    found = read_fields(text)
    fields = [field for field in found if not is_quoted(text, field)]
    if policy.several_json == "abstain" and len({gist(field.value) for field in fields}) > 1:
        return FinalAnswer("", "JSON field")
    if is_cut and fields and _goes_on(text, fields[-1]):
        return FinalAnswer("", "JSON field")
    if fields:
        return _answer_beside_fields(text, fields, policy, stated, is_cut=is_cut)
    if stated is not None:
        return stated
    if found or JSON_FIELD.search(text):
        return FinalAnswer("", "JSON field")
    line = None if is_cut else read_last_line(text)
    return None if line is None else FinalAnswer(line, "last line")


def _goes_on(text: str, field: Field) -> bool:
    """True if a field's string was cut: the answer of `{"answer": "12` may have been 120."""
    return field.end >= len(text.rstrip()) and not text[: field.end].endswith('"')


def _answer_beside_fields(
    text: str, fields: list[Field], policy: AnswerPolicy, stated: FinalAnswer | None, *, is_cut: bool
) -> FinalAnswer:
    """The answer of the fields, or the one after them in a text that goes on after the JSON it quoted."""
    after = _marked_answer(text[end_of_object(text, fields[-1]) :], policy, is_cut=is_cut)
    is_strong = after is not None and (
        after.marker in {"boxed", "####", "<answer>"} or _FINAL.search(after.marker + ":") is not None
    )
    is_told = any(map(str.isalpha, text[: text.find("{")].replace("```json", "")))
    if after is not None and any(map(str.isalnum, after.text)) and (is_strong or is_told):
        return after
    return _answer_of_json(fields, text, policy, stated)


def _answer_of_json(
    fields: list[Field], text: str, policy: AnswerPolicy, stated: FinalAnswer | None
) -> FinalAnswer:
    """The answer of the fields; empty when a box before them contradicts it."""
    chosen = fields[0] if policy.several_json == "first" else fields[-1]
    before = text[: fields[0].start]
    box = _boxed(before, policy) if stated is not None and _PROSE_BEFORE_JSON.search(before) else None
    if box is not None and box.answer.text and gist(box.answer.text) != gist(chosen.value):
        return FinalAnswer("", "JSON field against a box")
    inner = _boxed(chosen.value, policy)
    return inner.answer if inner is not None else FinalAnswer(chosen.value, "JSON field")


_PROSE_BEFORE_JSON = re.compile(r"\}[^{\"]{0,200}(?:```(?:json)?\s{0,9})?\{\s{0,50}$")
"""A box that is closed before the object with the answer opens."""


def _marked_answer(text: str, policy: AnswerPolicy, *, is_cut: bool) -> FinalAnswer | None:
    """The answer that a marker points at; of a text that was cut, nothing that reaches its end."""
    candidates = (_boxed(text, policy), _tagged(text), _hashes(text), _phrase(text, _FINAL))
    strong = [candidate for candidate in candidates if candidate is not None]
    weak = _phrase(text, _ANSWER) if not strong else None
    found = max(strong, key=lambda candidate: candidate.start) if strong else weak
    if found is None:
        return None
    later = _phrase(text[found.end :], _ANSWER) if strong else None
    if later is not None and _are_two_numbers(found.answer.text, later.answer.text):
        return FinalAnswer("", found.answer.marker)
    is_closed = found.answer.marker in {"boxed", "<answer>"}
    reaches_end = not is_closed and not text[found.end :].strip(" .")
    if is_cut and reaches_end and not text.endswith("\n"):
        return FinalAnswer("", found.answer.marker)
    return found.answer


def _are_two_numbers(first: str, second: str) -> bool:
    """True for `\\boxed{45}` and `The answer is 46` after it: neither is the answer for sure."""
    one, other = (parse_quantity(normalise_answer(text)) for text in (first, second))
    return one is not None and other is not None and one.value != other.value


class _Candidate(NamedTuple):
    start: int
    end: int
    """Where the answer ends in the text."""
    answer: FinalAnswer


_THOUGHT = re.compile(r"</?think>")


def _after_thinking(text: str) -> str:
    """The text after the thought; nothing when the thought never ends."""
    closed = text.rfind("</think>")
    if closed >= 0:
        return text[closed + len("</think>") :]
    opened = text.find("<think>")
    return text[:opened] if opened >= 0 else text


_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")
_CONNECTION = re.compile(r"[\s$]*[,;][\s$]*|.*\b(?:and|or)\b.*", re.DOTALL)
_NAMED_NEXT = re.compile(
    r"[\s$]{0,9}(?:,|and\b|or\b)[\s$]{0,9}(?:(?:and|or) )?[a-zA-Z](?:_\{?\w{1,3}\}?)?[\s$]{0,3}=[\s$]{0,9}"
)
"""What stands between the boxes of two unknowns, or of two values of one, each with its name."""
_NO_CONNECTION = re.compile(
    r"\.\s|=|\b(?:not|wait|but|so|then|actually|instead|therefore|hence|we)\b", re.IGNORECASE
)
MAX_BETWEEN_BOXES = 70


def _boxed(text: str, policy: AnswerPolicy) -> _Candidate | None:
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    closing = closing_braces(text)
    end = closing.get(text.find("{", start), len(text)) + 1
    is_whole = not is_box_denied(text, start, end) and not is_factor(text, start, end)
    inner = _last_boxes(text, closing, policy) if is_whole else ""
    return _Candidate(start, end, FinalAnswer(inner or "", "boxed"))


def _last_boxes(text: str, closing: dict[int, int], policy: AnswerPolicy) -> str | None:
    """Content of the last box; boxes that `and`, `or` or a comma connect count as one list.

    An inner box wins over its outer one, and a last box that never closes states nothing.
    """
    boxes: list[tuple[int, int, str]] = []
    for match in _BOX.finditer(text):
        end = closing.get(match.end())
        if boxes and match.start() < boxes[-1][1]:
            boxes.pop()
        boxes.append((match.start(), len(text) if end is None else end + 1, text[match.end() + 1 : end or 0]))
    if not boxes:
        return None
    joined = [boxes[-1][2]]
    # Neighbours, from the last two back.
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


def _tagged(text: str) -> _Candidate | None:
    """The content of the last `<answer>`; nothing where another one has another content."""
    tags = [tag for tag in read_tags(text) if not is_example(text, tag.start)]
    if not tags:
        return None
    last = tags[-1]
    marker = "<answer>" if last.is_closed else "<answer> without an end"
    if len({tag.content for tag in tags}) > 1 or is_box_denied(text, last.start, last.end):
        return _Candidate(last.end, last.end, FinalAnswer("", marker))
    return _Candidate(last.start, last.end, FinalAnswer(_read_content(last.content), marker))


def _read_content(content: str) -> str:
    """The answer that a marker in a tag points at, else one whole line or mathematics, else the last line."""
    stated = _phrase(content, _ANSWER)
    if stated is not None:
        return stated.answer.text
    if "\n" in content and PROSE_WORD.search(TEX.sub(" ", content)):
        return read_last_line(content) or ""
    return read_sentence(content) or content


_HASHES = re.compile(
    # A heading is no answer.
    r"####(?![ \t]*\*{0,2}(?:step|part|solution|explanation|check)\b)[ \t]*([^\n]*)",
    re.IGNORECASE,
)


def _hashes(text: str) -> _Candidate | None:
    last = _last_match(_HASHES, text)
    if last is None:
        return None
    sentence = _first_sentence(last[1])
    end = last.start(1) + _end_of(sentence, last[1])
    if is_box_denied(text, last.start(), end):
        return _Candidate(last.start(), last.end(), FinalAnswer("", "####"))
    return _Candidate(last.start(), last.end(), FinalAnswer(sentence, "####"))


_MERELY = r"(?:(?:simply|just|exactly|indeed|also|therefore|thus|equal to)\s+)?"
_FINAL = re.compile(r"final answer\b[^\n:：.]{0,60}?(?:\bis\b|[:：])[*:\s]*" + _MERELY, re.IGNORECASE)
_ANSWER = re.compile(
    r"\banswer(?:[^\n:.=$\\]{0,60}?\b(?:is|are|be|equals)\b|[\s*]{0,12}[:：=])[*:\s]*"
    + _MERELY
    + r"|^[ \t]*A:[ \t]*|答案(?:应该|应|就|等于|[是为:：】*\s]){0,5}|故选[:：\s]{0,3}|[Оо]твет\s*:?",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE_END = re.compile(
    r"\n|<\||</answer>|[.,;]?\s{0,3}I hope|\.(?=\s+[A-Z\[(])|。"
    # `\text{ where }` is part of an answer.
    r"|,?(?<!\{)\s(?:because|since|which|where|so that)\b|,\s(?:so|as|not)\b"
)


def _phrase(text: str, pattern: re.Pattern[str]) -> _Candidate | None:
    last = _last_match(pattern, text)
    if last is None:
        return None
    if DENIED_VERB.search(last[0]) or HEDGE.search(last[0]):
        return _Candidate(last.start(), last.end(), FinalAnswer("", last[0].strip(" *:\n")))
    rest = text[last.end() :]
    sentence = _first_sentence(rest)
    end = last.end() + _end_of(sentence, rest)
    marker = last[0].strip(" *:\n") or "answer"
    if is_supposed(text, last.start(), end):
        return _Candidate(last.start(), end, FinalAnswer("", marker))
    if "\n" in last[0] and goes_on_below(sentence, text[end:]):
        return _Candidate(last.start(), end, FinalAnswer("", marker))
    sentence = read_sentence(sentence) or sentence
    return _Candidate(last.start(), end, FinalAnswer(_without_emphasis(sentence), marker))


def _without_emphasis(sentence: str) -> str:
    """Without the end of Markdown's bold, italics or code that began before the answer."""
    sentence = sentence.rstrip(" .")
    if sentence.count("**") % 2:
        sentence = re.sub(r"\*\*(?= [a-z])", "", sentence, count=1)  # `12** apples`
    for mark in ("**", "`", "*", "__"):
        if sentence.endswith(mark) and sentence.count(mark) % 2 and not sentence.endswith("^" + mark):
            return sentence.removesuffix(mark)
    return sentence


def _first_sentence(text: str) -> str:
    text = text.lstrip()
    if text.startswith(("\\[", "$$")):
        closing = text.find("\\]" if text[0] == "\\" else "$$", 2)
        return text[: closing + 2] if closing >= 0 else text
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text


def _end_of(sentence: str, text: str) -> int:
    """The place in a text at which its first sentence ends."""
    return len(text) - len(text.lstrip()) + len(sentence)


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)
