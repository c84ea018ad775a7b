"""The processes that train together, and their messages (rows 6 to 13).

Work is shared out; what comes of it is small (texts, verdicts, scores) and is gathered, so that every rank
holds all of it and decides alike. Servers are asked by the first rank. Weights and gradients pass in
`distributed/zero.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
from torch import distributed
from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage] it is documented there

from cooper_rl.errors import CooperError, LaunchError

S = TypeVar("S")
T = TypeVar("T")


class Dealt(NamedTuple):
    """One micro-batch of a rank."""

    indices: list[int]
    counts: bool
    """False: computed only so that all ranks take part equally often; its loss must be multiplied by 0."""


@dataclass(frozen=True)
class Ranks:
    """The number of processes, and which of them this is; one alone needs no process group.

    Collective methods must be called on every rank; they raise LaunchError if a rank has died.
    """

    rank: int = 0
    size: int = 1
    group: Any = None
    """Process group on CPUs, for Python objects."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def places(self, count: int) -> range:
        """This rank's share of `count` things: every `size`-th."""
        return range(self.rank, count, self.size)

    def gather(self, share: Sequence[T], count: int) -> list[T]:
        """All `count` things in their order, from every rank's share of them."""
        # The inverse of `places`. Interleaved shares differ by one thing at most, whatever the count.
        shares = self._exchange(list(share))
        return [shares[place % self.size][place // self.size] for place in range(count)]

    def share(self, items: Sequence[S], compute: Callable[[list[S]], Sequence[T]]) -> list[T]:
        """`compute` of every item, in their order; each rank computes its share."""
        own = [items[place] for place in self.places(len(items))]
        return self.gather(compute(own) if own else [], len(items))

    def first(self, compute: Callable[[], T]) -> T:
        """The first rank's result; the others wait for it. Its CooperError is raised on all ranks."""
        if self.size == 1:
            return compute()
        # A list of one: the call fills it in place on every rank but the first.
        box: list[Any] = [None]
        if self.is_first:
            try:
                box = [(compute(), None)]
            # A CooperError travels instead of being raised here: the others already wait in the broadcast
            # below, and would sit there until the time-out. Any other error is a fault of ours; it ends
            # this process, and torchrun ends the rest.
            except CooperError as error:
                box = [(None, error)]
        # Over the CPU group: NCCL would pickle through a GPU tensor, and takes a GPU even where a rank only
        # reads a file.
        self._talk(lambda: distributed.broadcast_object_list(box, src=0, group=self.group))
        value, error = box[0]
        if error is not None:
            raise error
        return value

    def collect(self, compute: Callable[[], T]) -> list[T]:
        """Every rank's result, in the order of ranks, in one exchange.

        The error of any rank is raised on all of them, so that no rank waits for one that failed. An error
        that is no CooperError is a LaunchError on the other ranks.
        """
        value: Any = None
        own: Exception | None = None
        try:
            value = compute()
        # Broad on purpose: whatever went wrong here, the exchange below must still be reached.
        except Exception as error:
            own = error
        told = own
        if own is not None and not isinstance(own, CooperError):
            told = LaunchError(
                f"rank {self.rank} of {self.size} failed: {type(own).__name__}: {own}; its own log says where"
            )
        answers = self._exchange((value, told))
        if own is not None:
            raise own
        # In the order of ranks, so that all of them raise the same error and their logs agree.
        for _, error in answers:
            if error is not None:
                raise error
        return [answer for answer, _ in answers]

    def agree(self, compute: Callable[[], T]) -> T:
        """The first rank's result, once every rank has computed its own; errors as in `collect`."""

        def of_first() -> T | None:
            value = compute()
            # It goes out from the first rank alone: it may be large, and all_gather sends everything to
            # everybody.
            return value if self.is_first else None

        first: Any = self.collect(of_first)[0]
        return first

    def sums(self, *values: float) -> list[float]:
        """Every value summed over all ranks, in the same order of addition on each."""
        # Added here in the order of ranks: all_reduce leaves that order to the backend, and what is decided
        # by a sum must come out alike on every rank.
        return [sum(column) for column in zip(*self._exchange(values), strict=True)]

    def every(self, value: T) -> list[T]:
        """The value of each rank, in their order."""
        return self._exchange(value)

    def any(self, value: bool) -> bool:
        """True if it is true on some rank."""
        return any(self._exchange(value))

    def deal(self, batches: Sequence[list[int]]) -> Iterator[Dealt]:
        """This rank's share of the micro-batches of an update; every rank gets equally many.

        The last one stands in where they do not come out even.
        """
        # Rounded up: backward is collective with ZeRO 2 and 3, so a rank with one batch less would leave
        # the others waiting in theirs.
        for place in range(self.rank, -(-len(batches) // self.size) * self.size, self.size):
            yield Dealt(batches[min(place, len(batches) - 1)], counts=place < len(batches))

    def share_tokens(self, lengths: Sequence[int], max_tokens: int) -> int:
        """A token budget of a micro-batch under which every rank gets a part of these sequences."""
        if self.size == 1 or not lengths:
            return max_tokens
        # A batch for every rank, as long as none has to be smaller than the longest sequence.
        return min(max_tokens, max(max(lengths), -(-sum(lengths) // self.size)))

    def _exchange(self, value: T) -> list[T]:
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self._talk(lambda: distributed.all_gather_object(values, value, group=self.group))
        return values

    def _talk(self, exchange: Callable[[], None]) -> None:
        try:
            exchange()
        # torch has no type of its own for a peer that is gone: gloo and NCCL both raise a RuntimeError.
        except RuntimeError as error:
            raise LaunchError(
                f"rank {self.rank} of {self.size}: another process of this job has ended, or was silent for "
                f"longer than distributed.timeout_seconds ({error}); its own error says why"
            ) from error


ALONE = Ranks()


def join_ranks(rank: int, size: int, *, device: torch.device, timeout_seconds: float) -> Ranks:
    """Meet the other processes that torchrun started; a process alone meets itself.

    A rank that waits longer than `timeout_seconds` for another ends with an error.
    """
    # NCCL checks the time-out in a watchdog thread and then aborts the process; gloo raises in the call.
    timeout = timedelta(seconds=timeout_seconds)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if size > 1:
        distributed.init_process_group(backend, timeout=timeout)
    else:
        # HashStore lives in memory: a process alone needs neither a port nor the variables of torchrun.
        distributed.init_process_group(backend, rank=0, world_size=1, store=HashStore(), timeout=timeout)
    # Objects are pickled bytes, which gloo sends from CPU memory. A second group costs a thread and no GPU
    # memory.
    objects = (
        distributed.group.WORLD
        if backend == "gloo"
        else distributed.new_group(backend="gloo", timeout=timeout)
    )
    return Ranks(rank, size, objects)


def leave_ranks() -> None:
    """End of the process group, where there is one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
