"""The report's figures: inline SVG that follows the page's colours, light or dark.

Figures are small (one column of a phone) and have no text that comes from data, so that nothing in a data
set can be taken for a formula or for markup. Long runs are averaged into at most 200 points a line.
Deliberately left out: numbers, which stand in tables beside the figures.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cooper_rl.schema.data import EvalReport, Interval
from cooper_rl.schema.step_metrics import Phase, StepMetrics

MAX_POINTS = 200
_SIZE_INCHES = (4.4, 2.6)
"""One column of the page, where text of 8.5 points is neither small on a phone nor large on a desk."""

# Colours that stand for a CSS variable until the SVG is written; the page defines the variables.
INK, FAINT, BLUE, ORANGE, GREEN, PURPLE, GREY = (f"#0a0b{n:02x}" for n in range(7))
_VARIABLES = {
    INK: "var(--ink)", FAINT: "var(--faint)", BLUE: "var(--blue)", ORANGE: "var(--orange)",
    GREEN: "var(--green)", PURPLE: "var(--purple)", GREY: "var(--grey)",
}  # fmt: skip

Metrics = Sequence[StepMetrics]
Read = Callable[[StepMetrics], float | None]


class Figure(NamedTuple):
    """One figure with what a person needs to read it."""

    title: str
    caption: str
    svg: str


class _Line(NamedTuple):
    read: Read
    label: str
    color: str
    style: str = "-"


def headline_figure(evaluations: Sequence[EvalReport]) -> Figure:
    """Every evaluation's numbers with their intervals, side by side."""
    readings: list[tuple[str, str, str, Callable[[EvalReport], Interval | None]]] = [
        ("accuracy", BLUE, "o", lambda found: found.judge_accuracy),
        ("rule accuracy", GREEN, "s", lambda found: found.rule_accuracy),
        ("VerifyRM reward", ORANGE, "D", lambda found: found.verify_rm_reward),
        ("VerifyRM accuracy", PURPLE, "^", lambda found: found.verify_rm.accuracy),
    ]

    def draw(axes: Any) -> None:
        for number, (label, color, marker, read) in enumerate(readings):
            points = [(place, read(found)) for place, found in enumerate(evaluations)]
            known = [(place + (number - 1.5) * 0.09, found) for place, found in points if found is not None]
            if known:
                axes.errorbar(
                    [place for place, _ in known],
                    [found.value for _, found in known],
                    yerr=_errors([found for _, found in known]),
                    color=color, marker=marker, markersize=4.5, linewidth=1.2, elinewidth=1.4, capsize=2.5,
                    label=label,
                )  # fmt: skip
        axes.set_xticks(range(len(evaluations)), [f"step {found.step}" for found in evaluations])
        axes.set_xlim(-0.4, len(evaluations) - 0.6)
        axes.set_ylim(0, 1)

    caption = "Held-out problems (VerifyRM accuracy: held-out labelled examples). Bars are 95 % intervals."
    return Figure("Before and after", caption, draw_svg("headline", draw))


def reward_figure(metrics: Metrics, title: str = "Reward and rule accuracy of the rollouts") -> Figure | None:
    """What the policy is paid beside what the rule verifier says; None where nothing is known."""
    return _curves(
        metrics,
        title,
        "What the policy is paid, and what the rule verifier says of the same rollouts. A reward that "
        f"rises alone is the sign of reward hacking. Thin: each step; bold: moving mean.{_note(metrics)}",
        [
            _Line(lambda row: row.rollout.verify_rm_reward, "VerifyRM reward", ORANGE),
            _Line(lambda row: row.rollout.rule_accuracy, "rule accuracy", GREEN, "--"),
        ],
        limits=(0, 1),
        is_smoothed=True,
    )


def _note(metrics: Metrics) -> str:
    bin_size = max(1, math.ceil(len(metrics) / MAX_POINTS))
    return f" Each point is a mean over {bin_size} steps." if bin_size > 1 else ""


def training_figures(metrics: Metrics) -> list[Figure]:
    """Curves over steps; a figure whose phases did not run is left out."""
    note = _note(metrics)
    figures: list[Figure | None] = [
        reward_figure(metrics),
        _curves(
            metrics, "Rollouts without a readable answer",
            "Share of rollouts cut at the token limit, and share whose answer the rule verifier cannot read."
            + note,
            [_Line(lambda row: row.rollout.cut_fraction, "cut", PURPLE),
             _Line(lambda row: row.rollout.rule_unparsable, "unparsable for the rule", GREY, "--")],
            limits=(0, 1),
        ),
        _curves(metrics, "Policy loss", "Clipped GRPO loss with its KL term; near 0 by construction." + note,
                [_Line(lambda row: row.policy and row.policy.loss, "loss", BLUE)]),
        _curves(metrics, "Distance from the starting policy",
                "KL to the frozen reference policy per token (k3 estimate)." + note,
                [_Line(lambda row: row.policy and row.policy.kl, "KL", BLUE)], floor=0),
        _curves(metrics, "VerifyRM update",
                "Pair loss, and share of the step's pairs that VerifyRM ordered rightly before learning from "
                "them." + note,
                [_Line(lambda row: row.verify_rm.loss, "pair loss", ORANGE),
                 _Line(lambda row: row.verify_rm.pair_accuracy, "pair accuracy", PURPLE, "--")], floor=0),
        _curves(metrics, "Preference pairs",
                "Problems with a correct rollout, and pairs that a wrong rewrite was found for." + note,
                [_Line(lambda row: row.pairs.positives, "problems with a positive", GREY, "--"),
                 _Line(lambda row: row.pairs.count, "pairs", ORANGE)], floor=0),
        _phases_figure(metrics, note),
    ]  # fmt: skip
    return [figure for figure in figures if figure is not None]


def series(metrics: Metrics, read: Read) -> tuple[list[float], list[float]]:
    """Steps and values of one number where it is known and finite, averaged into MAX_POINTS bins."""
    points = [
        (float(row.step), float(value))
        for row in metrics
        if (value := read(row)) is not None and math.isfinite(value)
    ]
    size = max(1, math.ceil(len(metrics) / MAX_POINTS))
    bins = [points[start : start + size] for start in range(0, len(points), size)]
    return (
        [sum(step for step, _ in part) / len(part) for part in bins],
        [sum(value for _, value in part) / len(part) for part in bins],
    )


def moving_mean(values: Sequence[float]) -> list[float]:
    """Centred mean over about a tenth of the points, shorter at both ends."""
    reach = len(values) // 20
    windows = (values[max(0, place - reach) : place + reach + 1] for place in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def _curves(
    metrics: Metrics,
    title: str,
    caption: str,
    lines: Sequence[_Line],
    *,
    limits: tuple[float, float] | None = None,
    floor: float | None = None,
    is_smoothed: bool = False,
) -> Figure | None:
    known = [line for line in lines if series(metrics, line.read)[1]]
    if not known:
        return None

    def draw(axes: Any) -> None:
        for line in known:
            steps, values = series(metrics, line.read)
            # A line needs two points to be seen.
            style: dict[str, Any] = {"color": line.color, "marker": "o" if len(steps) < 2 else None}
            if is_smoothed and len(values) >= 20:
                axes.plot(steps, values, linewidth=0.8, alpha=0.4, **style)
                values = moving_mean(values)
            axes.plot(steps, values, linewidth=1.8, linestyle=line.style, label=line.label, **style)
        axes.set_xlabel("step")
        if limits is not None:
            axes.set_ylim(*limits)
        elif floor is not None:
            axes.set_ylim(bottom=floor)

    return Figure(title, caption, draw_svg(title, draw))


def _phases_figure(metrics: Metrics, note: str) -> Figure | None:
    phases: list[tuple[Phase, str, str]] = [
        ("rollout", "rollouts", BLUE),
        ("reward", "rewards", GREEN),
        ("policy_update", "policy update", PURPLE),
        ("pairing", "pairs", GREY),
        ("reward_update", "reward update", ORANGE),
    ]
    timed = [row for row in metrics if any(phase in row.seconds for phase, _, _ in phases)]
    if not timed:
        return None

    def seconds_of(phase: Phase) -> Read:
        # A phase that did not run took no time, so that all lines have the same steps.
        return lambda row: row.seconds.get(phase, 0.0)

    def draw(axes: Any) -> None:
        steps, _ = series(timed, seconds_of(phases[0][0]))
        if len(steps) == 1:  # an area needs a width
            steps = [steps[0] - 0.4, steps[0] + 0.4]
        heights = [series(timed, seconds_of(phase))[1] for phase, _, _ in phases]
        heights = [values * 2 if len(values) == 1 else values for values in heights]
        axes.stackplot(
            steps,
            heights,
            colors=[color for _, _, color in phases],
            labels=[label for _, label, _ in phases],
            alpha=0.75,
            linewidth=0,
        )
        axes.set_xlabel("step")
        axes.set_ylim(bottom=0)

    return Figure("Seconds per step, by phase", "Wall-clock time." + note, draw_svg("phases", draw))


def compared_figure(
    title: str, caption: str, lines: Sequence[tuple[str, str, Sequence[float], Sequence[float]]]
) -> Figure:
    """Curves of several runs in one figure: (label, colour name, steps, values); a label is shown once."""
    colors = {"blue": BLUE, "orange": ORANGE, "green": GREEN, "purple": PURPLE, "grey": GREY}

    def draw(axes: Any) -> None:
        known: set[str] = set()
        for label, color, steps, values in lines:
            shown = None if label in known else label
            known.add(label)
            axes.plot(steps, values, color=colors[color], linewidth=1.4, alpha=0.9, label=shown)
        axes.set_xlabel("step")
        axes.set_ylim(0, 1)

    return Figure(title, caption, draw_svg(title, draw))


def _errors(intervals: Sequence[Interval]) -> list[list[float]]:
    # A value that was rounded past its own bound must not give a negative length.
    return [
        [max(0.0, found.value - found.low) for found in intervals],
        [max(0.0, found.high - found.value) for found in intervals],
    ]


def draw_svg(name: str, draw: Callable[[Any], None]) -> str:
    """One pair of axes as an SVG element; the same input gives the same text."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator

    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": name, "font.size": 8.5, "text.color": INK,
        "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT,
        "xtick.labelcolor": INK, "ytick.labelcolor": INK, "axes.spines.top": False,
        "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8,
    }  # fmt: skip
    with mpl.rc_context(style):
        figure = Canvas(figsize=_SIZE_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        axes: Any = figure.add_subplot()
        axes.grid(axis="y", color=FAINT, alpha=0.35, linewidth=0.6)
        draw(axes)
        if axes.get_xlabel() == "step":
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        num_labels = len(axes.get_legend_handles_labels()[1])
        columns = 2 if num_labels == 4 else 3
        figure.legend(loc="outside upper left", ncols=columns, handlelength=1.6, columnspacing=1.2)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _inline(text.getvalue())


def _inline(svg: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # every figure has the same group names
    svg = re.sub(r'\swidth="[^"]*pt"|\sheight="[^"]*pt"', "", svg, count=2)
    svg = re.sub(r"\n\s*", "\n", svg)
    for color, variable in _VARIABLES.items():
        svg = svg.replace(color, variable)
    return svg.strip()
