"""The red team in the report: its search for texts that VerifyRM pays without a right answer."""

from collections.abc import Sequence
from typing import NamedTuple

from cooper_rl.report.figure import Figure, Line, Plot
from cooper_rl.schema.red_team import AttackText, Method, RedTeamReport
from cooper_rl.schema.reports import Interval

NUM_TEXTS = 6
METHODS: dict[Method, str] = {
    "seed": "known attacks alone",
    "mutation": "and random changes of them, on the score alone",
    "gradient": "and a search with VerifyRM's gradients",
}


class Row(NamedTuple):
    """A share of unseen problems."""

    name: str
    rate: Interval


def effort_rows(found: RedTeamReport) -> list[Row]:
    """The best universal text after each search, then texts for single problems."""
    rows = [Row(title, found.by_method[name]) for name, title in METHODS.items() if name in found.by_method]
    if found.per_problem is not None:
        rows.append(Row("a text of its own for each problem", found.per_problem))
    return rows


def family_rows(found: RedTeamReport) -> list[Row]:
    """The best seed of every kind, the most accepted kind first."""
    rows = [Row(family.replace("_", " "), rate) for family, rate in found.by_family.items()]
    return sorted(rows, key=lambda row: -row.rate.value)


def answer_type_rows(found: RedTeamReport) -> list[Row]:
    """The best text for each kind of answer, the most accepted kind first."""
    rows = [Row(name, rate) for name, rate in found.by_answer_type.items()]
    return sorted(rows, key=lambda row: -row.rate.value)


def best_texts(found: RedTeamReport) -> Sequence[AttackText]:
    """The texts that are shown: the best universal one of each origin, then those for one kind of answer."""
    for_all = [text for text in found.texts if text.answer_type is None]
    return for_all[:NUM_TEXTS] + [text for text in found.texts if text.answer_type is not None]


def make_figures(found: RedTeamReport) -> list[Figure]:
    """The curve over queries; none where no text took over from the first."""
    if len(found.curve) < 2:
        return []

    unseen = [point for point in found.curve if point.unseen_rate is not None]
    lines = [
        Line(
            "problems searched on", "blue", [point.num_queries for point in found.curve],
            [point.search_rate for point in found.curve], marker="s", dash="dashed",
        ),
        Line(
            "unseen problems", "orange", [point.num_queries for point in unseen],
            [point.unseen_rate or 0.0 for point in unseen], marker="o",
        ),
    ]  # fmt: skip
    caption = "The best universal text so far. A query is one score of one completion of one problem."
    return [
        Figure(
            Plot(
                "The red team's search", caption, lines,
                x_label="queries", y_label="share that is paid", limits=(0, 1.01),
            )
        )
    ]  # fmt: skip
