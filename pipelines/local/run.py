"""Runs a compiled pipeline on this machine through kfp.local, with progress for people.

Finished tasks are kept by kfp's cache below the output folder, so the same command goes on after a
failure or a kill. The cache is valid for one state of the code, the preset and the source files:
kfp itself looks at none of them. Deliberately left out: how kfp.local is driven (`pipelines/local/worker.py`)
and how its output is read (`pipelines/local/follow.py`).
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, TextIO

from cooper_rl.config.load import load
from cooper_rl.progress import clock
from pipelines.compile import (
    check_parameters,
    check_settings,
    compile_pipeline,
    count_tasks,
    read_compiled,
)
from pipelines.local.docker import container_options, find_image, named_run
from pipelines.local.follow import Follower
from pipelines.local.headline import copy_summary, headline, newest_run, shown
from pipelines.profile import Profile

EXIT_STAGE_FAILED = 1


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

    Raises:
        ConfigError: preset, override or parameter is wrong, or there is no such image, found before anything
            runs.
    """
    started = time.monotonic()
    if preset.endswith(".toml"):
        preset = str(Path(preset).resolve())
    changes = [*profile.overrides, *overrides]
    config = check_settings(name, preset, changes, parameters)
    image_id = find_image(image) if image else ""
    output = output.resolve()
    pipeline = compile_pipeline(name, output, profile=profile, iterations=iterations)
    specification = read_compiled(pipeline)
    arguments = check_parameters(
        specification, {"preset": preset, "overrides": list(overrides), **parameters}, name=name
    )
    num_tasks = count_tasks(specification)
    log = output / "log.txt"
    screen.write(f"{num_tasks} stages with preset {preset!r}; everything is written to {shown(output)}\n")
    screen.flush()

    follower = Follower(num_tasks, screen)
    request = {
        "pipeline": str(pipeline),
        "arguments": arguments,
        "root": str(output),
        "cache": str(output / "cache" / _fingerprint(preset, changes, image_id=image_id)),
        "image": image,
        "containers": None,
    }
    with ExitStack() as stack:
        if image:
            files = [*_input_files(preset, changes), *_named_paths(parameters)]
            request["containers"] = container_options(
                stack.enter_context(named_run()), config, root=output, files=files
            )
        returncode = _follow_worker(request, log, follower)
    run = newest_run(output, specification["pipelineInfo"]["name"])
    if returncode != 0 or run is None:
        if run is not None:
            copy_summary(run, output)
        screen.write(_explain_failure(follower, log))
        return EXIT_STAGE_FAILED
    seconds = time.monotonic() - started
    kept = f", {follower.num_cached} stages kept from an earlier run" if follower.num_cached else ""
    screen.write(f"\nDone in {clock(seconds)} ({seconds:.0f} s{kept}). {headline(run, output)}")
    return 0


def _follow_worker(request: dict[str, Any], log: Path, follower: Follower) -> int:
    """Run to the end; returns the exit status of kfp.local's process."""
    with log.open("w", encoding="utf-8") as log_file, _worker(request) as process:
        assert process.stdout is not None
        for line in process.stdout:
            log_file.write(line)
            log_file.flush()
            follower.read(line)
    return process.returncode


@contextmanager
def _worker(request: dict[str, Any]) -> Generator[subprocess.Popen[str]]:
    """kfp.local in a session of its own, which goes as a whole when this process is told to stop."""
    with tempfile.TemporaryDirectory(prefix="cooper-rl-") as scratch:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.local.worker", json.dumps(request)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            # kfp leaves a temporary folder for each task; here they go with the run.
            env={**os.environ, "TMPDIR": scratch, "PYTHONUNBUFFERED": "1", "PYTHONPATH": _python_path()},
        )
        before = signal.signal(signal.SIGTERM, _stop)
        try:
            yield process
            process.wait()
        finally:
            signal.signal(signal.SIGTERM, before)
            _end_session(process)


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


def _fingerprint(preset: str, overrides: Sequence[str], *, image_id: str) -> str:
    """Names the state of everything that kfp's own cache key leaves out."""
    digest = hashlib.sha256(image_id.encode())
    package = Path(str(resources.files("cooper_rl")))
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.toml"), *package.rglob("*.jinja")]):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    for path in _input_files(preset, overrides):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _input_files(preset: str, overrides: Sequence[str]) -> list[Path]:
    """Files of this machine that the configuration names."""
    problems = load(preset, overrides).problems
    named = [preset] if preset.endswith(".toml") else []
    named += [*problems.sources, *problems.held_out_sources]
    return [Path(name).resolve() for name in dict.fromkeys(named) if Path(name).is_file()]


def _named_paths(parameters: Mapping[str, str]) -> list[Path]:
    """Artifacts of earlier runs on this machine that a pipeline's parameters name."""
    return [Path(text) for text in parameters.values() if Path(text).is_absolute() and Path(text).exists()]


def _explain_failure(follower: Follower, log: Path) -> str:
    if follower.failed_task is None:
        reason = f"the run stopped outside any stage: {follower.error or 'kfp.local gave no reason'}"
    else:
        reason = f"{follower.failed_task}: {follower.error or 'the process was killed without a message'}"
    return (
        f"\nerror: {reason}\n\nfull log: {shown(log)}\n"
        "Finished stages are kept: mend the cause and run the same command to go on from there.\n"
    )
