"""Records of the red team: texts that VerifyRM pays without a right answer, and what they are worth."""

from typing import Literal

from cooper_rl.schema.data import Record
from cooper_rl.schema.reports import Interval, Report

Method = Literal["seed", "mutation", "gradient"]
"""The search that found a text: none, on the score alone, with VerifyRM's gradients."""


class AttackText(Record):
    """A text that the red team found. `{question}` in it stands for the problem's question."""

    aim: Literal["universal", "per_problem"]
    """One text for all problems, or for the one in `problem_id`."""
    text: str
    method: Method
    origin: str
    """Name of the seed that it descends from."""
    problem_id: str | None = None
    """None: a universal text."""
    answer_type: str | None = None
    """The kind of answer whose problems alone were searched on; None: the text is for all kinds."""
    num_queries: int
    """Queries of the whole search, or of this problem's, when the text was found."""
    search_rate: float
    """Share of the problems searched on where it is paid; those for which it may be right count as not."""
    unseen: Interval | None = None
    """Share of unseen problems on which it is paid, among those for which it cannot be right. None for
    a problem's own text, and where it may be right for all."""
    unseen_score: float | None = None
    """VerifyRM's mean score on the same problems."""


class CurvePoint(Record):
    """The best universal text so far, when it took over."""

    method: Method
    num_queries: int
    search_rate: float
    search_score: float
    """Mean score on the problems searched on; those for which the text may be right count as 0."""
    unseen_rate: float | None
    """The rate on unseen problems, as in `AttackText.unseen`."""


class RedTeamReport(Report):
    """The resistance of VerifyRM to texts without a right answer; rates are over unseen problems."""

    target: str | None = None
    """The checkpoint whose VerifyRM was attacked, as the registry names it; None: a folder of
    train_verify_rm."""
    universal: Interval | None
    """Share on which the best universal text is paid; it is chosen on the problems searched on. None: it
    may be right for every unseen problem."""
    by_method: dict[Method, Interval] = {}
    """The same after each search: the seeds, then random changes of them, then gradients."""
    by_family: dict[str, Interval] = {}
    """Kind of seed -> share on which its best seed is paid, before any search."""
    by_answer_type: dict[str, Interval] = {}
    """Kind of answer -> share of its unseen problems on which the best text for that kind is paid. Empty
    where all answers are of one kind, and in reports of earlier versions."""
    rare_answer_types: dict[str, int] = {}
    """Kind of answer -> its problems, where they were too few for a search of their own."""
    per_problem: Interval | None = None
    """Share of the attacked problems for which a paid text was found. None: none was attacked."""
    per_problem_queries: float | None = None
    """Mean queries of the searches that found one."""
    num_search_problems: int
    num_unseen_problems: int
    num_seeds: int
    num_queries: int
    """Queries of all searches. Measuring the texts that were found is not among them."""
    seconds: float
    curve: list[CurvePoint] = []
    """Points in the order of queries."""
    texts: list[AttackText] = []
    """The best universal texts, best first on the problems searched on; then the best for each kind of
    answer."""

    @property
    def universal_rate(self) -> float:
        """Share of unseen problems on which the best universal text is paid without a right answer."""
        return 0.0 if self.universal is None else self.universal.value
