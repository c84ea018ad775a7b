"""Stage: the summary of a run: its end and why, its checkpoints, and how to go on.

It is the exit task of every pipeline. It runs after a failure too, so it needs nothing that the run should
have written, and a store that cannot be reached is a sentence in the summary. `report.py` shows the results.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from cooper_rl.addresses import redact, redact_all, redact_values
from cooper_rl.checkpoints.manifest import LATEST, NAME
from cooper_rl.cluster.failures import failures_of, in_words
from cooper_rl.cluster.leftovers import Leftovers, end_jobs
from cooper_rl.cluster.task import with_run_key
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, LaunchError, StorageError
from cooper_rl.records.files import read_report, write_report, write_text
from cooper_rl.run.chain import FROZEN_ARM
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.runs import RunEnding, RunEndReport
from cooper_rl.schema.texts import plain
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)

ENDINGS = {
    "SUCCEEDED": ("succeeded", True),
    "COMPLETE": ("succeeded", True),
    "CACHED": ("succeeded", True),
    "FAILED": ("failed", False),
    "CANCELED": ("was cancelled", False),
    "CANCELLED": ("was cancelled", False),
}
"""KFP state -> text for a person, and success. On a cluster it is the state of ML Metadata's record of the
graph; kfp.local has Kubeflow's own. Any other state means that the record was never completed."""
UNRECORDED = (
    "Kubeflow's record of the run still says `{state}`: a task's pod ended before it could write down how "
    "(out of memory, evicted, deleted, past its deadline, or its image could not be pulled). Look on the "
    "run's page for the task without a result."
)
WHERE_TO_LOOK = (
    "No task said why. The red task on the run's page has the log; an error of ours is also the termination "
    "message of its pod (`kubectl describe pod`)."
)
LOGS = "The red task on the run's page has the log."


class Loaded(NamedTuple):
    """A configuration, or what is wrong with it."""

    config: Config | None
    problem: str


def load_if_valid(preset: str, overrides: Sequence[str], *, run_key: str = "", run_id: str = "") -> Loaded:
    """The configuration, or None and the reason: a wrong one is a way to end that must be summarised too."""
    try:
        return Loaded(load(preset, with_run_key(overrides, run_key=run_key, run_id=run_id)), "")
    except ConfigError as error:
        return Loaded(None, str(error))


def run(
    config: Config | None,
    *,
    status: Annotated[Path, Input("How the run ended (JSON: state, run, message)")],
    summary: Annotated[Path, OutputFile("Where to write the summary (Markdown)")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
) -> RunEndReport:
    """Say how a run ended and how to go on; `config` is None where it was not valid.

    Raises:
        DataError: the status is not readable, or an output cannot be written.
    """
    ending = read_report(status, RunEnding)
    left = _end_jobs(config)  # first: they cost GPUs while a store that is away is waited for
    found = _look_up(config, ending)
    steps = [int(match[1]) for name in found.checkpoints.values() if (match := NAME.fullmatch(name))]
    result = RunEndReport(
        state=ending.state,
        has_succeeded=_ending_of(ending)[1],
        last_step=max(steps, default=None),
        checkpoints=found.checkpoints,
        failures=found.failures,
        ended_jobs=left.deleted,
    )
    text = to_markdown(ending, result, config, trouble=found.trouble, doubts=left.doubts)
    write_text(summary, text)
    write_report(report, result)
    logger.info("summarise_run state=%s failures=%s", result.state, result.failures)
    return result


class _Found(NamedTuple):
    """Checkpoints and messages of a run in the store."""

    checkpoints: dict[str, str]
    failures: list[str]
    trouble: str
    """Why it could not be asked for all of it."""


def _look_up(config: Config | None, ending: RunEnding) -> _Found:
    if config is None:
        return _Found({}, [], "")
    failures: list[str] = []
    try:
        if not _ending_of(ending)[1]:
            failures = in_words(failures_of(config.storage, ending.run))
        return _Found(find_checkpoints(config), failures, "")
    except (ConfigError, StorageError) as error:
        return _Found({}, failures, f"The checkpoints could not be looked up: {plain(str(error))}")


def _end_jobs(config: Config | None) -> Leftovers:
    """The TrainJobs that the run left and that are deleted now, and why more may go on."""
    if config is None or config.launch.kind != "trainjob":
        return Leftovers([], [])
    try:
        return end_jobs(config.launch, config.storage.without_arm().run_uri() or "")
    except (ConfigError, LaunchError) as error:
        return Leftovers([], [str(error)])


_POINTER = re.compile(rf"from-[0-9]{{6,}}/{LATEST}")


def find_checkpoints(config: Config) -> dict[str, str]:
    """Iteration's folder -> its newest checkpoint, in order; empty where there is no store.

    The folder of an arm, or of an experiment's run, begins with the name of its place.

    Raises:
        ConfigError: there is a store, but no run_key.
        StorageError: the store cannot be used.
    """
    found: dict[str, str] = {}
    if not config.experiment.runs:
        found |= _newest(config.storage)
    for arm in [run.name for run in config.experiment.runs] or [FROZEN_ARM]:
        storage = config.storage.model_copy(update={"arm": arm})
        found |= {f"{storage.run_name()}/{key}": name for key, name in _newest(storage).items()}
    return found


def _newest(storage: StorageConfig) -> dict[str, str]:
    place = storage.run_uri()
    if place is None:
        return {}
    store = open_store(storage, place)
    found: dict[str, str] = {}
    for key in store.keys("from-"):
        # Whoever may write to the store may write any name there, and the dashboard shows markup.
        if _POINTER.fullmatch(key) and (pointer := store.read(key)) is not None:
            found[key.removesuffix(f"/{LATEST}")] = pointer.name
    return found


def to_markdown(
    ending: RunEnding, result: RunEndReport, config: Config | None, *, trouble: str, doubts: Sequence[str]
) -> str:
    """The summary for the dashboard."""
    lines = [f"# Run {_ending_of(ending)[0]}", "", f"`{ending.run}`"]
    lines += _why(ending, result)
    jobs = [f"TrainJob `{job}` went on after the run's end and was deleted." for job in result.ended_jobs]
    jobs += [f"A TrainJob of this run may go on: {plain(redact_all(doubt))}" for doubt in doubts]
    for sentence in filter(None, (trouble, *jobs)):
        lines += ["", sentence]
    if result.checkpoints:
        assert config is not None
        lines += _tables(config.storage, result.checkpoints)
    if not result.has_succeeded:
        lines += ["", _how_to_go_on(config, has_checkpoints=bool(result.checkpoints or trouble))]
    if config is not None:
        lines += ["", "Settings that name this run:", "", "```json", _settings(config), "```"]
    return "\n".join([*lines, ""])


def _tables(storage: StorageConfig, checkpoints: Mapping[str, str]) -> list[str]:
    """The run's own checkpoints; those of its arms, whose places lie beside its own."""
    lines: list[str] = []
    for place, is_arm in ((storage.run_uri(), False), (storage.uri, True)):
        # Whoever may write to the store may write anything there, and the dashboard shows markup.
        rows = [
            f"| {folder} | {name if NAME.fullmatch(name) else 'LATEST names no checkpoint'} |"
            for folder, name in checkpoints.items()
            if ("/" in folder) == is_arm
        ]
        if rows:
            lines += ["", f"Checkpoints below `{redact(place or '')}`:", ""]
            lines += ["| iteration | newest |", "|---|---|", *rows]
    return lines


def _why(ending: RunEnding, result: RunEndReport) -> list[str]:
    reasons = [ending.message] if ending.message else result.failures
    lines = (
        ["", "```", *(redact_all(each).replace("```", "'''") for each in reasons), "```"] if reasons else []
    )
    if ending.message or result.has_succeeded:
        return lines
    if result.has_succeeded is None:
        return [*lines, "", UNRECORDED.format(state=ending.state)]
    return [*lines, "", LOGS if reasons else WHERE_TO_LOOK]


def _ending_of(ending: RunEnding) -> tuple[str, bool | None]:
    return ENDINGS.get(ending.state, ("ended without a record of how", None))


def _how_to_go_on(config: Config | None, *, has_checkpoints: bool) -> str:
    if config is None:
        return "Nothing was trained with this configuration: mend it and start a new run."
    begin = "To go on, mend the cause and start a run with the same parameters"
    if config.storage.run_key and has_checkpoints:
        return (
            f"{begin}, also `run_key={config.storage.run_key}`: finished tasks come from the cache, and "
            "co-training continues from its newest checkpoint."
        )
    why = "it has no checkpoint yet" if config.storage.uri else "storage.uri was not set"
    return f"{begin}: finished tasks come from the cache. Co-training starts anew, since {why}."


def _settings(config: Config) -> str:
    chosen = config.model_dump(mode="json", include={"seed": True, "storage": {"uri", "run_key", "endpoint"}})
    return json.dumps(redact_values(chosen), indent=2)
