"""Trainers' columns as completions: plain texts or chat messages.

Imports no library: `RewardClient` runs in workers that have httpx alone. `groups.py` makes groups of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cooper_rl.errors import DataError
from cooper_rl.records.answer_text import answer_text, show
from cooper_rl.records.messages import last_text
from cooper_rl.schema.texts import replace_surrogates


class Row(NamedTuple):
    """One completion."""

    question: str
    reference_answer: str
    completion: str
    group: str | None
    """None: consecutive rows with the same question and reference answer are one group."""
    is_cut: bool = False
    """The completion reached the limit of its length, so that a number at its end may be half of one."""


def read_rows(
    completions: Iterable[Any],
    *,
    prompts: Iterable[Any] | None,
    questions: Iterable[Any] | None,
    reference_answers: Iterable[Any],
    group_ids: Iterable[Any] | None,
    has_other_tasks: bool = False,
    are_cut: Iterable[bool] | None = None,
) -> list[Row | None]:
    """One row per completion; the question of a prompt is its last user message, or the whole plain text.

    With `has_other_tasks` a completion whose reference answer is None belongs to another task of the data
    set, and has no row; else None is an error, as any value that is no answer. `are_cut` is `Row.is_cut` of
    each; None: not known.

    Raises:
        DataError: a text in place of a column, columns of different lengths, or a value that is no text;
            names column and index. A reference answer may be a number too.
    """
    asked = questions if questions is not None else prompts
    if asked is None:
        raise DataError("give questions or prompts, one per completion")
    name = "questions" if questions is not None else "prompts"
    completions = _column(completions, "completions")
    asked = _column(asked, name)
    reference_answers = _column(reference_answers, "reference_answers")
    group_ids = None if group_ids is None else _column(group_ids, "group_ids")
    are_cut = None if are_cut is None else _column(are_cut, "are_cut")
    columns = {
        name: asked,
        "reference_answers": reference_answers,
        **({} if group_ids is None else {"group_ids": group_ids}),
        **({} if are_cut is None else {"are_cut": are_cut}),
    }
    for column, values in columns.items():
        if len(values) != len(completions):
            raise DataError(
                f"{column}: {len(values)} values for {len(completions)} completions; give one per completion"
            )
    role = None if questions is not None else "user"
    return [
        None
        if has_other_tasks and reference_answers[index] is None
        else Row(
            question=_text(asked[index], role, column=name, index=index),
            reference_answer=_answer(reference_answers[index], index=index),
            completion=_text(completion, "assistant", column="completions", index=index, may_be_empty=True),
            group=None if group_ids is None else replace_surrogates(str(group_ids[index])),
            is_cut=are_cut is not None and bool(are_cut[index]),
        )
        for index, completion in enumerate(completions)
    ]


def beside_rows(rewards: Iterable[float], rows: Sequence[Row | None]) -> list[float | None]:
    """The rewards of the rows, in order, and None for each completion without a row."""
    left = iter(rewards)
    return [None if row is None else next(left) for row in rows]


def _column(values: Any, name: str) -> list[Any]:
    """A column's values by their place: a pandas Series would be asked for its labels."""
    if not isinstance(values, str | bytes | Mapping):
        try:
            return list(values)
        except TypeError:
            pass
    raise DataError(
        f"{name}: is {str(values)[:80]!r} ({type(values).__name__}); give a list, one value per completion"
    )


def _answer(value: Any, *, index: int) -> str:
    """A reference answer, which a trainer's data set may hold as a number, as a file of problems may."""
    column = "reference_answers"
    try:
        text = answer_text(value, place=f"{column}: value {index}")
    except DataError as error:
        raise DataError(f"{error}; give the final answer alone") from error
    return _text(text, None, column=column, index=index)


def _text(value: Any, role: str | None, *, column: str, index: int, may_be_empty: bool = False) -> str:
    """A plain text, or that of the last chat message of a role."""
    found = value
    if role is not None and isinstance(value, Sequence) and not isinstance(value, str):
        found = last_text(value, role=role)
    if isinstance(found, str) and (found or may_be_empty):
        return replace_surrogates(found)
    kinds = "a text" if role is None else f"a text, or chat messages with one of role {role!r}"
    what = "empty" if found == "" else show(value)
    raise DataError(f"{column}: value {index} is {what}; give {kinds}")
