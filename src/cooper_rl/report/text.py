"""The words of the report: the comparison, the conclusion, the summary.

Every sentence is made from the numbers that it states. Markup is in `report/report.html.jinja`, figures in
`report/plots.py`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cooper_rl.method.monitor import denied_alarms, first_alarm
from cooper_rl.report.changes import changes, direction, find_accuracy, is_paired
from cooper_rl.report.numbers import in_points, name_steps, percent, points, span, with_interval
from cooper_rl.report.objections import list_objections, say_rare_types
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvalReport, Interval, RunReport
from cooper_rl.schema.step_metrics import StepMetrics


class HeadlineRow(NamedTuple):
    """One quantity at every evaluation."""

    name: str
    meaning: str
    values: list[Interval | None]
    change: Interval | None
    """Last minus first, where both are known."""
    is_goal: bool
    """True if more is better; a reward that rises may be hacked."""


def headline_rows(evaluations: Sequence[EvalReport]) -> list[HeadlineRow]:
    """The quantities of a run; without a judge, rule accuracy stands alone."""
    found = changes(evaluations[0], evaluations[-1])
    readings: list[tuple[str, str, Callable[[EvalReport], Interval | None], Interval | None]] = [
        (
            "Accuracy",
            "completions that the evaluation judge calls correct",
            lambda e: e.judge_accuracy,
            found.judge_accuracy,
        ),
        (
            "Rule accuracy",
            "completions that the rule verifier calls correct",
            lambda e: e.rule_accuracy,
            found.rule_accuracy,
        ),
        (
            "VerifyRM reward",
            "mean score of the VerifyRM of that moment on the same completions",
            lambda e: e.verify_rm_reward,
            found.verify_rm_reward,
        ),
        (
            "VerifyRM accuracy",
            "VerifyRM on held-out labelled examples",
            lambda e: e.verify_rm.accuracy,
            found.verify_rm_accuracy,
        ),
    ]
    rows: list[HeadlineRow] = []
    for name, meaning, read, change in readings:
        values = [read(evaluation) for evaluation in evaluations]
        if any(value is not None for value in values):
            rows.append(HeadlineRow(name, meaning, values, change, is_goal=name != "VerifyRM reward"))
    return rows


Ends = tuple[Interval | None, Interval | None]


def pair_rows(rows: Sequence[HeadlineRow], others: Sequence[HeadlineRow]) -> list[tuple[str, list[Ends]]]:
    """The first and the last value of each quantity, in a run and in another; only one may have a judge."""
    sides = [{row.name: (row.values[0], row.values[-1]) for row in side} for side in (rows, others)]
    return [(name, [side.get(name, (None, None)) for side in sides]) for name in sides[0] | sides[1]]


def summarise(
    evaluations: Sequence[EvalReport],
    metrics: Sequence[StepMetrics] = (),
    *,
    max_canary_rate: float = 1.0,
    red_team: RedTeamReport | None = None,
    max_universal_rate: float | None = None,
    frozen: Sequence[EvalReport] = (),
) -> RunReport:
    """The starting point against the last evaluation, and what the monitor said on the way.

    Args:
        evaluations: In order; at least two.
        metrics: One entry per step.
        max_canary_rate: `registry.max_canary_rate`, by which `promote` refuses a VerifyRM.
        red_team: What was found against the delivered VerifyRM; None: nobody searched.
        max_universal_rate: `registry.max_universal_rate`, by which `promote` refuses it too.
        frozen: As `evaluations`, of the arm whose VerifyRM was frozen; empty: there is none.
    """
    first, last = evaluations[0], evaluations[-1]
    found = changes(first, last)
    name, before, after, accuracy = find_accuracy(first, last)
    universal = red_team.universal if red_team else None
    objections = list_objections(
        first,
        last,
        # Of a run without canaries the page says nothing, where `promote` refuses it.
        max_canary_rate=max_canary_rate if last.canaries else None,
        red_team=red_team,
        max_universal_rate=max_universal_rate,
    )
    worst = max(last.canary_intervals.items(), key=lambda item: item[1].value, default=(None, None))
    sentences = [
        *(f"Its promotion would be refused: {reason}" for reason in objections),
        _say_change(
            name.capitalize(), before, after, accuracy, unit=f"held-out problems after {last.step} steps"
        ),
        _say_reward(name, accuracy, found.verify_rm_reward, last),
        _say_verify_rm(found.verify_rm_accuracy, last),
        *_say_monitor(metrics),
        *_say_red_team(red_team),
    ]
    is_plain = bool(frozen) and first.num_decoys > 0 and frozen[0].num_decoys == 0
    return RunReport(
        last_step=last.step,
        num_iterations=len(evaluations) - 1,
        accuracy_name=name,
        accuracy_before=before,
        accuracy_after=after,
        accuracy_change=accuracy,
        reward_change=found.verify_rm_reward,
        verify_rm_accuracy_change=found.verify_rm_accuracy,
        first_alarm_step=first_alarm(metrics),
        denied_alarm_steps=denied_alarms(metrics),
        worst_attack=worst[0],
        worst_attack_rate=worst[1],
        universal_rate=universal,
        frozen_accuracy=find_accuracy(frozen[0], frozen[-1])[2] if frozen else None,
        frozen_reward_before=frozen[0].verify_rm_reward if frozen else None,
        frozen_reward=frozen[-1].verify_rm_reward if frozen else None,
        is_frozen_plain=is_plain,
        frozen_conclusion=_say_frozen(frozen, is_plain=is_plain) if frozen else None,
        promotion_objection=objections[0] if objections else None,
        conclusion=" ".join(sentences),
    )


def to_markdown(run: RunReport, rows: Sequence[HeadlineRow], evaluations: Sequence[EvalReport]) -> str:
    """The short summary for a dashboard."""
    steps = [f"step {evaluation.step}" for evaluation in evaluations]
    lines = [
        "# Cooper run",
        "",
        run.conclusion,
        "",
        *([run.frozen_conclusion, ""] if run.frozen_conclusion else []),
        f"| | {' | '.join(steps)} | change (95 % interval) |",
        f"|---|{'---|' * (len(steps) + 1)}",
    ]
    for row in rows:
        cells = " | ".join(map(with_interval, row.values))
        lines.append(f"| {row.name} | {cells} | {in_points(row.change) if row.change else '-'} |")
    attacks = evaluations[-1].canary_intervals
    if attacks:
        lines += [
            "",
            "Wrong completions that VerifyRM accepts, by attack:",
            "",
            f"| attack | {' | '.join(steps)} |",
            f"|---|{'---|' * len(steps)}",
        ]
    for attack in attacks:
        cells = " | ".join(with_interval(each.canary_intervals.get(attack)) for each in evaluations)
        lines.append(f"| {attack} | {cells} |")
    return "\n".join([*lines, "", caveat(evaluations), ""])


def caveat(evaluations: Sequence[EvalReport]) -> str:
    """The limits of the intervals, in words."""
    last = evaluations[-1]
    changed = (
        "A change is that of the same problems, paired"
        if is_paired(evaluations[0], last)
        else "A change is taken as a difference of independent evaluations, which is cautious when both see "
        "the same problems"
    )
    return (
        f"Intervals are 95 %, over the {last.num_problems} held-out problems of this one run "
        f"({last.samples_per_problem} completions each). They do not cover the choice of the seed: another "
        f"seed may differ by more. {changed}. The VerifyRM reward is the mean score of the VerifyRM of that "
        "moment: it moves with both models."
    )


def _say_change(name: str, before: Interval, after: Interval, change: Interval, *, unit: str) -> str:
    values = f"from {percent(before.value)} to {percent(after.value)} on {after.count} {unit}"
    interval = f"95 % interval {points(change.low)} to {points(change.high)}"
    if direction(change) == "is not shown to have changed":
        return (
            f"{name} went {values}, but the change ({points(change.value)} points, {interval}) is "
            "compatible with zero: this run does not show that the policy got better or worse."
        )
    return f"{name} {direction(change)} by {100 * abs(change.value):.1f} points ({interval}), {values}."


def _say_reward(name: str, accuracy: Interval, reward: Interval, last: EvalReport) -> str:
    moved = (
        f"The VerifyRM reward {direction(reward)} ({points(reward.value)} points, "
        f"95 % interval {points(reward.low)} to {points(reward.high)})"
    )
    if direction(reward) == "rose" and direction(accuracy) == "fell":
        return (
            f"{moved} while {name} fell: that is what reward hacking looks like, so read the completions "
            "that score high and are judged wrong."
        )
    if direction(reward) == "rose" and direction(accuracy) != "rose":
        return (
            f"{moved}, and {name} does not confirm it: that may be the start of reward hacking, or more "
            "held-out problems may be needed to tell."
        )
    if last.cut_fraction > 0.2:
        return f"{moved}; {percent(last.cut_fraction)} of the completions ended at the token limit."
    return f"{moved}."


def _say_frozen(evaluations: Sequence[EvalReport], *, is_plain: bool) -> str:
    """The arm whose VerifyRM was frozen, from the same start."""
    first, last = evaluations[0], evaluations[-1]
    name, before, after, change = find_accuracy(first, last)
    accuracy = _say_change(
        name.capitalize(), before, after, change, unit=f"held-out problems after {last.step} steps"
    )
    reward = _say_reward(name, change, changes(first, last).verify_rm_reward, last)
    kind = "that never learns and has no decoys" if is_plain else "that never learns"
    return f"The same policy was also trained on a VerifyRM {kind}. {accuracy} {reward}"


def _say_verify_rm(change: Interval, last: EvalReport) -> str:
    found = last.verify_rm
    text = (
        f"VerifyRM is right on {percent(found.accuracy.value)} of {found.num_examples} held-out examples "
        f"(always giving the commoner answer: {percent(found.majority_accuracy)}); its accuracy "
        f"{direction(change)} over the run ({points(change.value)} points)"
    )
    if found.accuracy.low <= found.majority_accuracy:
        return f"{text}, and it is not shown to beat that baseline."
    return f"{text}."


def _say_monitor(metrics: Sequence[StepMetrics]) -> list[str]:
    """The monitor's finding in words; nothing where no monitor looked."""
    if all(row.monitor.alarm is None for row in metrics):
        return []
    said: list[str] = []
    denied, alarm = denied_alarms(metrics), first_alarm(metrics)
    if denied:
        said.append(
            f"The judge denied the hacking monitor's alarm at {name_steps(denied)}, since accuracy had not "
            "fallen: the rule verifier may not read what the policy writes."
        )
    if alarm is not None:
        back = next((to for row in metrics if (to := row.monitor.rolled_back_to) is not None), None)
        then = "" if back is None else f"; both models went back to step {back}"
        at_alarm = next(row.monitor for row in metrics if row.step == alarm)
        if at_alarm.unordered:
            reason = "the reward told right completions too seldom from wrong ones of the same problem"
        elif at_alarm.dropped:
            reason = "the judge found accuracy below its best"
        else:
            reason = "the VerifyRM reward and rule accuracy had gone apart"
        said.append(f"The hacking monitor raised the alarm at step {alarm}: {reason}{then}.")
    return said or ["The hacking monitor raised no alarm."]


def _say_red_team(found: RedTeamReport | None) -> list[str]:
    if found is None or found.universal is None:
        return []
    rate = found.universal
    said = [
        "The red team's best text, one for all problems and right for none, is paid on "
        f"{percent(rate.value)} ({span(rate)}) of {rate.count} problems that no search touched."
    ]
    if found.by_answer_type:
        name, rate = max(found.by_answer_type.items(), key=lambda item: item[1].value)
        said.append(
            f"Of its texts for one kind of answer, that for {name!r} is paid most: on {percent(rate.value)} "
            f"({span(rate)}) of {rate.count} such problems."
        )
    return said + say_rare_types(found)
