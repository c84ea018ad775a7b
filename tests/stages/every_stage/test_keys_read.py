"""Each stage reads the keys that it declares, and no others: `--set` refuses what is not declared."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError
from cooper_rl.records.files import write_records
from cooper_rl.schema.stages import StageName
from cooper_rl.stages import READ_WHOLE, STAGES, check_overrides, import_run
from cooper_rl.tiny.problems import generate_problems
from tests.stages.champions import HELD_OUT, TRAINING, make_candidate
from tests.stages.conftest import SMALL, Files, with_other_questions
from tests.stages.every_stage.recording import leaves, noting_reads
from tests.stages.label_completions.labelling import write_inputs
from tests.stages.test_prepare_models import TINY
from tests.stages.test_red_team import BUDGET
from tests.tiny_models import random_policy, random_verify_rm

Runs = Sequence[tuple[Config, Mapping[str, Any]]]
"""Configurations and paths that a stage is run with, one after the other."""


def outputs(folder: Path, *names: str) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return {name: folder / name for name in names}


def prepare_models(files: Files, folder: Path) -> Runs:
    named = [
        "models.tiny=null",
        f"models.policy={files.models}/policy",
        f"models.backbone={files.models}/policy",
    ]
    return [
        (load("laptop", overrides), outputs(folder / place, "models", "report"))
        for place, overrides in (("tiny", TINY), ("named", named))
    ]


def collect_problems(files: Files, folder: Path) -> Runs:
    names = ("problems", "held_out", "rejected", "report")
    sources = json.dumps([str(files.problems)])
    return [
        (load("laptop", overrides), outputs(folder / place, *names))
        for place, overrides in (
            ("tiny", ["problems.num_tiny=20", "problems.num_held_out=5"]),
            ("files", ["problems.num_tiny=0", "problems.num_held_out=2", f"problems.sources={sources}"]),
        )
    ]


def sample_completions(files: Files, folder: Path) -> Runs:
    paths = {"models": files.models, "problems": files.problems} | outputs(folder, "completions", "report")
    return [(load("laptop", ["sampling.generation.max_new_tokens=8"]), paths)]


LABELS = ("labels", "train", "validation", "test", "report")


def label_completions(files: Files, folder: Path) -> Runs:
    folder.mkdir()
    write_inputs(folder, ["#### {answer}", "#### {wrong}", "no idea"], source="tiny")
    given = {"problems": folder / "problems.jsonl", "completions": folder / "completions.jsonl"}
    cascade = load("laptop", ["labeling.rule.num_workers=1", "labeling.judge_asked=where_rule_abstains"])
    return [(cascade, given | outputs(folder / "cascade", *LABELS))]


def merge_labels(files: Files, folder: Path) -> Runs:
    [(config, given)] = label_completions(files, folder)
    import_run("label_completions")(config, **given)
    taken = {key: given[key] for key in ("problems", "completions")}
    shards = {"shards": [given["labels"]], "reports": [given["report"]]}
    return [(config, taken | shards | outputs(folder / "merged", *LABELS))]


def train_verify_rm(files: Files, folder: Path) -> Runs:
    scratch = (
        "{ vocab_size = 300, hidden_size = 32, num_layers = 1, num_heads = 2, num_matching_examples = 8 }"
    )
    config = load(
        "laptop",
        ["verify_rm.num_epochs=1", "verify_rm.num_canary_problems=2", f"verify_rm.scratch={scratch}"],
    )
    given = {"train": with_other_questions(files.examples), "validation": files.examples}
    return [
        (config, given | outputs(folder / "scratch", "verify_rm", "report")),
        (config, given | {"models": files.models} | outputs(folder / "backbone", "verify_rm", "report")),
        (config, given | {"validation": given["train"]} | outputs(folder / "split", "verify_rm", "report")),
    ]


def evaluate_verify_rm(files: Files, folder: Path) -> Runs:
    given = {"verify_rm": files.verify_rm, "examples": files.examples}
    return [(load("laptop"), given | outputs(folder, "report"))]


def train_cooper(files: Files, folder: Path) -> Runs:
    given = {
        "models": files.models, "verify_rm": files.verify_rm, "problems": files.problems,
        "held_out": files.held_out, "examples": files.examples,
        "replay": with_other_questions(files.examples),
    }  # fmt: skip
    return [
        (load("laptop", [*SMALL, *overrides]), given | outputs(folder / place, "checkpoint", "report"))
        for place, overrides in (
            ("frozen", ["cooper.reward.update_verify_rm=false"]),
            ("evaluated", ["cooper.evaluate_every=1"]),
        )
    ]


def evaluate_policy(files: Files, folder: Path) -> Runs:
    given = {
        "models": files.models, "verify_rm": files.verify_rm, "problems": files.problems,
        "examples": files.examples,
    }  # fmt: skip
    return [(load("laptop", SMALL), given | outputs(folder, "evaluations", "completions", "report"))]


def red_team(files: Files, folder: Path) -> Runs:
    given = {"verify_rm": files.verify_rm} | outputs(folder, "problems", "texts", "report")
    write_records(given["problems"], generate_problems(18, 3))
    return [(load("laptop", [*SMALL, *BUDGET]), given)]


def promote(files: Files, folder: Path) -> Runs:
    """The first champion, and one that is compared with it."""
    config = load("laptop", [f"registry.uri={folder / 'registry'}", "labeling.rule.num_workers=1"])
    return [
        (config, make_candidate(folder / str(seed), [seed] * 8, policy=random_policy(seed),
                                verify_rm=random_verify_rm(seed)))
        for seed in (0, 1)
    ]  # fmt: skip


def take_champion(files: Files, folder: Path) -> Runs:
    [(config, candidate), _] = promote(files, folder)
    given = {"prepared": files.models} | outputs(folder, "collected", "collected_held_out")
    write_records(given["collected"], TRAINING)
    write_records(given["collected_held_out"], HELD_OUT)
    names = ("models", "problems", "held_out", "examples", "attacks", "summary", "report")
    import_run("promote")(config, **candidate)
    return [(config, given | outputs(folder / "taken", *names))]


def summarise_run(files: Files, folder: Path) -> Runs:
    place = outputs(folder, "status", "summary", "report")
    place["status"].write_text(json.dumps({"state": "FAILED", "run": "run-1", "message": ""}))
    return [(load("laptop", [f"storage.uri={folder / 'store'}", "storage.run_key=monday"]), place)]


MAKE: dict[StageName, Callable[[Files, Path], Runs]] = {
    "prepare_models": prepare_models,
    "collect_problems": collect_problems,
    "sample_completions": sample_completions,
    "label_completions": label_completions,
    "merge_labels": merge_labels,
    "train_verify_rm": train_verify_rm,
    "evaluate_verify_rm": evaluate_verify_rm,
    "train_cooper": train_cooper,
    "evaluate_policy": evaluate_policy,
    "red_team": red_team,
    "take_champion": take_champion,
    "promote": promote,
    "summarise_run": summarise_run,
}


def test_every_stage_that_refuses_keys_is_run_here() -> None:
    assert MAKE.keys() | READ_WHOLE == set(STAGES)


def is_declared(stage: StageName, key: str) -> bool:
    try:
        check_overrides(stage, [f"{key}=1"])
    except ConfigError:
        return False
    return True


INFRASTRUCTURE = {"storage", "engine", "launch", "distributed"}
"""Sections that a stage hands on whole: what is read of them depends on store, engine and cluster."""
READ_ELSEWHERE: dict[StageName, set[str]] = {
    "prepare_models": {"models.tiny.backbone", "models.tiny.samplers.small"},  # in other processes
    "evaluate_policy": {"labeling.rule.timeout_seconds"},  # for answers that go to the workers
    "train_cooper": {"labeling.rule.timeout_seconds"},
    "take_champion": {"problems.domain"},  # where evaluation.judge.server is set
    "promote": {
        "labeling.rule",
        "problems.domain",  # where evaluation.judge is null
        "registry.mlflow_model",
    },  # where registry.mlflow is set
}
"""Declared keys that these runs do not come to read, and where they are."""


@pytest.mark.parametrize("stage", MAKE)
def test_a_stage_declares_the_keys_that_it_reads_and_no_others(
    stage: StageName, files: Files, tmp_path: Path
) -> None:
    runs = MAKE[stage](files, tmp_path / "run")
    with noting_reads(*(config for config, _ in runs)) as read:
        for config, paths in runs:
            import_run(stage)(config, **paths)
    assert [key for key in sorted(read) if not is_declared(stage, key)] == []
    known = read | READ_ELSEWHERE.get(stage, set()) | INFRASTRUCTURE
    declared = {key for key in leaves(runs[0][0]) if is_declared(stage, key)} - {"seed"}  # read by most
    unread = {key for key in declared if not any(f"{key}.".startswith(f"{each}.") for each in known)}
    assert unread == set()


def test_what_is_noted_is_what_is_read() -> None:
    config = load("laptop", ["labeling.judge=null"])
    with noting_reads(config) as read:
        assert config.cooper.policy.lr > 0
        assert config.labeling.judge is None
        assert config.labeling.model_copy(update={"test_fraction": 0.2}).test_fraction == 0.2
        assert config.model_dump()["engine"]["kind"] == "hf"
        assert json.loads(json.dumps(config.sampling.generation.model_dump()))["batch_size"] > 0
        assert dict(config.model_dump().items())["seed"] == 0, "looked through as a whole"
        config.labeling.rule.policy.model_dump_json()
    dumped = ("labeling.rule.policy.", "sampling.generation.")
    assert read == {key for key in leaves(config) if key.startswith(dumped)} | {
        "cooper.policy.lr", "labeling.judge", "labeling.test_fraction", "engine.kind",
    }  # fmt: skip
