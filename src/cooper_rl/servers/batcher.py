"""Scoring for many requests at a time: whoever waits is scored together (row 7, as a service).

One thread scores, so that requests never share the model. Deliberately left out: HTTP
(`servers/verify_rm_http.py`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cooper_rl.errors import ServerError
from cooper_rl.models.verify_rm import VerifyItem

Score = Callable[[Sequence[VerifyItem]], list[float]]


@dataclass(frozen=True)
class _Waiting:
    items: list[VerifyItem]
    result: asyncio.Future[list[float]]


class ScoreBatcher:
    """Collects items of concurrent callers into batches.

    Args:
        score: Scores in the order of the items; called in one thread of its own.
        max_items: Items of a batch; a larger request is a batch of its own.
        max_wait_seconds: How long the first of a batch waits for others.
        max_waiting: Items that may wait before `submit` refuses.
        on_batch: Told the number of items of every batch.
    """

    def __init__(
        self,
        score: Score,
        *,
        max_items: int,
        max_wait_seconds: float,
        max_waiting: int,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._score = score
        self._max_items = max_items
        self._max_wait_seconds = max_wait_seconds
        self._max_waiting = max_waiting
        self._on_batch = on_batch
        self._queue: deque[_Waiting] = deque()
        self._arrival = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="score")
        self._worker: asyncio.Task[None] | None = None
        self._is_closing = False
        self.num_waiting = 0

    async def start(self) -> None:
        """Begin to score what is submitted."""
        self._worker = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Score what still waits, then stop."""
        self._is_closing = True
        self._arrival.set()
        if self._worker is not None:
            await self._worker
        self._thread.shutdown(wait=True)

    async def submit(self, items: list[VerifyItem]) -> list[float]:
        """Scores in order.

        Raises:
            ServerError: too many items wait already, or the server is shutting down.
        """
        if self._is_closing:
            raise ServerError("the server is shutting down; send the request to another one")
        if self.num_waiting + len(items) > self._max_waiting:
            raise ServerError(
                f"{self.num_waiting} items wait and at most {self._max_waiting} may; try again in a second"
            )
        waiting = _Waiting(items, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self.num_waiting += len(items)
        self._arrival.set()
        return await waiting.result

    async def _work(self) -> None:
        while True:
            if not self._queue:
                if self._is_closing:
                    return
                self._arrival.clear()
                await self._arrival.wait()
                continue
            if self.num_waiting < self._max_items and not self._is_closing:
                await asyncio.sleep(self._max_wait_seconds)
            await self._score_batch(self._next_batch())

    def _next_batch(self) -> list[_Waiting]:
        batch = [self._queue.popleft()]
        size = len(batch[0].items)
        while self._queue and size + len(self._queue[0].items) <= self._max_items:
            batch.append(self._queue.popleft())
            size += len(batch[-1].items)
        return batch

    async def _score_batch(self, batch: list[_Waiting]) -> None:
        items = [item for waiting in batch for item in waiting.items]
        self._on_batch(len(items))
        try:
            scores = await asyncio.get_running_loop().run_in_executor(self._thread, self._score, items)
        except Exception as error:  # whatever it is, those who wait must hear of it
            for waiting in batch:
                if not waiting.result.done():
                    waiting.result.set_exception(error)
        else:
            start = 0
            for waiting in batch:
                if not waiting.result.done():
                    waiting.result.set_result(scores[start : start + len(waiting.items)])
                start += len(waiting.items)
        finally:
            self.num_waiting -= len(items)
