"""A checkpoint of commit 29e2347, from before the configuration was nested and places were marked.

Its inputs lie beside it; the four models share one `tokenizer.json`. Two steps of `train_cooper` wrote it,
with the settings below under their names of then.
"""

import shutil
from pathlib import Path

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, ModelError
from cooper_rl.stages import train_cooper

KEPT = Path(__file__).parents[1] / "data" / "checkpoint-29e2347"
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
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = shutil.copytree(KEPT, tmp_path / "kept")
    for model in (
        "models/policy",
        "verify_rm",
        "checkpoint/step-000002/policy",
        "checkpoint/step-000002/verify_rm",
    ):
        shutil.copyfile(KEPT / "tokenizer.json", copy / model / "tokenizer.json")
    return copy


def train(folder: Path, *overrides: str) -> None:
    train_cooper.run(
        load("laptop", [*SETTINGS, *overrides]),
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
