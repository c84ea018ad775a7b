r"""Foreign rows become problems (row 1): which columns hold the question and the reference answer.

| layout  | recognised by                                                                            |
|---------|------------------------------------------------------------------------------------------|
| ours    | `question`, `reference_answer` (`id` and `source` are kept)                              |
| GSM8K   | `question`, `answer` that ends in `#### 42`                                              |
| MATH    | `problem`, `solution` with `\boxed{...}`; a row's `answer` wins where it has one         |
| SVAMP   | `Body`, `Question`, `Answer`: the question is both texts                                 |
| veRL    | `prompt` of chat messages, `reward_model.ground_truth`                                   |
| generic | one of QUESTION_COLUMNS and one of ANSWER_COLUMNS, in that order, whatever else is there |

A file's layout is decided once, from its first rows together, so that a damaged row cannot change what the
others mean. Columns are compared without case, and those of an object in a row as `outer.inner`. A row whose
only column is an object (MathOdyssey) is that object. A question or completion of chat messages (TRL, veRL)
is the last message of user or assistant.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from cooper_rl.domains.base import FindReferenceFault
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import DataError
from cooper_rl.records.answer_text import answer_text, show
from cooper_rl.records.messages import is_chat, last_text

VERL_ANSWER = "reward_model.ground_truth"
QUESTION_COLUMNS = ("question", "problem", "prompt", "query", "input")
ANSWER_COLUMNS = (
    "reference_answer",
    "final_answer",
    "answer",
    "gold",
    "gold_answer",
    "ground_truth",
    "expected_answer",
    "target",
    VERL_ANSWER,
)
COMPLETION_COLUMNS = ("completion", "response", "output", "generation")
LABEL_COLUMNS = ("label", "is_correct", "correct")
LABELS = {"1": 1, "1.0": 1, "true": 1, "0": 0, "0.0": 0, "false": 0}
"""Spellings in the texts of a table, without case."""
_TYPESETTING = re.compile(r"(?:\s|\\\\|\\noindent|\\end\{problem\})+\Z")
"""What MathOdyssey's texts end in: the LaTeX between two problems of its source."""
MAX_TYPESETTING = 200
"""Characters searched for it: a run of spaces within a text would take the square of its length."""
_THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")

Form = Literal["final", "gsm8k", "boxed"]
"""The form of the answer in its column: alone, after `####`, or in the last box of a solution."""


class Layout(NamedTuple):
    """The columns of a kind of file; names are lower case."""

    question_columns: tuple[str, ...]
    """Joined by a space."""
    answer_column: str
    form: Form


class Translation(NamedTuple):
    """A row that can be a problem."""

    question: str
    reference_answer: str


def find_layout(
    rows: Sequence[Any], *, question_column: str | None = None, answer_column: str | None = None
) -> Layout | None:
    """The layout of a file that begins with these rows, or None when none of them fits one."""
    for row in rows:
        columns = read_columns(row) if isinstance(row, Mapping) else {}
        questions = _question_columns(columns, question_column)
        answers = (answer_column.lower(),) if answer_column is not None else ANSWER_COLUMNS
        answer = next((name for name in answers if name in columns), None)
        if questions and answer is not None:
            return Layout(questions, answer, _form(rows, answer))
        if questions and answer_column is None and "boxed" in str(columns.get("solution", "")):
            return Layout(questions, "solution", "boxed")
    return None


def translate(row: Any, layout: Layout, find_fault: FindReferenceFault | None = None) -> Translation:
    """Read one row by its file's layout.

    Args:
        row: As the file has it.
        layout: Of the file.
        find_fault: Of the domain; None: the default domain's.

    Raises:
        DataError: what is wrong with the row; the caller knows the place.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"the row is a {type(row).__name__}, not an object with columns")
    columns = read_columns(row)
    parts = [_text(columns, name) for name in layout.question_columns]
    if layout.answer_column not in columns:
        raise DataError(f"field {layout.answer_column!r} is missing")
    value = columns[layout.answer_column]
    if value in (None, "") and (boxed := last_boxed(str(columns.get("solution", "")))):
        value = boxed
    answer = _answer_text(value, field=layout.answer_column)
    if layout.form == "gsm8k":
        _, marker, tail = answer.rpartition("####")
        if not marker or not tail.strip():
            raise DataError(f"field {layout.answer_column!r} has no `#### answer` at its end")
        answer = tail.strip()
    elif layout.form == "boxed":
        inside = last_boxed(answer)
        if not inside:
            raise DataError(rf"field {layout.answer_column!r} has no \boxed{{answer}}")
        answer = inside
    if _THOUSANDS.fullmatch(answer):
        answer = answer.replace(",", "")
    fault = (find_fault or default_domain().find_reference_fault)(answer)
    if fault is not None:
        raise DataError(f"field {layout.answer_column!r}: unparsable reference answer: {fault}")
    return Translation(" ".join(parts), answer)


class Attempt(NamedTuple):
    """A row with a completion."""

    question: str
    reference_answer: str
    completion: str
    label: int | None
    """1 or 0; None: the row has none."""


def translate_attempt(row: Any, find_fault: FindReferenceFault | None = None) -> Attempt:
    """Read a row of question, reference answer, completion and, where there is one, label.

    Raises:
        DataError: what is wrong with the row; the caller knows the place.
    """
    layout = find_layout([row])
    if layout is None:
        raise DataError(
            f"not a row with a problem, which has {describe_columns()}; rename the columns of this file"
        )
    problem = translate(row, layout, find_fault)
    columns = read_columns(row)
    name = next((name for name in COMPLETION_COLUMNS if name in columns), None)
    if name is None:
        raise DataError(f"no completion; give it a column named {' or '.join(COMPLETION_COLUMNS)}")
    completion = columns[name]
    if is_chat(completion):
        completion = last_text(completion, role="assistant")
    if not isinstance(completion, str):
        raise DataError(f"field {name!r} is {show(completion)}, not text")
    return Attempt(*problem, completion, read_label(columns))


def read_label(columns: Mapping[str, Any]) -> int | None:
    """The label among these columns; None where none of them is one, or it is empty.

    Raises:
        DataError: it is neither 0 nor 1.
    """
    name = next((name for name in LABEL_COLUMNS if columns.get(name) not in (None, "")), None)
    if name is None:
        return None
    label = as_label(columns[name])
    if label is None:
        raise DataError(f"field {name!r} is {show(columns[name])}; write 1 for correct and 0 for incorrect")
    return label


def as_label(value: Any) -> int | None:
    """1 or 0 for a value that says one of them, in a table as a text; None for any other."""
    return LABELS.get(str(value).strip().lower())


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` or `\fbox{...}`, braces balanced, or None.

    `\boxed 7` without braces takes what follows up to a blank or a dollar, as in a few rows of MATH.
    """
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    rest = text[start:].removeprefix("\\boxed").removeprefix("\\fbox").lstrip()
    if not rest.startswith("{"):
        return re.split(r"[\s$]", rest, maxsplit=1)[0] or None
    depth = 0
    for place, character in enumerate(rest):
        is_escaped = place > 0 and rest[place - 1] == "\\"
        if character in "{}" and not is_escaped:
            depth += 1 if character == "{" else -1
            if depth == 0:
                return rest[1:place].strip() or None
    return None


def describe_columns() -> str:
    """Name the columns of a row with a problem, for error messages."""
    return (
        f"a question column ({', '.join(QUESTION_COLUMNS)}) and an answer column "
        f"({', '.join(ANSWER_COLUMNS)}), or a solution with \\boxed{{answer}}"
    )


def read_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's values by column in lower case; those of an object in it as `outer.inner` too."""
    only = next(iter(row.values())) if len(row) == 1 else None
    if isinstance(only, Mapping):
        row = only
    columns: dict[str, Any] = {}
    for name, value in row.items():
        columns[str(name).lower()] = value
        if isinstance(value, Mapping):
            columns |= {f"{name}.{inner}".lower(): each for inner, each in value.items()}
    return columns


def _question_columns(columns: Mapping[str, Any], chosen: str | None) -> tuple[str, ...]:
    """The question columns that this row has; empty when it has none."""
    if chosen is not None:
        return (chosen.lower(),) if chosen.lower() in columns else ()
    if {"body", "question"} <= columns.keys():
        return ("body", "question")
    return tuple(name for name in QUESTION_COLUMNS if name in columns)[:1]


def _form(rows: Sequence[Any], answer_column: str) -> Form:
    answers = [read_columns(row).get(answer_column) for row in rows if isinstance(row, Mapping)]
    texts = [answer for answer in answers if isinstance(answer, str)]
    return "gsm8k" if 2 * sum("####" in text for text in texts) > len(texts) else "final"


def _text(columns: Mapping[str, Any], name: str) -> str:
    if name not in columns:
        raise DataError(f"field {name!r} is missing")
    value = columns[name]
    if is_chat(value):
        value = last_text(value, role="user")
        if value is None:
            raise DataError(f"field {name!r} has no message of role 'user'")
    if not isinstance(value, str):
        raise DataError(f"field {name!r} is {show(value)}, not text")
    text = _strip(value)
    if not text:
        raise DataError(f"field {name!r} is empty")
    return text


def _answer_text(value: Any, *, field: str) -> str:
    text = _strip(answer_text(value, place=f"field {field!r}"))
    if not text:
        raise DataError(f"field {field!r} is empty")
    return text


def _strip(text: str) -> str:
    text = text.strip()
    return text[:-MAX_TYPESETTING] + _TYPESETTING.sub("", text[-MAX_TYPESETTING:])
