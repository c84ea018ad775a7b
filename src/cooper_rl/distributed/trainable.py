"""One model with what steps it: in one process here, over several in `distributed/zero.py` (rows 10, 12, 13).

The updates, the gate, checkpoints and roll-backs use `Trainable` alone. A trainer of another kind (FSDP, an
optimiser on another device) is a class with these methods, registered in `TRAINERS`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch

from cooper_rl.config import names
from cooper_rl.config.infrastructure import DistributedConfig
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.registry import Registry

TRAINED = "trained"
"""Name in the optimiser's state of the weights that are stepped, where the model's folder holds others: an
average of them, or what they were merged into."""


class Trainable(Protocol):
    """A model whose weights can be stepped, saved and put back.

    All methods are collective, the properties are not: every rank must call them in the same order and as
    often, or those that did wait for the others until the process group's time-out.
    """

    @property
    def ranks(self) -> Ranks:
        """The processes that step together."""
        ...

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Holds the learning rates, as in torch."""
        ...

    @property
    def is_copying(self) -> bool:
        """True if `weights` and `state` return copies, which later steps leave as they are."""
        ...

    def gather(self) -> AbstractContextManager[None]:
        """In the block the model's weights are whole on every rank, wherever they are otherwise; nestable."""
        ...

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of this rank's part of an update's loss; the parts of all ranks add up."""
        ...

    def step(self, max_norm: float) -> float:
        """Clip, step and clear; returns the norm before clipping. Not finite: nothing is stepped."""
        ...

    def weights(self) -> dict[str, torch.Tensor]:
        """The fp32 weights that are stepped, by state-dict name; the first rank alone gets any."""
        ...

    def state(self) -> dict[str, torch.Tensor]:
        """The optimiser's state as `<weight name>/<state name>`, likewise; empty before the first step."""
        ...

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take over the first rank's weights; what is not named stays in one process."""
        ...

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take over the first rank's optimiser state in place of the own."""
        ...

    def snapshot(self) -> Callable[[], None]:
        """Copy the weights that are stepped, on the device; returns what puts them back, also collective.

        The optimiser's moments stay as they are: their gradients are of the weights that are put back, and
        without the newest the next update would be much the same.
        """
        ...

    def averaging(self, decay: float) -> AbstractContextManager[None]:
        """For a model that holds the moving average of its weights: in the block it holds the stepped ones.

        At the end the average has taken them in; an error puts the average back as it was. 0: no average.

        Raises:
            ConfigError: this trainer keeps none.
        """
        ...


class MakeTrainable(Protocol):
    """The signature of the entries of `TRAINERS`."""

    def __call__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.AdamW,
        *,
        config: DistributedConfig,
        is_bfloat16: bool,
        max_grad_norm: float,
        ranks: Ranks,
    ) -> Trainable:
        """Collective.

        Args:
            model: Its weights are fp32.
            optimizer: Over those that are trained; another kind of trainer may read its groups alone.
            config: Section `distributed`.
            is_bfloat16: Whether forward passes use bf16.
            max_grad_norm: Bound that every step will be called with.
            ranks: The processes that train together.
        """
        ...


TRAINERS: Registry[MakeTrainable] = Registry(names.TRAINERS)
"""Name in `distributed.trainer` -> what makes the trainer."""


class SingleProcess:
    """A model and a torch optimiser over its weights, in this process alone."""

    ranks = ALONE
    is_copying = False

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    def gather(self) -> AbstractContextManager[None]:
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def step(self, max_norm: float) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm).item()
        # clip_grad_norm_ has scaled the gradients by a norm that is not finite: they are NaN now, and a
        # step with them could not be taken back.
        if norm < float("inf"):  # False for NaN too
            self.optimizer.step()
        # None and not zeros: frees 4 bytes a weight until the next backward, in the phase in which the
        # engine draws.
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def weights(self) -> dict[str, torch.Tensor]:
        return self.model.state_dict()

    def state(self) -> dict[str, torch.Tensor]:
        return optimizer_tensors(self.model, self.optimizer)

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        # Not strict: tied heads and adapters make a checkpoint name fewer tensors than the model has.
        self.model.load_state_dict(weights, strict=False)
        for name, weight in self.model.named_parameters():
            if name in weights:
                # The average's own copy of the stepped weight is older than what was loaded.
                self.optimizer.state.get(weight, {}).pop(TRAINED, None)

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        weights = dict(self.model.named_parameters())
        # Moments that are not named below would belong to weights that are gone.
        self.optimizer.state.clear()
        for full_name, tensor in tensors.items():
            name, _, key = full_name.rpartition("/")
            # `step` too: the fused AdamW of a GPU counts its steps on the device.
            self.optimizer.state[weights[name]][key] = tensor.to(weights[name].device)

    def snapshot(self) -> Callable[[], None]:
        state = self.optimizer.state
        kept = [
            # The stepped weight is not copied: `averaging` replaces it and never writes into it.
            (weight, weight.detach().clone(), state.get(weight, {}).get(TRAINED))
            for weight in self.model.parameters()
        ]

        @torch.no_grad()
        # Copied into the same tensors: the optimiser, the engine and autograd hold references to them.
        def put_back() -> None:
            for weight, value, trained in kept:
                weight.copy_(value)
                own = state.get(weight, {})
                own.pop(TRAINED, None)
                if trained is not None:
                    own[TRAINED] = trained

        return put_back

    @contextmanager
    def averaging(self, decay: float) -> Iterator[None]:
        if not decay:
            yield
            return
        averages = self._swap_in_trained()
        weights = list(self.model.parameters())
        try:
            yield
        # Whatever ended the block: the average is what scores and what is saved, so the model must hold it
        # again.
        except BaseException:
            with torch.no_grad():
                for weight, average in zip(weights, averages, strict=True):
                    weight.copy_(average)
            raise
        with torch.no_grad():
            for weight, average in zip(weights, averages, strict=True):
                self.optimizer.state[weight][TRAINED] = weight.detach().clone()
                # weight + decay * (average - weight), in place: engine and optimiser hold the tensor
                # itself.
                weight.lerp_(average, decay)

    @torch.no_grad()
    def _swap_in_trained(self) -> list[torch.Tensor]:
        """Put the weights that are stepped into the model; returns the averages that were there."""
        averages: list[torch.Tensor] = []
        for weight in self.model.parameters():
            # The average must survive the block: a failed update returns to it, a good one is blended into
            # it.
            averages.append(weight.detach().clone())
            trained = self.optimizer.state.get(weight, {}).get(TRAINED)
            if trained is not None:
                weight.copy_(trained)
        return averages


def _make_single(
    model: torch.nn.Module, optimizer: torch.optim.AdamW, **_: DistributedConfig | Ranks | float
) -> Trainable:
    return SingleProcess(model, optimizer)


TRAINERS.register("single", _make_single)


def as_trainable(model: torch.nn.Module, optimizer: torch.optim.Optimizer | Trainable) -> Trainable:
    """A plain torch optimiser over the model's weights trains it in this process."""
    return SingleProcess(model, optimizer) if isinstance(optimizer, torch.optim.Optimizer) else optimizer


def optimizer_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The optimiser's state as `<weight name>/<state name>`; empty before the first step."""
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in model.named_parameters():
        state: dict[str, Any] = optimizer.state.get(weight, {})
        # Sorted, so that the same state is the same file, whose hash the manifest holds.
        for key in sorted(state):
            tensors[f"{name}/{key}"] = state[key]
    return tensors
