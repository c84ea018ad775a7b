"""The working files of a labelling: rows, labels and an index, all on disk and gone with the process."""

import sqlite3
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from cooper_rl.domains.base import FindReferenceFault
from cooper_rl.labels.rows import Inputs, Row, Rows, collect_rows
from cooper_rl.labels.spool import Spool
from cooper_rl.machine.index import temporary_index
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.schema.data import Label, RejectedRow


@dataclass(frozen=True)
class Workspace:
    """Rows that are there, and labels to come."""

    rows: Rows
    labels: Spool[Label]
    index: sqlite3.Connection


@contextmanager
def open_workspace(
    inputs: Inputs,
    *,
    find_reference_fault: FindReferenceFault,
    is_ours: Callable[[str], bool] = lambda question: True,
) -> Generator[Workspace]:
    """Read the inputs once, as `collect_rows` does, which raises."""
    with ExitStack() as stack:
        folder, index = stack.enter_context(scratch_folder()), stack.enter_context(temporary_index())
        rows = Rows(
            stack.enter_context(Spool(folder / "rows", Row)),
            stack.enter_context(Spool(folder / "rejected", RejectedRow)),
        )
        labels = stack.enter_context(Spool(folder / "labels", Label))
        collect_rows(inputs, rows, index, find_reference_fault=find_reference_fault, is_ours=is_ours)
        yield Workspace(rows, labels, index)
