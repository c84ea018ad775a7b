"""`make torture`: random faults against small runs for as long as told; prints what came of each.

A life is a run of three steps that meets up to three faults, each followed by another start; the last start
meets none. Then numbers, weights, pairs and rollouts must be those of the run that nobody disturbed. Where
somebody else damaged files, an error that names one is as good. Lives alternate between a folder and an
object store behind a proxy (Ceph's gateway, or moto where that is not installed). It ends with status 1 if
a life ended otherwise, and leaves its folder.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import CooperError
from tests.faults.conftest import Outcome, Trainer, outcome, run_straight, start_trainer
from tests.faults.test_store_faults import environment, overrides
from tests.stand_ins.fixtures import Moto, make_client, storage_config
from tests.stand_ins.proxy import Proxy, http_answer
from tests.stand_ins.radosgw import Gateway, run_gateway, why_missing

MAX_FAULTS = 3
EXACT, NAMED, WRONG = "the same", "refused with the place", "DIFFERENT"


class World(NamedTuple):
    """What lives happen in."""

    trainer: Trainer
    straight: Outcome
    num_calls: int
    server: Gateway | Moto
    folder: Path


def main() -> int:
    """Torture until the time is over; 1 if any life ended as none may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    with start_trainer(folder) as trainer, start_server(folder) as server:
        straight = run_straight(trainer, folder / "straight")
        assert trainer.calls is not None
        world = World(trainer, straight, trainer.calls, server, folder)
        results = live(world, seconds=60 * options.minutes, seed=options.seed)
    show(results)
    if any(result == WRONG for _, result in results):
        sys.stdout.write(f"what was different is in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def live(world: World, *, seconds: float, seed: int) -> Counter[tuple[str, str]]:
    """Life after life; counts (fault, how its life ended)."""
    results: Counter[tuple[str, str]] = Counter()
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rng = random.Random(f"{seed}:{number}")
        place = world.folder / f"life-{number}"
        faults, result = (live_on_a_store if number % 2 else live_in_a_folder)(world, place, rng)
        for fault in faults:
            results[fault, result] += 1
        sys.stdout.write(f"life {number}: {', '.join(faults)}: {result}\n")
        sys.stdout.flush()
        if result != WRONG:
            shutil.rmtree(place, ignore_errors=True)
        number += 1
    return results


def live_in_a_folder(world: World, place: Path, rng: random.Random) -> tuple[list[str], str]:
    chosen = rng.choices(list(FOLDER_FAULTS), k=rng.randint(1, MAX_FAULTS))
    checkpoint = place / "checkpoint"
    place.mkdir()
    for name in chosen:
        if name in END:
            start(world, checkpoint, kill=random_end(world, name, rng))
        else:
            start(world, checkpoint, kill=random_end(world, "kill", rng))  # so that something is left to do
            FOLDER_FAULTS[name](checkpoint, rng)
    status = start(world, checkpoint)
    is_damaged = not set(chosen) <= END
    return chosen, judge(world, checkpoint, StorageConfig(), status, is_damaged=is_damaged)


def live_on_a_store(world: World, place: Path, rng: random.Random) -> tuple[list[str], str]:
    chosen = rng.choices([*STORE_FAULTS, *sorted(END)], k=rng.randint(1, MAX_FAULTS))
    bucket = f"torture-{uuid.uuid4()}"
    make_client(world.server.port, world.server.account).make_bucket(bucket)
    os.environ |= environment(world.server.account)
    place.mkdir()
    with Proxy(world.server.port) as proxy:
        config = storage_config(proxy.endpoint, bucket, retry_seconds=2)
        for name in chosen:
            end = random_end(world, name, rng) if name in END else {}
            timer = threading.Timer(rng.uniform(0, 3), lambda n=name: STORE_FAULTS.get(n, ignore)(proxy, rng))
            timer.start()
            start(world, place / f"machine-{rng.randrange(2)}", *overrides(config), kill=end)
            timer.cancel()
            timer.join()
            proxy.refuse, proxy.answers, proxy.cut_after, proxy.cut_answer_after = False, [], [], []
        status = start(world, place / "last", *overrides(config))
        return chosen, judge(world, place / "last", config, status, is_damaged=False)


def start(world: World, checkpoint: Path, *options: str, kill: dict[str, int] | None = None) -> int:
    job = {"is_strict": False, "environment": environment(world.server.account)}
    return world.trainer.run(checkpoint, *options, kill=kill or {}, **job)


def judge(world: World, checkpoint: Path, config: StorageConfig, status: int, *, is_damaged: bool) -> str:
    """How a life ended."""
    named = NAMED if is_damaged else WRONG
    if status == 2:
        return named
    if status != 0:
        return WRONG
    try:
        return EXACT if outcome(checkpoint, config) == world.straight else WRONG
    except CooperError:
        return named


def random_end(world: World, name: str, rng: random.Random) -> dict[str, int]:
    number = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}[name]
    return {"call": rng.randrange(1, world.num_calls), "signal": int(number)}


def flip_a_byte(checkpoint: Path, rng: random.Random) -> None:
    for path in some_file(checkpoint, rng):
        content = bytearray(path.read_bytes())
        if content:
            content[rng.randrange(len(content))] ^= 1
            path.unlink()  # published files may share their bytes with a draft
            path.write_bytes(content)


def cut_a_file(checkpoint: Path, rng: random.Random) -> None:
    for path in some_file(checkpoint, rng):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content[: len(content) // 2])


def remove_a_file(checkpoint: Path, rng: random.Random) -> None:
    for path in some_file(checkpoint, rng):
        path.unlink()


def remove_the_pointer(checkpoint: Path, rng: random.Random) -> None:
    (checkpoint / "LATEST").unlink(missing_ok=True)


def some_file(checkpoint: Path, rng: random.Random) -> list[Path]:
    """One file of the checkpoints or the log; none where there is none yet."""
    found = sorted(path for path in checkpoint.glob("[sl]*/**/*") if path.is_file())
    return [rng.choice(found)] if found else []


def refuse(proxy: Proxy, rng: random.Random) -> None:
    """Down for longer or shorter than the run tries again."""
    proxy.refuse = True
    threading.Timer(rng.choice([0.5, 5.0]), lambda: setattr(proxy, "refuse", False)).start()


def overload(proxy: Proxy, rng: random.Random) -> None:
    proxy.answers = [http_answer("503 Slow Down")] * rng.randint(1, 6)


def cut_requests(proxy: Proxy, rng: random.Random) -> None:
    proxy.cut_after = [rng.randrange(100_000) for _ in range(rng.randint(1, 4))]


def cut_answers(proxy: Proxy, rng: random.Random) -> None:
    proxy.cut_answer_after = [rng.randrange(2_000) for _ in range(rng.randint(1, 4))]


def ignore(proxy: Proxy, rng: random.Random) -> None:
    """The fault is the end of the process."""


END = {"kill", "stop"}
FOLDER_FAULTS: dict[str, Callable[[Path, random.Random], None]] = {
    **dict.fromkeys(sorted(END), lambda checkpoint, rng: None),
    "byte flipped": flip_a_byte,
    "file cut short": cut_a_file,
    "file removed": remove_a_file,
    "LATEST removed": remove_the_pointer,
}
STORE_FAULTS: dict[str, Callable[[Proxy, random.Random], None]] = {
    "store down": refuse,
    "store overloaded": overload,
    "requests cut": cut_requests,
    "answers cut": cut_answers,
}


@contextmanager
def start_server(folder: Path) -> Generator[Gateway | Moto]:
    if why_missing() is None:
        with run_gateway(folder / "gateway") as running:
            yield running
        return
    moto = Moto()
    try:
        yield moto
    finally:
        moto.process.kill()
        moto.process.wait()


def show(results: Counter[tuple[str, str]]) -> None:
    """One line for every fault: the lives that met it, by how they ended."""
    kinds = (EXACT, NAMED, WRONG)
    lines = [f"| fault | times | {' | '.join(kinds)} |", "|---|---|---|---|---|"]
    for fault in (*FOLDER_FAULTS, *STORE_FAULTS):
        counts = [results[fault, kind] for kind in kinds]
        lines.append(f"| {fault} | {sum(counts)} | {' | '.join(map(str, counts))} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
