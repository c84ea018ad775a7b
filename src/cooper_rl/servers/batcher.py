"""Scoring for many requests at a time: waiting requests are scored together (row 7, as a service).

One thread scores, so that requests never share the model. Waiting requests share it by tokens, with
start-time fair queueing (Goyal, Vin and Cheng 1996): the next item is always one of the request that has had
the fewest tokens, where a new request begins with what the last one served had. So before an item is taken,
each other request gets at most as many tokens as this request had, and one item. HTTP is in
`servers/verify_rm_http.py`.
"""

import asyncio
import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cooper_rl.errors import ServerError
from cooper_rl.models.verify_rm import VerifyItem

Score = Callable[[Sequence[VerifyItem]], list[float]]
MAX_RETRY_SECONDS = 60


class QueueFullError(ServerError):
    """More items wait than may."""

    def __init__(self, message: str, *, retry_seconds: int) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class Scored(NamedTuple):
    """The answer to a request."""

    scores: list[float]
    """In the order of the items."""
    queue_seconds: float
    """From its arrival to the batch with its first item."""


@dataclass(eq=False)
class _Waiting:
    items: list[VerifyItem]
    num_tokens: list[int]
    result: asyncio.Future[Scored]
    arrived: float
    order: tuple[int, int]
    """Whose turn it is, the lowest first: tokens served, counted from where it began, then the arrival."""
    num_taken: int = 0
    queue_seconds: float = 0.0
    scores: list[float] = field(default_factory=list)

    def __lt__(self, other: "_Waiting") -> bool:
        return self.order < other.order


class ScoreBatcher:
    """Collects items of concurrent callers into batches.

    Args:
        score: Scores in the order of the items; called in one thread of its own.
        max_items: Items of a batch.
        max_tokens: Tokens of a batch; a larger item is a batch of its own.
        max_wait_seconds: How long the first of a batch waits for others.
        max_waiting: Items that may wait before `submit` refuses.
        on_batch: Told the number of items and tokens of every batch.
    """

    def __init__(
        self,
        score: Score,
        *,
        max_items: int,
        max_tokens: int,
        max_wait_seconds: float,
        max_waiting: int,
        on_batch: Callable[[int, int], None] = lambda items, tokens: None,
    ) -> None:
        self._score = score
        self._max_items = max_items
        self._max_tokens = max_tokens
        self._max_wait_seconds = max_wait_seconds
        self._max_waiting = max_waiting
        self._on_batch = on_batch
        # Touched by the event loop's thread alone, so that it needs no lock; the scoring thread gets lists
        # of its own.
        self._queue: list[_Waiting] = []
        """A heap: whose turn it is comes first."""
        self._served = 0
        """Tokens that the last one served had had; what a new request begins with."""
        self._arrivals = itertools.count()
        self._arrival = asyncio.Event()
        self._scoring: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._worker: asyncio.Task[None] | None = None
        self._is_closing = False
        self._batch_started: float | None = None
        self._items_per_second = 0.0
        self.num_waiting = 0
        """Items that wait or are being scored."""
        self.is_stuck = False
        """Whether `close` gave up a batch, whose thread still runs."""

    @property
    def batch_seconds(self) -> float:
        """Seconds that the batch of the moment has taken; 0 without one."""
        return 0.0 if self._batch_started is None else time.monotonic() - self._batch_started

    async def start(self) -> None:
        """Begin to score what is submitted."""
        # A daemon: a forward pass that hangs must not keep the process from ending.
        threading.Thread(target=self._score_batches, name="score", daemon=True).start()
        self._worker = asyncio.create_task(self._work())

    async def close(self, *, seconds: float | None = None) -> None:
        """Score what still waits, then stop; after so many seconds the batch of the moment is given up."""
        self._is_closing = True
        self._arrival.set()
        if self._worker is not None:
            _, unfinished = await asyncio.wait([self._worker], timeout=seconds)
            self.is_stuck = bool(unfinished)
            self._worker.cancel()
        self._scoring.put(None)

    def check_room(self, num_items: int) -> None:
        """Refuse as `submit` would, before work is put into a request.

        Raises:
            QueueFullError: too many items wait already.
            ServerError: the server is shutting down.
        """
        if self._is_closing:
            raise ServerError("the server is shutting down; send the request to another one")
        if self.num_waiting + num_items > self._max_waiting:
            seconds = self._seconds_to_wait()
            raise QueueFullError(
                f"{self.num_waiting} items wait and at most {self._max_waiting} may; "
                f"try again in {seconds} s",
                retry_seconds=seconds,
            )

    async def submit(self, items: list[VerifyItem], num_tokens: list[int]) -> Scored:
        """Scores in order. A caller that is cancelled takes back the items that no batch has yet.

        Raises:
            QueueFullError: too many items wait already.
            ServerError: the server is shutting down.
        """
        self.check_room(len(items))
        result: asyncio.Future[Scored] = asyncio.get_running_loop().create_future()
        order = (self._served, next(self._arrivals))
        waiting = _Waiting(items, num_tokens, result, time.monotonic(), order)
        heapq.heappush(self._queue, waiting)
        self.num_waiting += len(items)
        self._arrival.set()
        try:
            return await result
        finally:
            self._drop(waiting)

    def _drop(self, waiting: _Waiting) -> None:
        """Take what no batch has yet out of the queue: its caller is gone, or was told of an error."""
        # By identity (eq=False): two requests with the same texts are still two.
        if waiting in self._queue:
            self._queue.remove(waiting)
            heapq.heapify(self._queue)
            self.num_waiting -= len(waiting.items) - waiting.num_taken

    def _seconds_to_wait(self) -> int:
        """Until the queue has been scored, at the speed of the last batches."""
        if not self._items_per_second:
            return 1
        return min(MAX_RETRY_SECONDS, 1 + int(self.num_waiting / self._items_per_second))

    async def _work(self) -> None:
        while True:
            if not self._queue:
                if self._is_closing:
                    return
                self._arrival.clear()
                await self._arrival.wait()
                continue
            if self.num_waiting < self._max_items and not self._is_closing:
                # A pause for company: requests come in bursts, and one pass over many items costs less than
                # many passes.
                await asyncio.sleep(self._max_wait_seconds)
            batch = self._next_batch()
            if batch:  # their callers may have gone meanwhile
                await self._score_batch(batch)

    def _next_batch(self) -> list[tuple[_Waiting, int]]:
        """Items as (request, index), each of the request that has had the fewest tokens."""
        batch: list[tuple[_Waiting, int]] = []
        num_tokens = 0
        while self._queue and len(batch) < self._max_items:
            waiting = self._queue[0]
            index = waiting.num_taken
            # An item over the budget still gets a batch, or it would wait for ever. Nobody whose item would
            # fit overtakes one that does not: long items would wait for as long as short ones come.
            if batch and num_tokens + waiting.num_tokens[index] > self._max_tokens:
                break
            if index == 0:
                waiting.queue_seconds = time.monotonic() - waiting.arrived
            batch.append((waiting, index))
            num_tokens += waiting.num_tokens[index]
            waiting.num_taken += 1
            heapq.heappop(self._queue)
            self._served, arrival = waiting.order
            waiting.order = (self._served + waiting.num_tokens[index], arrival)
            if waiting.num_taken < len(waiting.items):
                heapq.heappush(self._queue, waiting)
        if batch:
            self._on_batch(len(batch), num_tokens)
        return batch

    async def _score_batch(self, batch: list[tuple[_Waiting, int]]) -> None:
        items = [waiting.items[index] for waiting, index in batch]
        answer: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self._batch_started = time.monotonic()
        self._scoring.put((asyncio.get_running_loop(), answer, items))
        try:
            scores = await answer
        except Exception as error:  # whatever it is, the callers must hear of it
            for waiting, _ in batch:
                self._drop(waiting)  # its other items need no scores
                if not waiting.result.done():
                    waiting.result.set_exception(error)
        else:
            for (waiting, _), score in zip(batch, scores, strict=True):
                waiting.scores.append(score)
                if len(waiting.scores) == len(waiting.items) and not waiting.result.done():
                    waiting.result.set_result(Scored(waiting.scores, waiting.queue_seconds))
        finally:
            speed = len(items) / max(self.batch_seconds, 1e-6)
            # Smoothed: batches differ in length, and the answer to a refused client should not jump with
            # each.
            self._items_per_second = 0.8 * (self._items_per_second or speed) + 0.2 * speed
            self._batch_started = None
            self.num_waiting -= len(items)

    def _score_batches(self) -> None:
        """The thread: scores and hands the result to the event loop, until it is told to end."""
        while (work := self._scoring.get()) is not None:
            loop, answer, items = work
            try:
                scores = self._score(items)
            except Exception as error:
                self._tell(loop, answer, error)
            else:
                self._tell(loop, answer, scores)

    @staticmethod
    def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Any], result: Any) -> None:
        def settle() -> None:
            # The server may have given the batch up while it was scored; setting a result twice raises.
            if answer.done():
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        with suppress(RuntimeError):  # the loop ended while the batch was scored
            loop.call_soon_threadsafe(settle)
