"""Checkpoints of earlier versions: each resumes, or is refused with the remedy.

    checkpoint-29e2347   from before the configuration was nested and places were marked
    checkpoint-0.1.0     of the release (commit f0434ac), with the metrics of its own third step
    checkpoint-0.2.0     of the next release, from the inputs of 0.1.0, with its own third step

Their inputs lie beside the first two; the four models share one `tokenizer.json`. Two steps of `train_cooper`
wrote them, with the settings below under their names of then.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, ModelError
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.stages import train_cooper

DATA = Path(__file__).parents[1] / "data"
RELEASES = sorted(path.name.removeprefix("checkpoint-") for path in DATA.glob("checkpoint-*.*.*"))
SETTINGS = [
    "cooper.problems_per_step=2",
    "cooper.group_size=4",
    "cooper.generation.max_new_tokens=8",
    "cooper.policy.lr=1e-3",
    "cooper.checkpoint_every=2",
    "labeling.rule.num_workers=1",
    "cooper.gate=null",
    "cooper.reward.lr=2e-4",
    "cooper.monitor={ window = 4 }",
    "cooper.reward.hostile_fraction=0",
]


RELEASED = [
    "cooper.problems_per_step=3",
    "cooper.group_size=4",
    "cooper.generation.max_new_tokens=8",
    "cooper.policy.lr=1e-3",
    "cooper.checkpoint_every=1",
    "labeling.rule.num_workers=1",
    "cooper.reward.hostile_fraction=0",
]


def copy(kept: str, folder: Path) -> Path:
    """The kept folder with a tokenizer beside each model."""
    shutil.copytree(DATA / kept, folder / "kept")
    for model in (
        "models/policy",
        "verify_rm",
        "checkpoint/step-000002/policy",
        "checkpoint/step-000002/verify_rm",
    ):
        shutil.copyfile(DATA / kept / "tokenizer.json", folder / "kept" / model / "tokenizer.json")
    return folder / "kept"


def copy_release(version: str, folder: Path) -> Path:
    """A release's checkpoint, with the inputs that all releases were given."""
    kept = copy("checkpoint-0.1.0", folder)
    if version != "0.1.0":
        shutil.rmtree(kept / "checkpoint")
        shutil.copytree(DATA / f"checkpoint-{version}", kept, dirs_exist_ok=True)
        for model in ("policy", "verify_rm"):
            step = kept / "checkpoint" / "step-000002" / model
            shutil.copyfile(kept / "tokenizer.json", step / "tokenizer.json")
    return kept


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy("checkpoint-29e2347", tmp_path)


def train(folder: Path, *overrides: str, settings: Sequence[str] = SETTINGS) -> None:
    train_cooper.run(
        load("laptop", [*settings, *overrides]),
        models=folder / "models",
        verify_rm=folder / "verify_rm",
        problems=folder / "problems.jsonl",
        checkpoint=folder / "checkpoint",
        report=folder / "report.json",
    )


def test_it_belongs_to_the_run_and_its_verify_rm_is_refused_with_the_remedy(folder: Path) -> None:
    """The configuration agrees under its names of today. VerifyRM reads another template since."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ModelError, match=r"step-000002/verify_rm: this VerifyRM was .*; train it again from"):
        train(folder, "cooper.steps=4", "storage.keep_last=1")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_another_configuration_is_refused_under_the_names_of_today(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"\(cooper\.policy\.lr: 0\.001 there, 0\.002 here\); choose another"
    ):
        train(folder, "cooper.steps=4", "cooper.policy.lr=2e-3")
    assert (folder / "checkpoint" / "LATEST").read_text() == "step-000002\n"


def test_every_release_has_a_checkpoint_here() -> None:
    changelog = (DATA.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## \[(\d.*?)\]", changelog, re.MULTILINE)) == set(RELEASES)


@pytest.mark.parametrize("version", RELEASES)
def test_a_checkpoint_of_a_release_resumes(
    version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its third step is that of the release itself, up to the rounding of another processor."""
    folder = copy_release(version, tmp_path)
    train(folder, "cooper.steps=3", settings=RELEASED)
    assert (folder / "checkpoint" / "LATEST").read_text() == "step-000003\n"
    said = [line for line in caplog.messages if line.startswith("step-000002: continues, ")]
    assert len(said) == 1 or version == "0.2.0"  # which recorded all that is compared
    assert all("not bit for bit, because" in line for line in said)
    with open_checkpoint(folder / "checkpoint", StorageConfig(), logs=(METRICS,)) as found:
        rows = [row.flat() for row in read_metrics(*found.log[METRICS])]
    assert [row["step"] for row in rows] == [1, 2, 3]
    before = json.loads((folder / "step-3.json").read_text())
    compared = [key for key in before if key.startswith(("rollout/", "pairs/")) and key in rows[2]]
    assert {key: rows[2][key] for key in compared} == pytest.approx(
        {key: before[key] for key in compared}, rel=1e-3
    )
    assert rows[2]["verify_rm/loss"] == pytest.approx(before["verify_rm/loss"], rel=1e-3)
    assert len(compared) > 10
