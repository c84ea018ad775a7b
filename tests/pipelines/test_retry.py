"""Co-training as a task of a pipeline: killed in its first attempt, and handed over by reference."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kfp import compiler, dsl
from kfp.dsl import Dataset, Model

from components.train_cooper import train_cooper
from cooper_rl.checkpoints.reference import CheckpointReference
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.records.files import read_report
from tests.faults.conftest import Outcome, Trainer, outcome, straight, trainer
from tests.faults.kill_server import OVERRIDES
from tests.faults.test_store_faults import environment, overrides
from tests.pipelines.worker import run_worker
from tests.stand_ins.fixtures import gateway, make_client, s3_server, storage_config
from tests.stand_ins.radosgw import Account

pytestmark = pytest.mark.slow

__all__ = ["gateway", "s3_server", "straight", "trainer"]

# Python runs this before anything else: the process is the product's own but for the kill that it prepares.
KILL_ONCE = """
import os, sys

if "train_cooper" in sys.orig_argv:
    try:
        os.close(os.open(os.environ["KILLED_ONCE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        from tests.faults.kill_server import install

        install({"point": "after tidy", "hit": 1})  # the first checkpoint is visible, the second step begun
"""
RUN_NAME = "two-iterations-2026-01-01"


class Finished(NamedTuple):
    """A pipeline run."""

    folder: Path
    """Everything that it read and wrote: compiled pipeline, artifacts, log."""
    checkpoints: list[Path]
    """The artifact of each iteration."""
    log: str
    storage: StorageConfig
    account: Account
    """First in the environment, then in mounted files."""


@pytest.fixture(scope="module")
def killed(trainer: Trainer, s3_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Two iterations, two steps and one; the first is killed during its second step and tried again."""
    folder = tmp_path_factory.mktemp("pipeline")
    secret = tmp_path_factory.mktemp("secret")
    account = s3_server.account
    make_client(s3_server.port, account).make_bucket("co-training")
    storage = storage_config(s3_server.endpoint, "co-training")
    pipeline = compile_two_iterations(folder, inputs=trainer.folder, storage=storage, secret=secret)
    (folder / "sitecustomize.py").write_text(KILL_ONCE)
    for name, key in (("access_key", account.access_key), ("secret_key", account.secret_key)):
        (secret / name).write_text(key)
    status, log = run_worker(
        pipeline,
        {"run_key": "from-the-pipeline"},
        root=folder / "root",
        run=RUN_NAME,
        import_first=folder,
        environment={
            **environment(account),
            "KILLED_ONCE": str(folder / "killed"),
            "OMP_NUM_THREADS": "1",
        },
    )
    assert status == 0, log[-5000:]
    (folder / "log").write_text(log)
    run = folder / "root" / RUN_NAME
    storage = storage.model_copy(update={"credentials": secret})
    return Finished(
        folder,
        [run / task / "checkpoint" for task in ("train-cooper", "train-cooper-2")],
        log,
        storage,
        account,
    )


def test_a_component_killed_in_its_first_attempt_continues_in_its_second(
    killed: Finished, straight: Outcome
) -> None:
    """The numbers, models and optimisers after all three steps are those of one run that nobody killed."""
    assert "Task train-cooper failed (attempt 1/2)" in killed.log
    assert "continue from step-000001, step 1" in killed.log
    assert outcome(killed.checkpoints[-1], killed.storage) == straight


def test_an_iterations_artifact_is_a_small_reference_to_the_store(killed: Finished) -> None:
    """Weights are in the store only; the second iteration got its start from there."""
    for checkpoint, step in zip(killed.checkpoints, (2, 3), strict=True):
        reference = read_report(checkpoint / "reference.json", CheckpointReference)
        start = f"{killed.storage.uri}/from-the-pipeline/from-{1 if step == 2 else 3:06d}"
        assert (reference.uri, reference.step) == (start, step)
        files = sorted(path.name for path in checkpoint.rglob("*") if path.is_file())
        assert files == sorted(["LATEST", "manifest.json", "reference.json", "metrics.jsonl"])
        manifest = json.loads(next(checkpoint.rglob("manifest.json")).read_text())
        assert manifest["checksum"] == reference.checksum
        assert {"policy/model.safetensors", "verify_rm/model.safetensors"} <= set(manifest["sha256"])
        assert sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()) < 64_000


def test_no_credential_is_in_the_compiled_pipeline_or_anything_else_of_its_run(killed: Finished) -> None:
    """Compiled pipeline, artifacts and their metadata, metrics, references, log, what kfp itself writes."""
    files = [path for path in killed.folder.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"two_iterations.yaml", "log", "reference.json"} <= names
    secret = killed.account.secret_key.encode()
    assert [path for path in files if secret in path.read_bytes()] == []


def compile_two_iterations(folder: Path, *, inputs: Path, storage: StorageConfig, secret: Path) -> Path:
    """The shipped component twice, as the pipeline connects it, on inputs that are there already.

    Credentials are in the environment for the first, in mounted files for the second.
    """

    def iteration(steps: int, run_key: Any, *more: str, **start: Any) -> Any:
        chosen = [line for line in overrides(storage) if not line.startswith("storage.run_key=")]
        task = train_cooper(
            preset="laptop",
            models=_artifact(inputs / "models", Model),
            verify_rm=_artifact(inputs / "verify_rm", Model),
            problems=_artifact(inputs / "problems.jsonl", Dataset),
            overrides=[*OVERRIDES, *chosen, f"cooper.steps={steps}", *more],
            run_key=run_key,
            **start,
        )
        return task.set_retry(1, backoff_duration="0s").set_caching_options(False).outputs["checkpoint"]

    def two_iterations(run_key: str) -> None:
        first = iteration(2, run_key)
        iteration(1, run_key, f"storage.credentials={secret}", start=first)

    path = folder / "two_iterations.yaml"
    compiler.Compiler().compile(dsl.pipeline(name="two-iterations")(two_iterations), str(path))
    return path


def _artifact(path: Path, kind: type[dsl.Artifact]) -> Any:
    return dsl.importer(artifact_uri=str(path), artifact_class=kind).output
