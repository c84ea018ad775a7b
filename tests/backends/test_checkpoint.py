"""Checkpoints: complete or invisible, verified on read."""

import json
from pathlib import Path

import pytest
import torch

from cooper_rl.backends import checkpoint as checkpoint_module
from cooper_rl.backends.checkpoint import (
    TrainingState,
    latest_checkpoint,
    load_checkpoint,
    require_checkpoint,
    save_checkpoint,
)
from cooper_rl.errors import DataError, ModelError
from cooper_rl.schema import PreferencePair

CPU = torch.device("cpu")
PAIR = PreferencePair(
    step=1, problem_id="p", question="q", reference_answer="1", positive="1", negative="2", source="t"
)


@pytest.fixture
def state(make_policy, make_verify_rm) -> TrainingState:
    return TrainingState(
        step=3,
        policy=make_policy(0),
        verify_rm=make_verify_rm(0),
        policy_optimizer={"a/exp_avg": torch.arange(3.0)},
        verify_rm_optimizer={},
        metrics=[{"step": 3, "policy/loss": 0.1}],
        pairs=[PAIR],
    )


def test_what_is_saved_is_what_is_loaded(state: TrainingState, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, state, seed=7)
    assert latest_checkpoint(tmp_path) == folder
    loaded = load_checkpoint(folder, device=CPU)
    assert loaded.step == 3
    assert loaded.metrics == state.metrics
    assert loaded.pairs == [PAIR]
    assert torch.equal(loaded.policy_optimizer["a/exp_avg"], torch.arange(3.0))
    for name, tensor in state.verify_rm.model.state_dict().items():
        assert torch.equal(tensor, loaded.verify_rm.model.state_dict()[name])


def test_only_the_newest_step_folder_is_kept(state: TrainingState, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, state, seed=7)
    state.step = 6
    save_checkpoint(tmp_path, state, seed=7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LATEST", "step-000006"]


def test_a_save_that_fails_half_way_leaves_the_previous_checkpoint(
    state: TrainingState, tmp_path: Path, monkeypatch
) -> None:
    """The disk fills up while the second checkpoint is written."""
    first = save_checkpoint(tmp_path, state, seed=7)
    state.step = 6

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "save_file", full)
    with pytest.raises(DataError, match=r"step-000006: the checkpoint cannot be written .*No space left"):
        save_checkpoint(tmp_path, state, seed=7)
    assert latest_checkpoint(tmp_path) == first
    assert load_checkpoint(first, device=CPU).step == 3


@pytest.mark.parametrize("name", ["policy/model.safetensors", "metrics.jsonl"])
def test_a_changed_file_is_named(state: TrainingState, tmp_path: Path, name: str) -> None:
    folder = save_checkpoint(tmp_path, state, seed=7)
    with (folder / name).open("ab") as content:
        content.write(b" ")
    with pytest.raises(DataError, match=f"{name}: changed since the checkpoint was written"):
        load_checkpoint(folder, device=CPU)


def test_a_missing_file_is_named(state: TrainingState, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, state, seed=7)
    (folder / "verify_rm" / "config.json").unlink()
    with pytest.raises(DataError, match=r"verify_rm/config\.json: missing since"):
        load_checkpoint(folder, device=CPU)


def test_an_empty_folder_holds_no_checkpoint(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    with pytest.raises(DataError, match="holds no checkpoint"):
        require_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["step-000009", "../elsewhere"])
def test_a_pointer_to_nowhere_or_outside_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "LATEST").write_text(name + "\n")
    with pytest.raises(DataError, match="which holds no checkpoint; restore the folder"):
        latest_checkpoint(tmp_path)


def test_optimiser_state_that_is_not_safetensors_is_refused(state: TrainingState, tmp_path: Path) -> None:
    """The manifest is made to agree, so that only the content is at fault."""
    folder = save_checkpoint(tmp_path, state, seed=7)
    broken = folder / "policy_optimizer.safetensors"
    broken.write_bytes(b"pickle")
    manifest = folder / "manifest.json"
    content = json.loads(manifest.read_text())
    content["sha256"]["policy_optimizer.safetensors"] = checkpoint_module._sha256(broken)
    manifest.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="optimiser state is not safetensors"):
        load_checkpoint(folder, device=CPU)
