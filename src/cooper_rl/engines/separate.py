"""An engine in a process of its own (row 6), which draws while the trainer updates the models.

Calls reach it one at a time and in their order: a draw is by the weights that were handed over last before
it, whatever the timing. Weights are files in a temporary folder (TMPDIR); the process reads them when their
turn comes, so that handing them over stops neither side. It ends with its parent, however that ends.
"""

import logging
import multiprocessing
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.engines.base import Engine, Generation
from cooper_rl.engines.open import open_engine
from cooper_rl.errors import ConfigError, CooperError, DataError, TrainingError
from cooper_rl.machine.device import pick_device
from cooper_rl.machine.memory import is_out_of_memory
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.machine.threads import keep_freed_memory, limit_kept_kernels, limit_threads
from cooper_rl.machine.workers import follow_parent
from cooper_rl.models.packed.forward import is_packed, use_packed
from cooper_rl.models.policy import Policy
from cooper_rl.models.precision import Compute, settle

logger = logging.getLogger(__name__)

END_SECONDS = 60.0
"""vLLM takes some of them to end its own processes."""
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The trainer's place among its ranks, which the engine must not take for its own."""


class Start(NamedTuple):
    """Settings that the process opens its engine with."""

    shape: Any
    """Configuration of the policy's model."""
    weights: Path
    config: EngineConfig
    end_ids: frozenset[int]
    pad_id: int
    compute: Compute
    is_packed: bool
    device: str
    """The trainer's."""
    visible: str | None
    """CUDA_VISIBLE_DEVICES; None: the trainer's own."""


class SeparateEngine:
    """Implements `Overlapping` on a copy of the policy."""

    def __init__(self, policy: Policy, config: EngineConfig) -> None:
        """Start the process, with the policy's weights.

        Raises:
            ConfigError: `engine.devices` do not fit, or see `open_engine`.
            CooperError: see `open_engine`; it came from the process.
            DataError: TMPDIR has no room for the weights.
        """
        visible = None if config.devices is None else visible_devices(config, policy.device, os.environ)
        self._failure: Exception | None = None
        self._num_loads = 0
        self._stack = ExitStack()
        self.folder = self._stack.enter_context(scratch_folder())
        start = Start(
            shape=policy.model.config,
            weights=self.folder / "start.pt",
            config=config.model_copy(update={"process": "same", "devices": None, "sleep": False}),
            end_ids=policy.end_ids,
            pad_id=policy.pad_id,
            compute=settle(policy.model, policy.compute),
            is_packed=is_packed(policy.model),
            device=str(policy.device),
            visible=visible,
        )
        # Spawned: a fork would copy the trainer's threads in mid-air, and its CUDA context, which must not be
        # used.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        # vLLM starts processes of its own for several GPUs, which a daemon may not.
        self.process = context.Process(
            target=_serve, args=(theirs, start), name="engine", daemon=config.tensor_parallel_size == 1
        )
        # One thread: calls take effect in their order.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._last: Future[Any] | None = None
        try:
            self._write(policy.model.state_dict().items(), start.weights)
            self.process.start()
            theirs.close()  # else its end would not be noticed here
            self._submit(self._answer).result()
        except BaseException:
            self.close()
            raise

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        *,
        samples: int,
        seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Generation]]:
        """See `Engine.generate`; waits for what began before.

        Raises:
            CooperError: from the process, or it has ended.
        """
        numbers = range(len(prompts)) if places is None else places
        return self.begin(prompts, generation, samples=samples, seed=seed, places=numbers).result()

    def begin(
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        *,
        samples: int,
        seed: int,
        places: Sequence[int],
    ) -> Future[list[list[Generation]]]:
        """See `Overlapping.begin`."""
        options = {"samples": samples, "seed": seed, "places": places}
        return self._submit(self._ask, "generate", (prompts, generation), options)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Write the weights down for the process, which takes them once it has drawn what began before.

        Raises:
            DataError: TMPDIR has no room for them.
        """
        path = self.folder / f"weights-{self._num_loads}.pt"
        self._num_loads += 1
        self._write(weights, path)
        self._submit(self._load, path)

    def sleep(self) -> None:
        """Nothing to hand back: the engine draws while models are trained."""

    def close(self) -> None:
        """End the process, whatever it does."""
        if self.process.is_alive() and (self._last is None or self._last.done()):
            with suppress(OSError):
                self._connection.send(None)
            self.process.join(END_SECONDS)
        if self.process.pid is not None:
            self.process.kill()
            self.process.join()
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._connection.close()
        self._stack.close()

    def _write(self, weights: Iterable[tuple[str, torch.Tensor]], path: Path) -> None:
        tensors = {name: tensor.detach().cpu() for name, tensor in weights}
        try:
            # Not safetensors, which refuses tied weights. Read back as weights alone: nothing is unpickled.
            torch.save(tensors, path)
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{path}: the weights for the engine's process cannot be written ({error}); free space "
                "there, set TMPDIR, or set engine.process=same"
            ) from error

    def _submit(self, call: Any, *arguments: Any) -> Future[Any]:
        self._last = self._thread.submit(call, *arguments)
        return self._last

    def _load(self, path: Path) -> None:
        try:
            self._ask("load_weights", (path,), {})
        except Exception as error:
            # Nobody waits for this call. The next draw would be by weights of another step.
            self._failure = error
            raise

    def _ask(self, name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """In the thread: one call there and its answer."""
        if self._failure is not None:
            raise self._failure
        with suppress(OSError):  # its end shows when the answer is read
            self._connection.send((name, arguments, options))
        return self._answer()

    def _answer(self) -> Any:
        try:
            value, error = self._connection.recv()
        except (EOFError, OSError) as gone:
            self.process.join(END_SECONDS)
            raise TrainingError(
                f"the engine's process has ended (exit status {self.process.exitcode}; -9 is how a system "
                "ends one for memory): its own lines above say why; or set engine.process=same"
            ) from gone
        if error is not None:
            raise error
        return value


def visible_devices(config: EngineConfig, device: torch.device, environment: Mapping[str, str]) -> str:
    """CUDA_VISIBLE_DEVICES of an engine's process: this trainer's share of `engine.devices`.

    Args:
        config: of the engine.
        device: the trainer's.
        environment: says which devices the trainer sees, and how many trainers this machine has.

    Raises:
        ConfigError: there are none, too few, or one of them trains.
    """
    place = f"engine.devices={list(config.devices or ())}"
    if device.type != "cuda":
        raise ConfigError(
            f"{place}: training runs on {device.type}, which has no such devices: set it to null"
        )
    rank, size = (int(environment.get(key, n)) for key, n in (("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "1")))
    seen = environment.get("CUDA_VISIBLE_DEVICES")
    names = seen.split(",") if seen else [str(number) for number in range(torch.cuda.device_count())]
    own, needed = list(config.devices or ())[rank::size], config.tensor_parallel_size
    if len(own) < needed:
        raise ConfigError(
            f"{place} are shared out to {size} trainers, and each engine needs "
            f"engine.tensor_parallel_size={needed}: give {size * needed}"
        )
    if max(own) >= len(names):
        raise ConfigError(f"{place}: this process sees {len(names)} devices, numbered from 0")
    if set(config.devices or ()) & set(range(size) if size > 1 else [device.index or 0]):
        raise ConfigError(
            f"{place}: the first {size} train: leave them out, or set engine.devices=null to share them"
        )
    return ",".join(names[number] for number in own)


def _serve(connection: Connection, start: Start) -> None:
    """The process: opens its engine, then answers calls until there are no more."""
    follow_parent(end=signal.SIGKILL)
    # Whoever ends a job tells all its processes. The trainer saves first what it has, and ends this one.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        engine = _open(start)
    except Exception as error:
        connection.send((None, _told(error)))
        return
    connection.send((None, None))
    with closing(engine), suppress(EOFError, OSError):
        while (call := connection.recv()) is not None:
            try:
                answer = _call(engine, *call), None
            except Exception as error:
                answer = None, _told(error)
            connection.send(answer)


def _open(start: Start) -> Engine:
    for name in list(os.environ):
        if name in LAUNCHER or name.startswith("TORCHELASTIC_"):
            del os.environ[name]
    device = torch.device(start.device)
    if start.visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = (
            start.visible
        )  # read at CUDA's first call, which is still to come
        device = pick_device()
    if start.config.kind == "vllm":
        device = torch.device("cpu")  # it makes a copy where it runs, and needs the room there
    elif device.type == "cuda":
        torch.cuda.set_device(device)
    # Not from a model's folder, which transformers lets the first rank alone write.
    model = AutoModelForCausalLM.from_config(start.shape, dtype=torch.float32)
    model.load_state_dict(_read(start.weights))
    model = model.to(device).eval().requires_grad_(False)
    limit_threads(model)
    keep_freed_memory()
    limit_kept_kernels()
    use_packed(model, is_on=start.is_packed)
    return open_engine(Policy(model, None, start.end_ids, start.pad_id, start.compute), start.config)


def _call(engine: Engine, name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    if name == "generate":
        return engine.generate(*arguments, **options)
    (path,) = arguments
    engine.load_weights(_read(path).items())
    return None


def _read(path: Path) -> dict[str, torch.Tensor]:
    weights = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    path.unlink()  # the pages that are mapped stay until they are copied
    return weights


def _told(error: Exception) -> Exception:
    """An error that the trainer knows too."""
    if isinstance(error, CooperError):
        return error
    if is_out_of_memory(error):
        return RuntimeError(str(error))  # `explains_memory` there says what to lower
    logger.exception("the engine's process failed")
    return TrainingError(f"the engine's process failed: {type(error).__name__}: {error}")
