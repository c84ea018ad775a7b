"""Answers in JSON (row 3): a field `answer` or `final answer`, also of JSON that is not quite valid."""

import json
import re
from typing import NamedTuple

from cooper_rl.verdicts.answers.stated.braces import closing_braces
from cooper_rl.verdicts.answers.stated.doubt import is_example

JSON_FIELD = re.compile(r'"(?:final[_ ]?)?answer"\s*:\s*', re.IGNORECASE)
_JSON_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_RAW_ENVIRONMENT = re.compile(r"(?<!\\)\\begin\{")
_JSON_OTHER = re.compile(r"[^,}\n]{0,500}")
_VALUE = re.compile(
    r'(?:\[|\{\s{0,9}"(?:value|result|answer)"\s{0,9}:)\s{0,9}([^\s\[\]{}][^\[\]{}\n]{0,300})[\]}]'
)
MAX_OBJECT_CHARS = 1000


class Field(NamedTuple):
    """An answer field that holds something."""

    start: int
    end: int
    value: str


def read_fields(text: str) -> list[Field]:
    """The answer fields of a text that hold something."""
    fields: list[Field] = []
    for match in JSON_FIELD.finditer(text):
        if fields and match.start() < fields[-1].end:
            continue  # the inner one of `{"answer": {"answer": 5}}`
        value, end = _read_value(text, match.end())
        if any(map(str.isalnum, value)) and value.strip() not in {"null", "None"}:
            fields.append(Field(match.start(), end, value))
    return fields


def is_quoted(text: str, field: Field) -> bool:
    """True if the words before the object give it as an example of a format."""
    opened = text.rfind("{", max(0, field.start - MAX_OBJECT_CHARS), field.start)
    return opened >= 0 and is_example(text, opened)


def end_of_object(text: str, field: Field) -> int:
    """The end of the innermost braces round a field, or of the last brace where they do not close."""
    around = [
        (opened, closed) for opened, closed in closing_braces(text).items() if opened < field.start <= closed
    ]
    return max(around)[1] + 1 if around else max(text.rfind("}") + 1, field.end)


def gist(value: str) -> str:
    """The common part of two spellings of an answer: the number after the last `=`, else the text."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", value.rsplit("=", 1)[-1].replace(",", ""))
    return str(float(numbers[0])) if numbers else value


def _read_value(text: str, start: int) -> tuple[str, int]:
    """The value from a position on, and where it ends."""
    string = _JSON_STRING.match(text, start)
    if string is None:
        return _read_other(text, start)
    try:
        return str(json.loads(f'"{string[1]}"')), string.end()
    except json.JSONDecodeError:
        # LaTeX as it is written elsewhere: two backslashes end a row of its matrices.
        if _RAW_ENVIRONMENT.search(string[1]):
            return string[1], string.end()
        return string[1].replace("\\\\", "\\"), string.end()


def _read_other(text: str, start: int) -> tuple[str, int]:
    """A number, a list, an object with a value, or a string that never closes."""
    if text.startswith('"', start):
        line = text[start + 1 :].split("\n", 1)[0]
        return line.rstrip('}`" '), start + 1 + len(line.rstrip("}` "))
    inner = _VALUE.match(text, start)
    if inner is not None:
        return inner[1].replace('"', "").strip(), inner.end()
    other = _JSON_OTHER.match(text, start)
    # A number at the very end may go on.
    return (other[0], other.end()) if other and other.end() < len(text) else ("", start)
