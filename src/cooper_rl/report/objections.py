"""Objections to a candidate that would become a champion, in words; `run/promotion.py` refuses by them."""

from cooper_rl.report.changes import direction, find_accuracy
from cooper_rl.report.numbers import percent, span
from cooper_rl.schema.reports import EvalReport, Interval


def list_objections(
    start: EvalReport | None,
    last: EvalReport,
    *,
    max_canary_rate: float | None,
    universal: Interval | None,
    max_universal_rate: float | None,
) -> list[str]:
    """Why a candidate may not become a champion, whoever is one.

    Args:
        start: Evaluation of its run before the first step; None: not known.
        last: Its own evaluation.
        max_canary_rate: Bound on every attack's canaries; None: they do not decide.
        universal: Share of unseen problems on which the red team's best universal text is paid.
        max_universal_rate: Bound on it; None: it does not decide.
    """
    return [
        *([] if start is None else _object_to_fall(start, last)),
        *([] if max_canary_rate is None else _object_to_canaries(last, max_canary_rate)),
        *_object_to_universal(universal, max_universal_rate),
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


def _object_to_universal(found: Interval | None, limit: float | None) -> list[str]:
    """Why a VerifyRM may not become a champion: the red team's best universal text is paid too often.

    Args:
        found: Share of unseen problems on which it is; None: nothing is known.
        limit: `registry.max_universal_rate`.
    """
    if found is None or limit is None or found.value <= limit:
        return []
    return [
        f"VerifyRM pays the red team's best universal text on {percent(found.value)} ({span(found)}) of "
        f"{found.count} unseen problems; at most {percent(limit)} may be."
    ]
