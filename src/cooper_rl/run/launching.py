"""Co-training as a TrainJob: its inputs into the store and out of it again, on whichever node it works.

Files lie below `<storage.uri>/<run_key>/inputs` under their hashes, so that a second start sends nothing.
Checkpoints come back, found in the store like those of any other start. `cluster/launch.py` runs the job.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from cooper_rl.checkpoints.reading import Found
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.cluster import launch
from cooper_rl.cluster.trainjob import MOUNT, Program
from cooper_rl.config.infrastructure import LaunchConfig
from cooper_rl.config.root import Config
from cooper_rl.distributed.open import check_processes
from cooper_rl.errors import LaunchError
from cooper_rl.run.stopping import StopRequest
from cooper_rl.schema.data import Record
from cooper_rl.storage.base import ObjectStore, check_key, content_sha256, files_below
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)

IN_JOB = "cooper_rl.cli.in_job"


class StagedInputs(Record):
    """A stage's input files in a store."""

    uri: str
    """The address of the files, each under its hash."""
    paths: dict[str, str]
    """Argument of the stage -> relative path of its file or folder."""
    sha256: dict[str, str]
    """Relative path of every file -> its hash."""


def train_in_job(
    config: Config,
    inputs: Mapping[str, Path | None],
    *,
    checkpoints: CheckpointStore,
    folder: Path,
    last_step: int,
    stop: StopRequest,
) -> Found:
    """Run `train_cooper` with these inputs as a TrainJob; returns its last checkpoint's small files.

    Raises:
        ConfigError: several processes without `distributed.zero_stage`, or the SDK is not installed.
        LaunchError: the job cannot be started or followed, failed, or left no checkpoint of `last_step`.
        StorageError: inputs cannot be stored.
        StoppedError: SIGTERM.
    """
    options, storage = config.launch, config.storage
    num_processes = options.nodes * options.processes_per_node
    check_processes(num_processes, config.distributed, place="launch.nodes x launch.gpus_per_node")
    run_uri = storage.run_uri() or ""
    staged = stage_inputs(open_store(storage, f"{run_uri}/inputs"), inputs)
    credentials = Path(MOUNT) / (options.storage_secret or "")
    there = config.model_copy(
        update={
            # The default trains in the process: with the run's own section the job would start a job.
            "launch": LaunchConfig(),
            "storage": storage.model_copy(update={"credentials": credentials}),
        }
    )
    arguments = [there.model_dump_json(exclude_unset=True), staged.model_dump_json()]
    # The exit task knows of no arm, and ends the jobs of all.
    program = Program(IN_JOB, arguments, storage.grace_seconds, storage.without_arm().run_uri() or "")
    launch.run(options, program, is_stopped=lambda: stop.is_made)
    found = checkpoints.newest(folder, last_step=last_step)
    if found is None or found.manifest.step < last_step:
        raise LaunchError(
            f"{checkpoints.uri}: the TrainJob is complete, but there is no checkpoint of step {last_step}; "
            f"does launch.image={options.image} hold this version of Cooper-RL?"
        )
    return found


def stage_inputs(store: ObjectStore, inputs: Mapping[str, Path | None]) -> StagedInputs:
    """Store what is not there yet; returns where everything is."""
    paths: dict[str, str] = {}
    sources: dict[str, Path] = {}
    for name, path in inputs.items():
        if path is None:
            continue
        if path.is_dir():
            paths[name] = name
            sources |= {f"{name}/{file}": path / file for file in files_below(path)}
        else:
            paths[name] = f"{name}/{path.name}"
            sources[paths[name]] = path
    sha256 = {check_key(key): content_sha256(path) for key, path in sources.items()}
    present = set(store.keys(""))
    for key, path in sources.items():
        if sha256[key] not in present:
            store.put_file(sha256[key], path, sha256=sha256[key])
            present.add(sha256[key])
    logger.info("%d input files are in %s", len(sources), store.uri)
    return StagedInputs(uri=store.uri, paths=paths, sha256=sha256)


def fetch_inputs(store: ObjectStore, staged: StagedInputs, folder: Path) -> dict[str, Path]:
    """Fetch and verify every file; returns the stage's arguments.

    Raises:
        StorageError: a path leads out of the folder, or the store cannot be used.
        DamagedObjectError: a file is missing or changed.
    """
    for key, sha256 in staged.sha256.items():
        store.get_file(sha256, folder / check_key(key), sha256=sha256)
    return {name: folder / check_key(key) for name, key in staged.paths.items()}
