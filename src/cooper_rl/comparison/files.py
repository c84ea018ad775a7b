"""The files that a comparison reads."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Evaluated(NamedTuple):
    """The files of one evaluation of a policy."""

    report: Path
    completions: Path


class RunFiles(NamedTuple):
    """The files of one arm with one seed of co-training."""

    arm: str
    seed: int
    checkpoint: Path
    end: Evaluated


class Files(NamedTuple):
    """The starting point and every run from it."""

    start: Evaluated
    runs: Sequence[RunFiles]
