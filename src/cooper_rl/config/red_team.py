"""Configuration of the red team: the search for completions that VerifyRM pays without a right answer."""

from pydantic import Field

from cooper_rl.config.section import Section


class RedTeamConfig(Section):
    """`red_team`: budgets of the searches. A query is VerifyRM's score of one completion of one problem."""

    max_search_problems: int = Field(default=64, ge=1)
    """Problems that universal texts are searched on: at most a third of those in the file."""
    max_unseen_problems: int = Field(default=200, ge=1)
    """Unseen problems, on which the texts that were found are measured. No search asks about them."""
    max_queries: int = Field(default=20_000, ge=1)
    """Budget, in queries, of the search for universal texts on the score alone. The known attacks are tried
    whatever it is, and a round that has begun is ended."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Time limit of that search, in seconds, and of each for one kind of answer; None: their queries alone
    bound them, and a seed gives the same texts again."""
    max_gradient_queries: int = Field(default=10_000, ge=0)
    """Budget, in queries, of the search with VerifyRM's gradients that follows. A gradient counts as one
    query for each of its problems. 0: no search with gradients."""
    max_gradient_seconds: float | None = Field(default=None, gt=0)
    """Time limit of the search with gradients, in seconds; None: `max_gradient_queries` alone bounds it."""
    max_type_queries: int = Field(default=3_000, ge=0)
    """Budget, in queries, of the search for a text for problems with one kind of answer, such as intervals.
    Where there are several kinds, each of which 3 problems are searched on has one. The known attacks are
    tried whatever the budget. 0: no such search."""
    max_attacked_problems: int = Field(default=50, ge=0)
    """Unseen problems that each get a search for a text of their own. 0: none."""
    queries_per_problem: int = Field(default=200, ge=1)
    """Budget, in queries, of the search for one problem's text. The search ends with the first text that
    VerifyRM scores above 0.5."""
    population: int = Field(default=32, ge=2)
    """Texts that a search keeps and makes others from."""
    children: int = Field(default=32, ge=1)
    """New texts that a search makes before it selects again."""
    probe_problems: int = Field(default=8, ge=1)
    """Problems that a new text is tried on first; only a promising one is scored on all."""
    max_chars: int = Field(default=600, ge=1)
    """Length of the longest text that a search makes."""
    max_rollout_seeds: int = Field(default=100, ge=0)
    """Rewarded wrong rollouts of the run that a search starts from."""
    num_texts: int = Field(default=20, ge=1)
    """Universal texts that are kept and measured, the best of every origin first."""
