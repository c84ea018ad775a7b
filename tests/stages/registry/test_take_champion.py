"""Where a retraining starts: models, frozen sets, and what is new."""

from pathlib import Path
from typing import Any

import pytest

from cooper_rl.checkpoints.registry import open_registry
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, DamagedObjectError, DataError
from cooper_rl.method.questions import fingerprint
from cooper_rl.models.policy import save_policy
from cooper_rl.records.files import read_records, read_report, write_records, write_report
from cooper_rl.records.model_set import read_models
from cooper_rl.records.written import file_sha256
from cooper_rl.redteam.negatives import read_attacks
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.red_team import AttackText
from cooper_rl.schema.reports import ModelSet
from cooper_rl.schema.runs import ChampionReport
from cooper_rl.stages import promote, take_champion
from cooper_rl.storage.models import at_hand
from tests.stages.champions import (
    EXAMPLES,
    HELD_OUT,
    LATER,
    PROBLEMS,
    TRAINING,
    configured,
    make_candidate,
)
from tests.stand_ins.fixtures import bucket, gateway, s3_server

__all__ = ["bucket", "gateway", "s3_server"]


@pytest.fixture
def prepared(tmp_path: Path, make_policy: Any) -> Path:
    folder = tmp_path / "prepared"
    save_policy(make_policy(7), folder / "start")
    save_policy(make_policy(8), folder / "backbone")
    samplers = {"policy": "start", "other": "Qwen/Qwen2.5-1.5B-Instruct"}
    write_report(folder / "models.json", ModelSet(policy="start", samplers=samplers, backbone="backbone"))
    return folder


@pytest.fixture
def registered(tmp_path: Path, make_policy: Any, make_verify_rm: Any) -> Config:
    """A registry with a champion that learned from TRAINING."""
    config = configured(tmp_path / "registry")
    paths = make_candidate(tmp_path / "first", [0] * 8, policy=make_policy(0), verify_rm=make_verify_rm(0))
    promote.run(config, **paths)
    return config


def take(
    config: Config, folder: Path, prepared: Path, collected: list[Problem], apart: list[Problem]
) -> dict[str, Any]:
    """Run the stage; its outputs by name, and the report under `result`."""
    write_records(folder / "collected.jsonl", collected)
    write_records(folder / "apart.jsonl", apart)
    names = ("problems", "held_out", "examples", "attacks", "summary", "report")
    outputs = {name: folder / "taken" / name for name in names} | {"models": folder / "taken" / "models"}
    result = take_champion.run(
        config,
        prepared=prepared,
        collected=folder / "collected.jsonl",
        collected_held_out=folder / "apart.jsonl",
        **outputs,
    )
    assert read_report(outputs["report"], ChampionReport) == result
    assert result.statement in outputs["summary"].read_text()
    return outputs | {"result": result}


def test_without_a_champion_everything_is_new_and_the_prepared_models_are_the_start(
    tmp_path: Path, prepared: Path
) -> None:
    taken = take(configured(tmp_path / "registry"), tmp_path, prepared, TRAINING, HELD_OUT)
    found = taken["result"]
    assert (found.champion, found.num_new, found.num_known, found.num_frozen) == (None, 12, 0, 8)
    assert found.is_worth_training
    assert "has no champion. Of 20 collected problems 12 are new" in found.statement
    assert found.statement.endswith("Training starts from the models of the preset, on the new problems.")
    assert read_records(taken["problems"], Problem) == TRAINING
    assert read_records(taken["held_out"], Problem) == HELD_OUT
    assert taken["examples"].read_text() == ""
    models = read_models(taken["models"])
    assert models.verify_rm is None
    weights = "start/model.safetensors"
    assert file_sha256(taken["models"] / weights) == file_sha256(prepared / weights)


def test_the_champion_is_the_start_and_only_what_it_has_not_seen_is_new(
    tmp_path: Path, prepared: Path, registered: Config
) -> None:
    """Of the 12 problems of TRAINING 4 stand in the frozen examples; all 8 of HELD_OUT are frozen, wherever
    this collection drew them; so is one that differs from a frozen one in case only: 8 known, 13 frozen."""
    shouted = HELD_OUT[0].model_copy(update={"id": "shouted", "question": HELD_OUT[0].question.upper()})
    collected = [*TRAINING, *LATER[:-2], shouted, *HELD_OUT[:6]]
    taken = take(registered, tmp_path, prepared, collected, [*HELD_OUT[6:], *LATER[-2:]])
    found = taken["result"]
    assert (found.num_collected, found.num_new, found.num_known, found.num_frozen) == (41, 20, 8, 13)
    assert read_records(taken["problems"], Problem) == LATER
    assert read_records(taken["held_out"], Problem) == HELD_OUT
    assert read_records(taken["examples"], VerifyExample) == EXAMPLES
    models = read_models(taken["models"])
    champion = open_registry(registered).champion()
    assert champion is not None
    assert found.champion == champion.name
    assert f"is {champion.name} (accuracy 0.0 %). Of 41 collected" in found.statement
    assert f"starts from {champion.name}'s policy and VerifyRM, on the new" in found.statement
    assert models.policy == models.samplers["policy"] == str(taken["models"] / "policy")
    assert models.verify_rm == str(taken["models"] / "verify_rm")
    assert models.samplers["other"] == "Qwen/Qwen2.5-1.5B-Instruct"
    for name in ("policy", "verify_rm"):
        file = f"{name}/model.safetensors"
        assert file_sha256(taken["models"] / file) == champion.manifest.sha256[file]


def test_a_known_question_with_another_reference_answer_is_new() -> None:
    problem = TRAINING[0]
    spaced = problem.model_copy(update={"id": "x", "question": f"  {problem.question.upper()} "})
    assert fingerprint(spaced) == fingerprint(problem)
    assert fingerprint(problem.model_copy(update={"reference_answer": "98"})) != fingerprint(problem)


def test_a_champion_that_was_evaluated_with_other_settings_is_refused_before_anything_is_trained(
    tmp_path: Path, prepared: Path, registered: Config
) -> None:
    other = configured(tmp_path / "registry", "evaluation.samples_per_problem=2")
    with pytest.raises(ConfigError, match=r"evaluated with other settings \(evaluation\.samples_per_problem"):
        take(other, tmp_path, prepared, TRAINING, HELD_OUT)


def test_nothing_new_is_said_and_is_no_error(tmp_path: Path, prepared: Path, registered: Config) -> None:
    taken = take(registered, tmp_path, prepared, TRAINING, HELD_OUT)
    found = taken["result"]
    assert (found.num_new, found.is_worth_training) == (0, False)
    assert (
        "Of 20 collected problems 0 are new, 8 were learned from before, and 12 are frozen" in found.statement
    )
    assert "Nothing is trained in this run, and nothing changes: fewer than registry.min_new_problems=3" in (
        found.statement
    )
    assert list(taken["models"].iterdir()) == []


@pytest.mark.parametrize(("least", "is_worth_training"), [(20, True), (21, False)])
def test_too_few_new_problems_are_not_worth_a_training(
    tmp_path: Path, prepared: Path, registered: Config, least: int, is_worth_training: bool
) -> None:
    config = configured(tmp_path / "registry", f"registry.min_new_problems={least}")
    found = take(config, tmp_path, prepared, PROBLEMS[8:], HELD_OUT)["result"]
    assert (found.num_new, found.is_worth_training) == (20, is_worth_training)
    assert ("Training starts from" in found.statement) == is_worth_training


def test_a_second_try_writes_the_same_again(tmp_path: Path, prepared: Path) -> None:
    """What else lies in the folder of the models stays."""
    config = configured(tmp_path / "registry")
    once = take(config, tmp_path, prepared, TRAINING, HELD_OUT)
    (once["models"] / "thesis.txt").write_text("mine")
    assert take(config, tmp_path, prepared, TRAINING, HELD_OUT) == once
    assert (once["models"] / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["policy", "verify_rm", "start", "backbone"])
def test_what_others_put_beside_a_champions_models_is_named_and_kept(
    tmp_path: Path, prepared: Path, registered: Config, name: str
) -> None:
    take(registered, tmp_path, prepared, LATER, HELD_OUT)
    thesis = tmp_path / "taken" / "models" / name / "thesis.txt"
    thesis.write_text("mine")
    with pytest.raises(DataError, match=rf"models/{name}/thesis\.txt: was not written by Cooper-RL"):
        take(registered, tmp_path, prepared, LATER, HELD_OUT)
    assert thesis.read_text() == "mine"
    assert read_models(tmp_path / "taken" / "models").backbone.endswith("models/backbone")


def test_a_damaged_champion_is_refused(tmp_path: Path, prepared: Path, registered: Config) -> None:
    name = (tmp_path / "registry" / "CHAMPION").read_text().strip()
    (tmp_path / "registry" / name / "policy" / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(
        DamagedObjectError, match=rf"champion {name} cannot be read .*model.safetensors: changed"
    ):
        take(registered, tmp_path, prepared, [*TRAINING, *LATER], HELD_OUT)


def test_models_that_cannot_be_written_are_a_message(
    tmp_path: Path, prepared: Path, registered: Config
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "models").write_text("a file is in the way")
    with pytest.raises(DataError, match=r"taken/models: cannot be written \(.*\); free space there"):
        take(registered, tmp_path, prepared, LATER, HELD_OUT)


def test_without_a_registry_there_is_nothing_to_take(tmp_path: Path, prepared: Path) -> None:
    with pytest.raises(ConfigError, match=r"registry.uri is not set"):
        take(load("laptop"), tmp_path, prepared, TRAINING, HELD_OUT)


def test_the_models_of_a_stored_champion_are_named_and_not_copied(
    tmp_path: Path, prepared: Path, make_policy: Any, make_verify_rm: Any, s3_server: Any, bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each by its address in the registry, with the hash of its list; what they name is what was promoted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = load(
        "laptop", [f"registry.uri=s3://{bucket}/registry", f"storage.endpoint={s3_server.endpoint}"]
    )
    paths = make_candidate(tmp_path / "first", [0] * 8, policy=make_policy(0), verify_rm=make_verify_rm(0))
    promote.run(config, **paths)
    champion = open_registry(config).champion()
    assert champion is not None
    taken = take(config, tmp_path, prepared, [*TRAINING, *LATER], HELD_OUT)
    models = read_models(taken["models"])
    place = f"s3://{bucket}/registry/{champion.name}"
    assert models.policy.startswith(f"{place}/policy#sha256=")
    assert models.verify_rm is not None
    assert models.verify_rm.startswith(f"{place}/verify_rm#sha256=")
    assert models.samplers["policy"] == models.policy
    assert sorted(path.name for path in taken["models"].iterdir()) == ["backbone", "models.json", "start"]
    save_policy(make_policy(0), tmp_path / "expected")
    folder = Path(at_hand(config.storage, models.policy))
    for file in ("model.safetensors", "config.json"):
        assert file_sha256(folder / file) == file_sha256(tmp_path / "expected" / file)


def test_texts_of_earlier_red_teams_are_handed_to_the_retraining(
    tmp_path: Path, prepared: Path, registered: Config
) -> None:
    taken = take(registered, tmp_path / "before", prepared, LATER, HELD_OUT)
    assert read_attacks(taken["attacks"]) == []
    found = AttackText(
        aim="universal", text="000", method="seed", origin="repetition_2", num_queries=3, search_rate=1.0
    )
    open_registry(registered).add_attacks([found])
    taken = take(registered, tmp_path / "after", prepared, LATER, HELD_OUT)
    assert read_records(taken["attacks"], AttackText) == [found]
