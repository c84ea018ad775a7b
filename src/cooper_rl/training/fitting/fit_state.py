"""The state of VerifyRM's training between two updates (rows 4 and 5), as files and back.

    progress.json              what was counted, and where the training stands
    weights.safetensors        optimizer.safetensors
    random.safetensors         torch's generators, which dropout draws from
    best/                      the best weights so far, as a whole folder; absent before the first validation

An update depends on nothing else: orders and decoys are drawn with seeds of their own. Who keeps the files
is an implementation of `FitWatch` (`run/fit_checkpoints.py`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.errors import DataError, ModelError
from cooper_rl.records.files import read_report, write_report
from cooper_rl.schema.data import Record
from cooper_rl.training.optimizer import restore_optimizer

PROGRESS = "progress.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
RANDOM = "random.safetensors"


class FitProgress(Record):
    """Progress of the training of VerifyRM."""

    lesson: int
    """Index of the lesson under way."""
    losses: tuple[float, ...]
    """Mean loss per example of every update of this lesson."""
    best_loss: float | None
    """Validation loss of the best weights; None: nothing was validated yet."""
    best_update: int
    """Updates of this lesson after which they were best; 0: none."""
    num_worse: int
    """Validations since."""
    num_tokens: int
    """See `Fit`; so are the next two."""
    num_computed_tokens: int
    seconds: float


class FitWatch:
    """A keeper of states of a training. This one keeps none."""

    def begun(self, lesson: int) -> Path | None:
        """The folder of the state that a lesson is continued from; None: it begins."""
        return None

    def is_done(self, lesson: int) -> bool:
        """True if a lesson was learned before the state that the training is continued from."""
        return False

    def update(self) -> AbstractContextManager[None]:
        """The block is one update."""
        return nullcontext()

    def updated(self, update: int, write: Callable[[Path], None], *, has_best: bool) -> None:
        """After every update.

        Args:
            update: Its number in the lesson, from 1.
            write: Writes the state into a folder, which it makes.
            has_best: Whether weights were kept as the best so far.

        Raises:
            CooperError: the training ends here.
        """


def write_fit(folder: Path, progress: FitProgress, trained: SingleProcess) -> None:
    """Write all files but the best weights.

    Raises:
        DataError: the disk refuses.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_report(folder / PROGRESS, progress)
        # By parameter and not by state-dict name: tied weights are one tensor then.
        weights = {name: weight.detach().contiguous() for name, weight in _weights(trained).items()}
        save_file(weights, folder / WEIGHTS)
        save_file(trained.state(), folder / OPTIMIZER)
        save_file(_random_states(trained), folder / RANDOM)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder}: the state cannot be written ({error}); free space there") from error


def restore_fit(folder: Path, trained: SingleProcess) -> FitProgress:
    """Put back what `write_fit` wrote into a model and its optimiser.

    Raises:
        ModelError: the state is of another model.
    """
    progress = read_report(folder / PROGRESS, FitProgress)
    weights, saved = _weights(trained), load_file(folder / WEIGHTS)
    for name in sorted({*weights, *saved}):
        if name not in saved or name not in weights or saved[name].shape != weights[name].shape:
            raise ModelError(
                f"{folder}: its weights are of another model, e.g. {name!r}; train anew, without this state"
            )
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(saved[name])
    restore_optimizer(trained.model, trained, load_file(folder / OPTIMIZER), place=str(folder))
    random = load_file(folder / RANDOM)
    torch.set_rng_state(random["cpu"])
    device = next(iter(weights.values())).device
    if device.type == "cuda" and "cuda" in random:
        torch.cuda.set_rng_state(random["cuda"], device)
    return progress


def _weights(trained: SingleProcess) -> dict[str, Any]:
    return dict(trained.model.named_parameters())


def _random_states(trained: SingleProcess) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    device = next(trained.model.parameters()).device
    return states | ({"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})
