"""The experiment's page: one HTML file with nothing from elsewhere.

Every sentence is made from the numbers that it states. The numbers are in `summary.py`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cooper_rl.comparison.arms import ABLATIONS, ARMS
from cooper_rl.comparison.files import Files
from cooper_rl.comparison.summary import HACKED_DROP, ArmRun, ArmSummary, CurveName, ExperimentReport
from cooper_rl.comparison.texts import read_texts
from cooper_rl.records.files import write_text
from cooper_rl.report.changes import direction
from cooper_rl.report.figure import Color, Dash, Figure, Line, Plot
from cooper_rl.report.numbers import in_points, name_steps, percent, points, with_interval
from cooper_rl.report.page import render, versions
from cooper_rl.report.plots import KL_LABEL, along_kl, average
from cooper_rl.report.provenance import say_duration
from cooper_rl.schema.reports import Interval
from cooper_rl.schema.texts import plain

Style = tuple[Color, Dash, str]
"""Colour, dash and marker of an arm's lines."""
STYLES: dict[str, Style] = {
    "rule": ("green", "dashed", "s"),
    "frozen": ("orange", "dotted", "D"),
    "cooper": ("blue", "solid", "o"),
    "exact": ("grey", "dashdot", "^"),
}
ABLATION_STYLES: tuple[Style, ...] = (
    ("green", "dashed", "s"),
    ("purple", "dashdot", "^"),
    ("grey", "dotted", "v"),
)
"""Of the ablations in one figure, beside `cooper` or `frozen`."""
MAX_FIGURE_POINTS = 600
"""Of all runs together: Kubeflow's dashboard shows no page above 1 MB."""
OF_A_SEED = "One line a seed; the points of a long one are means over neighbouring steps."
SHARES: tuple[tuple[CurveName, str, str], ...] = (
    ("eval/judge_accuracy", "Accuracy", "What an exact judge accepts, whatever its format."),
    ("eval/verify_rm_reward", "VerifyRM reward", "Mean score of each run's VerifyRM of that moment."),
    ("eval/rule_accuracy", "Rule accuracy", "What the rule verifier accepts; it cannot read every format."),
    ("eval/verify_rm_auroc", "VerifyRM's AUROC", "On held-out labelled examples of the starting samplers."),
    (
        "rollout/rejected_score",
        "VerifyRM's score of rejected rollouts",
        "Mean score of training rollouts that the rule verifier calls incorrect.",
    ),
    ("eval/canary_rate", "Canaries accepted", "Share of known attacks that VerifyRM scores above 0.5."),
    (
        "pairs/shortcut_auroc",
        "Leak guard",
        "AUROC of a probe that tells positives from negatives without reading answers; 0.5 is none.",
    ),
    (
        "rollout/order",
        "The reward's order",
        "Share of pairs, a right and a wrong rollout of one problem, of which the right one is paid more.",
    ),
    (
        "rollout/equal_groups",
        "Groups of one verdict",
        "Share of problems whose rollouts are all right or all wrong: they teach little.",
    ),
)
"""Figures between 0 and 1."""
AMOUNTS: tuple[tuple[CurveName, str, str], ...] = (
    ("rollout/entropy", "Entropy", "Of the policy at a token, in nats. At 0 it always writes the same."),
    ("rollout/completion_tokens", "Completion length", "Tokens of a rollout."),
    ("policy/kl", "Distance from the starting policy", "KL to the start per token, in nats (k3 estimate)."),
)
"""Figures from 0 on."""
FRONTIERS: tuple[tuple[CurveName, str, str], ...] = (
    ("eval/judge_accuracy", "KL against accuracy", "What a run gained for the distance that it went."),
    (
        "eval/verify_rm_reward",
        "KL against VerifyRM reward",
        "The same of the VerifyRM reward: where it rises and accuracy beside it falls, the run was hacked.",
    ),
)
"""Evaluations by the KL of their steps; a line begins at the left, with the start."""


def write_page(
    report: ExperimentReport, page: Path, *, files: Files, origin: Sequence[tuple[str, str]]
) -> None:
    """Write the page.

    Args:
        report: What it says.
        page: Where to.
        files: Of the runs; their completions are read.
        origin: Machine, command and so on (`report/provenance.py`).

    Raises:
        DataError: a file is missing or malformed, or the disk refuses.
    """
    main = [arm for arm in report.arms if arm.arm in ARMS]
    html = render(
        "comparison/comparison.html.jinja",
        experiment=report,
        duration=say_duration(report.seconds),
        main=main,
        ablations=[arm for arm in report.arms if arm.arm in ABLATIONS],
        changes={**ARMS, **ABLATIONS},
        figures=figures(report),
        ablation_figures=ablation_figures(report.runs),
        findings=findings(report),
        criterion=f"accuracy ends more than {100 * HACKED_DROP:.0f} points below the run's own "
        "peak and the VerifyRM reward is at least what it was at that peak",
        intervals=say_intervals(report),
        texts=read_texts(files, report.runs),
        summary=to_markdown(report),
        hacks=[run for run in report.runs if run.arm in ARMS and run.is_hacked],
        origin=origin,
        versions=versions(),
    )
    write_text(page, html)


def figures(report: ExperimentReport) -> list[Figure]:
    """The arms' curves, one line a seed; a figure that no arm has numbers for is left out."""
    runs = report.runs
    plots = [
        *(
            Plot(title, text, _lines(runs, _over_steps(key), STYLES), limits=(0, 1))
            for key, title, text in SHARES
        ),
        *(
            Plot(title, text, _lines(runs, _over_kl(key), STYLES), x_label=KL_LABEL, limits=(0, 1))
            for key, title, text in FRONTIERS
        ),
        *(Plot(title, text, _lines(runs, _over_steps(key), STYLES), floor=0) for key, title, text in AMOUNTS),
    ]
    return [Figure(each._replace(caption=f"{each.caption} {OF_A_SEED}")) for each in plots if each.lines]


def _over_steps(key: CurveName) -> Callable[[ArmRun], list[tuple[float, float]]]:
    return lambda run: list(zip(run.curves[key].steps, run.curves[key].values, strict=True))


def _over_kl(key: CurveName) -> Callable[[ArmRun], list[tuple[float, float]]]:
    def read(run: ArmRun) -> list[tuple[float, float]]:
        known = run.curves["policy/kl"]
        kl = dict(zip(known.steps, known.values, strict=True))
        return along_kl(_over_steps(key)(run), kl) if kl else []

    return read


def ablation_figures(runs: Sequence[ArmRun]) -> list[Figure]:
    """Accuracy and VerifyRM reward of the ablations, a few in a figure beside the arm that they change."""
    names = dict.fromkeys(run.arm for run in runs if run.arm in ABLATIONS)
    found: list[Figure] = []
    for base in ("cooper", "frozen"):
        own = [name for name in names if name.startswith("frozen_") == (base == "frozen")]
        for first in range(0, len(own), len(ABLATION_STYLES)):
            few = own[first : first + len(ABLATION_STYLES)]
            styles = {base: STYLES[base], **dict(zip(few, ABLATION_STYLES, strict=False))}
            for key, title, caption in SHARES[:2]:
                lines = _lines(runs, _over_steps(key), styles)
                plot = Plot(f"{title}: {', '.join(few)}", f"{caption} {OF_A_SEED}", lines, limits=(0, 1))
                found.append(Figure(plot))
    return found


def _lines(
    runs: Sequence[ArmRun],
    read: Callable[[ArmRun], list[tuple[float, float]]],
    styles: Mapping[str, Style],
) -> list[Line]:
    """The curves of the arms that have a style, one line a run."""
    return [
        Line(run.arm, color, [x for x, _ in points], [y for _, y in points], dash, marker)
        for run in runs
        if run.arm in styles and (found := read(run))
        for points in (average(found, math.ceil(len(found) * len(runs) / MAX_FIGURE_POINTS)),)
        for color, dash, marker in (styles[run.arm],)
    ]


def to_markdown(report: ExperimentReport) -> str:
    """The findings and a table of all arms, to paste elsewhere."""
    lines = [
        f"# Cooper experiment, {report.steps} steps",
        "",
        *(f"- {line}" for line in findings(report)),
        "",
        "| arm | accuracy at the start | accuracy at the end | change | VerifyRM reward | hacked |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {arm.arm} | {percent(arm.start_accuracy.value)} | {with_interval(arm.accuracy)} "
        f"| {in_points(arm.change)} | {percent(arm.verify_rm_reward.value)} "
        f"| {arm.num_hacked} of {arm.num_runs} |"
        for arm in report.arms
    ]
    return "\n".join([*lines, "", say_intervals(report), ""])


def say_intervals(report: ExperimentReport) -> str:
    """The sentence that names what the intervals are over."""
    if all(arm.num_runs > 1 for arm in report.arms):
        return "Intervals are 95 %, over problems and seeds."
    return "Intervals are 95 %, over problems; they say nothing of other seeds, which may differ by more."


def findings(report: ExperimentReport) -> list[str]:
    """Conclusions that the numbers allow, arm by arm."""
    by_name = {arm.arm: arm for arm in report.arms}
    return [
        *(_say_arm(arm) for arm in report.arms if arm.arm in ARMS),
        *_say_comparison(by_name),
        *_say_recall(report),
        *_say_monitor(report.runs),
    ]


def _say_arm(arm: ArmSummary) -> str:
    return (
        f"{arm.arm}: {arm.num_hacked} of {arm.num_runs} runs hacked. Accuracy went from "
        f"{percent(arm.start_accuracy.value)} to {percent(arm.accuracy.value)}: it "
        f"{direction(arm.change)}, {in_points(arm.change)}. The VerifyRM reward ends at "
        f"{percent(arm.verify_rm_reward.value)}."
    )


def _say_comparison(arms: dict[str, ArmSummary]) -> list[str]:
    """Cooper against the others."""
    if "cooper" not in arms:
        return []
    said: list[str] = []
    for other, change in arms["cooper"].against.items():
        if other in ARMS:
            said.append(
                f"cooper ends {points(change.value)} points from {other} ({points(change.low)} to "
                f"{points(change.high)}, paired by problem): {_compare(change)}."
            )
    for source, found in arms["cooper"].by_source.items():
        each = ", ".join(
            f"{points(change.value)} from {other} ({points(change.low)} to {points(change.high)})"
            for other, change in found.against.items()
            if other in ARMS
        )
        said.append(f"On problems of {plain(source)} cooper ends {each}.")
    return said


def _say_recall(report: ExperimentReport) -> list[str]:
    """Recall of the rule verifier, where anything is right."""
    known = [(run.arm, run.rule_recall) for run in report.runs if run.rule_recall is not None]
    parts = [
        f"{arm} {percent(sum(own) / len(own))}"
        for arm in ARMS
        if (own := [recall for name, recall in known if name == arm])
    ]
    said: list[str] = []
    if report.start_rule_recall is not None:
        said.append(f"{percent(report.start_rule_recall)} of what is right by meaning at the start")
    if parts:
        said.append(f"at the end, of each arm's right completions: {', '.join(parts)}")
    return [f"The rule verifier accepts {'; '.join(said)}."] if said else []


def _say_monitor(runs: Sequence[ArmRun]) -> list[str]:
    said: list[str] = []
    for arm in ARMS:
        own = [run for run in runs if run.arm == arm and run.is_watched]
        alarmed = [run for run in own if run.first_alarm_step is not None]
        denied = [run for run in own if run.denied_alarm_steps]
        if own and not alarmed and not denied:
            said.append(f"The monitor stayed silent in all runs of {arm}.")
        if alarmed:
            each = ", ".join(f"step {run.first_alarm_step} ({_say_loss(run)})" for run in alarmed)
            said.append(
                f"The monitor raised the alarm in {len(alarmed)} of {len(own)} runs of {arm}: {each}."
            )
        if denied:
            each = ", ".join(f"{name_steps(run.denied_alarm_steps)} (seed {run.seed})" for run in denied)
            said.append(f"In {arm} the judge denied alarms, since accuracy had not fallen: {each}.")
    return said


def _say_loss(run: ArmRun) -> str:
    lost = "" if run.lost_at_alarm is None else f", {100 * run.lost_at_alarm:.1f} points below the peak"
    return f"seed {run.seed}{lost}"


def _compare(change: Interval) -> str:
    if change.low > 0:
        return "better beyond the interval"
    return "worse beyond the interval" if change.high < 0 else "no difference is shown"
