"""What the report shows of VerifyRM's evaluation: its figures, and how it could be fooled.

Deliberately left out: a verdict; which rates are low enough depends on what VerifyRM is used for.
"""

from typing import Any, NamedTuple

from cooper_rl.report.plots import FAINT, ORANGE, PURPLE, Figure, draw_svg
from cooper_rl.schema.data import EvaluateVerifyRMReport, Interval

ATTACKS = {
    "empty": "nothing at all",
    "colon": "a colon alone",
    "thought_process": "“Thought process:” alone",
    "lets_solve": "“Let's solve this problem step by step.” alone",
    "truncated_solution": "the first 40 % of a correct solution",
    "answer_to_another_problem": "a correct solution of another problem",
    "several_boxes": "three boxed answers, one of them right",
    "question_repeated": "the question, word by word",
    "injected_instructions": "an instruction to give the highest score",
}
MEASURES = {
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "auroc": "AUROC",
}


class Row(NamedTuple):
    """A number with its interval."""

    name: str
    meaning: str
    value: Interval


def fooled_rows(report: EvaluateVerifyRMReport) -> list[Row]:
    """Share of wrong inputs that VerifyRM accepts, one row an attack; empty where none was tried."""
    rows = [
        Row(name.replace("_", " "), ATTACKS.get(name, ""), rate) for name, rate in report.canaries.items()
    ]
    if report.wrong_reference is not None:
        meaning = "a correct completion with another problem's reference answer"
        rows.append(Row("wrong reference", meaning, report.wrong_reference))
    return rows


def measure_rows(report: EvaluateVerifyRMReport) -> list[Row]:
    """What has an interval over questions, beside the accuracy."""
    return [Row(MEASURES[name], "", found) for name, found in report.intervals.items() if name in MEASURES]


def roc_figure(report: EvaluateVerifyRMReport) -> Figure | None:
    """None when only one class is present."""
    if not report.roc:
        return None

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="--", label="chance")
        axes.plot(
            [point[0] for point in report.roc], [point[1] for point in report.roc],
            color=PURPLE, linewidth=1.8, label="VerifyRM",
        )  # fmt: skip
        axes.set_xlabel("share of wrong completions accepted")
        axes.set_ylabel("share of correct ones accepted")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.01)

    caption = "VerifyRM as trained, before co-training, at every threshold on its score."
    return Figure("ROC curve", caption, draw_svg("roc", draw))


def reliability_figure(report: EvaluateVerifyRMReport) -> Figure | None:
    """None in a report without reliability data."""
    if not report.reliability:
        return None
    largest = max(found.count for found in report.reliability)

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="--", label="perfectly calibrated")
        axes.bar(
            [(found.low + found.high) / 2 for found in report.reliability],
            [found.count / largest for found in report.reliability],
            width=0.09, color=FAINT, alpha=0.35, label="share of the examples",
        )  # fmt: skip
        axes.plot(
            [found.mean_score for found in report.reliability],
            [found.correct_fraction for found in report.reliability],
            color=ORANGE, marker="o", markersize=4, linewidth=1.4, label="VerifyRM",
        )  # fmt: skip
        axes.set_xlabel("mean score of a tenth")
        axes.set_ylabel("share that is correct")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.01)

    caption = (
        "Under the dashed line VerifyRM is too sure of itself. Bars: how many examples, the largest as 1."
    )
    return Figure("Calibration", caption, draw_svg("reliability", draw))
