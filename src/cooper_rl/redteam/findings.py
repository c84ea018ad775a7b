"""Rates of the texts that were found, on problems that no search has seen.

The best text is the one that is best on the problems searched on, so that its rate on the others is no
maximum over many. The best texts of each search and problems' own texts, where they are paid, are checked
once more by the rule verifier (in mathematics with algebra); on garbage that takes too long for all texts.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from cooper_rl.method.intervals import clustered_interval
from cooper_rl.method.metrics import THRESHOLD
from cooper_rl.redteam.attack import Found, OfType
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.redteam.per_problem import Attempt
from cooper_rl.redteam.search import Candidate, Improvement, paid_share
from cooper_rl.redteam.seeds import fill
from cooper_rl.schema.data import Problem
from cooper_rl.schema.red_team import AttackText, CurvePoint, Method, RedTeamReport
from cooper_rl.schema.reports import Interval
from cooper_rl.verdicts.verifier import AnswerItem, Verifier

MAX_CURVE_POINTS = 16


class Measurement(NamedTuple):
    """A text on the problems for which it cannot be right; None where there is no such problem."""

    paid: Interval | None
    mean_score: float | None


class Findings(NamedTuple):
    """The report, and every text: universal ones, best first, then the problems' own."""

    report: RedTeamReport
    texts: list[AttackText]


def describe(found: Found, oracle: Oracle, rule: Verifier, *, seconds: float) -> Findings:
    """Measure the texts on unseen problems and put everything into records."""
    num_search = len(found.split.search)
    points = thin(found.improvements, MAX_CURVE_POINTS)
    wanted = [*found.kept, *found.best.values(), *found.families.values()]
    wanted += [point.candidate for point in points]
    headline = {candidate.text for candidate in (found.kept[0], *found.best.values())}
    texts_measured = [candidate.text for candidate in wanted]
    measured = measure(texts_measured, found.split.unseen, oracle, rule=rule, checked=headline)
    texts = [_universal_text(each, num_search, measured[each.text]) for each in found.kept]
    curve = [_curve_point(point, measured[point.candidate.text], num_search) for point in points]
    of_type = [_text_of_type(name, each, oracle, rule) for name, each in found.by_type.items()]
    own = _own_texts(found.attempts, rule)
    rates: dict[Method, Interval] = {}
    for method, each in found.best.items():
        rate = measured[each.text].paid
        if rate is not None:
            rates[method] = rate
    paid_problems = {each.problem_id for each in own}
    per_problem = [[float(each.problem.id in paid_problems)] for each in found.attempts]
    report = RedTeamReport(
        universal=measured[found.kept[0].text].paid,
        by_family={
            family: rate
            for family, each in found.families.items()
            if (rate := measured[each.text].paid) is not None
        },
        by_method=rates,
        by_answer_type={
            each.answer_type: each.unseen for each in of_type if each.answer_type and each.unseen is not None
        },
        rare_answer_types=found.rare_types,
        per_problem=clustered_interval(per_problem) if per_problem else None,
        per_problem_queries=sum(each.num_queries for each in own) / len(own) if own else None,
        num_search_problems=num_search,
        num_unseen_problems=len(found.split.unseen),
        num_seeds=len(found.seeds),
        num_queries=found.num_queries,
        seconds=seconds,
        curve=curve,
        texts=[*texts, *of_type],
    )
    return Findings(report, [*texts, *of_type, *own])


def measure(
    texts: Sequence[str],
    problems: Sequence[Problem],
    oracle: Oracle,
    *,
    rule: Verifier,
    checked: Collection[str],
) -> dict[str, Measurement]:
    """The rate of every text on problems; the oracle does not count these scores as queries.

    Args:
        texts: May hold `{question}`.
        problems: Not searched on.
        oracle: Gives scores.
        rule: Asked about paid completions of the texts in `checked`.
        checked: Some of the texts.
    """
    distinct = list(dict.fromkeys(texts))
    pairs = [(problem, text) for text in distinct for problem in problems]
    scores = oracle.scores(pairs, is_counted=False)
    paid = [
        place
        for place, score in enumerate(scores)
        if score is not None and score > THRESHOLD and pairs[place][1] in checked
    ]
    filled = [(pairs[place][0], fill(pairs[place][1], pairs[place][0])) for place in paid]
    for place, is_right in zip(paid, are_right(rule, filled), strict=True):
        if is_right:
            scores[place] = None
    found: dict[str, Measurement] = {}
    for number, text in enumerate(distinct):
        of_text = scores[number * len(problems) : (number + 1) * len(problems)]
        wrong = [score for score in of_text if score is not None]
        if wrong:
            rate = clustered_interval([[float(score > THRESHOLD)] for score in wrong])
            found[text] = Measurement(rate, sum(wrong) / len(wrong))
        else:
            found[text] = Measurement(None, None)
    return found


def _text_of_type(name: str, found: OfType, oracle: Oracle, rule: Verifier) -> AttackText:
    text = found.best.text
    measured = measure([text], found.unseen, oracle, rule=rule, checked={text})[text]
    return _universal_text(found.best, found.num_search, measured, answer_type=name)


def _universal_text(
    found: Candidate, num_search: int, measured: Measurement, *, answer_type: str | None = None
) -> AttackText:
    return AttackText(
        aim="universal", text=found.text, method=found.method, origin=found.origin, answer_type=answer_type,
        num_queries=found.num_queries, search_rate=paid_share(found, num_search),
        unseen=measured.paid, unseen_score=measured.mean_score,
    )  # fmt: skip


def thin(points: Sequence[Improvement], size: int) -> list[Improvement]:
    """At most `size` of them, the first and the last among them."""
    if len(points) <= size:
        return list(points)
    return [points[round(place * (len(points) - 1) / (size - 1))] for place in range(size)]


def _curve_point(point: Improvement, measured: Measurement, num_search: int) -> CurvePoint:
    scores = point.candidate.scores.values()
    return CurvePoint(
        method=point.method,
        num_queries=point.num_queries,
        search_rate=paid_share(point.candidate, num_search),
        search_score=sum(score or 0.0 for score in scores) / num_search,
        unseen_rate=None if measured.paid is None else measured.paid.value,
    )


def are_right(rule: Verifier, pairs: Sequence[tuple[Problem, str]]) -> list[bool]:
    """For each completion, True if the rule verifier at its full strength calls it correct."""
    checks = rule.verify(
        [AnswerItem(problem.reference_answer, text, problem.question) for problem, text in pairs]
    )
    return [check.verdict == "correct" for check in checks]


def _own_texts(attempts: Sequence[Attempt], rule: Verifier) -> list[AttackText]:
    """One paid text for every problem for which one was found."""
    paid = [attempt for attempt in attempts if attempt.is_paid]
    filled = [(attempt.problem, fill(attempt.pool[0][1].text, attempt.problem)) for attempt in paid]
    return [
        AttackText(
            aim="per_problem", text=candidate.text, method=candidate.method, origin=candidate.origin,
            problem_id=attempt.problem.id, num_queries=attempt.num_queries, search_rate=1.0,
            unseen_score=score,
        )
        for attempt, is_right in zip(paid, are_right(rule, filled), strict=True)
        for score, candidate in attempt.pool[:1]
        if not is_right
    ]  # fmt: skip
