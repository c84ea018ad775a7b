"""Hedged requests: a second one for an answer that is late, the first of the two answers wins (row 11).

A few answers of a chat server take many times as long as the others, and a step waits for its last one. The
loser is cancelled and its connection closed, so that it holds up nobody and the server may stop writing.
`servers/chat.py` retries.
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
from cooper_rl.outgoing import ACCEPTED, time_limits
from cooper_rl.servers.answers import Posted, add_part, max_answer_bytes, to_response
from cooper_rl.servers.budget import Ledger

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
        ledger: Admits second requests; the first ones are the caller's.
    """

    def __init__(self, server: ServerConfig, headers: dict[str, str], ledger: Ledger) -> None:
        self._server = server
        self._headers = headers
        # Made once: every request has a client of its own, and each would read the certificates again.
        self._tls = httpx.create_ssl_context()
        self._free = threading.Semaphore(server.max_concurrency)
        self._lock = threading.Lock()
        self._seconds: deque[float] = deque(maxlen=NUM_TIMED)
        self._ledger = ledger

    def post(self, url: str, body: dict[str, Any]) -> Posted:
        """The first answer with status 200, else what became of the first request.

        Raises:
            httpx.TransportError: no request was answered.
        """
        with self._free:
            # A loop of its own per call: callers are threads, and a cancelled race must leave nothing
            # behind in a shared one.
            return asyncio.run(self._race(url, body))

    async def _race(self, url: str, body: dict[str, Any]) -> Posted:
        # A client of this call alone: a connection that was cancelled half-way is nobody else's.
        async with httpx.AsyncClient(
            timeout=time_limits(self._server.timeout_seconds),
            headers=ACCEPTED | self._headers,
            verify=self._tls,
        ) as client:
            started = time.monotonic()
            requests = [asyncio.create_task(self._post_once(client, url, body))]
            try:
                if await self._is_late(requests[0], started):
                    requests.append(asyncio.create_task(self._post_once(client, url, body)))
                return Posted(await _first_answer(requests), len(requests))
            finally:
                # Only first requests are timed. A cancelled one is recorded with its elapsed time, which is
                # enough to place it above the median.
                if _is_answered(requests[0]) or not requests[0].done():
                    self._remember(time.monotonic() - started)
                for request in requests:
                    request.cancel()
                # Waits for the cancelled one: its connection is closed then, and the server can stop
                # writing.
                await asyncio.gather(*requests, return_exceptions=True)
                if len(requests) > 1:
                    self._ledger.end()
                    self._free.release()

    async def _post_once(self, client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> httpx.Response:
        content, max_bytes = bytearray(), max_answer_bytes(self._server.max_tokens)
        try:
            # httpx limits each read, so that a server that sends a byte now and then would never run into
            # it.
            async with (
                asyncio.timeout(self._server.timeout_seconds),
                client.stream("POST", url, json=body) as answer,
            ):
                async for part in answer.aiter_raw():
                    add_part(content, part, max_bytes)
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"the answer took over {self._server.timeout_seconds} s") from error
        return to_response(answer, content, max_bytes)

    async def _is_late(self, request: _Request, started: float) -> bool:
        """True if a request takes too long and there is room and budget for another, which are then taken."""
        while not request.done():
            limit = self._limit_seconds()
            left = POLL_SECONDS if limit is None else limit - (time.monotonic() - started)
            # Without waiting: a hedge is worth a free place, not one that another request waits for.
            if left <= 0 and self._free.acquire(blocking=False):
                if self._ledger.admit(is_hedge=True) is None:
                    return True
                self._free.release()
            # Polled, because other threads move the median and free places.
            await asyncio.wait([request], timeout=max(left, POLL_SECONDS))
        return False

    def _limit_seconds(self) -> float | None:
        """Seconds that an answer may take; None while too few are known."""
        assert self._server.hedge_after is not None, "a hedger is made where hedge_after is set"
        with self._lock:
            if len(self._seconds) < MIN_TIMED:
                return None
            # The median: a mean would be moved by the very answers that are late.
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
