"""`make torture`: random faults against small runs for as long as told; prints what came of each.

Lives (`lives.py`) alternate between a folder and an object store behind a proxy (Ceph's gateway, or moto
where that is not installed). It ends with status 1 if a life ended otherwise than one may; its folder stays.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.conftest import start_trainer
from tests.faults.torture.harm import DAMAGE, END, STORE_FAULTS
from tests.faults.torture.lives import (
    EXACT,
    NAMED,
    WRONG,
    Life,
    World,
    live_in_a_folder,
    live_on_a_store,
    make_world,
)
from tests.stand_ins.fixtures import Moto
from tests.stand_ins.radosgw import Gateway, run_gateway, why_missing


def main() -> int:
    """Torture until the time is over or enough kills were delivered; 1 if any life ended as none may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kills", type=int, help="end earlier, after so many kills that were delivered")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    with start_trainer(folder) as trainer, start_server(folder) as server:
        world = make_world(trainer, server, folder)
        lives = live(world, seconds=60 * options.minutes, kills=options.kills, seed=options.seed)
    sys.stdout.write(table(lives))
    if any(life.result == WRONG for life in lives):
        sys.stdout.write(f"what was different is in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def live(world: World, *, seconds: float, kills: int | None, seed: int) -> list[Life]:
    """Life after life."""
    lives: list[Life] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and (kills is None or num_delivered(lives, "kill") < kills):
        number = len(lives)
        place = world.folder / f"life-{number}"
        rng = random.Random(f"{seed}:{number}")
        life = (live_on_a_store if number % 2 else live_in_a_folder)(world, place, rng)
        lives.append(life)
        faults = ", ".join(met.fault if met.is_delivered else f"({met.fault})" for met in life.faults)
        sys.stdout.write(f"life {number}: {faults}: {life.result}\n")
        sys.stdout.flush()
        if life.result != WRONG:
            shutil.rmtree(place, ignore_errors=True)
    return lives


def num_delivered(lives: list[Life], fault: str) -> int:
    """How often a fault came before the run had ended."""
    return sum(met == (fault, True) for life in lives for met in life.faults)


def table(lives: list[Life]) -> str:
    """One line for every fault: how often it was drawn and delivered, and how the lives that met it ended."""
    kinds = (EXACT, NAMED, WRONG)
    drawn = Counter(met.fault for life in lives for met in life.faults)
    ended = Counter((met.fault, life.result) for life in lives for met in life.faults if met.is_delivered)
    lines = [f"| fault | drawn | delivered | {' | '.join(kinds)} |", "|---|---|---|---|---|---|"]
    for fault in (*END, *DAMAGE, *STORE_FAULTS):
        counts = [drawn[fault], num_delivered(lives, fault), *(ended[fault, kind] for kind in kinds)]
        lines.append(f"| {fault} | {' | '.join(map(str, counts))} |")
    results = Counter(life.result for life in lives)
    said = ", ".join(f"{results[kind]} {kind}" for kind in kinds)
    return "\n".join(lines) + f"\n{len(lives)} lives: {said}\n"


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


if __name__ == "__main__":
    sys.exit(main())
