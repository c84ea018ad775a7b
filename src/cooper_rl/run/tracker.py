"""Metrics in TensorBoard, MLflow or W&B: the same numbers as in metrics.jsonl, which comes first.

A run that is continued goes on where its sink stopped. A tracker that fails is warned of once and then left
alone; the checkpoint's metrics.jsonl has every number. TensorBoard is tested; MLflow over SQLite and W&B
offline were tried by hand, a W&B server was not.
Deliberately left out: anything that could stop training.
"""

import logging
from collections.abc import Callable
from importlib import import_module
from types import TracebackType
from typing import Any, NamedTuple, Self

from cooper_rl.addresses import redact_all
from cooper_rl.config.infrastructure import TrackerConfig
from cooper_rl.errors import ConfigError, how_to_install
from cooper_rl.schema.step_metrics import StepMetrics

logger = logging.getLogger(__name__)


class _Sink(NamedTuple):
    write: Callable[[int, dict[str, float]], None]
    close: Callable[[], None]
    last_step: int
    """Newest step that is there already; 0 without any."""


class Tracker:
    """Writes a row of metrics a step; a context manager that closes what it opened.

    Args:
        config: None: nothing is written.
        run: Name of the run; a run that is continued goes on under its name.

    Raises:
        ConfigError: the library is not installed.
    """

    def __init__(self, config: TrackerConfig | None, *, run: str) -> None:
        self._config = config
        self._sink: _Sink | None = None
        if config is None:
            return
        try:
            self._sink = _OPEN[config.kind](config, run)
        except ImportError as error:
            raise ConfigError(
                f"tracker.kind={config.kind} needs a library that is not installed ({error}): "
                f"{how_to_install(config.kind)}; or set tracker=null"
            ) from error
        except Exception as error:  # whatever fails here, training matters more
            self._give_up(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sink is not None:
            self._try(self._sink.close)

    def write(self, metrics: StepMetrics) -> None:
        """The numbers of one step, unless a run before this one wrote them."""
        sink, step = self._sink, metrics.step
        if sink is not None and step > sink.last_step:
            numbers = {name: float(value) for name, value in metrics.flat().items() if name != "step"}
            self._try(lambda: sink.write(step, numbers))

    def _try(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # libraries raise anything, and training goes on
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._sink = None
        assert self._config is not None, "only a configured tracker can fail"
        logger.warning(
            "tracker.kind=%s fails and gets no more numbers from this process; training goes on, and "
            "metrics.jsonl has them all: %s: %s",
            self._config.kind,
            type(error).__name__,
            redact_all(str(error), self._config.uri),
        )


def _open_tensorboard(config: TrackerConfig, run: str) -> _Sink:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    folder = f"{config.uri.rstrip('/')}/{run}"
    writer = SummaryWriter(folder)
    written = EventAccumulator(folder, size_guidance={"scalars": 1})
    written.Reload()
    steps = [written.Scalars(tag)[-1].step for tag in written.Tags()["scalars"]]

    def write(step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return _Sink(write, writer.close, max(steps, default=0))


def _open_mlflow(config: TrackerConfig, run: str) -> _Sink:
    client: Any = import_module("mlflow.tracking").MlflowClient(tracking_uri=config.uri)
    found = client.get_experiment_by_name(config.project)
    experiment = found.experiment_id if found else client.create_experiment(config.project)
    known = client.search_runs([experiment], f"attributes.run_name = '{run}'", max_results=1)
    current = known[0] if known else client.create_run(experiment, run_name=run)
    run_id = current.info.run_id
    last_step = int(current.data.metrics.get("last_step", 0))

    def write(step: int, numbers: dict[str, float]) -> None:
        for name, value in (numbers | {"last_step": step}).items():
            client.log_metric(run_id, name, value, step=step)

    return _Sink(write, lambda: client.set_terminated(run_id), last_step)


def _open_wandb(config: TrackerConfig, run: str) -> _Sink:
    current: Any = import_module("wandb").init(
        project=config.project, id=run, name=run, resume="allow", dir=config.uri, reinit="create_new"
    )
    return _Sink(
        lambda step, numbers: current.log(numbers, step=step), current.finish, max(current.step - 1, 0)
    )


_OPEN: dict[str, Callable[[TrackerConfig, str], _Sink]] = {
    "tensorboard": _open_tensorboard,
    "mlflow": _open_mlflow,
    "wandb": _open_wandb,
}
