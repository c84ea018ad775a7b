"""The state of `CooperReward`: what a killed one goes on from, and what its folder holds."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from cooper_rl import CooperReward, load_verify_rm
from cooper_rl.api import reward_run, reward_state
from cooper_rl.checkpoints import run_state
from cooper_rl.checkpoints.manifest import MANIFEST, dump_manifest
from cooper_rl.checkpoints.reading import read_manifest
from cooper_rl.config.models import ScratchModel
from cooper_rl.domains.veto import note_veto
from cooper_rl.errors import ConfigError, DataError, WriteConflictError
from cooper_rl.models import precision
from cooper_rl.models.decoys import add_decoys
from cooper_rl.models.template import note_reading
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, make_from_scratch, save_verify_rm
from cooper_rl.storage.local import LocalStore
from cooper_rl.training import gate
from tests.api.rewarding import HELD_OUT, PROBLEMS, REPLAY, RULE, answers, ask, make_reward, same_weights
from tests.full_disk import no_file_beyond

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("staleness", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_reward_that_was_killed_goes_on_exactly(make_verify_rm, tmp_path, staleness: int) -> None:
    """Six steps at once, and three, a new object without a close, and three."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: dict[str, Any] = {
        "config": {
            "checkpoint_every": 3,
            "pairs": {"max_staleness": staleness},
            "reward": {"lr": 3e-3, "ema_decay": 0.5},
            "gate": {"max_accuracy_drop": 0.5, "max_canary_rise": 1, "max_attack_rise": 1},
            "monitor": {"num_anchors": 5, "window": 2},
        },
        "rule": RULE, "replay": REPLAY, "held_out": HELD_OUT, "device": "cpu",
    }  # fmt: skip

    def start(name: str) -> CooperReward:
        return CooperReward(tmp_path / "verify_rm", folder=tmp_path / name, **options)

    with start("whole") as whole:
        expected = [ask(whole, PROBLEMS[n % 2 :]) for n in range(6)]
    broken = start("broken")
    found = [ask(broken, PROBLEMS[n % 2 :]) for n in range(4)]  # the fourth is lost with the process
    with start("broken") as resumed:
        assert resumed.step == 3
        found[3:] = [ask(resumed, PROBLEMS[n % 2 :]) for n in range(3, 6)]
        assert found == expected
        assert same_weights(resumed.verify_rm, whole_verify_rm := load_state(tmp_path / "whole"))
        assert not same_weights(whole_verify_rm, make_verify_rm(0))
        assert without_seconds(resumed) == without_seconds(whole)
        assert resumed.pairs == whole.pairs
    with pytest.raises(WriteConflictError, match="somebody else"):  # it would put its own back
        broken.close()


def test_a_model_that_was_given_is_the_one_that_goes_on(make_verify_rm, tmp_path) -> None:
    options: dict[str, Any] = {"rule": RULE, "device": "cpu", "folder": tmp_path / "run"}
    with CooperReward(make_verify_rm(0), **options) as reward:
        ask(reward)
    given = make_verify_rm(0)
    with CooperReward(given, **options) as resumed:
        assert resumed.step == 1
        assert resumed.verify_rm.model is given.model
        assert same_weights(given, load_state(tmp_path / "run"))
    texts = (text for problem in PROBLEMS for text in (problem.question, problem.reference_answer))
    size = ScratchModel(hidden_size=32, num_layers=1, num_heads=2)
    other = make_from_scratch(texts, size, seed=0, device=torch.device("cpu"))
    with pytest.raises(ConfigError, match="the given model differs from the checkpoint's in architecture"):
        CooperReward(other, **options)


def test_a_model_that_was_given_reads_and_compares_as_the_checkpoints_does(make_verify_rm, tmp_path) -> None:
    """The run began with decoys, a veto and the reference answer last; the model given now has none."""
    options: dict[str, Any] = {"rule": RULE, "device": "cpu", "folder": tmp_path / "run"}
    first = make_verify_rm(0)
    note_reading(first.model, domain="mathematics", reference_last=True)
    add_decoys(first.model, map(str, range(20, 30)), count=3)
    note_veto(first.model, domain="mathematics")
    with CooperReward(first, **options) as reward:
        ask(reward)
    items = [VerifyItem(each.question, each.reference_answer, answers(each)[0]) for each in PROBLEMS]
    items.append(VerifyItem("How many?", "12", "#### 13"))
    expected = load_state(tmp_path / "run").score(items)
    assert expected[-1] == 0
    with CooperReward(make_verify_rm(0), **options) as resumed:
        assert resumed.step == 1
        assert resumed.verify_rm.score(items) == expected


def test_a_reward_that_goes_on_elsewhere_says_so_and_keeps_its_type(
    make_verify_rm, tmp_path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its first step had been taken in bf16 on another processor."""
    monkeypatch.setattr(precision, "bfloat16_gain", lambda: 1.0)  # on whatever processor the test runs
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"config": {"checkpoint_every": 1}, "rule": RULE, "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as reward:
        ask(reward)
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as same:
        assert same.verify_rm.compute == "float32"
    assert not any("continues, " in line for line in caplog.messages)
    manifest = read_manifest(LocalStore(tmp_path / "run"), "step-000001")
    changes = {"processor": "MOS 6502", "precision of VerifyRM": "bfloat16"}
    changed = manifest.model_copy(update={"versions": manifest.versions | changes}).sealed()
    (tmp_path / "run" / "step-000001" / MANIFEST).write_bytes(dump_manifest(changed))
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as other:
        assert other.verify_rm.compute == "bfloat16"
    here = manifest.versions["processor"]
    reason = f"because processor is {here} and was MOS 6502"
    assert f"cooper_reward: continues, but not bit for bit, {reason}" in caplog.messages


def without_seconds(reward: CooperReward) -> list[dict[str, float]]:
    return [
        {key: value for key, value in row.items() if not key.startswith("seconds/")} for row in reward.metrics
    ]


def rows_of_pieces(folder: Path, kind: str) -> list[int]:
    """Rows in each piece of the log, oldest first."""
    return [len((piece / kind).read_text().splitlines()) for piece in sorted((folder / "logs").iterdir())]


@pytest.mark.parametrize("is_saved_elsewhere", [False, True], ids=["its own", "saved elsewhere"])
def test_the_log_of_its_folder_is_written_once_in_pieces(
    make_verify_rm, tmp_path, is_saved_elsewhere
) -> None:
    """Six steps in three checkpoints; a state that was saved elsewhere has no log of the steps before."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"config": {"checkpoint_every": 2}, "rule": RULE, "device": "cpu"}
    run = tmp_path / "run"
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "straight", **options) as straight:
        for _ in range(6):
            ask(straight)
    with CooperReward(tmp_path / "verify_rm", folder=None if is_saved_elsewhere else run, **options) as first:
        for _ in range(2):
            ask(first)
        if is_saved_elsewhere:
            first.save(run)
    with CooperReward(tmp_path / "verify_rm", folder=run, **options) as reward:
        for _ in range(4):
            ask(reward)
    assert rows_of_pieces(tmp_path / "straight", "metrics.jsonl") == [2, 2, 2]
    assert rows_of_pieces(run, "metrics.jsonl") == ([2, 2] if is_saved_elsewhere else [2, 2, 2])
    logged = sum(rows_of_pieces(run, "pairs.jsonl"))
    assert 0 < logged < len(straight.pairs) if is_saved_elsewhere else logged == len(straight.pairs)
    with CooperReward(tmp_path / "verify_rm", folder=run, **options) as again:
        assert without_seconds(again) == without_seconds(straight)
        assert again.pairs == straight.pairs
        assert same_weights(again.verify_rm, straight.verify_rm)


def test_ctrl_c_in_an_update_leaves_the_checkpoint_before(make_verify_rm, tmp_path, monkeypatch) -> None:
    """It comes when the weights were stepped and the gate has yet to look at them."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {
        "config": {"checkpoint_every": 2, "reward": {"lr": 1e-3}},
        "rule": RULE,
        "held_out": HELD_OUT,
        "folder": tmp_path / "run",
        "device": "cpu",
    }

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    reward = CooperReward(tmp_path / "verify_rm", **options)
    for _ in range(3):
        ask(reward)
    with monkeypatch.context() as late:
        late.setattr(gate, "read_gate", interrupt)
        with pytest.raises(KeyboardInterrupt), reward:
            ask(reward)
    with (
        CooperReward(tmp_path / "verify_rm", **options) as again,
        CooperReward(tmp_path / "verify_rm", **(options | {"folder": None})) as straight,
    ):
        assert again.step == 2
        for _ in range(2):
            ask(straight)
        assert same_weights(again.verify_rm, straight.verify_rm)


@pytest.mark.parametrize("file", ["verify_rm/model.safetensors", reward_state.OPTIMIZER])
def test_a_disk_that_fills_up_under_a_checkpoint_is_told_and_the_next_one_has_all_steps(
    make_verify_rm, tmp_path, file: str
) -> None:
    """The optimiser's file is the largest: the disk most often fills up under it."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {
        "config": {"checkpoint_every": 1},
        "rule": RULE,
        "folder": tmp_path / "run",
        "device": "cpu",
    }
    with CooperReward(tmp_path / "verify_rm", **options) as reward:
        ask(reward)
        size = (tmp_path / "run/step-000001" / file).stat().st_size
        with no_file_beyond(size - 1), pytest.raises(DataError, match=r"cannot be .*File too large"):
            ask(reward)
        assert reward.step == 2
        ask(reward)
    assert rows_of_pieces(tmp_path / "run", "metrics.jsonl") == [1, 2]


def test_a_last_checkpoint_that_the_disk_refused_is_written_by_another_close(
    make_verify_rm, tmp_path
) -> None:
    options: Any = {"rule": RULE, "folder": tmp_path / "run", "device": "cpu"}
    reward = CooperReward(make_verify_rm(0), **options)
    ask(reward)
    with no_file_beyond(1000), pytest.raises(DataError, match="File too large"):
        reward.close()
    reward.close()
    with CooperReward(make_verify_rm(0), **options) as again:
        assert again.step == 1


def test_a_relative_folder_stays_where_it_was_when_the_trainer_changes_directory(
    make_verify_rm, tmp_path, monkeypatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with CooperReward(make_verify_rm(0), rule=RULE, folder="run", device="cpu") as reward:
        monkeypatch.chdir(tmp_path / "elsewhere")  # as Hydra does
        ask(reward)
    assert (tmp_path / "run" / "step-000001").is_dir()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_neither_memory_nor_checkpoints_grow_with_the_steps(make_verify_rm, tmp_path, monkeypatch) -> None:
    """Of seven steps the newest two are at hand, in the process and in the checkpoint; the log has all."""
    for module in (reward_run, reward_state):
        monkeypatch.setattr(module, "NUM_METRICS", 2)
    monkeypatch.setattr(run_state, "NUM_RECENT_PAIRS", 3)
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"config": {"checkpoint_every": 2}, "rule": RULE, "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as reward:
        for _ in range(7):
            ask(reward)
        assert ([row["step"] for row in reward.metrics], len(reward.pairs)) == ([6, 7], 3)
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as again:
        assert (without_seconds(again), again.pairs) == (without_seconds(reward), reward.pairs)
    assert sum(rows_of_pieces(tmp_path / "run", "metrics.jsonl")) == 7
    assert sum(rows_of_pieces(tmp_path / "run", "pairs.jsonl")) > 3 * 7


def test_a_state_of_the_release_before_goes_on_exactly(tmp_path) -> None:
    """Two steps by version 0.2.0, whose log alone holds their rows, and the third that it took itself."""
    shutil.copytree(DATA / "reward-0.2.0", tmp_path, dirs_exist_ok=True)
    shutil.copytree(DATA / "checkpoint-0.1.0" / "verify_rm", tmp_path / "verify_rm")
    for model in ("verify_rm", "state/step-000002/verify_rm"):
        shutil.copyfile(DATA / "checkpoint-0.1.0" / "tokenizer.json", tmp_path / model / "tokenizer.json")
    config = {"checkpoint_every": 1, "reward": {"lr": 2e-4}, "monitor": {"window": 2}}
    before = json.loads((tmp_path / "after.json").read_text())
    with CooperReward(
        tmp_path / "verify_rm", config=config, rule=RULE, folder=tmp_path / "state", device="cpu"
    ) as reward:
        assert reward.step == 2
        assert ask(reward) == pytest.approx(before["rewards"], rel=1e-4)
        assert [row["step"] for row in reward.metrics] == [1, 2, 3]
        assert [pair.model_dump(mode="json") for pair in reward.pairs] == before["pairs"]
    assert rows_of_pieces(tmp_path / "state", "metrics.jsonl") == [1, 1, 1]


def test_a_state_loaded_from_elsewhere_begins_the_folders_log_anew(make_verify_rm, tmp_path) -> None:
    """Three steps in the folder, then on from one of another run: no row of the three is read again."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"config": {"checkpoint_every": 1}, "rule": RULE, "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", **options) as other:
        ask(other, PROBLEMS[2:])
        other.save(tmp_path / "other")
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as reward:
        for _ in range(3):
            ask(reward)
        assert reward.load(tmp_path / "other")
        for _ in range(3):
            ask(reward)
        expected = without_seconds(reward), list(reward.pairs)
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as again:
        assert again.step == 4
        assert (without_seconds(again), again.pairs) == expected


@pytest.mark.parametrize("place", ["elsewhere", "run", "link"])
def test_a_state_saved_between_checkpoints_leaves_the_folder_complete(
    make_verify_rm, tmp_path, place: str
) -> None:
    """Saved elsewhere, or into its own folder, at the start, after a step, and twice; then closed."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    options: Any = {"config": {"checkpoint_every": 10}, "rule": RULE, "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as reward:
        reward.save(tmp_path / place)
        for _ in range(2):
            ask(reward)
            reward.save(tmp_path / place)
        reward.save(tmp_path / place)
    for folder in {"run", place}:
        with CooperReward(tmp_path / "verify_rm", folder=tmp_path / folder, **options) as again:
            assert again.step == 2
            assert (without_seconds(again), again.pairs) == (without_seconds(reward), reward.pairs)
            assert same_weights(again.verify_rm, reward.verify_rm)


@pytest.mark.parametrize("place", ["elsewhere", "run"])
def test_a_state_before_the_first_step_is_saved_and_loaded(make_verify_rm, tmp_path, place: str) -> None:
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"rule": RULE, "folder": tmp_path / "run", "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", **options) as reward:
        reward.save(tmp_path / place)
        ask(reward)
        assert reward.load(tmp_path / place)
    with CooperReward(tmp_path / "verify_rm", **options) as again:
        assert (again.step, again.metrics, again.pairs) == (0, [], [])
        assert same_weights(again.verify_rm, make_verify_rm(0))


def test_a_checkpoint_that_another_reward_removes_meanwhile_is_told(
    make_verify_rm, tmp_path, monkeypatch
) -> None:
    options: Any = {"rule": RULE, "folder": tmp_path / "run", "device": "cpu"}
    with CooperReward(make_verify_rm(0), **options) as reward:
        ask(reward)
    load = reward_state.load_verify_rm

    def remove_and_load(folder: Path, **given: Any) -> VerifyRM:
        found = load(folder, **given)
        shutil.rmtree(folder.parent)
        return found

    monkeypatch.setattr(reward_state, "load_verify_rm", remove_and_load)
    with pytest.raises(DataError, match="gone while the checkpoint was read; two runs use this place"):
        CooperReward(make_verify_rm(0), **options)


@pytest.mark.parametrize("num_steps", [0, 3])
def test_a_state_that_was_loaded_from_elsewhere_and_closed_at_once_is_its_folders(
    make_verify_rm, tmp_path, num_steps: int
) -> None:
    """One step elsewhere; none or three in the folder before."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"rule": RULE, "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", **options) as other:
        ask(other, PROBLEMS[2:])
        other.save(tmp_path / "other")
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as reward:
        for _ in range(num_steps):
            ask(reward)
        assert reward.load(tmp_path / "other")
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as again:
        assert (without_seconds(again), again.pairs) == (without_seconds(other), other.pairs)
        assert same_weights(again.verify_rm, other.verify_rm)


def test_a_state_of_its_own_folder_is_gone_back_to(make_verify_rm, tmp_path) -> None:
    """A step after the last checkpoint is dropped, and taken again."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"rule": RULE, "folder": tmp_path / "run", "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", **options) as reward:
        ask(reward)
        reward.save(tmp_path / "run")
        ask(reward)
        expected = without_seconds(reward)
        assert reward.load(tmp_path / "run")
        assert reward.step == 1
        ask(reward)
        assert without_seconds(reward) == expected
    with CooperReward(tmp_path / "verify_rm", **options) as again:
        assert without_seconds(again) == expected


def load_state(folder: Path) -> VerifyRM:
    (name,) = (folder / "LATEST").read_text().split()
    return load_verify_rm(folder / name / "verify_rm", device="cpu")


def test_a_folder_of_another_configuration_is_refused(make_verify_rm, tmp_path) -> None:
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    with CooperReward(tmp_path / "verify_rm", rule=RULE, folder=tmp_path / "run", device="cpu") as reward:
        ask(reward)
    with pytest.raises(
        ConfigError, match=r"holds a run of another configuration .*cooper.reward.lr: 1e-05 there"
    ):
        CooperReward(
            tmp_path / "verify_rm",
            config={"reward": {"lr": 1e-3}},
            rule=RULE,
            folder=tmp_path / "run",
            device="cpu",
        )


def test_the_trained_model_is_saved_as_a_folder_that_loads(make_verify_rm, tmp_path) -> None:
    with make_reward(make_verify_rm) as reward:
        ask(reward)
        reward.save_verify_rm(tmp_path / "trained")
        assert same_weights(load_verify_rm(tmp_path / "trained", device="cpu"), reward.verify_rm)
