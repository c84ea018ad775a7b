"""The whole laptop pipeline with its models, problems and checkpoints on a real S3 server."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cooper_rl.checkpoints.manifest import CheckpointManifest
from cooper_rl.checkpoints.reference import CheckpointReference
from cooper_rl.config.load import load
from cooper_rl.records.files import read_records, read_report, write_records
from cooper_rl.schema.data import Problem
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvalReport, ModelSet
from cooper_rl.stages import prepare_models
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.open import open_store
from cooper_rl.tiny.problems import generate_problems
from pipelines.local.folder import run_folders
from tests.small_run import ATTACK, SMALL
from tests.stand_ins.fixtures import gateway, make_client, send_model, storage_config
from tests.stand_ins.radosgw import Account, Gateway

__all__ = ["gateway"]

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


class Finished(NamedTuple):
    """A run of the pipeline."""

    output: Path
    shown: str
    store: ObjectStore
    """Where its checkpoints are."""
    account: Account


def start_from(gateway: Gateway, folder: Path) -> list[str]:
    """Settings of a run whose models and problems lie in the bucket."""
    prepare_models.run(load("laptop", SMALL), models=folder / "models", report=folder / "models.json")
    names = ["policy", "small", "backbone"]
    policy, small, backbone = (
        json.dumps(send_model(gateway, "end-to-end", f"models/{name}", folder / "models" / name))
        for name in names
    )
    write_records(folder / "mine.jsonl", generate_problems(60, 0))
    client = make_client(gateway.port, gateway.account)
    client.fput_object("end-to-end", "problems/mine.jsonl", str(folder / "mine.jsonl"))
    return [
        "models.tiny=null",
        f"models.policy={policy}",
        f"models.samplers={{ policy = {policy}, small = {small} }}",
        f"models.backbone={backbone}",
        "problems.num_tiny=0",
        'problems.sources=["s3://end-to-end/problems/mine.jsonl"]',
    ]


@pytest.fixture(scope="module")
def finished(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    output = tmp_path_factory.mktemp("run")
    secret = tmp_path_factory.mktemp("secret")
    for name, key in (
        ("access_key", gateway.account.access_key),
        ("secret_key", gateway.account.secret_key),
    ):
        (secret / name).write_text(key)
    make_client(gateway.port, gateway.account).make_bucket("end-to-end")
    storage = storage_config(gateway.endpoint, "end-to-end", credentials=secret)
    profile = tmp_path_factory.mktemp("profile") / "attacked.toml"
    profile.write_text('preset = "laptop"\nred_team = true\n')
    changes = [
        *SMALL,
        *ATTACK,
        *start_from(gateway, tmp_path_factory.mktemp("start")),
        "storage.uri=s3://end-to-end/runs",
        f"storage.endpoint={gateway.endpoint}",
    ]
    command = ["local", "end_to_end", "--profile", str(profile), "--iterations", "2", "--output", str(output)]
    command += [word for change in changes for word in ("--set", change)]
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", *command],
        cwd=ROOT,
        env=os.environ
        | {
            "AWS_ACCESS_KEY_ID": gateway.account.access_key,
            "AWS_SECRET_ACCESS_KEY": gateway.account.secret_key,
            "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
        },
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    client = make_client(gateway.port, gateway.account)
    kept = [entry.object_name for entry in client.list_objects("end-to-end", prefix="runs/", recursive=True)]
    # Shared by runs: the mark of the place where VerifyRM's training kept its states stays, they do not.
    assert all(name.endswith("/.cooper-rl") for name in kept if name.startswith("runs/_fits/"))
    (run,) = {name.split("/")[1] for name in kept} - {"_fits", "_models", "_verdicts"}
    assert re.fullmatch("[0-9]{1,8}", run)  # kfp.local's id of the run
    store = open_store(storage, f"s3://end-to-end/runs/{run}")
    return Finished(output, done.stdout + done.stderr, store, gateway.account)


def test_every_iterations_checkpoint_is_in_the_bucket_and_unharmed(
    finished: Finished, tmp_path: Path
) -> None:
    for first, last in ((1, 2), (3, 4)):
        content = finished.store.read(f"from-{first:06d}/LATEST")
        assert content is not None
        start = f"from-{first:06d}/{content.data.decode().strip()}"
        assert start.endswith(f"step-{last:06d}")
        sealed = finished.store.read(f"{start}/manifest.json")
        assert sealed is not None
        manifest = CheckpointManifest.model_validate_json(sealed.data)
        assert {"policy/model.safetensors", "verify_rm/model.safetensors"} <= set(manifest.sha256)
        for file, sha256 in manifest.sha256.items():
            finished.store.get_file(f"{start}/{file}", tmp_path / start / file, sha256=sha256)


def test_tasks_hand_over_references_and_the_last_ones_models_are_evaluated(finished: Finished) -> None:
    run = run_folders(finished.output, "end-to-end")[-1]
    for task, step in (("train-cooper", 2), ("train-cooper-2", 4)):
        checkpoint = run / task / "checkpoint"
        assert read_report(checkpoint / "reference.json", CheckpointReference).step == step
        names = {path.name for path in checkpoint.rglob("*") if path.is_file()}
        assert names == {"LATEST", "manifest.json", "reference.json", "metrics.jsonl"}
    evaluations = read_records(run / "evaluate-policy-3" / "evaluations", EvalReport)
    assert [evaluation.step for evaluation in evaluations] == [0, 2, 4]


def test_the_red_team_attacked_the_references_too(finished: Finished) -> None:
    run = run_folders(finished.output, "end-to-end")[-1]
    before, after = (read_report(run / task / "report", RedTeamReport) for task in ("red-team", "red-team-2"))
    assert before.target is None
    assert after.target is not None, "the checkpoint, as the registry will name it"
    assert min(before.num_queries, after.num_queries) > 0


def test_the_run_started_from_what_lies_in_the_bucket(finished: Finished) -> None:
    run = run_folders(finished.output, "end-to-end")[-1]
    models = read_report(run / "prepare-models" / "models" / "models.json", ModelSet)
    assert models.policy.startswith("s3://end-to-end/models/policy#sha256=")
    assert list((run / "prepare-models" / "models").iterdir()) == [run / "prepare-models/models/models.json"]
    collected = {problem.question for problem in read_records(run / "collect-problems" / "problems", Problem)}
    assert collected <= {problem.question for problem in generate_problems(60, 0)}


def test_no_credential_is_shown_written_or_stored(finished: Finished, tmp_path: Path) -> None:
    """Compiled pipeline, artifacts, log, report, what is on the screen, and every object."""
    secret = finished.account.secret_key.encode()
    files = [path for path in finished.output.rglob("*") if path.is_file()]
    assert {".yaml", ".html", ".txt", ".jsonl"} <= {path.suffix for path in files}
    assert [path for path in files if secret in path.read_bytes()] == []
    assert secret.decode() not in finished.shown
    for key in finished.store.keys(""):
        content = finished.store.read(key)
        assert content is not None
        assert secret not in content.data
