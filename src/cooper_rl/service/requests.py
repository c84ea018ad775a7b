"""Requests to a run with their ids, and the errors that refuse them."""

import hashlib
import json
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from cooper_rl.api.groups import group_rows
from cooper_rl.api.rows import Row
from cooper_rl.config.serve import LearnConfig
from cooper_rl.errors import CooperError
from cooper_rl.service.journal import Entry

Learn = Literal["now", "later", "never"]


class ConflictError(CooperError):
    """A request that contradicts what the run has; sent again, it fails again."""


class RunStoppedError(CooperError):
    """A run that takes no more requests until the server is started again."""


class Request(NamedTuple):
    """Completions to reward."""

    id: str | None
    """The client's own; a repeated request has the same. None: it is not known again."""
    rows: tuple[Row, ...]
    learn: Learn
    """now: they are one step; later: they are part of the step that `collect_items` completions make."""

    @property
    def digest(self) -> str:
        # Whole completions as earlier versions wrote them: a request may be repeated after an upgrade.
        return _digest([[row if row.is_cut else row[:4] for row in self.rows], self.learn])


@dataclass(eq=False)
class Waiting:
    """A request without an answer yet."""

    request: Request
    answer: Future[Entry] = field(default_factory=Future[Entry])


def check(request: Request, config: LearnConfig) -> None:
    """Refuse a request that is wrong in itself: it must begin no run, and reach no queue, where it would stop
    one.

    Raises:
        DataError: a group id stands for two problems.
        ConflictError: its completions are to be collected, and nobody said how many make a step.
    """
    group_rows(request.rows)
    if request.learn == "later" and config.collect_items is None:
        raise ConflictError(
            "learn=later collects the completions of one training step, and the server was not told how many "
            "that are; start it with --set collect_items=COUNT, or send whole batches with learn=now"
        )


def regroup(rows: list[Row]) -> list[Row]:
    """Completions of one problem are one group, whatever other requests call theirs."""
    return [row._replace(group=_digest([row.group, row.question, row.reference_answer])) for row in rows]


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
