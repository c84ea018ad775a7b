"""Several judges of one completion: what each said, and the majority (row 3)."""

from collections.abc import Sequence

from cooper_rl.schema.data import DECISIVE, JudgeFailure, JudgeVote
from cooper_rl.verdicts.journal import KeptVerdict


def take_majority(votes: Sequence[JudgeVote]) -> KeptVerdict:
    """The verdict of more than half of all judges, those that abstain or fail included; else `unparsable`.

    A single judge is its own majority.
    """
    if len(votes) == 1:
        return KeptVerdict(votes[0].verdict, votes[0].reason, votes[0].failure)
    for verdict in DECISIVE:
        named = [vote.voter for vote in votes if vote.verdict == verdict]
        if 2 * len(named) > len(votes):
            return KeptVerdict(verdict, f"{len(named)} of {len(votes)} judges say so: {', '.join(named)}")
    failure: JudgeFailure | None = next((vote.failure for vote in votes if vote.failure is not None), None)
    said = ", ".join(f"{vote.voter} {vote.failure or vote.verdict}" for vote in votes)
    return KeptVerdict("unparsable", f"no majority of {len(votes)} judges: {said}", failure)
