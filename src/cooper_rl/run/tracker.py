"""Metrics in TensorBoard, MLflow or W&B: the same numbers as in metrics.jsonl, which comes first.

Beside them every setting as a hyper-parameter, once, and every tenth step its best paid rollouts as text.

A run that is continued goes on where its sink stopped. A tracker that fails is warned of once and then left
alone; the checkpoint's metrics.jsonl has every number. TensorBoard is tested; MLflow over SQLite and W&B
offline were tried by hand, a W&B server was not. Nothing here stops training.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from textwrap import indent
from types import TracebackType
from typing import Any, NamedTuple, Self

from cooper_rl.addresses import redact, redact_all
from cooper_rl.checkpoints.model_registry import open_mlflow
from cooper_rl.config.infrastructure import TrackerConfig
from cooper_rl.errors import ConfigError, how_to_install
from cooper_rl.schema.data import RolloutSample
from cooper_rl.schema.step_metrics import StepMetrics
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)


TEXTS_EVERY = 10
"""Steps from one of which texts are kept to the next; numbers are kept of all."""
_MAX_VALUE_CHARS = 500
"""Length of a hyper-parameter's value, which MLflow bounds."""


class _Sink(NamedTuple):
    write: Callable[[int, dict[str, float]], None]
    write_texts: Callable[[int, str], None]
    """Markdown."""
    write_settings: Callable[[dict[str, str]], None]
    close: Callable[[], None]
    last_step: int
    """Newest step that is there already; 0 without any."""


class Tracker:
    """Writes a row of metrics a step; a context manager that closes what it opened.

    Args:
        config: None: nothing is written.
        run: Name of the run; a run that is continued goes on under its name.
        settings: Hyper-parameters, by their keys. Those of the first start stay.

    Raises:
        ConfigError: the library is not installed.
    """

    def __init__(
        self, config: TrackerConfig | None, *, run: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._config = config
        self._sink: _Sink | None = None
        if config is None:
            return
        self._waiting = Waiting(
            f"tracker.uri={redact(config.uri)}",
            logger,
            limit="training goes on when it answers, or when it failed",
        )
        try:
            with self._waiting.asked():
                self._sink = _OPEN[config.kind](config, run)
        except ImportError as error:
            raise ConfigError(
                f"tracker.kind={config.kind} needs a library that is not installed ({error}): "
                f"{how_to_install(config.kind)}; or set tracker=null"
            ) from error
        except Exception as error:  # whatever fails here, training matters more
            self._give_up(error)
        sink = self._sink
        if sink is not None and settings and not sink.last_step:
            shown = {key: value[:_MAX_VALUE_CHARS] for key, value in settings.items()}
            self._try(lambda: sink.write_settings(shown))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sink is not None:
            self._try(self._sink.close)

    def write(self, metrics: StepMetrics, rollouts: Sequence[RolloutSample] = ()) -> None:
        """The numbers of one step, and now and then its rollouts, unless a run before this one wrote them."""
        sink, step = self._sink, metrics.step
        if sink is None or step <= sink.last_step:
            return
        numbers = {name: float(value) for name, value in metrics.flat().items() if name != "step"}

        def write() -> None:
            if rollouts and (step == 1 or step % TEXTS_EVERY == 0):
                sink.write_texts(step, as_markdown(rollouts))
            sink.write(step, numbers)  # last: its step is where a continued run goes on

        self._try(write)

    def _try(self, call: Callable[[], None]) -> None:
        try:
            with self._waiting.asked():
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


def as_markdown(rollouts: Sequence[RolloutSample]) -> str:
    """Rollouts as a person reads them; an indent of four keeps their text from being taken for markup."""
    return "\n".join(
        f"**{place}. reward {row.reward:.3f}, VerifyRM {row.score:.3f}, rule: {row.rule}**\n\n"
        f"{indent(row.question, '    ')}\n\nreference answer:\n\n{indent(row.reference_answer, '    ')}\n\n"
        f"completion:\n\n{indent(row.completion, '    ')}\n"
        for place, row in enumerate(rollouts, start=1)
    )


def _open_tensorboard(config: TrackerConfig, run: str) -> _Sink:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard.summary import hparams

    folder = f"{config.uri.rstrip('/')}/{run}"
    writer = SummaryWriter(folder)
    # A reservoir of one always keeps the newest value of a tag.
    written = EventAccumulator(folder, size_guidance={"scalars": 1})
    written.Reload()
    steps = [written.Scalars(tag)[-1].step for tag in written.Tags()["scalars"]]

    def write(step: int, numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def write_settings(settings: dict[str, str]) -> None:
        for summary in hparams(settings, {"rollout/reward": 0}):
            writer._get_file_writer().add_summary(summary)  # add_hparams makes a run of it
        table = "".join(f"|{key}|`{value}`|\n" for key, value in settings.items())
        writer.add_text("settings", f"|key|value|\n|---|---|\n{table}")

    return _Sink(
        write,
        lambda step, text: writer.add_text("rollouts", text, step),
        write_settings,
        writer.close,
        max(steps, default=0),
    )


def _open_mlflow(config: TrackerConfig, run: str) -> _Sink:
    client = open_mlflow(config.uri)
    found = client.get_experiment_by_name(config.project)
    experiment = found.experiment_id if found else client.create_experiment(config.project)
    known = client.search_runs([experiment], f"attributes.run_name = '{run}'", max_results=1)
    current = known[0] if known else client.create_run(experiment, run_name=run)
    run_id = current.info.run_id
    last_step = int(current.data.metrics.get("last_step", 0))

    def write(step: int, numbers: dict[str, float]) -> None:
        for name, value in (numbers | {"last_step": step}).items():
            client.log_metric(run_id, name, value, step=step)

    def write_settings(settings: dict[str, str]) -> None:
        for key, value in settings.items():
            client.log_param(run_id, key, value)

    return _Sink(
        write,
        lambda step, text: client.log_text(run_id, text, f"rollouts/step-{step:06d}.md"),
        write_settings,
        lambda: client.set_terminated(run_id),
        last_step,
    )


def _open_wandb(config: TrackerConfig, run: str) -> _Sink:
    current: Any = import_module("wandb").init(
        project=config.project, id=run, name=run, resume="allow", dir=config.uri, reinit="create_new"
    )
    wandb: Any = import_module("wandb")
    return _Sink(
        lambda step, numbers: current.log(numbers, step=step),
        lambda step, text: current.log({"rollouts": wandb.Html(f"<pre>{escape(text)}</pre>")}, step=step),
        lambda settings: current.config.update(settings, allow_val_change=True),
        current.finish,
        max(current.step - 1, 0),
    )


_OPEN: dict[str, Callable[[TrackerConfig, str], _Sink]] = {
    "tensorboard": _open_tensorboard,
    "mlflow": _open_mlflow,
    "wandb": _open_wandb,
}
