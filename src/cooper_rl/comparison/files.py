"""The files that a comparison reads."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Evaluated(NamedTuple):
    """What `evaluate_policy` wrote at one point."""

    report: Path
    completions: Path


class RunFiles(NamedTuple):
    """What one arm with one seed of co-training has written."""

    arm: str
    seed: int
    checkpoint: Path
    end: Evaluated


class Files(NamedTuple):
    """The starting point and every run from it."""

    start: Evaluated
    runs: Sequence[RunFiles]
