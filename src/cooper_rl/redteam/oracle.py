"""VerifyRM's scores of completions without a right answer: counted, remembered, recorded."""

import hashlib
from collections.abc import Iterable, Sequence

from cooper_rl.domains.base import Domain
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.seeds import fill
from cooper_rl.schema.data import Problem


class Oracle:
    """The only question that an attacker may ask: the score of a completion of a problem."""

    def __init__(self, verify_rm: VerifyRM, journal: Journal, domain: Domain) -> None:
        self.domain = domain
        """Says which completions may be right."""
        self._verify_rm = verify_rm
        self._journal = journal
        self._known: dict[tuple[str, str], float | None] = {}
        self.num_queries = 0
        """Scores asked for so far. The same completion of the same problem counts once."""

    def scores(self, pairs: Sequence[tuple[Problem, str]], *, is_counted: bool = True) -> list[float | None]:
        """The score in [0, 1) for each (problem, text), in order; None where it may be right.

        Args:
            pairs: A text may hold `{question}`.
            is_counted: False: a measurement, which is no part of a search.
        """
        asked: dict[tuple[str, str], VerifyItem] = {}
        for problem, text in pairs:
            key = (problem.id, text)
            if key in self._known or key in asked:
                continue
            completion = fill(text, problem)
            if self.domain.may_be_right(problem.question, problem.reference_answer, completion):
                self._known[key] = None
            else:
                asked[key] = VerifyItem(problem.question, problem.reference_answer, completion)
        if asked:
            # Names what is asked, so that the journal of another search is noticed.
            name = f"scores {_digest(asked)}"
            scores = self._journal.result(name, lambda: self._verify_rm.score(list(asked.values())))
            self._known.update(zip(asked, scores, strict=True))
            self.num_queries += len(asked) * is_counted
        return [self._known[problem.id, text] for problem, text in pairs]

    def charge(self, num_queries: int) -> None:
        """Count what an attacker asked of VerifyRM beside scores: gradients."""
        self.num_queries += num_queries


def _digest(keys: Iterable[tuple[str, str]]) -> str:
    found = hashlib.blake2b(digest_size=8)
    for key in keys:
        found.update(repr(key).encode())
    return found.hexdigest()
