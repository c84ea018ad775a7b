"""A run's files in, one page and one summary out; the words follow from the numbers."""

import json
import math
import random
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cooper_rl.config import load
from cooper_rl.core.metrics import binary_scores, clustered_interval, confusion_counts, roc_points
from cooper_rl.errors import DataError
from cooper_rl.records import read_report, write_records, write_report
from cooper_rl.schema import (
    EvalReport,
    EvaluatedCompletion,
    EvaluateVerifyRMReport,
    Interval,
    LabelReport,
    RunReport,
)
from cooper_rl.stages import report
from cooper_rl.stages._report_plots import moving_mean, series, training_figures
from cooper_rl.stages._report_text import direction, points, sample_groups, shorten, summarise

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} $\\frac{1}$ & \"quoted\" 'text'"


def make_evaluation(
    step: int, accuracy: float, reward: float, *, judge: bool = True, seed: int = 0
) -> EvalReport:
    """An evaluation of 60 problems x 4 completions; the given shares are met exactly."""
    rng = random.Random(seed)
    outcomes = [float(place < round(240 * accuracy)) for place in range(240)]
    rng.shuffle(outcomes)
    judged = clustered_interval([outcomes[start : start + 4] for start in range(0, 240, 4)])
    seen = [value * float(place % 3 > 0) for place, value in enumerate(outcomes)]
    labels = [place % 3 == 0 for place in range(120)]
    scores = [min(0.99, 0.35 * label + 0.65 * rng.random()) for label in labels]
    return EvalReport(
        step=step, num_problems=60, samples_per_problem=4,
        rule_accuracy=clustered_interval([seen[start : start + 4] for start in range(0, 240, 4)]),
        judge_accuracy=judged if judge else None, judge_model="tiny(error_rate=0.0)" if judge else None,
        verify_rm_reward=Interval(value=reward, low=reward - 0.04, high=reward + 0.04, count=60),
        verify_rm=binary_scores([int(label) for label in labels], scores), cut_fraction=0.05,
    )  # fmt: skip


def make_completion(number: int, **changes) -> EvaluatedCompletion:
    values = {
        "problem_id": f"p-{number}", "question": f"Tom has {number} pens and buys 2. How many?",
        "reference_answer": str(number + 2), "completion": f"{number}+2={number + 2}.\n#### {number + 2}",
        "finish_reason": "stop", "rule": "correct", "judge": "correct", "score": 0.9,
    } | changes  # fmt: skip
    return EvaluatedCompletion.model_validate(values)


COMPLETIONS = [
    *(make_completion(number) for number in range(9)),
    *(make_completion(n, completion="The answer is seven.", rule="unparsable") for n in range(10, 14)),
    *(
        make_completion(n, completion="#### 3", rule="incorrect", judge="incorrect", score=0.1)
        for n in range(20, 24)
    ),
    make_completion(30, completion="7 7 7 7 7 7", rule="unparsable", judge="incorrect", score=0.97),
    make_completion(31, completion="#### 77", rule="incorrect", judge="incorrect", score=0.99),
    make_completion(31, completion="#### 78", rule="incorrect", judge="incorrect", score=0.98),
]


def make_metrics(steps: int) -> list[dict[str, float]]:
    """Steps of the shape that train_cooper writes; the reward update fails to run now and then."""
    rng = random.Random(0)
    rows = []
    for step in range(1, steps + 1):
        share = step / steps
        row = {
            "step": step, "rollout/verify_rm_reward": 0.45 + 0.3 * share + rng.gauss(0, 0.04),
            "rollout/rule_accuracy": 0.3 + 0.18 * share + rng.gauss(0, 0.05),
            "rollout/rule_unparsable": 0.3 - 0.1 * share, "rollout/cut_fraction": 0.05,
            "policy/loss": rng.gauss(0, 0.01), "policy/kl": 0.002 * step, "pairs/count": rng.randint(5, 12),
            "pairs/positives": rng.randint(12, 16), "seconds/rollout": 2.0 + rng.random(),
            "seconds/reward": 0.4, "seconds/policy_update": 1.5 + rng.random(), "seconds/pairing": 0.2,
            "seconds/reward_update": 0.3,
        }  # fmt: skip
        if step % 7:
            row |= {"verify_rm/loss": 0.6 - 0.3 * share, "verify_rm/pair_accuracy": 0.7 + 0.2 * share}
        rows.append(row)
    return rows


def write_run(folder: Path, **changes) -> dict[str, Path]:
    """Files of a run; `changes` replace evaluations, completions, metrics, labels or verify_rm."""
    rng = random.Random(3)
    labels = [rng.randint(0, 1) for _ in range(400)]
    halves = {"policy": slice(0, None, 2), "small": slice(1, None, 2)}
    scores = [min(0.999, max(0.001, rng.gauss(0.35 + 0.3 * label, 0.2))) for label in labels]
    files = {
        "evaluations": changes.get("evaluations")
        or [make_evaluation(0, 0.40, 0.45), make_evaluation(20, 0.45, 0.58), make_evaluation(40, 0.55, 0.7)],
        "completions": changes.get("completions") or COMPLETIONS,
    }
    paths = {
        name: folder / name for name in ("evaluations", "completions", "label_report", "verify_rm_report")
    }
    for name, rows in files.items():
        write_records(paths[name], rows)
    write_report(paths["label_report"], changes.get("labels") or LabelReport(
        num_completions=1200, num_labelled=1100, num_correct=480, num_dropped=100,
        decisions={"both_agree": 700, "rule_abstains_judge_decides": 400, "rule_and_judge_disagree": 100},
        num_train=880, num_validation=110, num_test=110, judge_model="tiny(error_rate=0.02)", seconds=4.2,
    ))  # fmt: skip
    write_report(paths["verify_rm_report"], changes.get("verify_rm") or EvaluateVerifyRMReport(
        overall=binary_scores(labels, scores),
        by_source={name: binary_scores(labels[half], scores[half]) for name, half in halves.items()},
        confusion=confusion_counts(labels, scores), roc=roc_points(labels, scores),
    ))  # fmt: skip
    paths["checkpoint"] = folder / "checkpoint"
    step_folder = paths["checkpoint"] / "step-000040"
    step_folder.mkdir(parents=True)
    metrics = changes.get("metrics") or make_metrics(40)
    (step_folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    (paths["checkpoint"] / "LATEST").write_text("step-000040\n")
    return paths


def make_report(folder: Path, *overrides: str, **changes) -> tuple[str, str, RunReport]:
    paths = write_run(folder, **changes)
    outputs = {name: folder / "out" / name for name in ("page", "summary", "report")}
    result = report.run(load("laptop", overrides), **paths, **outputs)
    assert read_report(outputs["report"], RunReport) == result
    return outputs["page"].read_text(), outputs["summary"].read_text(), result


class _Page(HTMLParser):
    """Tags, attributes and text of a page; refuses tags that do not match."""

    VOID = ("meta", "br", "path", "use", "rect")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "br", "img", "link"):
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_is_one_small_file_without_anything_from_elsewhere(tmp_path):
    html, _, _ = make_report(tmp_path)
    page = _Page(html)
    assert len(html.encode()) < 1_000_000
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    for name, value in page.attributes:
        assert not name.startswith("on"), (name, value)
        if name in ("src", "href", "xlink:href", "action"):
            assert value.startswith("#"), (name, value)
    assert "@import" not in html
    assert "url(http" not in html
    assert page.tags.count("svg") == 9
    assert '<meta name="viewport"' in html
    assert "prefers-color-scheme: dark" in html


def test_hostile_text_is_shown_and_never_run(tmp_path):
    hostile = make_completion(
        1, problem_id=HOSTILE, question=HOSTILE, reference_answer=HOSTILE, completion=HOSTILE,
        rule="incorrect", judge="incorrect",
    )  # fmt: skip
    labels = LabelReport(
        num_completions=1, num_labelled=1, num_correct=1, num_dropped=0, decisions={HOSTILE: 1}, num_train=1,
        num_validation=0, num_test=0, judge_model=HOSTILE, seconds=1,
    )  # fmt: skip
    scores = binary_scores([0, 1], [0.2, 0.8])
    verify_rm = EvaluateVerifyRMReport(
        overall=scores, by_source={HOSTILE: scores}, confusion=confusion_counts([0, 1], [0.2, 0.8]), roc=[]
    )
    evaluations = [e.model_copy(update={"judge_model": HOSTILE})
                   for e in (make_evaluation(0, 0.4, 0.5), make_evaluation(9, 0.5, 0.6))]  # fmt: skip
    override = f"instruction={json.dumps(HOSTILE)}"
    html, _, _ = make_report(
        tmp_path, override, completions=[hostile], labels=labels, verify_rm=verify_rm, evaluations=evaluations
    )
    page = _Page(html)
    assert not {"script", "img"} & set(page.tags)
    assert sum(HOSTILE in text for text in page.texts) >= 6
    assert "49" not in re.sub(r"[^{}]*", "", html)


def test_an_improvement_whose_interval_excludes_zero_is_called_one(tmp_path):
    """96 of 240 against 168 of 240: +30 points, far over its interval."""
    html, summary, result = make_report(
        tmp_path, evaluations=[make_evaluation(0, 0.4, 0.45), make_evaluation(40, 0.7, 0.7)]
    )
    assert result.accuracy_name == "judged accuracy"
    assert result.accuracy_change.value == pytest.approx(0.3)
    assert result.accuracy_change.low > 0
    start = "Judged accuracy rose by 30.0 points (95 % interval +"
    assert result.conclusion.startswith(start)
    assert "from 40.0 % to 70.0 % on 60 held-out problems after 40 steps" in result.conclusion
    assert start in html
    assert start in summary
    assert "reward hacking" not in result.conclusion


def test_a_small_change_is_not_called_an_improvement():
    result = summarise([make_evaluation(0, 0.40, 0.5), make_evaluation(20, 0.42, 0.5, seed=1)])
    assert result.accuracy_change.low < 0 < result.accuracy_change.high
    assert (
        "is compatible with zero: this run does not show that the policy got better or worse"
        in result.conclusion
    )


def test_a_reward_that_rises_alone_is_called_by_its_name():
    result = summarise([make_evaluation(0, 0.6, 0.5), make_evaluation(80, 0.1, 0.95)])
    assert result.conclusion.startswith("Judged accuracy fell by 50.0 points")
    assert "that is what reward hacking looks like" in result.conclusion


def test_verify_rm_that_does_not_beat_the_majority_is_said_so():
    poor = binary_scores([1] * 80 + [0] * 20, [0.9] * 100)
    evaluations = [e.model_copy(update={"verify_rm": poor})
                   for e in (make_evaluation(0, 0.4, 0.5), make_evaluation(9, 0.4, 0.5))]  # fmt: skip
    assert "it is not shown to beat that baseline" in summarise(evaluations).conclusion


def test_without_a_judge_the_rule_speaks(tmp_path):
    rows = [row.model_copy(update={"judge": None}) for row in COMPLETIONS]
    evaluations = [make_evaluation(0, 0.4, 0.5, judge=False), make_evaluation(9, 0.5, 0.6, judge=False)]
    html, summary, result = make_report(tmp_path, completions=rows, evaluations=evaluations)
    assert result.accuracy_name == "rule accuracy"
    assert "judge: none" in html
    assert "Judged accuracy" not in summary


def test_completions_are_grouped_by_what_the_verifiers_say():
    groups = {group.title: group for group in sample_groups(COMPLETIONS)}
    hacking = groups["Looks like hacking"]
    assert hacking.num_members == 3
    # One per problem, highest score first.
    assert [(row.problem_id, row.score) for row in hacking.samples] == [("p-31", 0.99), ("p-30", 0.97)]
    assert (groups["Correct"].num_members, len(groups["Correct"].samples)) == (13, 3)
    assert groups["Correct, but the rule does not see it"].num_members == 4
    assert groups["Wrong"].num_members == 4
    assert "No verdict" not in groups


def test_no_hacking_is_said_too():
    first = sample_groups([make_completion(1)])[0]
    assert (first.title, first.num_members, first.samples) == ("Looks like hacking", 0, [])


def test_long_texts_lose_their_middle_and_say_so():
    text = "a" * 500 + "b" * 1000 + "c" * 600
    assert shorten(text) == "a" * 500 + "\n[... 1,000 characters left out ...]\n" + "c" * 600
    assert shorten("short") == "short"


def test_changes_are_written_with_their_sign_and_direction():
    assert (points(0.031), points(-0.2)) == ("+3.1", "\u221220.0")
    assert direction(Interval(value=0.1, low=0.01, high=0.2, count=5)) == "rose"
    assert direction(Interval(value=-0.1, low=-0.2, high=-0.01, count=5)) == "fell"
    assert direction(Interval(value=0.1, low=-0.01, high=0.2, count=5)) == "is not shown to have changed"


def test_phases_that_did_not_run_leave_no_figure():
    kept = ("step", "rollout/verify_rm_reward", "seconds/rollout")
    rows = [{key: row[key] for key in kept} for row in make_metrics(5)]
    assert [figure.title for figure in training_figures(rows)] == [
        "Reward and rule accuracy of the rollouts", "Seconds per step, by phase",
    ]  # fmt: skip
    assert training_figures([{"step": 1.0}]) == []


@pytest.mark.parametrize("steps", [1, 2])
def test_very_short_runs_can_be_drawn(steps):
    figures = training_figures(make_metrics(steps))
    assert len(figures) == 7
    assert "NaN" not in "".join(figure.svg for figure in figures)


def test_series_skip_what_is_not_finite_and_average_long_runs():
    rows = [{"step": float(n), "x": float(n % 2), "y": math.nan if n == 1 else 1.0} for n in range(1, 401)]
    steps, values = series(rows, "x")
    assert (len(steps), steps[0], values[:2]) == (200, 1.5, [0.5, 0.5])
    assert series(rows[:3], "y") == ([2.0, 3.0], [1.0, 1.0])


def test_the_moving_mean_of_forty_points_spans_five():
    """Reach 40 // 20 = 2: the middle of 0..39 stays itself, the first is the mean of 0, 1, 2."""
    means = moving_mean([float(value) for value in range(40)])
    assert (means[0], means[20], means[39]) == (1.0, 20.0, 38.0)


def test_a_long_run_stays_under_a_megabyte(tmp_path):
    html, _, _ = make_report(tmp_path, metrics=make_metrics(5000))
    assert len(html.encode()) < 1_000_000
    assert "Each point is a mean over 25 steps." in html


def test_the_same_figures_are_drawn_twice():
    assert training_figures(make_metrics(3)) == training_figures(make_metrics(3))


def test_passwords_in_urls_are_blanked_in_the_configuration():
    config = load("laptop", ['labeling.judge={server={base_url="http://me:secret@host/v1", model="m"}}'])
    shown = dict(report.settings(config))
    assert shown["labeling.judge.server.base_url"] == '"http://***@host/v1"'
    assert shown["cooper.group_size"] == "8"


def test_what_cannot_be_reported_is_named(tmp_path):
    with pytest.raises(DataError, match=r"evaluations: holds one evaluation, and a report compares two; run"):
        make_report(tmp_path / "one", evaluations=[make_evaluation(0, 0.4, 0.5)])
    with pytest.raises(DataError, match=r"metrics.jsonl: no such file; give a checkpoint folder that train"):
        report.read_step_metrics(tmp_path)
    for text, message in {
        "": r"metrics.jsonl: is empty; train at least one step",
        '{"step": 1}\nnot json\n': r"metrics.jsonl:2: not an object of numbers .* use an earlier checkpoint",
        "[1]\n": r"metrics.jsonl:1: not an object of numbers",
        '{"step": null}\n': r"metrics.jsonl:1: not an object of numbers",
    }.items():
        (tmp_path / "metrics.jsonl").write_text(text)
        with pytest.raises(DataError, match=message):
            report.read_step_metrics(tmp_path)


def test_an_absent_input_names_the_file(tmp_path):
    paths = write_run(tmp_path)
    paths["label_report"].unlink()
    outputs = {name: tmp_path / "out" / name for name in ("page", "summary", "report")}
    with pytest.raises(
        DataError, match="label_report: no such file; run the stage that writes this LabelReport"
    ):
        report.run(load("laptop"), **paths, **outputs)
    assert not (tmp_path / "out").exists()


def test_reporting_imports_neither_torch_nor_the_plots_before_they_are_drawn():
    code = (
        "import sys; import cooper_rl.stages.report; "
        "print([name for name in ('torch', 'transformers', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
