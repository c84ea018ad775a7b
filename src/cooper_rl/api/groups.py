"""Completions in groups, one for each problem, in any order of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from cooper_rl.api.rows import Row
from cooper_rl.errors import DataError
from cooper_rl.method.questions import problem_id
from cooper_rl.schema.data import FinishReason, Problem


@dataclass(frozen=True)
class CompletionGroup:
    """The completions of one problem, and which rows they are."""

    problem: Problem
    texts: tuple[str, ...]
    indices: tuple[int, ...]
    finish_reasons: tuple[FinishReason | None, ...]
    """None: the trainer does not say how the completion ended."""


def group_rows(rows: Sequence[Row]) -> list[CompletionGroup]:
    """Groups in the order of their first rows.

    Raises:
        DataError: a group id stands for different questions or reference answers.
    """
    members: dict[object, list[int]] = {}
    run = 0
    for index, row in enumerate(rows):
        if index and rows[index - 1][:2] != row[:2]:
            run += 1
        members.setdefault(run if row.group is None else row.group, []).append(index)
    groups: list[CompletionGroup] = []
    for indices in members.values():
        first = rows[indices[0]]
        other = next((index for index in indices if rows[index][:2] != first[:2]), None)
        if other is not None:
            raise DataError(
                f"group_ids: {first.group!r} stands for two problems, at {indices[0]} and {other}: "
                f"{first.question[:60]!r} and {rows[other].question[:60]!r}; one group has one question and "
                "one reference answer"
            )
        problem = Problem(
            id=first.group or problem_id(first.question, first.reference_answer),
            source="reward",
            question=first.question,
            reference_answer=first.reference_answer,
        )
        texts = tuple(rows[index].completion for index in indices)
        reasons: tuple[FinishReason | None, ...] = tuple(
            "length" if rows[index].is_cut else None for index in indices
        )
        groups.append(CompletionGroup(problem, texts, tuple(indices), reasons))
    return groups
