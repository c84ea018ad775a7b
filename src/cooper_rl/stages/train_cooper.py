"""Stage: one iteration of co-training, many steps long (rows 6 to 13). The step is `training/step.py`.

A run that was stopped, in whatever way, continues from its own checkpoints when it is started again, and
its numbers are those of a run that was not stopped. Checkpoints are in the folder given, or below
`storage.uri`; then the folder holds a reference. With `launch.kind=trainjob` a job on other nodes trains, and
what it left in the store is read here.
"""

import logging
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cooper_rl.backends.checkpoint import TrainingState, library_versions, read_metrics, read_state
from cooper_rl.backends.checkpoint_reference import open_checkpoint, write_reference
from cooper_rl.backends.checkpoint_store import CheckpointStore, Found
from cooper_rl.backends.checkpoint_writer import CheckpointWriter
from cooper_rl.backends.device import pick_device
from cooper_rl.backends.open_store import open_store
from cooper_rl.backends.policy import load_policy
from cooper_rl.backends.tracker import Tracker
from cooper_rl.backends.verify_rm import load_verify_rm
from cooper_rl.config.root import Config
from cooper_rl.records import check_unique, read_records, write_report
from cooper_rl.schema import CooperReport, Problem
from cooper_rl.stages._co_training import CoTraining, check_hacked
from cooper_rl.stages._identity import run_identity
from cooper_rl.stages._launching import check_one_process, train_in_job
from cooper_rl.stages._models import read_models
from cooper_rl.stages._stopping import StopRequest
from cooper_rl.stages._trainer import make_evaluator, make_trainer, read_side_data
from cooper_rl.stages._wiring import check_fits

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    models: Annotated[Path, "Folder of prepare_models: the starting policy, also the KL reference"],
    verify_rm: Annotated[Path, "Folder of train_verify_rm"],
    problems: Annotated[Path, "Problems to train on (JSONL or Parquet)"],
    checkpoint: Annotated[Path, "Folder for checkpoints; an unfinished iteration in it is continued"],
    report: Annotated[Path, "Where to write the report (JSON)"],
    start: Annotated[Path | None, "Checkpoint folder of the previous iteration; absent: start anew"] = None,
    replay: Annotated[Path | None, "Labelled examples to replay (cooper.replay_examples)"] = None,
    examples: Annotated[
        Path | None, "Held-out labelled examples (cooper.gate, cooper.evaluate_every)"
    ] = None,
    held_out: Annotated[Path | None, "Held-out problems (cooper.evaluate_every)"] = None,
) -> CooperReport:
    """Train policy and VerifyRM together for `cooper.steps` steps.

    Raises:
        ConfigError: no `storage.run_key`, or the checkpoints here belong to a run of another configuration
            or other data, or an option needs a file that was not given, or this is one of several processes.
        HackingError: the monitor raised the alarm, and its action is `stop`; what was done is saved.
        LaunchError: the TrainJob cannot be started or followed, or failed.
        DataError: no problems, duplicate ids, or no whole checkpoint where there must be one.
        ModelError: a model cannot be used.
        StorageError: checkpoints cannot be stored or read; the last visible one stays.
        StoppedError: SIGTERM; what was done is saved.
        TrainingError: a score, loss or gradient is not finite; the last checkpoint stays.
    """
    started = time.monotonic()
    check_one_process(int(os.environ.get("WORLD_SIZE", "1")), place="WORLD_SIZE")
    run_uri = config.storage.run_uri()
    rows = read_records(problems, Problem)
    check_unique(rows, field="id", path=problems)
    if config.cooper.trains_verify_rm:
        check_fits(config.cooper.assistant, rows, key="cooper.assistant")
    if config.cooper.asks_judge:
        check_fits(config.cooper.judge, rows, key="cooper.judge")
    data = read_side_data(config, replay=replay, examples=examples, held_out=held_out)

    with ExitStack() as stack:
        stop = stack.enter_context(StopRequest(config.storage.grace_seconds))
        begun = stack.enter_context(open_checkpoint(start, config.storage)) if start else None
        first_step = begun.manifest.step + 1 if begun else 1
        last_step = first_step + config.cooper.steps - 1
        files = {"problems": problems, "replay": replay, "examples": examples, "held_out": held_out}
        identity = run_identity(
            config,
            models=models,
            verify_rm=verify_rm,
            files=files,
            start=begun.manifest if begun else None,
        )
        # Each iteration has a place of its own.
        place = f"{run_uri}/from-{first_step:06d}" if run_uri else checkpoint
        store = open_store(config.storage, place)
        checkpoints = CheckpointStore(store, identity=identity, retention=config.storage)
        fetched = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cooper-rl-")))
        is_job = config.launch.kind == "trainjob"
        # A job fetches what it continues from itself: here the small files do.
        found = checkpoints.newest(fetched, last_step=0 if is_job else last_step)
        if found is not None and found.manifest.step >= last_step:
            logger.info("%s/%s: finished already, nothing is trained", checkpoints.uri, found.name)
        elif is_job:
            inputs = {"models": models, "verify_rm": verify_rm, "start": start, **files}
            found = train_in_job(
                config, inputs, checkpoints=checkpoints, folder=fetched, last_step=last_step, stop=stop
            )
        else:
            state = _starting_state(found or begun, models=models, verify_rm=verify_rm)
            check_hacked(config, state.metrics)
            writer = stack.enter_context(CheckpointWriter(checkpoints, checkpoint))
            checkpoints.prepare()
            place = str(start or verify_rm)
            trainer = make_trainer(config, state, rows, data, stack, models=models, place=place)
            training = CoTraining(
                config=config,
                trainer=trainer,
                state=state,
                problems=rows,
                evaluator=make_evaluator(config, data, trainer.rule),
                checkpoints=checkpoints,
                writer=writer,
                stop=stop,
                tracker=stack.enter_context(
                    Tracker(config.tracker, run=config.storage.run_key or "cooper-rl")
                ),
                first=lambda: _starting_state(begun, models=models, verify_rm=verify_rm),
            )
            training.run(last_step)
            writer.finish()
            found = checkpoints.published(fetched)
        metrics = read_metrics(found.folder / "metrics.jsonl")
        check_hacked(config, metrics)
        if run_uri:
            write_reference(checkpoint, found, uri=checkpoints.uri)
    result = _summarise(metrics, first_step=first_step, seconds=time.monotonic() - started)
    write_report(report, result)
    return result


def _starting_state(found: Found | None, *, models: Path, verify_rm: Path) -> TrainingState:
    """A checkpoint's state, or the starting models."""
    device = pick_device()
    if found is not None:
        logger.info("continue from %s, step %d", found.name, found.manifest.step)
        if found.manifest.versions != library_versions():
            logger.warning(
                "the checkpoint was written with %s and is continued with %s: the numbers may differ in "
                "their last digits from those of an uninterrupted run",
                found.manifest.versions,
                library_versions(),
            )
        return read_state(found.folder, step=found.manifest.step, device=device)
    return TrainingState(
        step=0,
        policy=load_policy(read_models(models).policy, device=device),
        verify_rm=load_verify_rm(verify_rm, device=device),
        policy_optimizer={},
        verify_rm_optimizer={},
        metrics=[],
        pairs=[],
    )


def _summarise(metrics: Sequence[dict[str, float]], *, first_step: int, seconds: float) -> CooperReport:
    own = [row for row in metrics if row["step"] >= first_step]
    tail = own[-max(1, len(own) // 10) :]
    return CooperReport(
        first_step=first_step,
        last_step=int(own[-1]["step"]),
        verify_rm_reward=sum(row["rollout/verify_rm_reward"] for row in tail) / len(tail),
        rule_accuracy=sum(row["rollout/rule_accuracy"] for row in tail) / len(tail),
        num_pairs=sum(int(row.get("pairs/count", 0)) for row in own),
        num_skipped_reward_updates=sum(row.get("pairs/count") == 0 for row in own),
        num_rolled_back_reward_updates=sum(row.get("gate/rolled_back", 0) > 0 for row in own),
        first_alarm_step=next((int(row["step"]) for row in own if row.get("monitor/alarm")), None),
        seconds=seconds,
    )
