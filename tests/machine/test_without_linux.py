"""Verify, label, score and collect where nothing is there that Linux alone has, in every process they start.

No macOS is at hand: what it lacks is taken away. The names are those that CPython's documentation calls
"Availability: Linux"; /proc and /sys cannot be opened; a limit of the address space is refused.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LINUX_ONLY = {
    "os": [
        "sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_setscheduler", "pidfd_open",
        "memfd_create", "eventfd", "eventfd_read", "eventfd_write", "splice", "copy_file_range",
        "posix_fadvise", "posix_fallocate", "getrandom", "getxattr", "setxattr", "listxattr", "removexattr",
        "setns", "unshare", "O_TMPFILE", "O_DIRECT", "O_PATH", "O_NOATIME", "pipe2", "fdatasync",
    ],
    "signal": ["pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPWR"],
    "select": ["epoll"],
    "resource": ["prlimit", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_SIGPENDING"],
    "socket": ["SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED"],
}  # fmt: skip
TAKES_AWAY = f"""
import importlib, os, resource, sys

for module, names in {LINUX_ONLY!r}.items():
    for name in names:
        vars(importlib.import_module(module)).pop(name, None)
set_limit = resource.setrlimit

def refuse_address_space(kind, limits):
    if kind == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    set_limit(kind, limits)

def refuse_files_of_linux(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(("/proc", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])

resource.setrlimit = refuse_address_space
sys.addaudithook(refuse_files_of_linux)
"""
PROGRAM = """
import json, os, sys
from pathlib import Path

assert not hasattr(os, "sched_getaffinity")
try:
    open("/proc/cpuinfo")
except FileNotFoundError:
    pass
else:
    raise AssertionError("/proc can be opened")

from cooper_rl import LabelingConfig, VerifyItem, label, verify
from cooper_rl.__main__ import main
from tests.tiny_models import random_verify_rm

found = {"verdict": verify("(x+1)^2", r"The answer is \\boxed{x^2+2x+1}.").verdict}  # by a worker
rows = [("1+1?", "2", "#### 2"), ("1+1?", "2", "#### 3")]
found["labels"] = [each.label for each in label(rows)]
found["scores"] = random_verify_rm(0).score([VerifyItem(*row) for row in rows])
words = ["--problems", "p.jsonl", "--held-out", "h.jsonl", "--rejected", "r.jsonl", "--report", "r.json"]
few = ["--set", "problems.num_tiny=6", "--set", "problems.num_held_out=2"]
found["status"] = main(["collect-problems", "--preset", "laptop", *few, *words])
found["problems"] = len(Path("p.jsonl").read_text().splitlines())
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_main_path_needs_nothing_that_linux_alone_has(tmp_path: Path) -> None:
    """The worker of the rule verifier says that its memory is not limited, and gives its verdicts."""
    (tmp_path / "sitecustomize.py").write_text(TAKES_AWAY, encoding="utf-8")
    places = [str(tmp_path), str(ROOT / "src"), str(ROOT)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert all(0 < score < 1 for score in found.pop("scores"))
    # Of the six problems two are held out.
    assert found == {"verdict": "correct", "labels": [1, 0], "status": 0, "problems": 4}
    assert "memory is not limited to" in done.stderr
