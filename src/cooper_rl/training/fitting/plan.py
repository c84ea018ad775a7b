"""The updates of VerifyRM's training and their examples, as arrays of indices."""

import math
import random
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.randomness import derive_seed
from cooper_rl.schema.data import VerifyExample


class Update(NamedTuple):
    """One step of the optimiser."""

    examples: list[int]
    """Their indices."""
    epoch: int
    ends_epoch: bool


class Plan:
    """The updates of all epochs.

    Examples of one text with different reference answers stand together. In one update, what their text alone
    says about the label cancels; only the comparison is left to learn.
    """

    def __init__(self, examples: Sequence[VerifyExample], config: VerifyRMConfig, seed: int) -> None:
        self._num_epochs, self._batch_size, self._seed = config.num_epochs, config.batch_size, seed
        self._members, self._sizes = _group_by_text(examples)

    def __len__(self) -> int:
        return self._num_epochs * math.ceil(len(self._members) / self._batch_size)

    def updates(self) -> Iterator[Update]:
        """Yield every update, epoch by epoch."""
        for epoch in range(self._num_epochs):
            order = self._order(epoch)
            starts = range(0, len(order), self._batch_size)
            for start in starts:
                chosen = order[start : start + self._batch_size].tolist()
                yield Update(chosen, epoch, ends_epoch=start == starts[-1])

    def _order(self, epoch: int) -> np.ndarray:
        """Indices of all examples, the groups in an order of the epoch."""
        shuffled = array("q", range(len(self._sizes)))
        random.Random(derive_seed(self._seed, "verify_rm_epoch", epoch)).shuffle(shuffled)
        groups = np.asarray(shuffled)
        firsts = np.cumsum(self._sizes) - self._sizes
        return self._members[_join(firsts[groups], self._sizes[groups])]


def _group_by_text(examples: Sequence[VerifyExample]) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the examples, group after group, and the sizes of the groups.

    The groups are in the order of their first members.
    A group is one text with different reference answers. Of equal examples each is in another group.
    """
    count = len(examples)
    # Hashes in place of a dictionary of texts, which would fill the memory.
    hashes = ((hash((e.question, e.completion)), hash(e.reference_answer)) for e in examples)
    found = np.fromiter(hashes, dtype=[("text", np.int64), ("answer", np.int64)], count=count)
    text, answer = found["text"], found["answer"]
    by_example = np.lexsort((answer, text))
    firsts = _first_of_runs(text[by_example], answer[by_example])
    sizes = np.diff(firsts, append=count)
    copy = np.empty(count, dtype=np.int64)
    copy[by_example] = np.arange(count) - np.repeat(firsts, sizes)
    by_group = np.lexsort((copy, text))
    firsts = _first_of_runs(text[by_group], copy[by_group])
    sizes = np.diff(firsts, append=count)
    order = np.argsort(by_group[firsts])
    return by_group[_join(firsts[order], sizes[order])], sizes[order]


def _first_of_runs(*sorted_keys: np.ndarray) -> np.ndarray:
    """Places where a run of equal keys begins."""
    is_first = np.ones(len(sorted_keys[0]), dtype=bool)
    is_first[1:] = np.logical_or.reduce([keys[1:] != keys[:-1] for keys in sorted_keys])
    return np.flatnonzero(is_first)


def _join(firsts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The places first, first + 1, ..., first + size - 1 of every run, run after run."""
    ends = np.cumsum(sizes)
    return np.repeat(firsts - (ends - sizes), sizes) + np.arange(sizes.sum())
