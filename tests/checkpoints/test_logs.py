"""The log of a run: pieces that are written once and found by a chain of indexes; only ours are removed."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.logs import (
    KINDS,
    LOGS,
    METRICS,
    PAIRS,
    PIECES_PER_INDEX,
    ROLLOUTS,
    read_pieces,
    write_piece,
)
from cooper_rl.checkpoints.manifest import CheckpointManifest
from cooper_rl.checkpoints.ownership import claim, mark
from cooper_rl.checkpoints.reading import fetch, read_manifest
from cooper_rl.checkpoints.run_state import NUM_RECENT_PAIRS, RunState, replay
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.config.cooper import MonitorConfig
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DamagedObjectError, StorageError, WriteConflictError
from cooper_rl.method.monitor import MonitorState, Reading, watch
from cooper_rl.schema.data import PreferencePair
from cooper_rl.schema.step_metrics import GateMetrics, MonitorMetrics, RolloutMetrics, StepMetrics
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.open import open_store
from tests.stand_ins.fixtures import storage_config

CONFIG = MonitorConfig(window=3, max_gap_rise=0.1)


def steps_in(paths: Iterable[Path]) -> list[int]:
    return [json.loads(line)["step"] for path in paths for line in path.read_text().splitlines()]


class Run:
    """Writes checkpoints of a few bytes, with one step of log each."""

    def __init__(self, store: ObjectStore, work: Path, **kept: object) -> None:
        self.store, self.work = store, work
        self.opened = CheckpointStore(
            store, identity=RunIdentity({}), retention=StorageConfig.model_validate(kept)
        )

    def publish(self, step: int, *, earlier: dict[str, Sequence[Path]] | None = None) -> None:
        folder = self.work / f"draft-{step}"
        folder.mkdir(parents=True)
        (folder / "weights").write_text(str(step))
        pairs = [{"step": step}] if step % 2 == 0 else []
        rows = {METRICS: [{"step": step}], PAIRS: pairs, ROLLOUTS: [{"step": step}]}
        write_piece(folder / LOGS, rows, earlier=earlier or {})
        self.opened.publish(folder, step=step, score=None, versions={})

    def manifest(self) -> CheckpointManifest:
        content = self.store.read("LATEST")
        assert content is not None
        return read_manifest(self.store, content.name)

    def logged(self, kind: str = METRICS) -> list[int]:
        """The steps of the log, verified."""
        content = self.store.read("LATEST")
        assert content is not None
        found = fetch(self.store, content.name, self.manifest(), folder=self.work / "fetched", logs=(kind,))
        return steps_in(found.log[kind])

    def folders(self) -> set[str]:
        return {key.rpartition("/")[0] for key in self.store.keys("logs/")}

    def restart(self) -> "Run":
        again = Run(self.store, self.work / "again", keep_last=1)
        assert again.opened.newest(self.work / "found", last_step=10**6) is not None
        return again


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store(StorageConfig(), tmp_path / "place")
    config = storage_config(
        request.getfixturevalue("s3_server").endpoint, request.getfixturevalue("bucket"), run_key="run"
    )
    return open_store(config, f"{config.uri}/run")


def test_every_step_is_found_through_indexes_and_a_manifest_does_not_grow(
    store: ObjectStore, tmp_path: Path
) -> None:
    """Two indexes and a part of a third: 32 + 32 + 6 pieces."""
    run = Run(store, tmp_path / "work", keep_last=1)
    sizes: list[int] = []
    for step in range(1, 2 * PIECES_PER_INDEX + 7):
        run.publish(step)
        sizes.append(len(run.manifest().model_dump_json()))
    assert run.logged() == run.logged(ROLLOUTS) == list(range(1, 71))
    assert run.logged(PAIRS) == list(range(2, 71, 2))
    log = run.manifest().log
    assert log is not None
    assert [piece.last_step for piece in log.pieces] == list(range(65, 71))
    assert {piece.name for piece in read_pieces(store, log)} == run.folders()
    assert max(sizes) == pytest.approx(sizes[PIECES_PER_INDEX - 1], rel=0.05)


@pytest.mark.parametrize(("kind", "said"), [("missing", "missing"), ("changed", "changed")])
def test_a_damaged_index_is_named(tmp_path: Path, kind: str, said: str) -> None:
    run = Run(open_store(StorageConfig(), tmp_path / "place"), tmp_path / "work")
    for step in range(1, PIECES_PER_INDEX + 2):
        run.publish(step)
    (index,) = (tmp_path / "place" / "logs").glob("*/index.json")
    index.unlink()
    if kind == "changed":
        index.write_text("{}")
    with pytest.raises(DamagedObjectError, match=rf"index\.json: {said} since it was written; restore it"):
        run.logged()


def test_a_log_that_names_other_files_is_refused(tmp_path: Path) -> None:
    run = Run(open_store(StorageConfig(), tmp_path / "place"), tmp_path / "work")
    run.publish(1)
    manifest = run.manifest()
    assert manifest.log is not None
    hostile = manifest.log.extended("policy", {METRICS: "0" * 64}, step=2)
    changed = manifest.model_copy(update={"log": hostile})
    with pytest.raises(StorageError, match="its log names 'policy', which is no piece of a log"):
        fetch(run.store, "step-000001", changed, folder=tmp_path, logs=(METRICS,))


def test_the_piece_of_a_checkpoint_that_was_never_finished_is_removed(
    store: ObjectStore, tmp_path: Path
) -> None:
    run = Run(store, tmp_path / "work", keep_last=1)
    run.publish(1)
    (own,) = run.folders()
    orphan = "logs/000002-000002-0123abcd"
    content = b'{"step": 2}\n'
    sha256 = hashlib.sha256(content).hexdigest()
    claim(store, "step-000002", {"weights": sha256}, place=mark(store), log={f"{orphan}/{METRICS}": sha256})
    store.write(f"{orphan}/{METRICS}", content, replaces=None)
    again = run.restart()
    again.publish(2)
    assert orphan not in run.folders()
    assert own in run.folders()
    assert run.logged() == [1, 2]


def test_the_log_stays_where_a_run_was_killed_while_it_removed_an_old_checkpoint(
    store: ObjectStore, tmp_path: Path
) -> None:
    """Its manifest is gone and its claim is not: no history names it any more."""
    run = Run(store, tmp_path / "work", keep_last=2)
    for step in (1, 2):
        run.publish(step)
    store.delete(["step-000001/manifest.json"])
    again = run.restart()
    again.publish(3)
    assert {key.partition("/")[0] for key in store.keys("step-")} == {"step-000003"}
    assert run.logged() == [1, 2, 3]


def test_after_a_fallback_each_step_is_logged_once(tmp_path: Path) -> None:
    """Also for who reads the folder with a pattern of names."""
    place = tmp_path / "place"
    run = Run(open_store(StorageConfig(), place), tmp_path / "work", keep_last=2)
    for step in (1, 2):
        run.publish(step)
    (place / "step-000002" / "weights").write_text("damaged")
    with pytest.warns(match="passed over"):
        again = run.restart()
    again.publish(2)
    again.publish(3)
    assert run.logged() == [1, 2, 3]
    assert steps_in(sorted(place.glob("logs/*/metrics.jsonl"))) == [1, 2, 3]


def test_a_folder_of_a_pieces_name_is_never_written_into(tmp_path: Path) -> None:
    store = open_store(StorageConfig(), tmp_path / "place")
    taken = tmp_path / "place" / "logs" / "000001-000001-0123abcd"
    taken.mkdir(parents=True)
    with pytest.raises(WriteConflictError, match="logs/000001-000001-0123abcd: exists already; start again"):
        claim(
            store, "step-000001", {}, place=mark(store),
            log={"logs/000001-000001-0123abcd/metrics.jsonl": "0"},
        )  # fmt: skip
    assert list(taken.iterdir()) == []


def test_an_iterations_first_piece_begins_with_the_log_of_the_one_before(tmp_path: Path) -> None:
    first = Run(open_store(StorageConfig(), tmp_path / "first"), tmp_path / "one")
    for step in (1, 2):
        first.publish(step)
    begun = fetch(first.store, "step-000002", first.manifest(), folder=tmp_path, logs=KINDS)
    second = Run(open_store(StorageConfig(), tmp_path / "second"), tmp_path / "two")
    second.publish(3, earlier=dict(begun.log))
    second.publish(4)
    assert second.logged() == [1, 2, 3, 4]
    assert second.logged(PAIRS) == [2, 4]
    assert sorted(name[:18] for name in second.folders()) == ["logs/000001-000003", "logs/000004-000004"]


def test_pandas_and_duckdb_read_the_log_by_a_pattern_of_names(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    run = Run(open_store(StorageConfig(), tmp_path), tmp_path / "work")
    for step in range(1, 6):
        run.publish(step)
    frames = [pandas.read_json(path, lines=True) for path in sorted(tmp_path.glob("logs/*/pairs.jsonl"))]
    assert list(pandas.concat(frames)["step"]) == [2, 4]
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    rows = duckdb.sql(f"select step from '{tmp_path}/logs/*/metrics.jsonl' order by step").fetchall()
    assert rows == [(step,) for step in range(1, 6)]


numbers = st.floats(0, 1, allow_nan=False)
row = st.tuples(numbers, numbers, st.none() | numbers)


def make_row(step: int, reward: float = 0.5, rule: float = 0.5, anchor: float | None = None) -> StepMetrics:
    found = StepMetrics(step=step, rollout=RolloutMetrics(verify_rm_reward=reward, rule_accuracy=rule))
    found.verify_rm.anchor_score = anchor
    return found


def by_definition(rows: Sequence[tuple[float, float, float | None]], config: MonitorConfig) -> Reading | None:
    """The last window against the one with the lowest gap of those that end before it begins."""
    size = config.window
    if len(rows) < 2 * size:
        return None
    windows = [rows[start : start + size] for start in range(len(rows) - size + 1)]
    means = [
        (sum(reward - (anchor or 0.0) for reward, _, anchor in window) / size,
         sum(rule for _, rule, _ in window) / size)
        for window in windows
    ]  # fmt: skip
    gaps = [reward - rule for reward, rule in means]
    lowest = min(range(len(gaps) - size), key=gaps.__getitem__)
    rise, paid, right = (
        gaps[-1] - gaps[lowest],
        means[-1][0] - means[lowest][0],
        means[-1][1] - means[lowest][1],
    )
    is_hacking = rise > config.max_gap_rise and paid >= 0 and right <= 0
    return Reading(rise, paid, right, lowest + size, is_hacking)


@given(rows=st.lists(row, max_size=20))
def test_the_monitor_says_of_every_step_what_all_steps_before_say(
    rows: list[tuple[float, float, float | None]],
) -> None:
    """Exactly, also after its state went through a checkpoint; it keeps two windows."""
    state = MonitorState()
    for step, numbers in enumerate(rows, start=1):
        state = MonitorState.model_validate_json(state.model_dump_json())
        state, reading = watch(state, make_row(step, *numbers), CONFIG)
        assert reading == by_definition(rows[:step], CONFIG)
        assert len(state.points) <= 2 * CONFIG.window


def test_the_state_of_a_run_is_what_its_log_says() -> None:
    """Alarms at 3 and 5, the first denied; judged .4, .6, .5; the gate's data changes and changes back."""
    rows = [make_row(step) for step in range(1, 7)]
    rows[2].monitor = MonitorMetrics(alarm=True, denied=True)
    rows[4].monitor = MonitorMetrics(alarm=True)
    for place, judged in ((2, 0.4), (3, 0.6), (4, 0.5)):
        rows[place].eval.judge_accuracy = judged
    rows[4].pairs.shortcut_auroc = 0.7
    for place, data in ((0, 1), (1, 1), (3, 2), (5, 1)):
        rows[place].gate = GateMetrics(data=data, start_accuracy=data / 4, accuracy=0.9, rolled_back=False)
    pair = {"problem_id": "p", "question": "q", "reference_answer": "1", "positive": "1", "negative": "2"}
    pairs = [PreferencePair(step=step, source="rollout", **pair) for step in range(300)]
    state = replay(rows, pairs, CONFIG)
    assert (state.first_alarm_step, state.best_judged, state.shortcut_auroc) == (5, 0.6, 0.7)
    assert [point.step for point in state.monitor.points] == [4, 5, 6]
    assert state.gate_starts == (
        GateMetrics(data=1, start_accuracy=0.25),
        GateMetrics(data=2, start_accuracy=0.5),
    )
    assert [each.step for each in state.recent_pairs] == list(range(300 - NUM_RECENT_PAIRS, 300))
    assert RunState.model_validate_json(state.model_dump_json()) == state
