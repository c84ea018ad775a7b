"""The stage `compare-arms` on runs that nobody trained: what it compares, and what it refuses to."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cooper_rl.checkpoints.logs import write_piece
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.comparison.arms import arm_overrides
from cooper_rl.comparison.summary import ExperimentReport
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import changed, load
from cooper_rl.errors import DataError
from cooper_rl.records.files import write_records, write_report
from cooper_rl.run.identity import co_training_identity
from cooper_rl.schema.data import EvaluatedCompletion
from cooper_rl.schema.step_metrics import RolloutMetrics, StepMetrics
from cooper_rl.stages import compare_arms
from cooper_rl.storage.local import LocalStore
from tests.stages.champions import make_evaluation

RUNS = ("rule", "cooper")
CONFIG = load("laptop", ["cooper.steps=2", 'experiment.runs=[{arm="rule", seed=0}, {arm="cooper", seed=0}]'])
SIX = tuple(f"p{number}" for number in range(6))


def completions(
    ids: Sequence[str] = SIX, *, is_judged: bool = True, sources: Sequence[str] = ("gsm8k",) * 6
) -> list[EvaluatedCompletion]:
    return [
        EvaluatedCompletion(
            problem_id=each, question=f"question {each}", reference_answer="1", completion="x",
            finish_reason="stop", rule="incorrect", judge="correct" if is_judged else None, score=0.5,
            source=source,
        )
        for each, source in zip(ids, sources, strict=True)
    ]  # fmt: skip


def write_checkpoint(folder: Path, arm: str) -> Path:
    """Two steps of an arm, without models."""
    identity = co_training_identity(changed(CONFIG, [*arm_overrides(arm), "cooper.seed=0"]))
    draft = folder / f"{arm}-draft"
    (draft / "policy").mkdir(parents=True)
    (draft / "policy" / "config.json").write_text("{}")
    rollout = RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.5)
    rows = [StepMetrics(step=step, rollout=rollout).flat() for step in (1, 2)]
    logs = {"metrics.jsonl": rows, "pairs.jsonl": [], "rollouts.jsonl": []}
    write_piece(draft / "logs", logs, earlier={})
    store = CheckpointStore(LocalStore(folder / arm), identity=identity, retention=StorageConfig())
    store.publish(draft, step=2, score=None, versions={})
    return folder / arm


def compare(
    folder: Path,
    ends: Sequence[Sequence[EvaluatedCompletion]],
    start: Sequence[EvaluatedCompletion],
    *,
    start_step: int = 0,
    start_judge: str = "tiny",
) -> tuple[ExperimentReport, str]:
    """The stage's report and summary of two runs that end with these completions."""

    def write(name: str, rows: Sequence[EvaluatedCompletion], step: int) -> tuple[Path, Path]:
        report = make_evaluation([1] * 6, step=step)
        if rows[0].judge is None:
            report = report.model_copy(update={"judge_accuracy": None, "judge_model": None})
        elif name == "start":
            report = report.model_copy(update={"judge_model": start_judge})
        write_report(folder / f"{name}.json", report)
        write_records(folder / f"{name}.jsonl", rows)
        return folder / f"{name}.json", folder / f"{name}.jsonl"

    start_report, start_completions = write("start", start, start_step)
    ended = [write(arm, rows, 2) for arm, rows in zip(RUNS, ends, strict=True)]
    report = compare_arms.run(
        CONFIG,
        checkpoints=[write_checkpoint(folder, arm) for arm in RUNS],
        reports=[each for each, _ in ended],
        completions=[each for _, each in ended],
        start_report=start_report,
        start_completions=start_completions,
        page=folder / "page.html",
        summary=folder / "summary.md",
        report=folder / "report.json",
    )
    return report, (folder / "summary.md").read_text()


def test_a_source_with_one_problem_has_no_interval_and_stops_nothing(tmp_path: Path) -> None:
    rows = completions(sources=("gsm8k",) * 3 + ("svamp",) * 2 + ("aime",))
    report, _ = compare(tmp_path, [rows, rows], rows)
    assert report.arms[1].by_source.keys() == {"gsm8k", "svamp"}


def test_markup_in_the_name_of_a_source_is_shown_as_it_is(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)> [click](http://evil)"
    rows = completions(sources=("gsm8k",) * 3 + (hostile,) * 3)
    _, summary = compare(tmp_path, [rows, rows], rows)
    assert r"On problems of \<img src=x onerror=alert(1)\> \[click\](http://evil) cooper" in summary
    assert "<img" not in summary.replace(r"\<img", "")


def test_an_evaluation_without_a_judge_is_not_compared_with_a_judged_one(tmp_path: Path) -> None:
    judged, unjudged = completions(), completions(is_judged=False)
    with pytest.raises(DataError, match=r"cooper\.json: no judge evaluated it"):
        compare(tmp_path / "end", [judged, unjudged], judged)
    with pytest.raises(DataError, match=r"start\.json: no judge evaluated it"):
        compare(tmp_path / "start", [judged, judged], unjudged)


def test_a_run_on_other_problems_is_named(tmp_path: Path) -> None:
    other = completions(("other", *SIX[1:]))
    with pytest.raises(DataError, match=r"cooper\.jsonl: are of other problems than the start's"):
        compare(tmp_path, [completions(), other], completions())


def test_a_run_on_other_problems_with_the_same_ids_is_named(tmp_path: Path) -> None:
    other = [row.model_copy(update={"question": f"Another {row.problem_id}?"}) for row in completions()]
    with pytest.raises(DataError, match=r"cooper\.jsonl: are of other problems than the start's"):
        compare(tmp_path, [completions(), other], completions())


def test_the_report_of_a_later_step_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"start\.json: evaluates step 2, and arms .* evaluate-policy without"
    ):
        compare(tmp_path, [completions()] * 2, completions(), start_step=2)


def test_a_start_that_another_judge_evaluated_is_not_compared(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"rule\.json: judged by tiny, and the start by strict; evaluate both"
    ):
        compare(tmp_path, [completions()] * 2, completions(), start_judge="strict")


def test_the_rules_recall_counts_what_is_right_by_meaning_alone(tmp_path: Path) -> None:
    """At the start two are right, of which the rule accepts one, and it accepts two wrong ones: 1/2, not 3/2.
    At the end of `rule` nothing is right, of `cooper` all six, of which it accepts none."""
    kinds = [("correct", "correct"), ("incorrect", "correct"), *[("correct", "incorrect")] * 2]
    start = [
        row.model_copy(update={"rule": rule, "judge": judge})
        for row, (rule, judge) in zip(completions(), [*kinds, *[("incorrect", "incorrect")] * 2], strict=True)
    ]
    none = [row.model_copy(update={"rule": "correct", "judge": "incorrect"}) for row in completions()]
    report, summary = compare(tmp_path, [none, completions()], start)
    assert (report.start_rule_recall, [run.rule_recall for run in report.runs]) == (0.5, [None, 0.0])
    assert (
        "The rule verifier accepts 50.0 % of what is right by meaning at the start; at the end, of each "
        "arm's right completions: cooper 0.0 %."
    ) in summary
