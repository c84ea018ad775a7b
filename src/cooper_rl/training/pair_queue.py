"""Pairs that are made while the policy is updated (phases 4 and 5 side by side).

Making pairs needs the rollouts and their scores, no model, so it runs in a thread of its own; the policy
update then hides the time that an assistant behind a network takes. What is learned does not depend on
timing: with `max_pair_staleness` 0 a step waits for its own pairs, with 1 it takes those of the step before.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.machine.daemon_pool import DaemonPool, is_hasty
from cooper_rl.schema.data import Pairing
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.rollout import Group, Scores


class PairQueue:
    """Makes the pairs of one step at a time; a context manager that owns its thread.

    Args:
        maker: Makes them.
        max_staleness: 0 or 1.
        pending: With 1, the pairs of the last step before this process started.
        ranks: The first one makes the pairs of all.
    """

    def __init__(
        self,
        maker: PairMaker,
        *,
        max_staleness: int,
        pending: Sequence[Pairing] = (),
        ranks: Ranks = ALONE,
    ) -> None:
        self.maker = maker
        self._ranks = ranks
        # One thread: pairs of two steps side by side would ask an assistant twice as much and finish in any
        # order.
        self._threads = DaemonPool(1, "pairs")
        self._waiting: list[Future[Pairing]] = []
        if max_staleness:
            # A first step without pairs of a step before takes an empty one, so that a queue of one is
            # always one behind.
            self._waiting.append(_made(pending[0] if pending else Pairing()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Waits for the running step: it holds a verifier and a server, which are closed next. After Ctrl-C
        # nobody needs it, and its server may never answer.
        self._threads.shutdown(wait=not is_hasty(kind), cancel_futures=True)

    def submit(self, groups: Sequence[Group], scores: Scores, *, step: int, seed: int) -> None:
        """Begin with the pairs of a step."""
        if not self._ranks.is_first:
            return
        self._waiting.append(self._threads.submit(self.maker.make, groups, scores, step=step, seed=seed))

    def take(self) -> Pairing:
        """The pairs that this step learns from; waits for them, and raises what making them raised."""
        # The pairs go out to all ranks, which update VerifyRM together; the assistant was asked once.
        return self._ranks.first(lambda: self._waiting.pop(0).result())

    def give_back(self, pairing: Pairing) -> None:
        """The step that took these pairs failed: it is taken again, and submits its own once more."""
        if self._waiting:
            self._waiting = [_made(pairing)]

    def pending(self) -> list[Pairing]:
        """The pairs that the next step will learn from, none or one pairing; waits for them. Only the first
        rank has them."""
        return [waiting.result() for waiting in self._waiting]


def _made(pairing: Pairing) -> Future[Pairing]:
    future: Future[Pairing] = Future()
    future.set_result(pairing)
    return future
