"""`train-verify-rm`, killed or stopped anywhere: weights and numbers are those of a run that was not."""

import os
import random
import shutil
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import file_digest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.records.files import read_report, write_records
from cooper_rl.records.written import MARKER
from cooper_rl.schema.reports import TrainVerifyRMReport
from cooper_rl.storage.model_reference import model_in
from cooper_rl.storage.models import at_hand
from tests.faults.conftest import Trainer, start_trainer
from tests.faults.kill_server import label
from tests.faults.test_store_faults import environment, overrides
from tests.stand_ins.fixtures import Moto, make_client, storage_config
from tests.stand_ins.radosgw import Gateway

NAMED = [
    ("fit_backward", 1), ("fit_backward", 4), ("after fit_step", 3), ("fit_step", 9), ("fit_validation", 2),
    ("after fit_validation", 3), ("fit_best", 1), ("after fit_best", 1), ("fit_state", 1),
    ("after fit_state", 6), ("fit_copy", 2), ("after claim", 3), ("upload", 2), ("upload", 17),
    ("after conditional_write", 5), ("conditional_write", 8), ("after conditional_write", 11), ("delete", 4),
    ("fit_card", 1), ("after fit_card", 1), ("fit_report", 1), ("after fit_report", 1), ("fit_clear", 1),
    ("fit_remove", 1), ("after fit_remove", 1), ("after fit_clear", 1),
]  # fmt: skip
EVERY = 4
"""One named point of so many is in the default run; the others are marked slow."""


def points() -> list[Any]:
    return [
        pytest.param(
            *named, id=f"{named[0]}-{named[1]}", marks=[] if place % EVERY == 1 else pytest.mark.slow
        )
        for place, named in enumerate(NAMED)
    ]


class Outcome(NamedTuple):
    """What equal trainings have in common."""

    sha256: Mapping[str, str]
    """Every file of the model."""
    numbers: Mapping[str, Any]
    """The report without what is timed."""


def outcome(output: Path, storage: StorageConfig | None = None) -> Outcome:
    numbers = read_report(output / "report.json", TrainVerifyRMReport).model_dump()
    timed = {"seconds", "tokens_per_second"}
    folder = at_hand(storage or StorageConfig(), model_in(output / "verify_rm"))
    return Outcome(_files(Path(folder)), {key: numbers[key] for key in numbers if key not in timed})


def _files(folder: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MARKER:
            with path.open("rb") as content:
                found[path.relative_to(folder).as_posix()] = file_digest(content, "sha256").hexdigest()
    return found


@pytest.fixture(scope="session")
def straight(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run that nobody disturbs. Its best weights are not the last, so that they must be found again."""
    output = tmp_path_factory.mktemp("straight")
    assert trainer.fit(output) == 0, trainer.log()[-3000:]
    found = outcome(output)
    assert 0 < found.numbers["best_update"] < found.numbers["num_updates"] == 6
    assert {path.name for path in output.iterdir()} == {"verify_rm", "report.json"}
    return found


@pytest.mark.parametrize(("point", "hit"), points())
def test_a_training_killed_at_a_named_point_continues_exactly(
    trainer: Trainer, straight: Outcome, tmp_path: Path, point: str, hit: int
) -> None:
    assert trainer.fit(tmp_path, kill={"point": point, "hit": hit}) == -signal.SIGKILL, trainer.log()[-3000:]
    assert trainer.fit(tmp_path) == 0, trainer.log()[-3000:]
    assert outcome(tmp_path) == straight
    assert not (tmp_path / "verify_rm.unfinished").exists()


def test_a_training_killed_after_every_other_update_takes_no_update_twice(
    trainer: Trainer, straight: Outcome, tmp_path: Path
) -> None:
    """A state is kept after every update. Each start does three of the run's updates, and loses the third."""
    starts = 1
    while trainer.fit(tmp_path, kill={"point": "after fit_step", "hit": 3}) == -signal.SIGKILL:
        starts += 1
    assert outcome(tmp_path) == straight
    assert starts == 6, trainer.log()[-3000:]


@pytest.mark.parametrize("number", range(2))
def test_a_training_killed_at_random_points_continues_exactly(
    trainer: Trainer, straight: Outcome, num_calls: int, tmp_path: Path, number: int
) -> None:
    kill_often(trainer, straight, num_calls, tmp_path, random.Random(number))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(2, 60))
def test_a_training_killed_at_many_random_points_continues_exactly(
    trainer: Trainer, straight: Outcome, num_calls: int, tmp_path: Path, number: int
) -> None:
    kill_often(trainer, straight, num_calls, tmp_path, random.Random(number))


@pytest.fixture(scope="session")
def num_calls(trainer: Trainer, straight: Outcome, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Python calls of a whole run."""
    assert trainer.fit(tmp_path_factory.mktemp("counted"), kill={"count": True}) == 0
    assert trainer.calls is not None
    return trainer.calls


def last_line(trainer: Trainer) -> str:
    return trainer.log().strip().splitlines()[-1]


def kill_often(trainer: Trainer, straight: Outcome, num_calls: int, output: Path, rng: random.Random) -> None:
    """Kill the run and up to two of its continuations, then let it end."""
    for _ in range(rng.randint(1, 3)):
        killed = trainer.fit(output, kill={"call": rng.randrange(1, num_calls)})
        assert killed in {-signal.SIGKILL, 0}, trainer.log()[-3000:]
    assert trainer.fit(output) == 0, trainer.log()[-3000:]
    assert outcome(output) == straight
    assert not (output / "verify_rm.unfinished").exists()


@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("fit_backward", 2),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("fit_validation", 4), ("fit_state", 3))),
    ],
)
def test_a_training_that_is_told_to_end_saves_and_continues_exactly(
    trainer: Trainer, straight: Outcome, tmp_path: Path, point: str, hit: int
) -> None:
    """States are due once an hour, so that what is saved is saved because of the signal."""
    rare = [] if point == "fit_state" else ["verify_rm.checkpoint_seconds=3600"]
    assert trainer.fit(tmp_path, *rare, kill={"point": point, "hit": hit, "signal": signal.SIGTERM}) == 2
    assert "StoppedError: SIGTERM: stopped after update" in last_line(trainer)
    assert "it is saved; start again with the same arguments to continue" in last_line(trainer)
    assert trainer.fit(tmp_path) == 0
    assert "train_verify_rm continues from" not in last_line(trainer)
    assert outcome(tmp_path) == straight


def test_muon_continues_exactly(trainer: Trainer, tmp_path: Path) -> None:
    muon = "verify_rm.optimizer=muon"
    assert trainer.fit(tmp_path / "straight", muon) == 0
    assert trainer.fit(tmp_path / "killed", muon, kill={"point": "fit_backward", "hit": 7}) == -signal.SIGKILL
    assert trainer.fit(tmp_path / "killed", muon) == 0
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "straight")


def test_a_training_that_stopped_early_is_not_trained_further(trainer: Trainer, tmp_path: Path) -> None:
    patience = ["verify_rm.patience=1", "verify_rm.num_epochs=20"]
    assert trainer.fit(tmp_path / "straight", *patience) == 0
    assert (
        trainer.fit(tmp_path / "killed", *patience, kill={"point": "fit_card", "hit": 1}) == -signal.SIGKILL
    )
    assert (
        trainer.fit(tmp_path / "killed", *patience, kill={"point": "fit_report", "hit": 1}) == -signal.SIGKILL
    )
    assert trainer.fit(tmp_path / "killed", *patience) == 0
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "straight")


def test_another_configuration_or_other_rows_are_refused_with_what_differs(
    trainer: Trainer, straight: Outcome, tmp_path: Path
) -> None:
    assert trainer.fit(tmp_path, kill={"point": "fit_backward", "hit": 7}) == -signal.SIGKILL
    before = _files(tmp_path)
    assert trainer.fit(tmp_path, "verify_rm.lr=1e-3", "seed=1") == 2
    assert "ConfigError" in last_line(trainer)
    assert "(seed: 2 there, 1 here; verify_rm.lr: 0.01 there, 0.001 here); remove" in last_line(trainer)
    assert "verify_rm.unfinished to train anew, or choose another --verify-rm" in last_line(trainer)
    fewer = trainer.folder / "fewer.jsonl"
    write_records(fewer, label(0, 10))
    assert trainer.fit(tmp_path, arguments={"train": str(fewer)}) == 2
    assert "data.train: " in last_line(trainer)
    assert _files(tmp_path) == before
    # What changes no number may change.
    assert trainer.fit(tmp_path, "verify_rm.checkpoint_seconds=5") == 0
    assert outcome(tmp_path) == straight


def test_other_peoples_files_beside_and_among_states_stay(
    trainer: Trainer, straight: Outcome, tmp_path: Path
) -> None:
    place = tmp_path / "verify_rm.unfinished"
    mine = {
        name: tmp_path / name
        for name in (
            "verify_rm.partial/thesis.txt", "verify_rm.unfinished/thesis.txt",
            "verify_rm.unfinished/step-000003/thesis.txt", "verify_rm.unfinished/step-000099/manifest.json",
            "verify_rm.unfinished/.staging-mine/thesis.txt",
        )
    }  # fmt: skip
    for path in mine.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    assert trainer.fit(tmp_path, kill={"point": "fit_backward", "hit": 7}) == -signal.SIGKILL
    late = place / "step-000006" / "notes.txt"
    assert late.parent.is_dir()
    late.write_text("mine")
    assert trainer.fit(tmp_path) == 0, trainer.log()[-3000:]
    assert outcome(tmp_path) == straight
    left = {path for path in place.rglob("*") if path.is_file()} - {place / ".cooper-rl"}
    assert left == {path for path in mine.values() if path.is_relative_to(place)} | {late}
    assert all(path.read_text() == "mine" for path in [*mine.values(), late])


def test_a_folder_that_a_killed_training_left_empty_is_removed(
    trainer: Trainer, straight: Outcome, tmp_path: Path
) -> None:
    """Killed between a folder and its first file, or between its last file and the folder."""
    assert trainer.fit(tmp_path, kill={"point": "fit_backward", "hit": 7}) == -signal.SIGKILL
    for name in ("step-000003", "step-000001-1a2b3c4d", "step-000002-1a2b3c4d/best"):
        (tmp_path / "verify_rm.unfinished" / name).mkdir(parents=True)
    assert trainer.fit(tmp_path) == 0, trainer.log()[-3000:]
    assert outcome(tmp_path) == straight
    assert not (tmp_path / "verify_rm.unfinished").exists()


def test_a_training_killed_on_one_machine_continues_on_another_through_the_store(
    trainer: Trainer,
    straight: Outcome,
    s3_server: Gateway | Moto,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the name of a run: the state is found by what it depends on. The second disk is empty."""
    monkeypatch.setenv("COOPER_RL_MODEL_CACHE", str(tmp_path / "cache"))
    config = storage_config(s3_server.endpoint, bucket).model_copy(update={"run_key": None})
    job = {"environment": environment(s3_server.account)}
    client = make_client(s3_server.port, s3_server.account)

    def states() -> set[str]:
        found = client.list_objects(bucket, recursive=True)
        return {name for each in found if "/_fits/" in (name := f"/{each.object_name}")}

    kill = {"point": "fit_backward", "hit": 8}
    assert trainer.fit(tmp_path / "one", *overrides(config), kill=kill, **job) == -signal.SIGKILL
    assert any(name.endswith("/manifest.json") for name in states())
    assert trainer.fit(tmp_path / "two", *overrides(config), **job) == 0, trainer.log()[-3000:]
    assert trainer.log().count("train_verify_rm continues from") > 0
    assert outcome(tmp_path / "two", config) == straight
    assert {name.rpartition("/")[2] for name in states()} == {".cooper-rl"}
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"verify_rm", "report.json"}


def test_of_two_that_train_the_same_in_one_store_both_end_well(
    trainer: Trainer, straight: Outcome, tmp_path: Path
) -> None:
    """The second begins, continues the first's state and finishes while the first waits in its update."""
    store = f"storage.uri={tmp_path / 'store'}"
    shutil.copytree(trainer.folder, tmp_path / "slow", ignore=shutil.ignore_patterns("log"))
    with start_trainer(tmp_path / "slow") as slow, ThreadPoolExecutor(1) as threads:
        kill = {"point": "fit_backward", "hit": 5, "signal": signal.SIGSTOP}
        first = threads.submit(slow.fit, tmp_path / "one", store, "storage.grace_seconds=0", kill=kill)
        place = wait_for(tmp_path / "store" / "_fits")
        stopped = wait_until_stopped(slow)
        assert trainer.fit(tmp_path / "two", store) == 0, trainer.log()[-3000:]
        os.kill(stopped, signal.SIGCONT)
        assert first.result() == 0, slow.log()[-3000:]
    assert "Another run trains the same: this one goes on without saving" in slow.log()
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two") == straight
    assert {path.name for path in place.rglob("*") if path.is_file()} == {".cooper-rl"}


def wait_for(folder: Path) -> Path:
    for _ in range(600):
        if folder.is_dir() and list(folder.glob("*/step-000004/manifest.json")):
            return folder
        time.sleep(0.1)
    raise TimeoutError(folder)


def wait_until_stopped(trainer: Trainer) -> int:
    """The process of the trainer's child, once it is stopped."""
    server = trainer.process.pid
    for _ in range(600):
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        for child in children:
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return int(child)
        time.sleep(0.1)
    raise TimeoutError(str(server))


def test_a_damaged_state_is_passed_over(trainer: Trainer, straight: Outcome, tmp_path: Path) -> None:
    assert trainer.fit(tmp_path, kill={"point": "fit_backward", "hit": 7}) == -signal.SIGKILL
    newest = tmp_path / "verify_rm.unfinished" / "step-000006" / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert trainer.fit(tmp_path, is_strict=False) == 0, trainer.log()[-3000:]
    assert "damaged checkpoint step-000006 is passed over" in trainer.log()
    assert outcome(tmp_path) == straight
