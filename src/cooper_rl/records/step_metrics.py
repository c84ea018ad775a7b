"""`metrics.jsonl`: the numbers of every step since the first, a flat JSON object a line."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from cooper_rl.errors import DataError
from cooper_rl.schema.step_metrics import StepMetrics


def write_metrics(path: Path, metrics: Iterable[StepMetrics]) -> None:
    """One JSON object per step."""
    path.write_text("".join(json.dumps(row.flat()) + "\n" for row in metrics), encoding="utf-8")


def read_metrics(*paths: Path) -> list[StepMetrics]:
    """The rows of all files. Reads what `write_metrics`, of this or an earlier version, wrote.

    Raises:
        DataError: a line is not an object of a step's numbers.
    """
    return [row for path in paths for row in _read_file(path)]


def read_step(line: str) -> StepMetrics:
    """The numbers of a step in a line.

    Raises:
        ValueError: there are none, whatever else it holds.
    """
    try:
        return StepMetrics.from_flat(json.loads(line))
    except (ArithmeticError, AttributeError, RecursionError, TypeError) as error:
        raise ValueError(str(error)) from error


def _read_file(path: Path) -> Iterator[StepMetrics]:
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            yield read_step(line)
        except ValueError as error:
            raise DataError(
                f"{path}:{number}: not the numbers of a step ({error}); use an earlier checkpoint"
            ) from error
