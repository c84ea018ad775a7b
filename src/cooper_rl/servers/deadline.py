"""uvicorn's HTTP protocol with a time limit for the arrival of a request, and a bound on open connections.

uvicorn limits the time between two requests only: a connection that never sends its header or its body to the
end stays open for ever, and holds up the shutdown. Its bound on connections answers requests, so that those
that say nothing are kept, however many there are.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

CLOSE_SECONDS = 1.0
"""Time that a connection without a request has to close when the server shuts down."""


def with_deadline(
    seconds: float,
    on_slow: Callable[[], object],
    *,
    shutdown_seconds: float,
    max_open: int,
    on_crowd: Callable[[], object],
) -> type[H11Protocol]:
    """The protocol class.

    Args:
        seconds: How long a whole request may take to arrive.
        on_slow: Told of a connection that is given up before its header has arrived.
        shutdown_seconds: How long one may take that is arriving when the server begins to shut down.
        max_open: Connections; those beyond it are closed at once.
        on_crowd: Told of a connection that is closed for that.
    """

    class DeadlineProtocol(H11Protocol):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] as uvicorn's own
            super().connection_made(transport)
            if len(self.connections) > max_open:
                on_crowd()
                transport.abort()
                return
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._unwatch()

        def send_400_response(self, msg: str) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                # The application may yet answer, which h11 would raise at: its client is gone, for it.
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(msg)
            else:  # answered already, e.g. 413: h11 would raise
                self.transport.close()

        def shutdown(self) -> None:
            super().shutdown()
            if self.cycle is None or self.cycle.response_complete:
                # It is being closed, over TLS only when the client says so too. An idle one never may.
                self._unwatch()
                self._deadline = self.loop.call_later(CLOSE_SECONDS, self.transport.abort)
            elif self._deadline is not None:  # a request that is still arriving
                self._deadline.cancel()
                # Kubernetes kills after its grace period: a client that is still sending must not use up
                # what running requests need.
                self._deadline = self.loop.call_later(min(seconds, shutdown_seconds), self._give_up)

        def _watch(self) -> None:
            is_arriving = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
            if not is_arriving:
                self._unwatch()
            # Not restarted by each byte: a client that sends one every second would never be late.
            elif self._deadline is None:
                self._deadline = self.loop.call_later(seconds, self._give_up)

        def _unwatch(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                on_slow()  # with a cycle, the guard counts it
            # abort and not close: close waits until what is buffered was sent, to a client that may never
            # read.
            self.transport.abort()

    return DeadlineProtocol
