"""Runs a compiled pipeline on this machine through kfp.local, with progress for people.

The same command goes on after a failure or a kill: in the same run folder, where co-training finds its
checkpoints, and with every finished task kept by kfp's cache. Run and cache are valid for one state of the
code, the preset and the source files: kfp itself looks at none of them. `pipelines/local/worker.py` drives
kfp.local, `pipelines/local/follow.py` reads its output.
"""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from cooper_rl.errors import DataError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.progress import clock
from pipelines.compile import (
    WITH_REGISTRY,
    check_parameters,
    check_settings,
    compile_pipeline,
    count_tasks,
    read_compiled,
)
from pipelines.local.docker import container_options, find_image, remove_containers, removed_at_the_end
from pipelines.local.folder import (
    TOKEN,
    Lease,
    RunRecord,
    end_processes,
    leased,
    note_run,
    open_run,
    started_at,
    unfinished_run,
)
from pipelines.local.follow import Follower
from pipelines.local.headline import PAGE, SUMMARY, copy_summary, headline, shown
from pipelines.local.inputs import find_artifacts, fingerprint, input_files
from pipelines.local.redacted import redactor
from pipelines.options import check_text
from pipelines.profile import Profile

EXIT_STAGE_FAILED = 1
LOG = "log.txt"
_STOPS = (signal.SIGTERM, signal.SIGHUP)


def run_local(
    name: str,
    preset: str,
    overrides: Sequence[str],
    *,
    parameters: Mapping[str, str],
    profile: Profile,
    iterations: int,
    output: Path,
    screen: TextIO,
    image: str | None = None,
    tasks_at_once: int | None = None,
) -> int:
    """Compile, run, and say what came out; returns the exit status.

    Args:
        name: Of the pipeline.
        preset: A preset's name or the path of a .toml file.
        overrides: Changes to it.
        parameters: The pipeline's other parameters.
        profile: What it is compiled for.
        iterations: Of co-training.
        output: Folder for everything that the run writes.
        screen: Where people look.
        image: Stages run in containers of it; None: as processes of this Python.
        tasks_at_once: Tasks that do not need each other; None: one for each core, one in all with a GPU.

    Raises:
        ConfigError: preset, override or parameter is wrong, there is no such image, or another process uses
            the folder, or it holds files of others; found before anything runs.
        DataError: the log cannot be written.
    """
    started = time.monotonic()
    if preset.endswith(".toml"):
        preset = str(Path(preset).resolve())
    changes = [*profile.overrides, *overrides]
    config = check_settings(name, preset, overrides, parameters, profile=profile)
    image_id = find_image(image) if image else ""
    artifacts = find_artifacts(parameters, is_inside_image=bool(image))
    parameters = {**parameters, **{name: str(path) for name, path in artifacts.items()}}
    output = output.resolve()
    check_text(str(output), place="--output")  # the folder of the command may be named otherwise too
    written = (LOG, PAGE, SUMMARY, f"{name}.yaml")
    with leased(output, names=written, has_containers=bool(image)) as lease:
        _end_leftovers(lease, screen)
        pipeline = compile_pipeline(name, output, profile=profile, iterations=iterations)
        specification = read_compiled(pipeline)
        arguments = check_parameters(
            specification, {"preset": preset, "overrides": list(overrides), **parameters}, name=name
        )
        state = fingerprint(preset, changes, image_id=image_id, artifacts=[*artifacts.values()])
        key = hashlib.sha256(json.dumps([pipeline.read_text(), arguments, state]).encode()).hexdigest()[:16]
        run, record = open_run(
            output, specification["pipelineInfo"]["name"], key, repeats=name in WITH_REGISTRY
        )
        follower = Follower(count_tasks(specification), screen)
        left = unfinished_run(output, specification["pipelineInfo"]["name"])
        _announce(follower, run, record, left=left, preset=preset, screen=screen)
        note_run(run, RunRecord(key=key))
        log = output / LOG
        request = {
            "pipeline": str(pipeline),
            "arguments": arguments,
            "root": str(output),
            "run": run.name,
            "cache": str(output / "cache" / state),
            "image": image,
            "containers": None,
            "forks": image is None,
            "tasks_at_once": tasks_at_once,
        }
        with ExitStack() as stack:
            if image:
                files = [*input_files(preset, changes), *artifacts.values()]
                stack.enter_context(removed_at_the_end(lease.token))
                request["containers"] = container_options(lease.token, config, root=output, files=files)
            returncode = _follow_worker(request, log, follower, token=lease.token)
        if returncode != 0:
            screen.write(_explain_failure(follower, log))
            screen.flush()
            copy_summary(run, output)
            return EXIT_STAGE_FAILED
        note_run(run, RunRecord(key=key, is_finished=True))
        seconds = time.monotonic() - started
        kept = f", {follower.num_cached} stages kept from an earlier start" if follower.num_cached else ""
        screen.write(f"\nDone in {clock(seconds)} ({seconds:.0f} s{kept}). {headline(run, output)}")
    return 0


def _end_leftovers(lease: Lease, screen: TextIO) -> None:
    """End what a start that was killed has left running, and say so."""
    if lease.before is None:
        return
    ended = [f"process {pid}" for pid in end_processes(lease.before)]
    if lease.before.has_containers:
        ended += [f"container {name}" for name in remove_containers(lease.before.token)]
    if ended:
        screen.write(f"ended {', '.join(ended)}: left by process {lease.before.pid}, which was killed\n")


def _announce(
    follower: Follower,
    run: Path,
    record: RunRecord | None,
    *,
    left: Path | None,
    preset: str,
    screen: TextIO,
) -> None:
    """Announce the work of this start."""
    screen.write(
        f"{follower.num_tasks} stages with preset {preset!r}; everything is written to {shown(run.parent)}\n"
    )
    if record is not None and record.is_finished:
        screen.write(f"the run of {started_at(run)} has finished; its stages are kept\n")
    elif record is not None:
        screen.write(f"the run of {started_at(run)} did not finish; it goes on where it ended\n")
    elif left is not None:
        screen.write(
            f"a new run: the one of {started_at(left)} did not finish, and had other settings, source files "
            "or code\n"
        )
    screen.flush()


def _follow_worker(request: dict[str, Any], log: Path, follower: Follower, *, token: str) -> int:
    """Run to the end; returns the exit status of kfp.local's process."""
    try:
        with log.open("w", encoding="utf-8") as log_file, _worker(request, token) as process:
            assert isinstance(process.stdout, io.TextIOWrapper)
            process.stdout.reconfigure(newline="\n")  # a carriage return in a line of a stage begins no other
            for line in map(redactor(request["arguments"]), process.stdout):
                log_file.write(line)
                log_file.flush()
                follower.read(line)
    except OSError as error:
        raise DataError(
            f"{log}: cannot be written ({error}); free space and run the same command again: finished stages "
            "are kept"
        ) from error
    return process.returncode


@contextmanager
def _worker(request: dict[str, Any], token: str) -> Generator[subprocess.Popen[str]]:
    """kfp.local in a session of its own, which goes as a whole when this process is told to stop.

    Killed, this process can do nothing: then the worker finds its standard input closed, and ends.
    """
    with scratch_folder() as scratch:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.local.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            # kfp leaves a temporary folder for each task; here they go with the run.
            env={
                **os.environ,
                TOKEN: token,
                "TMPDIR": str(scratch),
                "PYTHONUNBUFFERED": "1",
                "PYTHONPATH": _python_path(),
            },
        )
        assert process.stdin is not None
        # Of a closed terminal, unless it is to be ignored (nohup).
        stops = [number for number in _STOPS if signal.getsignal(number) != signal.SIG_IGN]
        before = [signal.signal(number, _stop) for number in stops]
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            yield process
            process.wait()
        finally:
            for number, handler in zip(stops, before, strict=True):
                signal.signal(number, handler)
            _end_session(process)
            process.stdin.close()


def _python_path() -> str:
    """The repository root, where `pipelines` lies, before what the caller had."""
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _end_session(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _explain_failure(follower: Follower, log: Path) -> str:
    if follower.failed_task is None:
        reason = f"the run stopped outside any stage: {follower.error or 'kfp.local gave no reason'}"
    else:
        reason = f"{follower.failed_task}: {follower.error or 'the process was killed without a message'}"
    return (
        f"\nerror: {reason}\n\nfull log: {shown(log)}\n"
        "Finished stages are kept: mend the cause and run the same command to go on from there.\n"
    )
