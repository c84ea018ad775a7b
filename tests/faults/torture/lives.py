"""One life: a run of three steps that meets up to three faults, each followed by another start.

The last start meets none. Then numbers, weights, pairs and rollouts must be those of the run that nobody
disturbed. Where somebody else damaged files, an error that names one of them is as good.
"""

import os
import random
import re
import signal
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cooper_rl.checkpoints.manifest import LATEST, NAME
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import CooperError
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.open import open_store
from tests.faults.conftest import Outcome, Trainer, outcome, run_straight
from tests.faults.test_store_faults import environment, overrides
from tests.faults.torture.harm import DAMAGE, END, STORE_FAULTS, draw
from tests.stand_ins.fixtures import Moto, make_client, storage_config
from tests.stand_ins.proxy import Proxy
from tests.stand_ins.radosgw import Gateway

MAX_FAULTS = 3
NUM_STEPS = 3
EXACT, NAMED, WRONG = "the same", "refused with the place", "DIFFERENT"


class World(NamedTuple):
    """What lives happen in."""

    trainer: Trainer
    straight: Outcome
    calls_left: Sequence[int]
    """Python calls that a start makes, by the number of steps that were done before it."""
    server: Gateway | Moto
    folder: Path


class Met(NamedTuple):
    """A fault of a life."""

    fault: str
    is_delivered: bool
    """Not where the run had ended before, or there was nothing to damage."""


class Life(NamedTuple):
    """A life and how it ended."""

    faults: list[Met]
    result: str


class Start(NamedTuple):
    """One start of the run."""

    status: int
    said: str

    @property
    def error(self) -> str:
        """The last one that was shown; its class and its message."""
        return re.split(r"^(?=cooper_rl\.errors\.|\w+Error\b)", self.said, flags=re.MULTILINE)[-1]


def make_world(trainer: Trainer, server: Gateway | Moto, folder: Path) -> World:
    """The run that nobody disturbs, and how long the rest of it is after each of its steps."""
    straight = run_straight(trainer, folder / "straight")
    assert trainer.calls is not None
    calls = [trainer.calls]
    for step in range(1, NUM_STEPS):
        place = folder / f"rest-{step}"
        assert trainer.run(place, kill={"point": "after tidy", "hit": step}) == -signal.SIGKILL
        assert trainer.run(place, kill={"count": True}) == 0, trainer.log()
        calls.append(trainer.calls)
    return World(trainer, straight, [*calls, min(calls)], server, folder)


def live_in_a_folder(world: World, place: Path, rng: random.Random) -> Life:
    """Faults of the process and of the files."""
    checkpoint, store = place / "checkpoint", LocalStore(place / "checkpoint")
    place.mkdir()
    met: list[Met] = []
    damaged: list[str] = []
    for fault in draw(dict(DAMAGE), rng, most=MAX_FAULTS):
        # Before damage too, so that something is left to do; late, so that there is something to damage.
        end = fault if fault in END else "kill"
        begun = start(world, checkpoint, kill=random_end(world, end, store, rng, is_late=fault in DAMAGE))
        if not is_allowed(begun, end, damaged):
            return Life([*met, Met(fault, is_ended(begun, end))], WRONG)
        harmed = DAMAGE[fault](checkpoint, rng) if fault in DAMAGE else None
        damaged += places(harmed, checkpoint) if harmed else []
        if fault not in END:
            met.append(Met("kill", is_ended(begun, end)))
        met.append(Met(fault, is_ended(begun, end) if fault in END else harmed is not None))
    return Life(met, judge(world, checkpoint, StorageConfig(), start(world, checkpoint), damaged=damaged))


def live_on_a_store(world: World, place: Path, rng: random.Random) -> Life:
    """Faults of the process and of the store; starts are on one of two machines."""
    bucket = f"torture-{uuid.uuid4()}"
    make_client(world.server.port, world.server.account).make_bucket(bucket)
    os.environ |= environment(world.server.account)
    place.mkdir()
    met: list[Met] = []
    with Proxy(world.server.port) as proxy:
        config = storage_config(proxy.endpoint, bucket, retry_seconds=2)
        direct = open_store(storage_config(world.server.endpoint, bucket), f"{config.run_uri()}/from-000001")
        for fault in draw(dict(STORE_FAULTS), rng, most=MAX_FAULTS):
            end = random_end(world, fault, direct, rng) if fault in END else {}
            happened = threading.Event()
            timer = threading.Timer(rng.uniform(0, 2), happen, (fault, proxy, rng, happened))
            timer.start()
            begun = start(world, place / f"machine-{rng.randrange(2)}", *overrides(config), kill=end)
            timer.cancel()
            timer.join()
            proxy.refuse, proxy.answers, proxy.cut_after, proxy.cut_answer_after = False, [], [], []
            met.append(Met(fault, is_ended(begun, fault) if fault in END else happened.is_set()))
            # A store that is down for too long ends a start with an error; no fault ends one in another way.
            if not is_allowed(begun, fault, damaged=["/"] if fault in STORE_FAULTS else []):
                return Life(met, WRONG)
        last = start(world, place / "last", *overrides(config))
        return Life(met, judge(world, place / "last", config, last, damaged=[]))


def happen(fault: str, proxy: Proxy, rng: random.Random, happened: threading.Event) -> None:
    """A fault of the store while a run uses it."""
    if fault in STORE_FAULTS:
        STORE_FAULTS[fault](proxy, rng)
        happened.set()


def start(world: World, checkpoint: Path, *options: str, kill: dict[str, int] | None = None) -> Start:
    """Start the run, and wait for its end."""
    before = len(world.trainer.log())
    job = {"is_strict": False, "environment": environment(world.server.account)}
    status = world.trainer.run(checkpoint, *options, kill=kill or {}, **job)
    return Start(status, world.trainer.log()[before:])


def random_end(
    world: World, end: str, store: ObjectStore, rng: random.Random, *, is_late: bool = False
) -> dict[str, int]:
    """A signal at any call of those that are left of the run, or of their second half."""
    calls = world.calls_left[steps_done(store)]
    first = calls // 2 if is_late else 1
    return {"call": rng.randrange(first, calls), "signal": int(signal.Signals[END[end]])}


def steps_done(store: ObjectStore) -> int:
    pointer = store.read(LATEST)
    name = NAME.fullmatch(pointer.name) if pointer else None
    return int(name[1]) if name else 0


def is_ended(begun: Start, fault: str) -> bool:
    """Whether the signal came before the end of the run."""
    if fault == "kill":
        return begun.status == -signal.SIGKILL
    return begun.status == -signal.SIGTERM or (begun.status != 0 and "SIGTERM" in begun.error)


def is_allowed(begun: Start, fault: str, damaged: list[str]) -> bool:
    """Whether a start that met a fault ended as it may; never with an error that names nothing."""
    if begun.status == 2:
        return is_named(begun.error, damaged) or (fault == "stop" and is_ended(begun, fault))
    return begun.status == 0 or is_ended(begun, fault)


def judge(world: World, checkpoint: Path, config: StorageConfig, last: Start, *, damaged: list[str]) -> str:
    """How a life ended."""
    if last.status == 2 and is_named(last.error, damaged):
        return NAMED
    if last.status != 0:
        return WRONG
    try:
        return EXACT if outcome(checkpoint, config) == world.straight else WRONG
    except CooperError as error:
        return NAMED if is_named(str(error), damaged) else WRONG


def places(harmed: Path, checkpoint: Path) -> list[str]:
    """How an error may name a damaged file: by itself, or by the checkpoint that it makes useless."""
    relative = harmed.relative_to(checkpoint)
    return [str(relative), *(part for part in relative.parts[:1] if NAME.fullmatch(part))]


def is_named(error: str, damaged: list[str]) -> bool:
    """Whether an error names one of these places."""
    return any(place in error for place in damaged)
