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
    # Hashes in place of a dictionary of texts, and short indices: there may be many millions.
    text, answer = (np.empty(len(examples), dtype=np.int64) for _ in range(2))
    for place, example in enumerate(examples):
        text[place] = hash((example.question, example.completion))
        answer[place] = hash(example.reference_answer)
    index = np.min_scalar_type(len(examples))
    by_example = np.lexsort((answer, text)).astype(index)
    copy = np.empty_like(by_example)
    beginnings = _beginnings_of_runs(text[by_example], answer[by_example])
    copy[by_example] = np.arange(len(examples), dtype=index) - beginnings
    del answer, by_example
    by_group = np.lexsort((copy, text)).astype(index)
    beginnings = _beginnings_of_runs(text[by_group], copy[by_group])
    del text, copy
    first = np.empty_like(by_group)
    first[by_group] = by_group[beginnings]
    sizes = np.bincount(first)
    return np.argsort(first, kind="stable").astype(index), sizes[sizes > 0]


def _beginnings_of_runs(*sorted_keys: np.ndarray) -> np.ndarray:
    """For every place, the place at which its run of equal keys begins."""
    count = len(sorted_keys[0])
    is_beginning = np.ones(count, dtype=bool)
    is_beginning[1:] = np.logical_or.reduce([keys[1:] != keys[:-1] for keys in sorted_keys])
    return np.maximum.accumulate(np.arange(count, dtype=np.min_scalar_type(count)) * is_beginning)


def _join(firsts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The places first, first + 1, ..., first + size - 1 of every run, run after run."""
    ends = np.cumsum(sizes)
    return np.repeat(firsts - (ends - sizes), sizes) + np.arange(sizes.sum())
