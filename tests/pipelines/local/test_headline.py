"""The last lines of a local run, from folders as its tasks leave them."""

from pathlib import Path

import pytest

from cooper_rl.checkpoints.manifest import CheckpointManifest, dump_manifest
from cooper_rl.checkpoints.reference import CheckpointReference
from cooper_rl.errors import DataError
from cooper_rl.records.files import write_report
from pipelines.local.headline import copy_summary, headline


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two iterations, of which the second's checkpoint counts."""
    for task, step in (("train-cooper", "step-000002"), ("train-cooper-2", "step-000004")):
        checkpoint = tmp_path / "run" / task / "checkpoint"
        (checkpoint / step).mkdir(parents=True)
        manifest = CheckpointManifest(
            step=int(step[-6:]), score=None, identity={}, versions={}, history=(), sha256={}
        )
        (checkpoint / step / "manifest.json").write_bytes(dump_manifest(manifest.sealed()))
        (checkpoint / "LATEST").write_text(f"{step}\n", encoding="utf-8")
    return tmp_path / "run"


def test_a_run_ends_with_the_folders_of_both_models_and_the_metrics_of_every_step(run: Path) -> None:
    checkpoint = run / "train-cooper-2" / "checkpoint"
    assert headline(run, run.parent).splitlines()[-3:] == [
        f"  policy    {checkpoint}/step-000004/policy",
        f"  VerifyRM  {checkpoint}/step-000004/verify_rm",
        f"  metrics   {checkpoint}/logs/*/metrics.jsonl",
    ]


def test_a_run_whose_weights_are_in_a_store_ends_with_their_address(run: Path) -> None:
    uri = "s3://bucket/runs/monday/from-000003"
    reference = CheckpointReference(uri=uri, name="step-000004", step=4, checksum="0" * 64)
    write_report(run / "train-cooper-2" / "checkpoint" / "reference.json", reference)
    assert headline(run, run.parent).splitlines()[-2:] == [
        f"  models   {uri}/step-000004",
        f"  metrics  {run}/train-cooper-2/checkpoint/step-000004/metrics.jsonl",
    ]


def test_a_summary_that_cannot_be_copied_is_named_with_its_original(run: Path) -> None:
    """A run that has ended well or not has said so before."""
    summary = run / "summarise-run" / "summary"
    summary.parent.mkdir()
    summary.write_text("# Run failed\n", encoding="utf-8")
    (run.parent / "summary.md").mkdir()
    with pytest.raises(DataError, match=f"summary.md: cannot be written .*; read {summary} in its place"):
        copy_summary(run, run.parent)
