"""Labelling in several pods, as it is compiled and as it runs through kfp.local."""

import io
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl, local
from kfp.dsl import Dataset

from cooper_rl.errors import ConfigError
from cooper_rl.records.files import read_records
from cooper_rl.run import chain
from cooper_rl.schema.data import Label
from pipelines.compile import compile_pipeline, count_tasks, read_compiled
from pipelines.local.run import run_local
from pipelines.profile import Profile, load_profile
from pipelines.resources import Tasks
from pipelines.steps import add_steps
from tests.labels.old_splits import write_inputs
from tests.pipelines.test_rules import broken_cluster_rules, broken_rules, read
from tests.small_run import SMALL
from tests.stages.label_completions.labelling import label, rule_only

SETTINGS = ["labeling.judge=null", "labeling.rule.num_workers=1", "seed=3"]


@pytest.mark.parametrize("name", ["end_to_end", "verify_rm", "retrain"])
def test_shards_are_a_loop_over_fixed_numbers_and_one_task_that_merges_them(
    tmp_path: Path, name: str
) -> None:
    cluster = load_profile("cluster")
    plain = compile_pipeline(name, tmp_path / "plain", profile=cluster, iterations=1)
    sharded = cluster.model_copy(update={"label_shards": 3})
    path = compile_pipeline(name, tmp_path, profile=sharded, iterations=1)
    compiled = read(path)
    assert list(broken_rules(compiled)) == list(broken_cluster_rules(compiled)) == []
    assert count_tasks(read_compiled(path)) == count_tasks(read_compiled(plain)) + 3
    (loop,) = find_loops(compiled)
    assert loop["parameterIterator"]["items"]["raw"].count("labeling.shard=") == 3
    assert '"labeling.shard={number=2, count=3}"' in loop["parameterIterator"]["items"]["raw"]
    assert "storage.endpoint" in loop["parameterIterator"]["items"]["raw"]


@pytest.mark.slow
def test_a_local_run_of_a_profile_with_shards_labels_in_as_many_tasks(tmp_path: Path) -> None:
    train: list[bytes] = []
    for count in (1, 3):
        profile, output = (
            load_profile("local").model_copy(update={"label_shards": count}),
            tmp_path / f"{count}",
        )
        assert run_local(
            "verify_rm", "laptop", SMALL, parameters={}, profile=profile, iterations=1, output=output,
            screen=io.StringIO(),
        ) == 0  # fmt: skip
        assert len(list(output.glob("verify-rm-*/**/label-completions/labels"))) == count
        (merged,) = output.glob(f"verify-rm-*/{'label-completions' if count == 1 else 'merge-labels'}/train")
        train.append(merged.read_bytes())
    assert train[0] == train[1]


def find_loops(compiled: dict[str, Any]) -> list[dict[str, Any]]:
    dags = [compiled["root"], *compiled["components"].values()]
    tasks = [task for found in dags for task in found.get("dag", {}).get("tasks", {}).values()]
    return [task for task in tasks if "parameterIterator" in task]


def test_the_loop_and_the_merge_give_row_for_row_what_one_process_gives(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    label(tmp_path, rule_only("seed=3"))
    steps = [
        step
        for step in chain.make_verify_rm(label_shards=3)
        if step.name in ("label_shards", "label_completions")
    ]

    @dsl.pipeline(name="labels")
    def labels():
        given = {
            reference: dsl.importer(artifact_uri=str(tmp_path / name), artifact_class=Dataset).output
            for reference, name in (
                (chain.PROBLEMS, "problems.jsonl"),
                (chain.COMPLETIONS, "completions.jsonl"),
            )
        }
        profile = Profile(overrides=("labeling.validation_fraction=0.1",))
        tasks = Tasks(profile, {"preset": "laptop", "overrides": SETTINGS})
        add_steps(tasks, steps, given=given)

    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "root"))
    labels()
    (merged,) = (tmp_path / "root").glob("*/merge-labels")
    for name in ("labels", "train", "validation", "test"):
        assert (merged / name).read_bytes() == (tmp_path / f"{name}.jsonl").read_bytes(), name
    shards = sorted((tmp_path / "root").glob("*/for-loop-*/label-completions/labels"))
    sizes = [len(read_records(path, Label)) for path in shards]
    assert len(sizes) == 3
    assert min(sizes) > 50


def test_a_profile_has_1_to_64_shards(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("label_shards = 0\n")
    with pytest.raises(ConfigError, match="label_shards: Input should be greater than or equal to 1"):
        load_profile(str(tmp_path / "mine.toml"))
