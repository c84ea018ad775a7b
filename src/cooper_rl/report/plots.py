"""The report's curves, of one arm or two: before and after, and over the steps of training.

Long runs are averaged into at most 125 points a line. `figure.py` draws a figure; tables beside the figures
hold the numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cooper_rl.report.figure import COLORS, MARKERS, Color, Dash, Figure, Line, Plot
from cooper_rl.schema.reports import AccuracyName, EvalReport, Interval
from cooper_rl.schema.step_metrics import Phase, StepMetrics

MAX_POINTS = 125
KL_LABEL = "KL to the start, nats a token"
DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted", "dashdot")

Metrics = Sequence[StepMetrics]
Read = Callable[[StepMetrics], float | None]


class Arm(NamedTuple):
    """One run from the common start."""

    name: str
    """Before the labels of its lines; empty for the run itself."""
    metrics: Metrics
    evaluations: Sequence[EvalReport] = ()
    color: Color | None = None
    """Colour of all its lines, where there are many arms; None: each curve has its own."""


class _Curve(NamedTuple):
    read: Read
    label: str
    color: Color


def headline_plot(evaluations: Sequence[EvalReport]) -> Plot:
    """Every evaluation's numbers with their intervals, side by side."""
    readings: list[tuple[str, Color, Callable[[EvalReport], Interval | None]]] = [
        ("accuracy", "blue", lambda found: found.judge_accuracy),
        ("rule accuracy", "green", lambda found: found.rule_accuracy),
        ("VerifyRM reward", "orange", lambda found: found.verify_rm_reward),
        ("VerifyRM accuracy", "purple", lambda found: found.verify_rm.accuracy),
    ]
    lines: list[Line] = []
    for number, (label, color, read) in enumerate(readings):
        points = [(place, read(found)) for place, found in enumerate(evaluations)]
        known = [
            (place + (number - 1.5) * 0.09, found)
            for place, found in points
            if found is not None and math.isfinite(found.value)
        ]
        if known:
            lines.append(
                Line(
                    label, color, [place for place, _ in known], [found.value for _, found in known],
                    DASHES[number], MARKERS[number],
                    low=[found.low for _, found in known], high=[found.high for _, found in known],
                )
            )  # fmt: skip
    caption = "Held-out problems (VerifyRM accuracy: held-out labelled examples). Bars are 95 % intervals."
    ticks = [(float(place), f"step {found.step}") for place, found in enumerate(evaluations)]
    return Plot("Before and after", caption, lines, x_label="", limits=(0, 1), ticks=ticks)


def held_out_figure(arms: Sequence[Arm], title: str = "Held-out problems along the run") -> Figure | None:
    """Evaluations along the run beside where all arms started; None where there is only the start."""
    lines: list[Line] = []
    name = _accuracy_name(arms[0])
    starts: list[tuple[float, float]] = []
    for arm in arms:
        accuracy, reward = _evaluated(arm)
        # Another arm may have no judge, and the start may have had none: the rule's accuracy of the same
        # start is another number.
        if accuracy and _accuracy_name(arm) == name and accuracy[0][0] == min([*reward, *accuracy])[0]:
            starts.append(accuracy[0])
        _add(lines, arm, _accuracy_name(arm), "blue", *_unzip(accuracy))
        _add(lines, arm, "VerifyRM reward", "orange", *_unzip(reward))
    steps = [x for line in lines for x in line.xs]
    if len(set(steps)) < 2:
        return None
    ends = [min(steps), max(steps)]
    if starts:
        lines.append(Line(f"{name} at the start", "grey", ends, [min(starts)[1]] * 2, "dotted"))
    caption = (
        "At the start, in the evaluations while training, and at the end. A VerifyRM reward that rises while "
        "accuracy falls is reward hacking."
    )
    return Figure(Plot(title, caption, lines, limits=(0, 1)))


def _accuracy_name(arm: Arm) -> AccuracyName:
    """By the judge where one was asked, else by the rule."""
    judged = [
        *(row.eval.judge_accuracy for row in arm.metrics),
        *(point.judge_accuracy for point in arm.evaluations),
    ]
    return "rule accuracy" if all(found is None for found in judged) else "accuracy"


def _evaluated(arm: Arm) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    # Where the judge was away, the rule's number between the judge's would look like a fall.
    is_judged = _accuracy_name(arm) == "accuracy"
    accuracy: dict[float, float] = {}
    reward: dict[float, float] = {}
    for row in arm.metrics:
        found = row.eval.judge_accuracy if is_judged else row.eval.rule_accuracy
        if found is not None:
            accuracy[row.step] = found
        if row.eval.verify_rm_reward is not None:
            reward[row.step] = row.eval.verify_rm_reward
    for point in arm.evaluations:
        known = point.judge_accuracy if is_judged else point.rule_accuracy
        if known is not None:
            accuracy[point.step] = known.value
        reward[point.step] = point.verify_rm_reward.value
    return _finite(accuracy), _finite(reward)


def _finite(values: Mapping[float, float]) -> list[tuple[float, float]]:
    return sorted((step, value) for step, value in values.items() if math.isfinite(value))


def _unzip(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def reward_figure(arms: Sequence[Arm]) -> Figure | None:
    """VerifyRM reward beside rule accuracy; None where nothing is known."""
    return _curves(
        arms,
        "VerifyRM reward and rule accuracy of the rollouts",
        "VerifyRM's mean score, and the share that the rule verifier calls correct, of the same rollouts. A "
        "VerifyRM reward that rises alone is the sign of reward hacking. Thin: each step; bold: moving mean.",
        [
            _Curve(lambda row: row.rollout.verify_rm_reward, "VerifyRM reward", "orange"),
            _Curve(lambda row: row.rollout.rule_accuracy, "rule accuracy", "green"),
        ],
        limits=(0, 1),
        is_smoothed=True,
    )


def frontier_figure(arms: Sequence[Arm]) -> Figure | None:
    """KL against accuracy and VerifyRM reward: what a run gained for the distance from its start.

    Points are the evaluations with the KL of their steps. Where training was not evaluated, they are the
    rollouts', each a mean over about a tenth of the run. None where no KL is known.
    """
    lines: list[Line] = []
    for arm in arms:
        kl = {
            row.step: row.policy.kl
            for row in arm.metrics
            if row.policy is not None and row.policy.kl is not None
        }
        name = _accuracy_name(arm)
        accuracy, reward = _evaluated(arm)
        if sum(step in kl for step, _ in accuracy) < 2:
            name = "rule accuracy"
            accuracy, reward = _of_rollouts(arm, kl)
        _add(lines, arm, name, "blue", *_unzip(along_kl(accuracy, kl)))
        _add(lines, arm, "VerifyRM reward", "orange", *_unzip(along_kl(reward, kl)))
    if not lines:
        return None
    caption = (
        "A line begins where the run began, at the left. A VerifyRM reward that rises while accuracy falls "
        "is hacking."
    )
    return Figure(
        Plot("KL against accuracy and VerifyRM reward", caption, lines, x_label=KL_LABEL, limits=(0, 1))
    )


def along_kl(points: Sequence[tuple[float, float]], kl: Mapping[int, float]) -> list[tuple[float, float]]:
    """(KL, value) of (step, value), where the step's KL is known and finite; the start's is 0."""
    found = [((0.0 if step == 0 else kl.get(round(step))), value) for step, value in points]
    return [(each, value) for each, value in found if each is not None and math.isfinite(each)]


def _of_rollouts(
    arm: Arm, kl: dict[int, float]
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """(step, rule accuracy) and (step, VerifyRM's reward) of the rollouts, as moving means."""
    rows = [
        row
        for row in arm.metrics
        if row.step in kl and math.isfinite(row.rollout.rule_accuracy + row.rollout.verify_rm_reward)
    ]
    steps = [float(row.step) for row in rows]
    return (
        list(zip(steps, moving_mean([row.rollout.rule_accuracy for row in rows]), strict=True)),
        list(zip(steps, moving_mean([row.rollout.verify_rm_reward for row in rows]), strict=True)),
    )


def training_figures(arms: Sequence[Arm]) -> list[Figure]:
    """Curves over steps, of all arms; a figure that nothing is known for is left out."""
    first = arms[:1]
    figures: list[Figure | None] = [
        held_out_figure(arms),
        reward_figure(arms),
        _curves(arms, "Completion length", "Tokens of a rollout.",
                [_Curve(lambda row: row.rollout.completion_tokens, "tokens", "blue")], floor=0),
        _curves(arms, "Rollouts without a readable answer",
                "Share of rollouts cut at the token limit, and share whose answer the rule cannot read.",
                [_Curve(lambda row: row.rollout.cut_fraction, "cut", "purple"),
                 _Curve(lambda row: row.rollout.rule_unparsable, "unparsable for the rule", "grey")],
                limits=(0, 1)),
        _curves(arms, "Entropy",
                "Of the policy at a token, in nats, from the rollouts. At 0 it always writes the same.",
                [_Curve(lambda row: row.rollout.entropy, "entropy", "green")], floor=0),
        _curves(arms, "Distance from the starting policy",
                "KL to the frozen reference policy per token (k3 estimate).",
                [_Curve(lambda row: row.policy and row.policy.kl, "KL", "blue")], floor=0),
        frontier_figure(arms),
        _curves(arms, "The reward's order",
                "Share of pairs, a right and a wrong rollout of one problem, of which the right one is paid "
                "more. At 0.5 the reward tells the policy nothing.",
                [_Curve(lambda row: row.rollout.order, "order", "blue")], limits=(0, 1)),
        _curves(arms, "Groups of one verdict",
                "Share of problems whose rollouts are all right or all wrong: they teach little.",
                [_Curve(lambda row: row.rollout.equal_groups, "one verdict", "purple")], limits=(0, 1)),
        _curves(arms, "Policy loss", "Clipped GRPO loss with its KL term; near 0 by construction.",
                [_Curve(lambda row: row.policy and row.policy.loss, "loss", "blue")]),
        _curves(first, "VerifyRM update",
                "Pair loss, and share of the step's pairs that VerifyRM ordered rightly before learning from "
                "them.",
                [_Curve(lambda row: row.verify_rm.loss, "pair loss", "orange"),
                 _Curve(lambda row: row.verify_rm.pair_accuracy, "pair accuracy", "purple")], floor=0),
        _curves(first, "Preference pairs",
                "Problems with a correct rollout, and pairs that a wrong rewrite was found for.",
                [_Curve(lambda row: row.pairs.positives, "problems with a positive", "grey"),
                 _Curve(lambda row: row.pairs.count, "pairs", "orange")], floor=0),
        _curves(arms, "Rollout speed", "Tokens drawn in a second.",
                [_Curve(_tokens_per_second, "tokens / s", "green")], floor=0),
        _phases_figure(arms[0].metrics),
    ]  # fmt: skip
    return [figure for figure in figures if figure is not None]


def _tokens_per_second(row: StepMetrics) -> float | None:
    seconds = row.seconds.get("rollout")
    return row.rollout.tokens / seconds if row.rollout.tokens is not None and seconds else None


def _note(metrics: Metrics) -> str:
    bin_size = _bin_size(metrics)
    return f" Each point is a mean over {bin_size} steps." if bin_size > 1 else ""


def series(metrics: Metrics, read: Read) -> tuple[list[float], list[float]]:
    """Steps and values of one number where it is known and finite, averaged into MAX_POINTS bins."""
    points = [
        (float(row.step), float(value))
        for row in metrics
        if (value := read(row)) is not None and math.isfinite(value)
    ]
    binned = average(points, _bin_size(metrics))
    return [step for step, _ in binned], [value for _, value in binned]


def _bin_size(metrics: Metrics) -> int:
    return max(1, math.ceil(len(metrics) / MAX_POINTS))


def average(points: Sequence[tuple[float, float]], size: int) -> list[tuple[float, float]]:
    """Means of `size` neighbouring points each, at least one; the last mean may be of fewer."""
    bins = [points[start : start + size] for start in range(0, len(points), size)]
    return [
        (sum(step for step, _ in part) / len(part), sum(value for _, value in part) / len(part))
        for part in bins
    ]


def moving_mean(values: Sequence[float]) -> list[float]:
    """Centred mean over about a tenth of the points, shorter at both ends."""
    reach = len(values) // 20
    windows = (values[max(0, place - reach) : place + reach + 1] for place in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def _curves(
    arms: Sequence[Arm],
    title: str,
    caption: str,
    curves: Sequence[_Curve],
    *,
    limits: tuple[float, float] | None = None,
    floor: float | None = None,
    is_smoothed: bool = False,
) -> Figure | None:
    lines: list[Line] = []
    names = list(dict.fromkeys(arm.name for arm in arms))
    for arm in arms:
        for curve in curves:
            steps, values = series(arm.metrics, curve.read)
            raw: Sequence[float] = ()
            if is_smoothed and len(values) >= 20:
                values, raw = moving_mean(values), values
            # A curve that is alone gets another colour for each arm; several keep theirs in every arm.
            turn = names.index(arm.name) if len(curves) == 1 else 0
            color = COLORS[(COLORS.index(curve.color) + turn) % len(COLORS)]
            _add(lines, arm, curve.label, color, steps, values, raw)
    if not lines:
        return None
    note = _note(max((arm.metrics for arm in arms), key=len))
    return Figure(Plot(title, caption + note, lines, limits=limits, floor=floor))


def _add(
    lines: list[Line],
    arm: Arm,
    label: str,
    color: Color,
    xs: Sequence[float],
    ys: Sequence[float],
    raw: Sequence[float] = (),
) -> None:
    """One more line, if there is anything in it, that looks like those with its label and like no other."""
    if not xs:
        return
    name = f"{arm.name}: {label}" if arm.name else label
    labels = list(dict.fromkeys(line.label for line in lines))
    number = labels.index(name) if name in labels else len(labels)
    dash, marker = DASHES[number % len(DASHES)], MARKERS[number % len(MARKERS)]
    lines.append(Line(name, arm.color or color, xs, ys, dash, marker, raw=raw))


def _phases_figure(metrics: Metrics) -> Figure | None:
    phases: list[tuple[Phase, str, Color]] = [
        ("rollout", "rollouts", "blue"),
        ("reward", "rewards", "green"),
        ("policy_update", "policy update", "purple"),
        ("pairing", "pairs", "grey"),
        ("reward_update", "reward update", "orange"),
    ]
    timed = [row for row in metrics if any(phase in row.seconds for phase, _, _ in phases)]
    if not timed:
        return None

    def seconds_of(phase: Phase) -> Read:
        # A phase that did not run, or whose clock said nothing finite, took no time, so that all lines have
        # the same steps.
        return lambda row: seconds if math.isfinite(seconds := row.seconds.get(phase, 0.0)) else 0.0

    lines = [
        Line(label, color, *series(timed, seconds_of(phase)), kind="area") for phase, label, color in phases
    ]
    caption = f"Wall-clock time.{_note(metrics)}"
    return Figure(Plot("Seconds per step, by phase", caption, lines, floor=0))
