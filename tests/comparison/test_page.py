"""Figures and texts of an experiment's page."""

from pathlib import Path

import pytest

from cooper_rl.comparison.arms import ABLATIONS, ARMS
from cooper_rl.comparison.page import ablation_figures, figures, to_markdown
from cooper_rl.comparison.summary import CURVES, ArmRun, ArmSummary, Curve, ExperimentReport
from cooper_rl.comparison.texts import read_texts
from cooper_rl.experiment.jobs import written_files
from cooper_rl.records.files import write_records
from cooper_rl.schema.data import RolloutSample
from cooper_rl.schema.reports import Interval
from tests.stages.run_files import make_completion, make_evaluation


def make_run(arm: str, seed: int = 0) -> ArmRun:
    paid = RolloutSample(
        step=2, problem_id="p", question="q", reference_answer="3", completion="3", reward=1.0, score=0.9,
        rule="correct",
    )  # fmt: skip
    return ArmRun(
        arm=arm, seed=seed, start=make_evaluation(0, 0.4, 0.5), end=make_evaluation(2, 0.5, 0.6),
        curves={key: Curve(steps=[0, 2], values=[0.4, 0.5]) for key in CURVES}, peak_accuracy=0.5,
        peak_step=2, is_hacked=False, is_watched=True, first_alarm_step=None, denied_alarm_steps=[],
        lost_at_alarm=None, rule_recall=1.0, num_rolled_back=0, seconds=1.0, samples=[], paid=[paid],
    )  # fmt: skip


def test_every_ablation_is_drawn_beside_the_arm_that_it_changes() -> None:
    runs = [make_run(arm, seed) for arm in ("cooper", "frozen", *ABLATIONS) for seed in (0, 1)]
    plots = [figure.plot for figure in ablation_figures(runs)]
    labels = [list(dict.fromkeys(line.label for line in plot.lines)) for plot in plots]
    for base, *few in labels:
        assert 1 <= len(few) <= 3
        assert all(name.startswith("frozen_") == (base == "frozen") for name in few)
    for key in ("Accuracy", "VerifyRM reward"):
        drawn = [each[1:] for plot, each in zip(plots, labels, strict=True) if plot.title.startswith(key)]
        assert sorted(name for few in drawn for name in few) == sorted(ABLATIONS)
    for plot in plots:
        looks = {line.label: (line.color, line.dash, line.marker) for line in plot.lines}
        assert len(looks) == len({color for color, _, _ in looks.values()})
        assert len(looks) == len({marker for _, _, marker in looks.values()})
    assert ablation_figures([make_run("cooper")]) == []


def test_the_figures_of_a_long_experiment_leave_room_on_the_page() -> None:
    """Kubeflow's dashboard shows no page above 1 MB, and texts and scripts take up to a third of it."""
    steps = list(range(5000))
    long = Curve(steps=steps, values=[(step * 7919 % 1000) / 1000 for step in steps])
    runs = [
        make_run(arm, seed).model_copy(update={"curves": dict.fromkeys(CURVES, long)})
        for arm in ARMS
        for seed in range(3)
    ]
    drawn = figures(make_report(1).model_copy(update={"runs": runs}))
    assert max(len(line.xs) for figure in drawn for line in figure.plot.lines) == 50
    assert sum(len(figure.svg) + len(figure.data) for figure in drawn) < 650_000
    first = drawn[0].plot.lines[0]
    assert sum(first.ys) / len(first.ys) == pytest.approx(0.5, abs=0.01)  # as of the whole curve


def test_problems_stand_side_by_side_and_rollouts_name_arm_and_seed(tmp_path: Path) -> None:
    """Of two problems `cooper` comes to solve the first; the frozen arm solves none, as at the start."""
    runs = [make_run(arm, seed) for arm in ("frozen", "cooper", "no_replay") for seed in (3, 4)]
    files = written_files(tmp_path, arms=["frozen", "cooper"], seeds=[3, 4])
    write(files.start.completions, "no", "no")
    for run in files.runs:
        write(run.end.completions, "yes" if (run.arm, run.seed) == ("cooper", 3) else "no", "no")
    texts = read_texts(files, runs)
    assert "Changes are those of the arm cooper with seed 3." in texts.said
    assert "1 wrong before, right after, 0 right before, wrong after, 1 wrong before and after" in texts.said
    solved, unsolved = texts.pairs
    assert [title for title, _ in solved.sides] == ["before", "after, cooper", "after, frozen"]
    assert [sample.judge for _, sample in solved.sides] == ["incorrect", "correct", "incorrect"]
    assert [sample.judge for _, sample in unsolved.sides] == ["incorrect"] * 3
    assert texts.num_rollouts == len(texts.rollouts) == 2 + 4 * (2 + 1)
    assert {row.when for row in texts.rollouts} == {
        "start", "end, cooper", "end, frozen", "last step, cooper", "last step, frozen",
    }  # fmt: skip
    of_cooper = {row.problem_id for row in texts.rollouts if row.when == "end, cooper"}
    assert of_cooper == {f"seed {seed}, p-{number}" for seed in (3, 4) for number in (0, 1)}


def write(path: Path, *solved: str) -> None:
    path.parent.mkdir(parents=True)
    rows = [
        make_completion(number, judge="correct" if each == "yes" else "incorrect")
        for number, each in enumerate(solved)
    ]
    write_records(path, rows)


def test_an_alarm_says_what_was_lost_only_where_training_was_evaluated() -> None:
    alarmed = make_run("cooper").model_copy(update={"first_alarm_step": 1})
    report = make_report(1).model_copy(update={"runs": [alarmed]})
    assert "in 1 of 1 runs of cooper: step 1 (seed 0)." in to_markdown(report)
    report = report.model_copy(update={"runs": [alarmed.model_copy(update={"lost_at_alarm": 0.25})]})
    assert "step 1 (seed 0, 25.0 points below the peak)." in to_markdown(report)


def test_one_seed_is_not_said_to_speak_of_others() -> None:
    one, three = (make_report(num_runs) for num_runs in (1, 3))
    assert "over problems and seeds." in to_markdown(three)
    assert "over problems; they say nothing of other seeds" in to_markdown(one)


def make_report(num_runs: int) -> ExperimentReport:
    share = Interval(value=0.5, low=0.4, high=0.6, count=60)
    arm = ArmSummary(
        arm="cooper", start_accuracy=share, accuracy=share, accuracy_by_seed=[0.5] * num_runs, change=share,
        against={}, by_source={}, rule_accuracy=share, verify_rm_reward=share, num_hacked=0, num_alarmed=0,
        num_runs=num_runs,
    )  # fmt: skip
    runs = [make_run("cooper", seed) for seed in range(num_runs)]
    return ExperimentReport(
        arms=[arm], runs=runs, steps=2, num_held_out=60, samples_per_problem=4, settings={}
    )
