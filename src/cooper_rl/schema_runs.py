"""Records of whole runs: how one ended.

Apart from `schema.py`, whose records follow the walk of the data. Deliberately left out: where they are kept.
"""

from cooper_rl.schema import Record, Report


class RunEnding(Record):
    """How a pipeline's run ended, as Kubeflow says it."""

    state: str
    """SUCCEEDED, FAILED or CANCELLED."""
    run: str
    """Kubeflow's name of the run."""
    message: str = ""


class RunEndReport(Report):
    """The end of a run."""

    state: str
    has_succeeded: bool
    last_step: int | None
    """Of the newest checkpoint; None where no store keeps them."""
    checkpoints: dict[str, str]
    """Iteration's folder -> name of its newest checkpoint."""
