"""The labels of all shards in the order of the rows, as one process would have made them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from cooper_rl.errors import DataError
from cooper_rl.labels.rows import Row
from cooper_rl.labels.shards import Digest, shard_of
from cooper_rl.records.files import parse_row, read_rows
from cooper_rl.schema.data import Label
from cooper_rl.schema.reports import JudgeUsage


def merge(rows: Iterable[Row], shards: Sequence[Path], *, digests: Collection[str | None]) -> Iterator[Label]:
    """The label of every row, in order, from the labels of all shards.

    Args:
        rows: All of them.
        shards: Labels of every shard, in the order of their numbers.
        digests: Of the shards' reports, in any order.

    Raises:
        DataError: they are not the labels of these rows, in this number of shards and in their order, or the
            reports are not theirs.
    """
    labels, found = [_read(path) for path in shards], [Digest() for _ in shards]
    for row in rows:
        number = shard_of(row.problem.question, len(shards))
        label = next(labels[number], None)
        if label is None or label.completion_id != row.completion.id:
            found = "no label" if label is None else f"that of {label.completion_id!r}"
            raise DataError(_mismatch(shards[number], f"{found} where that of {row.completion.id!r} belongs"))
        found[number].add(row, label)
        yield label
    for number, rest in enumerate(labels):
        left = next(rest, None)
        if left is not None:
            raise DataError(_mismatch(shards[number], f"a label of {left.completion_id!r}, which is no row"))
        # Samplers number completions: those of another draw have the same ids and other texts.
        if None not in digests and found[number].name() not in digests:
            raise DataError(_mismatch(shards[number], "no report is of these labels of these completions"))


def _read(path: Path) -> Iterator[Label]:
    return (parse_row(row, Label) for row in read_rows(path, is_limited=False))


def _mismatch(path: Path, found: str) -> str:
    return (
        f"{path}: {found}; give the labels of all shards in the order of their numbers, their reports, and "
        "the problems and completions that they were made from"
    )


def add_usages(usages: Iterable[JudgeUsage | None]) -> JudgeUsage | None:
    """The usage of all shards together; None where none asked. The cost is None where a shard knows none."""
    known = [usage for usage in usages if usage is not None]
    if not known:
        return None
    names = JudgeUsage.model_fields.keys() - {"cost"}
    total = {name: sum(getattr(usage, name) for usage in known) for name in names}
    costs = [usage.cost for usage in known if usage.cost is not None]
    return JudgeUsage(**total, cost=sum(costs) if len(costs) == len(known) else None)
