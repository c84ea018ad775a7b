"""A `Trainable` that divides state, gradients and weights over the ranks: ZeRO 1, 2, 3 (rows 10, 12, 13).

DeepSpeed is used as a library: it divides, reduces, clips and steps; the walk through the model stays ours.
With ZeRO 3 a model is whole on every rank while it is used (`gather`) and divided in between. Checkpoints
know nothing of ranks: state is gathered weight by weight to the first one, and sent out from there.
"""

import importlib
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from cooper_rl.config.infrastructure import DistributedConfig
from cooper_rl.distributed.ranks import Ranks
from cooper_rl.distributed.trainable import TRAINERS, Trainable
from cooper_rl.errors import ConfigError, how_to_install
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM

MOMENTS = ("exp_avg", "exp_avg_sq")


class Zero:
    """Implements `distributed.trainable.Trainable`: AdamW on all ranks at once.

    Every method walks the weights in the order of `named_parameters`, which is the same on all ranks: each
    weight that is gathered, sent or refreshed is a collective call of its own.
    """

    is_copying = True

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.AdamW,
        *,
        config: DistributedConfig,
        is_bfloat16: bool,
        max_grad_norm: float,
        ranks: Ranks,
    ) -> None:
        """The model's fp32 weights become the master weights; where asked, the model's own are then bf16.

        Frozen weights stay as they are, whole on every rank.

        Raises:
            ConfigError: DeepSpeed is not installed.
        """
        self.ranks = ranks
        self._model = model
        self._max_grad_norm = max_grad_norm
        self._stage = config.zero_stage
        self._is_gathered = False
        device = next(model.parameters()).device
        masters: dict[str, torch.Tensor] = {}
        if ranks.is_first:
            # Taken before DeepSpeed rounds and divides: what it made of bf16 weights would have lost 16
            # bits of each.
            masters = {name: weight.detach().cpu().clone() for name, weight in self._trained()}
        # Imported here and not above: it sets environment variables and takes seconds, and most runs never
        # use it.
        self._deepspeed = import_deepspeed(device)
        self._engine, self._zero, *_ = self._deepspeed.initialize(
            # DeepSpeed wraps the forward of what it is given. Ours runs outside of it, packed, so it gets a
            # module that hands a finished loss through, and still meets every trained weight.
            model=_Through(weight for _, weight in self._trained()),
            optimizer=optimizer,
            config=_deepspeed_config(config, is_bfloat16, max_grad_norm),
            # The group exists already (ranks.py); a second one would take another port and its own
            # time-out.
            dist_init_required=False,
        )
        if self._stage == 3:
            # Gathering layer by layer would need the same calls in the same order on every rank.
            offload = self._zero.parameter_offload
            for hook in (*offload.forward_hooks, *offload.backward_hooks):
                hook.remove()
        # DeepSpeed made its masters from the model's weights as it found them, which may be bf16 by then.
        self.load_weights(masters)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self._zero.param_groups

    @contextmanager
    def gather(self) -> Iterator[None]:
        """See `Trainable.gather`."""
        # An inner block must not divide the weights again at its end, while the outer one still uses them.
        if self._stage < 3 or self._is_gathered:
            yield
            return
        self._is_gathered = True
        try:
            # Without `modifier_rank`, DeepSpeed drops at the end whatever the block wrote into the weights.
            with self._deepspeed.zero.GatheredParameters([weight for _, weight in self._trained()]):
                yield
        finally:
            self._is_gathered = False

    def backward(self, loss: torch.Tensor) -> None:
        """See `Trainable.backward`; ZeRO 2 and 3 reduce the gradient here, so that this is collective."""
        # DeepSpeed takes the mean over ranks.
        self._engine.backward(self._engine(loss * self.ranks.size))

    def step(self, max_norm: float) -> float:
        """See `Trainable.step`."""
        assert max_norm == self._max_grad_norm, "DeepSpeed is told the bound when it is made"
        self._engine.step()
        # Of all ranks' parts together: each rank alone holds a slice of the gradient.
        return float(self._engine.get_global_grad_norm())

    def weights(self) -> dict[str, torch.Tensor]:
        """See `Trainable.weights`: the fp32 master weights, in CPU memory."""
        return self._collect({"": self._deepspeed.utils.safe_get_full_fp32_param})

    def state(self) -> dict[str, torch.Tensor]:
        """See `Trainable.state`."""
        # Either all ranks have stepped or none has: what follows is called by all or by none.
        if not self._zero.optimizer.state:
            return {}
        self._link()
        read = self._deepspeed.utils.safe_get_full_optimizer_state
        getters = {f"/{key}": lambda weight, key=key: read(weight, key) for key in MOMENTS}
        # Moments of one weight at a time pass through the GPU: the whole state at once would be 8 bytes a
        # weight on one rank.
        tensors = self._collect(getters)
        # One count for all: DeepSpeed flattens the weights of a group into one tensor, which is stepped as
        # a whole.
        step = next(iter(self._zero.optimizer.state.values()))["step"]
        if self.ranks.is_first:
            for name, _ in self._trained():
                tensors[f"{name}/step"] = torch.as_tensor(step, dtype=torch.float32).cpu().clone()
        return dict(sorted(tensors.items()))

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """See `Trainable.load_weights`; the first rank gives every weight that is trained, the others any."""
        for name, weight in self._trained():
            self._put(weight, self._send(weights.get(name), weight), key=None)
        self._refresh()

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """See `Trainable.load_state`."""
        # The first rank alone has read the checkpoint: it says whether there is any state to send.
        step = self.ranks.first(
            lambda: next((float(v) for k, v in tensors.items() if k.endswith("/step")), None)
        )
        self._zero.optimizer.state.clear()
        self._link()
        if step is None:
            return
        for flat in self._flat_weights():
            # DeepSpeed's setters write into moments that are there, and before the first step there are none.
            moments = {key: torch.zeros_like(flat) for key in MOMENTS}
            self._zero.optimizer.state[flat] = {"step": torch.tensor(step, device=flat.device), **moments}
        self._link()
        for name, weight in self._trained():
            for key in MOMENTS:
                self._put(weight, self._send(tensors.get(f"{name}/{key}"), weight), key=key)

    def snapshot(self) -> Callable[[], None]:
        """See `Trainable.snapshot`: of this rank's master weights."""
        kept = [(weight, weight.detach().clone()) for weight in self._flat_weights()]

        def put_back() -> None:
            for weight, value in kept:
                weight.data.copy_(value)
            self._refresh()  # collective: the other ranks' parts of every weight have changed as well

        return put_back

    def averaging(self, decay: float) -> AbstractContextManager[None]:
        """See `Trainable.averaging`: no rank has the weights whole that an average would be kept of."""
        if decay:
            raise ConfigError(
                f"cooper.reward.ema_decay={decay:g} is kept by one process without DeepSpeed: set it to 0, "
                "or distributed.zero_stage=0"
            )
        return nullcontext()

    def _trained(self) -> Iterator[tuple[str, Any]]:
        return ((name, weight) for name, weight in self._model.named_parameters() if weight.requires_grad)

    def _flat_weights(self) -> list[torch.Tensor]:
        if self._stage == 3:
            return self._zero.fp32_partitioned_groups_flat
        return self._zero.single_partition_of_fp32_groups

    def _collect(self, getters: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for name, weight in self._trained():
            for suffix, get in getters.items():
                value = get(weight)  # collective: called by all, though the first rank alone keeps it
                if self.ranks.is_first:
                    found[name + suffix] = value.detach().cpu().clone()
        return found

    def _send(self, value: torch.Tensor | None, weight: Any) -> torch.Tensor:
        """The first rank's value on every rank."""
        # Every rank allocates the same shape and type first: a broadcast into a buffer of another size
        # corrupts memory or hangs, and NCCL does not check.
        buffer = torch.empty(shape_of(weight), dtype=torch.float32, device=weight.device)
        if self.ranks.is_first:
            assert value is not None, "the first rank has every tensor"
            buffer.copy_(value)
        if self.ranks.size > 1:
            # On the device's own process group: NCCL sends a GPU's tensors without a copy on the CPU.
            distributed.broadcast(buffer, src=0)
        return buffer

    def _put(self, weight: Any, value: torch.Tensor, *, key: str | None) -> None:
        utils = self._deepspeed.utils
        if self._stage < 3:
            if key is None:
                utils.safe_set_full_fp32_param(weight, value)
            else:
                utils.safe_set_full_optimizer_state(weight, value, key)
            return
        # ZeRO 3 pads a flattened weight until it divides evenly; the padding is at the end of the last
        # rank's slice.
        size = weight.ds_tensor.numel()
        padded = torch.nn.functional.pad(value.flatten(), (0, size * self.ranks.size - value.numel()))
        part = padded[self.ranks.rank * size : (self.ranks.rank + 1) * size]
        if key is None:
            utils.safe_set_local_fp32_param(weight, part)
        else:
            utils.safe_set_local_optimizer_state(weight, part, key)

    def _link(self) -> None:
        """Let DeepSpeed find the optimiser's state by weight, after it was made or cleared."""
        if self._stage < 3:
            # DeepSpeed links low- to high-precision state once, lazily, and keeps stale links after the
            # state was replaced.
            self._zero._hp_optimizer_states_linked = False
            if self._zero.optimizer.state:
                self._zero._lazy_init_hp_params_optimizer_state()

    def _refresh(self) -> None:
        """The model's weights from the master weights."""
        if self._stage < 3:
            self._zero.update_lp_params()  # gathers every rank's part
            return
        for group in range(len(self._zero.fp16_groups)):
            self._zero._reassign_or_swap_out_partitioned_parameters(group)


@dataclass(frozen=True, kw_only=True)
class SharedVerifyRM(VerifyRM):
    """A VerifyRM that all ranks score with, each a share; all must call `score` with the same items."""

    optimizer: Trainable

    def _score(self, items: Sequence[VerifyItem], max_tokens_per_batch: int) -> list[float]:
        own = super()._score
        # Scoring uses the weights, which ZeRO 3 has divided; gathering is collective, so ranks without
        # items of their own enter too.
        with self.optimizer.gather():
            return self.optimizer.ranks.share(items, lambda share: own(share, max_tokens_per_batch))


TRAINERS.register("zero", Zero)


class _Through(torch.nn.Module):
    """The model as DeepSpeed sees it: the weights that are trained. A loss that was computed elsewhere passes
    through."""

    def __init__(self, weights: Iterable[torch.nn.Parameter]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(weights)

    def forward(self, loss: torch.Tensor) -> torch.Tensor:
        return loss


def shape_of(weight: torch.Tensor) -> torch.Size:
    """A weight's shape, also while ZeRO 3 has divided it."""
    return getattr(weight, "ds_shape", weight.shape)


def import_deepspeed(device: torch.device) -> Any:
    """The library, told not to compile anything.

    Raises:
        ConfigError: it is not installed.
    """
    os.environ.setdefault("DS_ACCELERATOR", device.type)  # read when it is imported
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    try:
        ops = importlib.import_module("deepspeed.ops")
        deepspeed = importlib.import_module("deepspeed")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"distributed.zero_stage needs DeepSpeed ({error}); with DS_BUILD_OPS=0 and --no-build-isolation "
            f"{how_to_install('deepspeed')}; or set it to 0"
        ) from error
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # DeepSpeed calls them several times a step, and each time a line would stand in the log.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    deepspeed.init_distributed(auto_mpi_discovery=False, dist_init_required=False)
    return deepspeed


def _deepspeed_config(config: DistributedConfig, is_bfloat16: bool, max_grad_norm: float) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": config.zero_stage}
    if config.zero_stage == 3:
        zero["stage3_param_persistence_threshold"] = 0  # what stays whole would miss a roll-back
    if config.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    return {
        # DeepSpeed insists on a batch size and never sees a batch: losses arrive divided already.
        "train_micro_batch_size_per_gpu": 1,
        # It would step, or divide, after a number of backwards that it counts; ours vary with the token
        # budget.
        "managed_gradient_accumulation": False,
        "gradient_clipping": max_grad_norm,
        "bf16": {"enabled": is_bfloat16, "check_grad_overflow": True},
        # Micro-batches are many and small: sums in bf16 would drop what is below 1/256 of the sum so far.
        "data_types": {"grad_accum_dtype": "fp32"},
        "zero_optimization": zero,
        # Offloading would else insist on DeepSpeed's own CPU Adam, which is compiled at its first use.
        "zero_force_ds_cpu_optimizer": False,
        # Its progress lines come every so many steps; this many never do.
        "steps_per_print": 2**62,
    }
