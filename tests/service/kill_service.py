"""A prepared process that serves rewards in forked children and kills them at a given point.

Reads one job a line from standard input, {"state": FOLDER, "port": 8080, "kill": {...}}, forks a server, and
prints its process id; when the server has ended it prints the status, as of subprocess.Popen.returncode. Kill
points are put around functions from outside: the product has no hook for them.

    {}                                     not killed
    {"point": "score", "hit": 2}           before the second call of the function behind the name
    {"point": "after score", "hit": 2}     after it
    {"point": "torn", "hit": 2}            when half of the second line of the journal is on the disk
    {"point": "learn", "hit": 2, "seconds": 9}   not killed: the second call takes nine seconds longer

"settings" of a job are those of the server beside the common ones.
"""

import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cooper_rl.__main__ import main as command
from cooper_rl.models.verify_rm import load_verify_rm
from cooper_rl.service import http, journal
from tests.forking import prepare_for_forks
from tests.service.service_world import SETTINGS

POINTS = {
    "submit": "cooper_rl.service.run:ServedRun.submit",
    "score": "cooper_rl.service.run:RewardRun.score",
    "append": "cooper_rl.service.journal:Journal.append",
    "finish": "cooper_rl.service.run:ServedRun._finish",
    "learn": "cooper_rl.service.run:RewardRun.learn",
    "pairs": "cooper_rl.training.pairing:PairMaker.make",
    "update": "cooper_rl.training.reward_learner:update_verify_rm",
    "optimizer": "cooper_rl.training.reward_update:apply_gradients",
    "checkpoint": "cooper_rl.api.reward_run:write_state",
    "weights": "cooper_rl.api.reward_state:save_verify_rm",
    "manifest": "cooper_rl.checkpoints.store:dump_manifest",
    "store_write": "cooper_rl.storage.local:LocalStore.write",
    "store_flush": "cooper_rl.storage.local:flush",
    "compact": "cooper_rl.service.journal:Journal.compact",
    "journal_folder": "cooper_rl.machine.lines:LineFile._flush_folder",
    "open": "cooper_rl.service.run:Journal",
    "close": "cooper_rl.service.run:RewardRun.close",
}


def main() -> None:
    """Say so when everything is imported, then serve jobs until standard input ends."""
    verify_rm = sys.argv[1]
    torch.set_num_threads(1)
    # What these import is imported once, before the first fork.
    load_verify_rm(verify_rm, device=torch.device("cpu"))
    assert http
    prepare_for_forks()
    tell("ready")
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            serve(job, verify_rm)
        tell(child)
        tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def tell(value: object) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201 the protocol


def serve(job: dict[str, Any], verify_rm: str) -> None:
    """In the child; never returns."""
    log = os.open(f"{job['state']}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = 1
    try:
        install(job["kill"])
        settings = [
            word
            for setting in (f"port={job['port']}", *SETTINGS, *job["settings"])
            for word in ("--set", setting)
        ]
        arguments = ["serve", "--learn", "--verify-rm", verify_rm, "--state", job["state"], *settings]
        status = command(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def install(kill: dict[str, Any]) -> None:
    if not kill:
        return
    hits = [0]

    def is_due() -> bool:
        hits[0] += 1
        return hits[0] == kill["hit"]

    if kill["point"] == "torn":
        append = journal.Journal.append

        def tear(self: journal.Journal, entries: list[journal.Entry]) -> None:
            if is_due():
                line = journal._line(entries[0])
                path = Path(self._path)
                with path.open("ab") as file:
                    file.write(line[: len(line) // 2])
                die()
            append(self, entries)

        journal.Journal.append = tear
        return
    name = kill["point"]
    place = POINTS[name.removeprefix("after ")]
    if "seconds" in kill:
        wrap(place, is_due, is_after=False, act=lambda: time.sleep(kill["seconds"]))
        return
    wrap(place, is_due, is_after=name.startswith("after "), act=die)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def wrap(place: str, is_due: Callable[[], bool], *, is_after: bool, act: Callable[[], None]) -> None:
    module, _, path = place.partition(":")
    holder: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    function: Callable[..., Any] = getattr(holder, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        is_now = is_due()
        if is_now and not is_after:
            act()
        result = function(*arguments, **options)
        if is_now and is_after:
            act()
        return result

    setattr(holder, name, wrapped)


if __name__ == "__main__":
    main()
