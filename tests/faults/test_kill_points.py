"""SIGKILL anywhere: the resumed run's numbers and weights equal the uninterrupted run's bit for bit."""

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import Outcome, Trainer, outcome, run_straight

NAMED = [
    ("rollout", 1), ("rollout", 2), ("after rollout", 3),
    ("score", 2), ("after score", 3),
    ("policy_update", 1), ("policy_update", 3), ("policy_step", 2), ("after policy_update", 2),
    ("pairs", 2), ("after pairs", 3),
    ("reward_update", 1), ("reward_update", 3), ("reward_step", 2), ("after reward_update", 2),
    ("tokenizers", 1), ("snapshot", 1), ("snapshot", 2), ("after snapshot", 3),
    ("files", 1), ("files", 3), ("weights", 2), ("after weights", 4),
    ("log", 2), ("after log", 3), ("remove", 1), ("after remove", 1),
    ("claim", 2), ("after claim", 3),
    ("upload", 1), ("upload", 9), ("upload", 20), ("after upload", 30),
    ("flush", 2), ("flush", 14), ("flush", 31),
    ("manifest", 1), ("manifest", 2), ("after manifest", 3),
    # Writes of one process: three of the probe, of which two are refused, the marker, then claim, manifest
    # and LATEST of each checkpoint.
    ("conditional_write", 1), ("after conditional_write", 1), ("conditional_write", 3),
    ("after conditional_write", 4), ("conditional_write", 5), ("after conditional_write", 5),
    ("conditional_write", 6), ("after conditional_write", 8), ("after conditional_write", 9),
    ("conditional_write", 12), ("after conditional_write", 12), ("after conditional_write", 13),
    ("tidy", 2), ("after tidy", 3), ("delete", 2), ("after delete", 3),
    ("report", 1), ("after report", 1),
]  # fmt: skip
NUM_QUICK = 8
"""Named points of the default run; the others are marked slow."""
NUM_RANDOM = 2
NUM_RANDOM_SLOW = 40


def points() -> list[Any]:
    """All named points, evenly spread ones of them quick."""
    quick = {round(place * (len(NAMED) - 1) / (NUM_QUICK - 1)) for place in range(NUM_QUICK)}
    return [
        pytest.param(*named, id=f"{named[0]}-{named[1]}", marks=[] if place in quick else pytest.mark.slow)
        for place, named in enumerate(NAMED)
    ]


@pytest.mark.parametrize(("point", "hit"), points())
def test_a_run_killed_at_a_named_point_continues_exactly(
    trainer: Trainer, straight: Outcome, tmp_path: Path, point: str, hit: int
) -> None:
    checkpoint = tmp_path / "checkpoint"
    killed = trainer.run(checkpoint, kill={"point": point, "hit": hit})
    assert killed == -signal.SIGKILL, trainer.log()[-3000:]
    assert trainer.run(checkpoint) == 0, trainer.log()[-3000:]
    assert outcome(checkpoint) == straight


AHEAD = ["cooper.max_rollout_staleness=1", "cooper.policy.max_importance_weight=2.0"]


@pytest.fixture(scope="module")
def straight_ahead(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_straight(trainer, tmp_path_factory.mktemp("ahead") / "checkpoint", *AHEAD)


@pytest.mark.parametrize("process", ["same", "own"])
@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("score", 2),
        pytest.param("rollout", 3, marks=pytest.mark.slow),
        pytest.param("after policy_update", 2, marks=pytest.mark.slow),
        pytest.param("after snapshot", 1, marks=pytest.mark.slow),
        pytest.param("after manifest", 2, marks=pytest.mark.slow),
    ],
)
def test_a_run_that_draws_ahead_continues_exactly_wherever_the_engine_is(
    trainer: Trainer, straight_ahead: Outcome, tmp_path: Path, point: str, hit: int, process: str
) -> None:
    """In a process of its own the engine is at a draw when it is orphaned."""
    checkpoint, values = tmp_path / "checkpoint", [*AHEAD, f"engine.process={process}"]
    killed = trainer.run(checkpoint, *values, kill={"point": point, "hit": hit})
    assert killed == -signal.SIGKILL, trainer.log()[-3000:]
    assert trainer.run(checkpoint, *values) == 0, trainer.log()[-3000:]
    assert outcome(checkpoint) == straight_ahead


@pytest.mark.parametrize("number", range(NUM_RANDOM))
def test_a_run_killed_at_a_random_point_continues_exactly(
    trainer: Trainer, straight: Outcome, num_calls: int, tmp_path: Path, number: int
) -> None:
    """The point is a random one of all Python calls of the run, of whatever package and thread."""
    kill_twice(trainer, straight, num_calls, tmp_path, random.Random(number))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(NUM_RANDOM, NUM_RANDOM_SLOW))
def test_a_run_killed_at_many_random_points_continues_exactly(
    trainer: Trainer, straight: Outcome, num_calls: int, tmp_path: Path, number: int
) -> None:
    kill_twice(trainer, straight, num_calls, tmp_path, random.Random(number))


@pytest.fixture(scope="module")
def num_calls(trainer: Trainer, straight: Outcome, tmp_path_factory: pytest.TempPathFactory) -> int:
    assert trainer.run(tmp_path_factory.mktemp("counted") / "checkpoint", kill={"count": True}) == 0
    assert trainer.calls is not None
    return trainer.calls


def kill_twice(
    trainer: Trainer, straight: Outcome, num_calls: int, tmp_path: Path, rng: random.Random
) -> None:
    """Kill the run, and once in two also its continuation, then let it end."""
    checkpoint = tmp_path / "checkpoint"
    killed = trainer.run(checkpoint, kill={"call": rng.randrange(1, num_calls)})
    assert killed in {-signal.SIGKILL, 0}, trainer.log()[-3000:]
    if rng.random() < 0.5:
        assert trainer.run(checkpoint, kill={"call": rng.randrange(1, num_calls)}) in {-signal.SIGKILL, 0}
    assert trainer.run(checkpoint) == 0, trainer.log()[-3000:]
    assert outcome(checkpoint) == straight
