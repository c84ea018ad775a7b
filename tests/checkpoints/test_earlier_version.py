"""Checkpoints of earlier versions: each resumes, or is refused with the remedy.

    checkpoint-0.1.0     of the release (commit f0434ac), with the metrics of its own third step
    checkpoint-0.2.0     of the next release, from the inputs of 0.1.0, with its own third step

The inputs lie beside the first; the four models share one `tokenizer.json`. Two steps of `train_cooper` wrote
them, with the settings below.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.stages import train_cooper

DATA = Path(__file__).parents[1] / "data"
RELEASES = sorted(path.name.removeprefix("checkpoint-") for path in DATA.glob("checkpoint-*.*.*"))
SETTINGS = [
    "cooper.problems_per_step=3",
    "cooper.group_size=4",
    "cooper.generation.max_new_tokens=8",
    "cooper.policy.lr=1e-3",
    "cooper.checkpoint_every=1",
    "labeling.rule.num_workers=1",
    "cooper.reward.hostile_fraction=0",
]


def copy_release(version: str, folder: Path) -> Path:
    """A release's checkpoint, with the inputs of all and a tokenizer beside each model."""
    kept = folder / "kept"
    shutil.copytree(DATA / "checkpoint-0.1.0", kept)
    if version != "0.1.0":
        shutil.rmtree(kept / "checkpoint")
        shutil.copytree(DATA / f"checkpoint-{version}", kept, dirs_exist_ok=True)
    step = "checkpoint/step-000002"
    for model in ("models/policy", "verify_rm", f"{step}/policy", f"{step}/verify_rm"):
        shutil.copyfile(kept / "tokenizer.json", kept / model / "tokenizer.json")
    return kept


def train(folder: Path, *overrides: str) -> None:
    train_cooper.run(
        load("laptop", [*SETTINGS, *overrides]),
        models=folder / "models",
        verify_rm=folder / "verify_rm",
        problems=folder / "problems.jsonl",
        checkpoint=folder / "checkpoint",
        report=folder / "report.json",
    )


def test_every_release_has_a_checkpoint_here() -> None:
    changelog = (DATA.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## \[(\d.*?)\]", changelog, re.MULTILINE)) == set(RELEASES)


@pytest.mark.parametrize("version", RELEASES)
def test_a_checkpoint_of_a_release_resumes(
    version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its third step is that of the release itself, up to the rounding of another processor."""
    folder = copy_release(version, tmp_path)
    train(folder, "cooper.steps=3")
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
