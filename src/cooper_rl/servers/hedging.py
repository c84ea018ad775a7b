"""Hedged requests: a second one for an answer that is late, the first of the two answers wins (row 11).

Of chat servers a few answers take many times as long as the others, and a step waits for its last one. The
loser is cancelled and its connection closed, so that it holds up nobody and the server may stop writing.
Deliberately left out: retries (`servers/chat.py`).
"""

import asyncio
import statistics
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import httpx

from cooper_rl.config.data import ServerConfig

MIN_TIMED = 5
"""Answers from which on their median is relied on."""
NUM_TIMED = 256
"""Newest answers that the median is taken of."""
POLL_SECONDS = 0.05

_Request = asyncio.Task[httpx.Response]


class Hedger:
    """Posts to one server, at most `max_concurrency` requests at a time. Safe to use from many threads.

    Args:
        server: With `hedge_after`.
        headers: Of every request.
    """

    def __init__(self, server: ServerConfig, headers: dict[str, str]) -> None:
        self._server = server
        self._headers = headers
        self._tls = httpx.create_ssl_context()
        self._free = threading.Semaphore(server.max_concurrency)
        self._lock = threading.Lock()
        self._seconds: deque[float] = deque(maxlen=NUM_TIMED)
        self._num_hedged = 0

    @property
    def num_hedged(self) -> int:
        """Second requests so far."""
        return self._num_hedged

    def post(self, url: str, body: dict[str, Any]) -> httpx.Response:
        """The first answer with status 200, else what became of the first request.

        Raises:
            httpx.TransportError: no request was answered.
        """
        with self._free:
            return asyncio.run(self._race(url, body))

    async def _race(self, url: str, body: dict[str, Any]) -> httpx.Response:
        # A client of this call alone: a connection that was cancelled half-way is nobody else's.
        async with httpx.AsyncClient(
            timeout=self._server.timeout_seconds, headers=self._headers, verify=self._tls
        ) as client:
            started = time.monotonic()
            requests = [asyncio.create_task(self._post_once(client, url, body))]
            try:
                if await self._is_late(requests[0], started):
                    requests.append(asyncio.create_task(self._post_once(client, url, body)))
                return await _first_answer(requests)
            finally:
                # Only first requests are timed. A cancelled one is recorded with its elapsed time, which is
                # enough to place it above the median.
                if _is_answered(requests[0]) or not requests[0].done():
                    self._remember(time.monotonic() - started)
                for request in requests:
                    request.cancel()
                await asyncio.gather(*requests, return_exceptions=True)
                if len(requests) > 1:
                    self._free.release()

    async def _post_once(self, client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> httpx.Response:
        try:
            async with asyncio.timeout(self._server.timeout_seconds):
                return await client.post(url, json=body)
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"the answer took over {self._server.timeout_seconds} s") from error

    async def _is_late(self, request: _Request, started: float) -> bool:
        """Whether a request takes too long and there is room for another, which is then taken."""
        while not request.done():
            limit = self._limit_seconds()
            left = POLL_SECONDS if limit is None else limit - (time.monotonic() - started)
            if left <= 0 and self._free.acquire(blocking=False):
                with self._lock:
                    self._num_hedged += 1
                return True
            await asyncio.wait([request], timeout=max(left, POLL_SECONDS))
        return False

    def _limit_seconds(self) -> float | None:
        """How long an answer may take; None while too few are known."""
        assert self._server.hedge_after is not None, "a hedger is made where hedge_after is set"
        with self._lock:
            if len(self._seconds) < MIN_TIMED:
                return None
            return self._server.hedge_after * statistics.median(self._seconds)

    def _remember(self, seconds: float) -> None:
        with self._lock:
            self._seconds.append(seconds)


async def _first_answer(requests: Sequence[_Request]) -> httpx.Response:
    waiting = set(requests)
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for request in requests:
            if request in done and _is_answered(request):
                return request.result()
    return requests[0].result()


def _is_answered(request: _Request) -> bool:
    return (
        request.done()
        and not request.cancelled()
        and request.exception() is None
        and request.result().status_code == 200
    )
