"""The pieces of an experiment that run in worker processes: the start, and one arm with one seed from there.

Each is a chain of stages over files in a folder of its own. A stage whose report is there is not run again,
and `train_cooper` continues by itself, so that an experiment that was stopped goes on where it was.
"""

import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cooper_rl.config.load import load
from cooper_rl.errors import StoppedError
from cooper_rl.stages import (
    collect_problems,
    evaluate_policy,
    evaluate_verify_rm,
    label_completions,
    prepare_models,
    sample_completions,
    train_cooper,
    train_verify_rm,
)

logger = logging.getLogger(__name__)


def prepare_start(preset: str, overrides: Sequence[str], folder: Path) -> None:
    """Everything that all runs start from: models, data, VerifyRM, the evaluation at step 0."""
    _configure(folder)
    config = load(preset, overrides)
    files = StartFiles(folder)
    chain: list[tuple[Callable[..., Any], dict[str, Path]]] = [
        (prepare_models.run, {"models": files.models, "report": folder / "prepare_models.json"}),
        (
            collect_problems.run,
            {
                "problems": files.problems,
                "held_out": files.held_out,
                "rejected": folder / "rejected.jsonl",
                "report": folder / "collect_problems.json",
            },
        ),
        (
            sample_completions.run,
            {
                "models": files.models,
                "problems": files.problems,
                "completions": files.completions,
                "report": folder / "sample_completions.json",
            },
        ),
        (
            label_completions.run,
            {
                "problems": files.problems,
                "completions": files.completions,
                "labels": folder / "labels.jsonl",
                "train": files.train,
                "validation": files.validation,
                "test": files.test,
                "report": folder / "label_completions.json",
            },
        ),
        (
            train_verify_rm.run,
            {
                "models": files.models,
                "train": files.train,
                "validation": files.validation,
                "verify_rm": files.verify_rm,
                "report": folder / "train_verify_rm.json",
            },
        ),
        (
            evaluate_verify_rm.run,
            {
                "verify_rm": files.verify_rm,
                "examples": files.test,
                "report": folder / "evaluate_verify_rm.json",
            },
        ),
        (evaluate_policy.run, files.evaluation(folder)),
    ]
    for stage, paths in chain:
        if not paths["report"].is_file():
            stage(config, **paths)


def train_arm(preset: str, overrides: Sequence[str], start: Path, folder: Path) -> None:
    """Train one arm from the start, and evaluate where it ends."""
    _configure(folder)
    config = load(preset, overrides)
    files = StartFiles(start)
    if not (folder / "train_cooper.json").is_file():
        try:
            train_cooper.run(
                config,
                models=files.models,
                verify_rm=files.verify_rm,
                problems=files.problems,
                replay=files.train,
                examples=files.validation,
                held_out=files.held_out,
                test=files.test,
                checkpoint=folder / "checkpoint",
                report=folder / "train_cooper.json",
            )
        except StoppedError:
            logger.exception("stopped")
            os._exit(128 + signal.SIGTERM)  # the worker, which would go on with the next job
    if not (folder / "evaluate_policy.json").is_file():
        evaluate_policy.run(config, **files.evaluation(folder), checkpoint=folder / "checkpoint")


class StartFiles:
    """What `prepare_start` writes."""

    def __init__(self, folder: Path) -> None:
        self.models = folder / "models"
        self.problems = folder / "problems.jsonl"
        self.held_out = folder / "held_out.jsonl"
        self.completions = folder / "completions.jsonl"
        self.train = folder / "train.jsonl"
        self.validation = folder / "validation.jsonl"
        self.test = folder / "test.jsonl"
        self.verify_rm = folder / "verify_rm"

    def evaluation(self, folder: Path) -> dict[str, Path]:
        """Arguments of `evaluate_policy`, with its outputs in a folder."""
        return {
            "models": self.models,
            "verify_rm": self.verify_rm,
            "problems": self.held_out,
            "examples": self.test,
            "evaluations": folder / "evaluations.jsonl",
            "completions": folder / "evaluated.jsonl",
            "report": folder / "evaluate_policy.json",
        }


def _configure(folder: Path) -> None:
    """A log of its own for every job."""
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=folder / "log.txt",
        level=logging.INFO,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )
    logging.captureWarnings(True)
