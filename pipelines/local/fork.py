"""Runs a stage as a fork of a process that has already imported what stages import.

kfp's SubprocessRunner starts a Python for every task. torch and transformers then take 3.5 seconds of each of
the demo's 18 tasks. The process that is forked (Python's fork server) imports and does nothing else: it has
no thread, and has computed nothing that a fork could not share.
"""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import ModuleType

from kfp.local import subprocess_task_handler

from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.stages import STAGES

IMPORTED = (
    "kfp.dsl.executor_main",
    "transformers.models.qwen2.modeling_qwen2",
    *(f"cooper_rl.stages.{stage}" for stage in STAGES),
)
GPU_DEVICES = ("nvidia[0-9]*", "kfd", "dxg")
"""Devices in /dev: NVIDIA's, AMD's, Windows'."""

SOCKET = "listener-abcdefgh"
"""As Python names the fork server's socket."""
MAX_SOCKET_BYTES = 103
"""Of a socket's path on macOS; Linux takes 107."""

_CONTEXT = multiprocessing.get_context("forkserver")


def has_gpu(devices: Path = Path("/dev")) -> bool:
    """True if the system shows a GPU; torch, which would know, takes seconds to ask."""
    return any(any(devices.glob(name)) for name in GPU_DEVICES)


def can_fork() -> bool:
    """True if the path of the fork server's socket is short enough for the system."""
    return len(os.fsencode(f"{get_temp_dir()}/{SOCKET}")) <= MAX_SOCKET_BYTES


def fork_stages() -> None:
    """Have kfp's SubprocessRunner fork stages, in this process from now on; CUDA forbids it."""
    _CONTEXT.set_forkserver_preload(list(IMPORTED))
    subprocess_task_handler.run_local_subprocess = run_fork


def run_fork(full_command: Sequence[str], env_vars: Mapping[str, str] | None = None) -> int:
    """Run what kfp compiled for a stage, and print what it prints; returns its exit status.

    Args:
        full_command: sh, its options, a script, the component's source, the executor's arguments.
        env_vars: For the stage, beside this process's.
    """
    _, _, _, source, *arguments = full_command
    output, its_output = _CONTEXT.Pipe(duplex=False)
    with scratch_folder() as scratch:
        program = scratch / "ephemeral_component.py"
        program.write_text(source, encoding="utf-8")
        arguments += ["--component_module_path", str(program)]
        stage = _CONTEXT.Process(target=_execute, args=(arguments, dict(env_vars or {}), its_output))
        stage.start()
        its_output.close()
        with os.fdopen(os.dup(output.fileno()), encoding="utf-8", errors="replace") as lines:
            output.close()
            for line in lines:  # the last one of a stage that was killed may have no end
                sys.stdout.write(line.removesuffix("\n") + "\n")
        stage.join()
    assert stage.exitcode is not None
    return stage.exitcode


def _execute(arguments: Sequence[str], variables: Mapping[str, str], output: Connection) -> None:
    """The forked process: what kfp's script does, without a shell and a Python of its own."""
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output.fileno(), stream.fileno())
    output.close()
    os.environ.update(variables, _KFP_RUNTIME="true")
    _name_process(arguments[arguments.index("--function_to_execute") + 1])
    # Processes that a stage starts import its main module, which is not the one of this process's parent.
    sys.modules["__main__"] = sys.modules["__mp_main__"] = ModuleType("__main__")
    sys.argv = ["executor_main", *arguments]
    from kfp.dsl.executor_main import executor_main

    try:
        executor_main()
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def _name_process(name: str) -> None:
    """Set the name that `top` and `ps` show; up to 15 bytes."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)
