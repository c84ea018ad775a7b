"""One command, the whole comparison: arms x seeds from the same start, in parallel, and one report.

    OUTPUT/experiment.json          what was asked for
    OUTPUT/start/                   what all runs start from (`jobs.prepare_start`)
    OUTPUT/frozen/seed-0/           one arm with one seed of co-training (`jobs.train_arm`), with its log
    OUTPUT/report.html  report.json

Started again with the same arguments, it goes on where it was. `comparison/` defines the arms, computes the
numbers and shows them.
"""

import json
import logging
import multiprocessing
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from cooper_rl.addresses import redact_values
from cooper_rl.comparison.arms import arm_overrides, check_free
from cooper_rl.comparison.page import write_page
from cooper_rl.comparison.summary import ExperimentReport, summarise
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, CooperError, StoppedError
from cooper_rl.experiment.jobs import prepare_start, train_arm, written_files
from cooper_rl.machine.cores import usable_cores
from cooper_rl.machine.locking import only_process_in
from cooper_rl.machine.workers import follow_parent
from cooper_rl.records.files import check_foreign, write_report, write_text
from cooper_rl.report.live import live_page
from cooper_rl.report.page import settings
from cooper_rl.report.provenance import describe

logger = logging.getLogger(__name__)

_PAGE, _REPORT = "report.html", "report.json"
TAKEN = {
    "cooper.steps": "`experiment.steps`",
    "cooper.evaluate_every": "`experiment.evaluate_every`",
    "cooper.seed": "`--seeds`",
    "experiment.runs": "`--arms` and `--seeds`",
}
"""Key that an experiment does not take from the settings -> what it takes in its place."""


def run_experiment(
    preset: str,
    overrides: Sequence[str],
    *,
    arms: Sequence[str],
    seeds: Sequence[int],
    output: Path,
    num_workers: int | None = None,
) -> ExperimentReport:
    """Train every arm with every seed from one start and write the report.

    Raises:
        ConfigError: a wrong configuration, or the folder holds another experiment, or one that is running.
        CooperError: a job failed; names it and its log. Jobs that ended stay, others end first.
        StoppedError: SIGTERM. Like Ctrl-C it stops all jobs, whose checkpoints stay.
    """
    check_free(overrides, arms, taken=TAKEN, by="this command")
    length = load(preset, overrides).experiment
    overrides = [
        *overrides,
        f"cooper.steps={length.steps}",
        f"cooper.evaluate_every={length.evaluate_every}",
    ]
    plans = {arm: [*overrides, *arm_overrides(arm)] for arm in arms}
    config = load(preset, overrides)
    _check(config)
    for values in plans.values():
        load(preset, values)
    claim_folder(output, config)
    workers = num_workers or usable_cores()
    # Spawned, not forked: torch's threads do not survive a fork.
    with (
        only_process_in(output),
        _sigterm_as_error(output),
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=follow_parent) as pool,
    ):
        try:
            _run_jobs(pool, preset, overrides, plans, seeds, output)
        except (KeyboardInterrupt, StoppedError):  # a pool would first end all that it was given
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    files = written_files(output, arms=arms, seeds=seeds)
    result = summarise(files, config)
    write_page(result, output / _PAGE, files=files, origin=describe(settings(config)))
    write_report(output / _REPORT, result)
    return result


@contextmanager
def _sigterm_as_error(output: Path) -> Generator[None]:
    """SIGTERM raises StoppedError. Outside the main thread, which alone receives signals, nothing changes."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise StoppedError(f"SIGTERM: the experiment in {output} is stopped; the same command continues it")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _check(config: Config) -> None:
    if config.evaluation.judge is None:
        raise ConfigError(
            "an experiment needs a judge that evaluates all arms; set evaluation.judge, or use the preset "
            "laptop"
        )


def claim_folder(output: Path, config: Config) -> None:
    """Remember what an experiment's folder is for; arms and seeds may be added to it later.

    A key that the version which wrote it did not have had today's default.
    """
    path = output / "experiment.json"
    # Redacted: the file stays, and another password does not make another experiment.
    asked = {"preset": redact_values(config.model_dump(mode="json"))}
    if path.is_file():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))["preset"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error}); choose another --output") from error
        with suppress(ValidationError):  # of a version with other keys: the difference is shown as it is
            known = redact_values(Config.model_validate(known).model_dump(mode="json"))
        if known != asked["preset"]:
            difference = _first_difference(known, asked["preset"])
            raise ConfigError(
                f"{path}: another experiment is in this folder ({difference}); choose another --output, or "
                "remove the folder"
            )
        return
    check_foreign(output, (_PAGE, _REPORT), mark=path.name)
    write_text(path, json.dumps(asked, indent=2) + "\n")


def _first_difference(known: object, asked: object, place: str = "") -> str:
    if isinstance(known, dict) and isinstance(asked, dict):
        for key in sorted({*known, *asked}):
            if known.get(key) != asked.get(key):
                return _first_difference(known.get(key), asked.get(key), f"{place}.{key}".lstrip("."))
    return f"{place}: there {json.dumps(known)}, here {json.dumps(asked)}"


def _run_jobs(
    pool: ProcessPoolExecutor,
    preset: str,
    overrides: Sequence[str],
    plans: dict[str, list[str]],
    seeds: Sequence[int],
    output: Path,
) -> None:
    """The start, then every arm with every seed."""
    start = output / "start"
    _raise_failure(pool.submit(prepare_start, preset, overrides, start), pool, start)
    waiting: dict[Future[None], Path] = {}
    for seed in seeds:
        for arm, values in plans.items():
            folder = output / arm / f"seed-{seed}"
            own = [*values, f"cooper.seed={seed}"]
            waiting[pool.submit(train_arm, preset, own, start, folder)] = folder
    total = len(waiting)
    while waiting:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            folder = waiting.pop(future)
            _raise_failure(future, pool, folder)
            logger.info("experiment: %d of %d done: %s", total - len(waiting), total, folder)
        if waiting:
            _write_partial_page(output)


def _write_partial_page(output: Path) -> None:
    """The runs' numbers by now, in the place of the report that follows."""
    page = live_page(output)
    if page is not None:
        write_text(output / _PAGE, page)


def _raise_failure(future: Future[None], pool: ProcessPoolExecutor, folder: Path) -> None:
    error = future.exception()  # waits for the job
    if error is None:
        return
    pool.shutdown(wait=not isinstance(error, BrokenProcessPool), cancel_futures=True)
    log = folder / "log.txt"
    if isinstance(error, CooperError):
        raise type(error)(f"{folder}: {error} (log: {log})") from error
    if isinstance(error, BrokenProcessPool):
        raise CooperError(
            f"{folder}: a worker process was killed, out of memory perhaps; see {log}, then start again with "
            "the same arguments and fewer --workers"
        ) from error
    raise error
