"""Ctrl-C in a program of its own."""

import os
import signal
import subprocess
import sys
import time


def status_after_ctrl_c(code: str, *arguments: str, pause_seconds: float, timeout_seconds: float) -> int:
    """The exit status of a program that is interrupted some seconds after it printed `asked`."""
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        time.sleep(pause_seconds)
        os.kill(process.pid, signal.SIGINT)
        try:
            return process.wait(timeout_seconds)
        finally:
            process.kill()
