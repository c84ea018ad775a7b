"""The pipeline `experiment`: what is compiled, and that its runs are those of the command."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.comparison.arms import ABLATIONS, ARMS, check_arms
from cooper_rl.comparison.summary import ExperimentReport
from cooper_rl.config.load import changed, load
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.experiment.jobs import written_files
from cooper_rl.experiment.run import run_experiment
from cooper_rl.records.files import read_report
from cooper_rl.stages import compare_arms
from pipelines.compile import check_settings, compile_pipeline, count_tasks, read_compiled
from pipelines.local.run import run_local
from pipelines.profile import Profile, load_profile
from tests.pipelines.test_label_shards import find_loops
from tests.pipelines.test_rules import broken_cluster_rules, broken_rules, read
from tests.small_run import EXPERIMENT, SMALL

TWO_ARMS = {"arms": ("rule", "cooper"), "seeds": (3, 5)}
PATHS = ("checkpoints", "reports", "completions")


def test_a_run_is_a_turn_of_one_loop_and_the_first_task_knows_all_arms(tmp_path: Path) -> None:
    profile = load_profile("cluster").model_copy(update=TWO_ARMS)
    path = compile_pipeline("experiment", tmp_path, profile=profile, iterations=1)
    compiled = read(path)
    assert list(broken_rules(compiled)) == list(broken_cluster_rules(compiled)) == []
    assert count_tasks(read_compiled(path)) == 8 + 4 * 2 + 1 + 1
    (loop,) = find_loops(compiled)
    items = json.loads(loop["parameterIterator"]["items"]["raw"])
    assert items[1] == ["cooper.reward.kind=rule", "cooper.seed=5", "storage.arm=rule_5"]
    assert [item[-1] for item in items] == [f"storage.arm={arm}_{seed}" for arm, seed in profile.runs]
    named = json.dumps(json.dumps(profile.runs_setting))[3:-3]
    assert json.dumps(json.dumps(compiled)).count(named) == 3  # who checks, compares and summarises


def test_as_many_runs_train_at_once_as_the_profile_says(tmp_path: Path) -> None:
    profile = load_profile("cluster").model_copy(update={**TWO_ARMS, "runs_at_once": 3})
    (loop,) = find_loops(read(compile_pipeline("experiment", tmp_path, profile=profile, iterations=1)))
    assert loop["iteratorPolicy"] == {"parallelismLimit": 3}


def test_an_arm_that_is_none_or_does_not_fit_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('arms = ["cooperr"]\n')
    with pytest.raises(ConfigError, match="arms: unknown arm 'cooperr'; use some of rule, frozen"):
        load_profile(str(tmp_path / "mine.toml"))
    profile = load_profile("local").model_copy(update={"arms": ("exact",)})
    with pytest.raises(ConfigError, match=r"arm 'exact' of experiment.*only the laptop world"):
        check_settings("experiment", "paper", [], {}, profile=profile)
    with pytest.raises(ConfigError, match=r"set evaluation\.judge"):
        check_settings("experiment", "laptop", ["evaluation.judge=null"], {}, profile=load_profile("local"))
    frozen = ("cooper.pairs.assistant=null", "cooper.reward.update_verify_rm=false")
    profile = load_profile("local").model_copy(update={"overrides": frozen})
    with pytest.raises(ConfigError, match=r"arm 'cooper' of experiment\.runs: with these changes it is"):
        check_settings("experiment", "laptop", [], {}, profile=profile)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("cooper.seed=7", "cooper.seed=7: the pipeline experiment takes the profile's `seeds` instead"),
        ("storage.arm=mine", "takes the profile's `arms` and `seeds` instead"),
        ("experiment.steps=60", "takes `cooper.steps` instead; set that"),
        ("cooper.reward.kind=judge", "the arm 'rule' sets cooper.reward.kind; leave out one of the two"),
    ],
)
def test_a_setting_that_would_have_no_effect_is_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        check_settings("experiment", "laptop", [override], {}, profile=load_profile("local"))
    check_settings("end_to_end", "laptop", [override], {}, profile=load_profile("local"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'arms = ["rule", "rule"]',
            "arms: one stands there twice, so that two tasks would train the same run",
        ),
        ("seeds = [0, 1, 0]", "seeds: one stands there twice"),
        ("seeds = [4294967296]", "seeds.0: Input should be less than 4294967296"),
    ],
)
def test_a_run_that_no_task_of_its_own_could_train_is_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "mine.toml").write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_profile(str(tmp_path / "mine.toml"))


def test_every_run_has_a_name_for_its_checkpoints() -> None:
    for arm in (*ARMS, *ABLATIONS):
        (run,) = load("laptop", [f'experiment.runs=[{{arm="{arm}", seed={2**32 - 1}}}]']).experiment.runs
        assert load("laptop", [f"storage.arm={run.name}"]).storage.arm == run.name
    with pytest.raises(ConfigError, match="the run 'rule_0' stands there twice; name each once"):
        load("laptop", ['experiment.runs=[{arm="rule", seed=0}, {arm="rule", seed=0}]'])


@pytest.mark.parametrize("arm", ["exact", "paper", "dapo", "frozen_monitor_rule"])
def test_a_configuration_is_changed_as_one_that_is_loaded(arm: str) -> None:
    runs = f'experiment.runs=[{{arm="{arm}", seed=1}}]'
    config = changed(load("laptop", ["cooper.steps=3"]), [runs])
    assert config == load("laptop", ["cooper.steps=3", runs])
    check_arms(config)


@pytest.mark.slow
def test_the_pipelines_runs_are_those_of_the_command(tmp_path: Path) -> None:
    settings = [*SMALL, "cooper.evaluate_every=1"]
    profile = load_profile("local").model_copy(update=TWO_ARMS)
    piped = tmp_path / "piped"
    assert run_local(
        "experiment", "laptop", settings, parameters={}, profile=profile, iterations=1, output=piped,
        screen=io.StringIO(), tasks_at_once=1,
    ) == 0  # fmt: skip
    (found,) = piped.glob("experiment-*/compare-arms/report")
    report = read_report(found, ExperimentReport)
    commanded = tmp_path / "commanded"
    run_experiment(
        "laptop", EXPERIMENT, arms=profile.arms, seeds=profile.seeds, output=commanded, num_workers=1
    )
    expected = read_report(commanded / "report.json", ExperimentReport)
    assert report.arms == expected.arms
    own = {"seconds", "start", "end"}
    assert [run.model_dump(exclude=own) for run in report.runs] == [
        run.model_dump(exclude=own) for run in expected.runs
    ]
    page = (piped / "report.html").read_text(encoding="utf-8")
    assert "<h3>after, cooper</h3>" in page
    assert "# Cooper experiment, 2 steps" in (piped / "summary.md").read_text(encoding="utf-8")
    _check_confused_files(commanded, profile, settings, tmp_path)


def _check_confused_files(commanded: Path, profile: Profile, settings: list[str], folder: Path) -> None:
    files = written_files(commanded, arms=profile.arms, seeds=profile.seeds)
    given: dict[str, Any] = {
        "checkpoints": [run.checkpoint for run in files.runs],
        "reports": [run.end.report for run in files.runs],
        "completions": [run.end.completions for run in files.runs],
    }
    rest: dict[str, Any] = {
        "start_report": files.start.report,
        "start_completions": files.start.completions,
        **{name: folder / name for name in ("page", "summary", "report")},
    }
    config = load("laptop", [*settings, profile.runs_setting])
    swapped = {**given, "checkpoints": given["checkpoints"][::-1]}
    with pytest.raises(DataError, match=r"is no run of the arm 'rule' with seed 3 \(.*cooper.seed: 5 there"):
        compare_arms.run(config, **swapped, **rest)
    with pytest.raises(DataError, match=r"ends at step 2, and cooper\.steps is 3; set what it was"):
        compare_arms.run(load("laptop", [*settings, profile.runs_setting, "cooper.steps=3"]), **given, **rest)
    mixed = {**given, "reports": [files.start.report, *given["reports"][1:]]}
    with pytest.raises(DataError, match="evaluates step 0, and the run ends at step 2; give the report"):
        compare_arms.run(config, **mixed, **rest)
    both = {name: given[name][::-1] for name in ("reports", "completions")}
    with pytest.raises(DataError, match=r"evaluates another checkpoint than .*give checkpoints, reports and"):
        compare_arms.run(config, **{**given, **both}, **rest)
    with pytest.raises(DataError, match=r"are not the completions of .*give both in the order of the runs"):
        compare_arms.run(config, **{**given, "completions": both["completions"]}, **rest)
    with pytest.raises(DataError, match="--reports: 3 paths for the 4 runs"):
        compare_arms.run(config, **{**given, "reports": given["reports"][1:]}, **rest)
    with pytest.raises(ConfigError, match=r"experiment\.runs is empty"):
        compare_arms.run(load("laptop", settings), **given, **rest)
    assert not (folder / "report").exists()
