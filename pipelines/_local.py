"""Runs the compiled pipeline on this machine through kfp.local, with progress for people.

Finished tasks are kept by kfp's cache below the output folder, so the same command goes on after a
failure or a kill. The cache is valid for one state of the code, the preset and the source files:
kfp itself looks at none of them. Deliberately left out: how kfp.local is driven (`_kfp_worker.py`)
and how its output is read (`_follow.py`).
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, TextIO

import yaml

from cooper_rl.config import load
from cooper_rl.progress import clock
from cooper_rl.records import read_records, read_report
from cooper_rl.schema import EvalReport, EvaluateVerifyRMReport, Interval
from pipelines._compile import compile_end_to_end
from pipelines._docker import container_options, find_image, named_run
from pipelines._follow import Follower

EXIT_STAGE_FAILED = 1


def run_local(
    preset: str,
    overrides: Sequence[str],
    *,
    iterations: int,
    output: Path,
    screen: TextIO,
    image: str | None = None,
) -> int:
    """Compile, run, and say what came out; returns the exit status.

    Stages run as processes of this Python, or in containers of `image`.

    Raises:
        ConfigError: the preset or an override is wrong, or there is no such image, found before anything
            runs.
    """
    started = time.monotonic()
    if preset.endswith(".toml"):
        preset = str(Path(preset).resolve())
    config = load(preset, overrides)
    config.storage.run_uri()
    image_id = find_image(image) if image else ""
    output = output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    pipeline = compile_end_to_end(output, iterations=iterations)
    num_tasks = len(yaml.safe_load(pipeline.read_text(encoding="utf-8"))["root"]["dag"]["tasks"])
    log = output / "log.txt"
    screen.write(f"{num_tasks} stages with preset {preset!r}; everything is written to {_shown(output)}\n")
    screen.flush()

    follower = Follower(num_tasks, screen)
    result = output / "outputs.json"
    result.unlink(missing_ok=True)
    request = {
        "pipeline": str(pipeline),
        "arguments": {"preset": preset, "overrides": list(overrides)},
        "root": str(output),
        "cache": str(output / "cache" / _fingerprint(preset, overrides, image_id=image_id)),
        "result": str(result),
        "image": image,
        "containers": None,
    }
    with ExitStack() as stack:
        if image:
            request["containers"] = container_options(
                stack.enter_context(named_run()), config, root=output, files=_input_files(preset, overrides)
            )
        log_file = stack.enter_context(log.open("w", encoding="utf-8"))
        process = stack.enter_context(_worker(request))
        assert process.stdout is not None
        for line in process.stdout:
            log_file.write(line)
            log_file.flush()
            follower.read(line)
    if not result.is_file():
        screen.write(_explain_failure(follower, log))
        return EXIT_STAGE_FAILED
    outputs = {name: Path(path) for name, path in json.loads(result.read_text(encoding="utf-8")).items()}
    seconds = time.monotonic() - started
    screen.write(_headline(outputs, output, seconds=seconds, num_cached=follower.num_cached))
    return 0


@contextmanager
def _worker(request: dict[str, Any]) -> Generator[subprocess.Popen[str]]:
    """kfp.local in a session of its own, which goes as a whole when this process is told to stop."""
    with tempfile.TemporaryDirectory(prefix="cooper-rl-") as scratch:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipelines._kfp_worker", json.dumps(request)],
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
    root = str(Path(__file__).resolve().parent.parent)
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


def _explain_failure(follower: Follower, log: Path) -> str:
    if follower.failed_task is None:
        reason = f"the run stopped outside any stage: {follower.error or 'kfp.local gave no reason'}"
    else:
        reason = f"{follower.failed_task}: {follower.error or 'the process was killed without a message'}"
    return (
        f"\nerror: {reason}\n\nfull log: {_shown(log)}\n"
        "Finished stages are kept: mend the cause and run the same command to go on from there.\n"
    )


def _headline(outputs: dict[str, Path], output: Path, *, seconds: float, num_cached: int) -> str:
    step = (outputs["checkpoint"] / "LATEST").read_text(encoding="utf-8").strip()
    page = Path(shutil.copyfile(outputs["page"], output / "report.html"))
    summary = Path(shutil.copyfile(outputs["summary"], output / "summary.md"))
    evaluations = read_records(outputs["evaluations"], EvalReport)
    verify_rm = read_report(outputs["verify_rm_report"], EvaluateVerifyRMReport).overall
    first, last = evaluations[0], evaluations[-1]
    kept = f", {num_cached} stages kept from an earlier run" if num_cached else ""
    rows = [
        (
            f"rule accuracy, step {first.step} -> {last.step}",
            _change(first.rule_accuracy, last.rule_accuracy),
        ),
        ("VerifyRM reward", _change(first.verify_rm_reward, last.verify_rm_reward)),
        (
            f"VerifyRM accuracy, {verify_rm.num_examples} examples",
            f"{_interval(verify_rm.accuracy)}  (majority {verify_rm.majority_accuracy:.3f})",
        ),
    ]
    if first.judge_accuracy is not None and last.judge_accuracy is not None:
        rows.insert(0, ("accuracy by meaning", _change(first.judge_accuracy, last.judge_accuracy)))
    width = max(len(name) for name, _ in rows)
    table = "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)
    return (
        f"\nDone in {clock(seconds)} ({seconds:.0f} s{kept}). "
        f"On {first.num_problems} held-out problems, with 95 % intervals:\n\n{table}\n"
        f"  report   {_shown(page)}\n  summary  {_shown(summary)}\n"
        f"  models   {_shown(outputs['checkpoint'] / step)}\n"
    )


def _change(before: Interval, after: Interval) -> str:
    return f"{_interval(before)} -> {_interval(after)}"


def _interval(estimate: Interval) -> str:
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _shown(path: Path) -> Path:
    """A path as short as it can be said from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
