"""A run whose models and problems are named by their addresses in an object store, as on a closed network."""

import io
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.errors import DamagedObjectError, DataError, ModelError, StorageError
from cooper_rl.models.policy import save_policy
from cooper_rl.records.files import read_records
from cooper_rl.records.model_set import read_models
from cooper_rl.run.identity import run_identity
from cooper_rl.run.memory import explain_memory
from cooper_rl.schema.data import Completion, Problem
from cooper_rl.stages import (
    collect_problems,
    evaluate_policy,
    evaluate_verify_rm,
    prepare_models,
    red_team,
    sample_completions,
    train_cooper,
    train_verify_rm,
)
from cooper_rl.storage.model_reference import handed_over, model_in
from tests.small_run import ATTACK
from tests.stages.conftest import SMALL, Files, with_other_questions
from tests.stand_ins.fixtures import Moto, bucket, gateway, make_client, s3_server, send_model
from tests.stand_ins.radosgw import Gateway

__all__ = ["bucket", "gateway", "s3_server"]

Configure = Callable[..., Config]


@pytest.fixture
def configure(s3_server: Gateway | Moto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configure:
    """A configuration that reaches the store, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(policy: str, *more: str, backbone: str | None = None) -> Config:
        names = [f"models.policy={json.dumps(policy)}", f"models.backbone={json.dumps(backbone or policy)}"]
        where = f"storage.endpoint={json.dumps(s3_server.endpoint)}"
        return load("laptop", [*SMALL, "models.tiny=null", *names, where, *more])

    return make


def prepare(config: Config, folder: Path) -> Path:
    prepare_models.run(config, models=folder / "models", report=folder / "report.json")
    return folder / "models"


def test_every_stage_finds_a_stored_model(
    files: Files, s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    config = configure(send_model(s3_server, bucket, "Qwen/small", files.models / "policy"))
    models = prepare(config, tmp_path)
    assert not (tmp_path / "cache").exists(), "weights were fetched to look at a configuration"
    there = {"completions": tmp_path / "completions.jsonl", "report": tmp_path / "sampled.json"}
    sample_completions.run(config, models=models, problems=files.problems, **there)
    here = {"completions": tmp_path / "here.jsonl", "report": tmp_path / "here.json"}
    sample_completions.run(config, models=files.models, problems=files.problems, **here)
    assert read_records(there["completions"], Completion) == read_records(here["completions"], Completion)
    train_verify_rm.run(
        config,
        train=with_other_questions(files.examples),
        validation=files.examples,
        models=models,
        verify_rm=tmp_path / "verify_rm",
        report=tmp_path / "trained.json",
    )
    trained = {"checkpoint": tmp_path / "run", "report": tmp_path / "run.json"}
    base = {"models": models, "verify_rm": files.verify_rm}
    train_cooper.run(config, problems=files.problems, **base, **trained)
    evaluated = {name: tmp_path / f"{name}.jsonl" for name in ("completions", "evaluations", "report")}
    evaluate_policy.run(config, problems=files.held_out, examples=files.examples, **base, **evaluated)
    assert len(list((tmp_path / "cache" / "cooper-rl" / "models").iterdir())) == 1


def test_a_run_may_go_on_with_the_same_model_from_a_folder(
    files: Files, s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    """Also where the list was made in that folder, and where the hub's client left files of its own."""
    config = configure(send_model(s3_server, bucket, "small", files.models / "policy"))
    shutil.copytree(files.models, tmp_path / "local")
    for name in ("SHA256SUMS", ".gitattributes", ".cache/huggingface/config.json.metadata"):
        (tmp_path / "local" / "policy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "local" / "policy" / name).write_text("any")
    stored, here = (
        run_identity(config, models=models, verify_rm=files.verify_rm, files={}, start=None)
        for models in (prepare(config, tmp_path), tmp_path / "local")
    )
    assert stored == here


def test_a_model_that_was_exchanged_meanwhile_is_refused(
    files: Files, make_policy, s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    address = send_model(s3_server, bucket, "small", files.models / "policy")
    config = configure(address)
    models = prepare(config, tmp_path)
    save_policy(make_policy(1), tmp_path / "other")
    send_model(s3_server, bucket, "small", tmp_path / "other")
    out = {"completions": tmp_path / "completions", "report": tmp_path / "report"}
    with pytest.raises(StorageError, match=f"{address}/SHA256SUMS: has the sha256 .* and not .* exchanged"):
        sample_completions.run(config, models=models, problems=files.problems, **out)
    with pytest.raises(StorageError, match="exchanged"):
        prepare(configure(read_models(models).policy), tmp_path)


def test_a_stored_model_of_another_kind_is_named_by_its_address(
    files: Files, s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    address = send_model(s3_server, bucket, "rm", files.verify_rm)
    with pytest.raises(
        ModelError, match=rf"^models\.policy: {address}: architecture Qwen2ForSequenceClassification;"
    ):
        prepare(configure(address), tmp_path)


def test_the_memory_of_stored_models_is_planned(
    files: Files, s3_server, bucket: str, configure: Configure
) -> None:
    config = configure(send_model(s3_server, bucket, "small", files.models / "policy"), "engine.kind=vllm")
    address = str(config.models.policy)
    assert "policy" in explain_memory(config, address, address, 1, 80.0)


def collect(config: Config, folder: Path) -> list[Problem]:
    out = {name: folder / f"{name}.jsonl" for name in ("problems", "held_out", "rejected", "report")}
    collect_problems.run(config, **out)
    return [*read_records(out["problems"], Problem), *read_records(out["held_out"], Problem)]


def sources(*names: str) -> Sequence[str]:
    return ("problems.num_tiny=0", "problems.num_held_out=2", f"problems.sources={json.dumps(names)}")


def test_problems_come_from_the_store(
    files: Files, s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    client = make_client(s3_server.port, s3_server.account)
    client.fput_object(bucket, "problems/mine.jsonl", str(files.problems))
    address = f"s3://{bucket}/problems/mine.jsonl"
    found = collect(configure("any", *sources(address)), tmp_path)
    expected = read_records(files.problems, Problem)
    assert sorted(p.question for p in found) == sorted(p.question for p in expected)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/problems/absent.jsonl", "absent.jsonl: no such object; check bucket, prefix and name"),
        ("/problems", r"is no file of problems; write s3://bucket/prefix/problems\.jsonl"),
        (".jsonl", "is no file of problems"),
    ],
)
def test_an_address_without_problems_is_refused(
    bucket: str, configure: Configure, tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        collect(configure("any", *sources(f"s3://{bucket}{name}")), tmp_path)


def train_judge(config: Config, files: Files, folder: Path) -> Path:
    train_verify_rm.run(
        config,
        train=with_other_questions(files.examples),
        validation=files.examples,
        models=files.models,
        verify_rm=folder / "verify_rm",
        report=folder / "trained.json",
    )
    return folder / "verify_rm"


def test_a_trained_verify_rm_travels_as_a_reference_where_checkpoints_are_stored(
    files: Files, s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    """Its folder is some hundred bytes; later stages and the run's identity see the same model."""
    config = configure("unused", f"storage.uri=s3://{bucket}/runs", "storage.run_key=monday", *ATTACK)
    here = train_judge(load("laptop", SMALL), files, tmp_path / "here")
    there = train_judge(config, files, tmp_path / "there")
    assert [path.name for path in there.iterdir()] == ["model.json"]
    address = model_in(there)
    assert re.fullmatch(rf"s3://{bucket}/runs/_models/([0-9a-f]{{64}})#sha256=\1", address)
    assert model_in(here) == str(here)
    scored = [
        evaluate_verify_rm.run(config, verify_rm=folder, examples=files.examples, report=tmp_path / "scored")
        for folder in (here, there)
    ]
    assert scored[0].overall == scored[1].overall
    attacked = [
        red_team.run(
            config,
            verify_rm=folder,
            problems=files.held_out,
            texts=tmp_path / f"attacked_{folder.parent.name}" / "texts.jsonl",
            report=tmp_path / "attacked.json",
        )
        for folder in (here, there)
    ]
    assert attacked[0].texts == attacked[1].texts
    stored, local = (
        run_identity(config, models=files.models, verify_rm=folder, files={}, start=None)
        for folder in (there, here)
    )
    assert stored == local
    evaluated = {name: tmp_path / f"{name}.jsonl" for name in ("completions", "evaluations", "report")}
    base = {"models": files.models, "verify_rm": there}
    evaluate_policy.run(config, problems=files.held_out, examples=files.examples, **base, **evaluated)
    client = make_client(s3_server.port, s3_server.account)

    def written() -> dict[str | None, object]:
        return {
            entry.object_name: entry.last_modified
            for entry in client.list_objects(bucket, prefix="runs/_models/", recursive=True)
        }

    before = written()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("precious")
    with handed_over(config.storage, mine) as folder:
        shutil.copytree(here, folder, dirs_exist_ok=True)
    assert (model_in(mine), written()) == (address, before)
    assert sorted(path.name for path in mine.iterdir()) == ["model.json", "notes.txt"]
    with (
        pytest.raises(DataError, match=r"mine/notes\.txt: was not written by Cooper-RL"),
        handed_over(StorageConfig(), mine),
    ):
        pass
    (mine / "notes.txt").unlink()
    with handed_over(StorageConfig(), mine) as folder:
        assert folder == mine
    assert model_in(mine) == str(mine)


def test_a_stored_verify_rm_that_was_removed_or_exchanged_is_refused(
    files: Files, s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    config = configure("unused", f"storage.uri=s3://{bucket}/gone", "storage.run_key=monday")
    folder = train_judge(config, files, tmp_path)
    client = make_client(s3_server.port, s3_server.account)
    place = model_in(folder).removeprefix(f"s3://{bucket}/").partition("#")[0]
    client.put_object(bucket, f"{place}/model.safetensors", io.BytesIO(b"other"), 5)
    arguments = {"verify_rm": folder, "examples": files.examples, "report": tmp_path / "report"}
    with pytest.raises(DamagedObjectError, match=r"model\.safetensors: missing, or not what SHA256SUMS says"):
        evaluate_verify_rm.run(config, **arguments)
    client.remove_object(bucket, f"{place}/SHA256SUMS")
    with pytest.raises(StorageError, match="SHA256SUMS: missing"):
        evaluate_verify_rm.run(config, **arguments)


def test_what_is_no_model_is_not_handed_over(
    s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    config = configure("unused", f"storage.uri=s3://{bucket}/none", "storage.run_key=monday")
    with (
        pytest.raises(StorageError, match="may run code when it is loaded"),
        handed_over(config.storage, tmp_path / "folder") as folder,
    ):
        (folder / "weights.bin").write_bytes(b"pickled")
    assert not (tmp_path / "folder").exists()


def test_a_reference_goes_where_a_folder_can_be(
    files: Files, s3_server, bucket: str, configure: Configure, tmp_path: Path
) -> None:
    config = configure("unused", f"storage.uri=s3://{bucket}/blocked", "storage.run_key=monday")
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(DataError, match="cannot be made a folder"),
        handed_over(config.storage, tmp_path / "file") as folder,
    ):
        shutil.copytree(files.verify_rm, folder, dirs_exist_ok=True)
    assert (tmp_path / "file").read_text() == "mine"
