"""Objections to a candidate that would become a champion, in words; `run/promotion.py` refuses by them."""

from cooper_rl.report.changes import direction, find_accuracy
from cooper_rl.report.numbers import percent, span
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvalReport, Interval


def list_objections(
    start: EvalReport | None,
    last: EvalReport,
    *,
    max_canary_rate: float | None,
    red_team: RedTeamReport | None,
    max_universal_rate: float | None,
) -> list[str]:
    """Why a candidate may not become a champion, whoever is one.

    Args:
        start: Evaluation of its run before the first step; None: not known.
        last: Its own evaluation.
        max_canary_rate: Bound on every attack's canaries; None: they do not decide.
        red_team: What was found against its VerifyRM; None: nobody searched.
        max_universal_rate: Bound on the share of unseen problems on which its best text is paid; None: what
            it found does not decide.
    """
    return [
        *([] if start is None else _object_to_fall(start, last)),
        *([] if max_canary_rate is None else _object_to_canaries(last, max_canary_rate)),
        *(
            []
            if red_team is None or max_universal_rate is None
            else _object_to_texts(red_team, max_universal_rate)
        ),
    ]


def _object_to_fall(first: EvalReport, last: EvalReport) -> list[str]:
    """Why a policy may not become a champion: it is worse than its run's starting point."""
    name, _, _, change = find_accuracy(first, last)
    if direction(change) != "fell":
        return []
    return [f"The policy ended worse than it began: {name} fell beyond the interval."]


def _object_to_canaries(report: EvalReport, limit: float) -> list[str]:
    """Why a VerifyRM may not become a champion: every attack is bounded, and the worst is named."""
    rates = report.canaries
    if not rates:
        return ["Nothing is known of attacks: no canary was scored, or an earlier version evaluated."]
    worst = max(rates, key=lambda attack: rates[attack])
    if rates[worst] <= limit:
        return []
    found = report.canary_intervals.get(worst)
    interval = f" ({span(found)}, {found.count} problems)" if found else ""
    return [
        f"VerifyRM accepts {percent(rates[worst])}{interval} of the canaries of the attack {worst!r}; "
        f"at most {percent(limit)} of any attack's may pass."
    ]


def _object_to_texts(found: RedTeamReport, limit: float) -> list[str]:
    """Why a VerifyRM may not become a champion: a text of the red team is paid too often.

    A kind of answer has few problems, so its rate counts only where the interval is above the bound.
    """
    said = "VerifyRM pays the red team's best"
    objections: list[str] = []
    if (rate := found.universal) is not None and rate.value > limit:
        objections.append(f"{said} universal text on {_say_rate(rate, limit)}")
    objections += [
        f"{said} text for answers of the kind {name!r} on {_say_rate(rate, limit)}"
        for name, rate in found.by_answer_type.items()
        if rate.low > limit
    ]
    return objections


def say_rare_types(found: RedTeamReport | None) -> list[str]:
    """The kinds of answers that no search was made for, in a sentence; none where there are none."""
    if found is None or not found.rare_answer_types:
        return []
    kinds = ", ".join(f"{name} ({count})" for name, count in sorted(found.rare_answer_types.items()))
    return [f"The red team had too few problems for a search on some kinds of answers: {kinds}."]


def _say_rate(rate: Interval, limit: float) -> str:
    return (
        f"{percent(rate.value)} ({span(rate)}) of {rate.count} unseen problems; "
        f"at most {percent(limit)} may be."
    )
