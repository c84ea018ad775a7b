"""In front of a server's application: who may ask, how much, how slowly; and what the log says of it.

The application sees a request when its whole body is there, and is cancelled when the client is gone.
"""

import asyncio
import hmac
import json
import logging
import time
from contextlib import suppress
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cooper_rl.config.serve import HttpConfig
from cooper_rl.errors import ConfigError
from cooper_rl.servers.numbers import HttpNumbers

logger = logging.getLogger(__name__)
access_log = logging.getLogger("cooper_rl.access")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""What an orchestrator asks, without a token."""
MIN_TOKEN_CHARS = 16


class _ClientGoneError(Exception):
    """The client closed its connection, or was too slow."""


class Guard:
    """ASGI middleware: token, size of the body, cancellation, access log."""

    def __init__(self, app: ASGIApp, *, config: HttpConfig, numbers: HttpNumbers) -> None:
        self._app = app
        self._config = config
        self._numbers = numbers
        self._num_buffered = 0
        """Bytes of bodies that are being received or wait for their answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            await self._answer(exchange, receive)
        except _ClientGoneError:
            self._numbers.aborted.labels(exchange.phase).inc()
            exchange.status = 499  # as nginx logs it; nobody is there to receive it
        except (
            asyncio.CancelledError
        ):  # uvicorn does so at the end of the grace period, and then awaits nothing
            # An answer that has begun cannot become another one: its status is with the client already.
            if not exchange.is_begun:
                await self._refuse(
                    exchange, 503, "shutdown", "the server is shutting down; send it to another"
                )
        finally:
            exchange.log()
            if scope["path"].startswith("/v1/"):
                self._numbers.requests.labels(str(exchange.status)).inc()
                self._numbers.seconds.observe(exchange.seconds)

    async def _answer(self, exchange: "_Exchange", receive: Receive) -> None:
        scope, config = exchange.scope, self._config
        if scope["path"] not in OPEN_PATHS and not self._is_allowed(scope):
            await self._refuse(exchange, 401, "token", "give a valid token: Authorization: Bearer TOKEN")
            return
        # h11 bounds a header that has not come whole only.
        if sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > config.max_header_bytes:
            limit = config.max_header_bytes
            await self._refuse(exchange, 431, "header", f"the header is over {limit} bytes; send less of it")
            return
        before = self._num_buffered
        try:
            body = await self._read(exchange, receive)
            await self._run(exchange, body, receive)
        except _TooLargeError:
            await self._refuse(
                exchange, 413, "body", f"the body is over {config.max_body_bytes} bytes; send fewer items"
            )
        except _BuffersFullError:
            await self._refuse(
                exchange, 429, "buffers", f"{before} bytes of other requests are held; try again in a second"
            )
        finally:
            self._num_buffered -= exchange.num_held

    def _is_allowed(self, scope: Scope) -> bool:
        if self._config.token_file is None:
            return True
        kind, _, given = _header(scope, b"authorization").partition(b" ")
        try:
            # Read for every request: a rotated secret counts at once, without a restart.
            tokens = read_tokens(self._config.token_file)
        except ConfigError as error:  # it was there at the start
            logger.error("%s", error)  # noqa: TRY400 one line says it
            return False
        # Takes as long wherever two differ: a comparison that ends early tells how much of a token is right.
        matches = [hmac.compare_digest(given.strip(), token) for token in tokens]  # all: none ends early
        return kind.lower() == b"bearer" and any(matches)

    async def _read(self, exchange: "_Exchange", receive: Receive) -> bytes:
        """The body; it is read no further than its limit, declared or not.

        Its bytes count until the answer is sent: a request that waits for a batch holds its texts.
        """
        declared = _header(exchange.scope, b"content-length")
        # Refused by its header alone, before megabytes have been taken in.
        if declared.isdigit() and int(declared) > self._config.max_body_bytes:
            raise _TooLargeError
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGoneError
            chunk = message.get("body", b"")
            exchange.num_held += len(chunk)
            self._num_buffered += len(chunk)
            # Counted as well: a chunked body declares no length, and a declared one can be wrong.
            if exchange.num_held > self._config.max_body_bytes:
                raise _TooLargeError
            if self._num_buffered > self._config.max_buffered_bytes:
                raise _BuffersFullError
            chunks.append(chunk)
            if not message.get("more_body"):
                exchange.num_bytes = exchange.num_held
                return b"".join(chunks)

    async def _run(self, exchange: "_Exchange", body: bytes, receive: Receive) -> None:
        """The application, as long as its client is there."""
        exchange.phase = "waited"
        gone = asyncio.Event()
        parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            if parts:
                return parts.pop()
            # Blocks like a real connection: an application that asks once more must not be told of an end
            # that has not come.
            await gone.wait()
            return {"type": "http.disconnect"}

        answer = asyncio.create_task(self._app(exchange.scope, replay, exchange.send))  # pyright: ignore[reportArgumentType] a coroutine
        watch = asyncio.ensure_future(receive())  # the next message is that the client is gone
        try:
            await asyncio.wait({answer, watch}, return_when=asyncio.FIRST_COMPLETED)
            gone.set()
            if not answer.done() and not exchange.is_answered:
                # Its items leave the queue: nobody waits for scores of a client that is gone.
                answer.cancel()
                with suppress(asyncio.CancelledError):
                    await answer
                raise _ClientGoneError
            await answer
        finally:
            watch.cancel()
            answer.cancel()

    async def _refuse(self, exchange: "_Exchange", status: int, reason: str, detail: str) -> None:
        self._numbers.rejected.labels(reason).inc()
        again = {"retry-after": "1"}
        headers = {401: {"www-authenticate": "Bearer"}, 429: again, 503: again}.get(status)
        response = JSONResponse({"detail": detail}, status, headers=headers)
        await response(exchange.scope, _nothing, exchange.send)


class _Exchange:
    """A request and its answer, as far as the log knows them: no texts, no tokens."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        scope.setdefault("state", {})["facts"] = {}
        self.status = 500
        self.phase = "sent"
        self.num_held = 0
        """Bytes of its body that were received."""
        self.num_bytes = 0
        self.is_begun = False
        self.is_answered = False
        self._send = send
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_begun, self.status = True, message["status"]
        elif not message.get("more_body"):
            self.is_answered = True
        await self._send(message)

    def log(self) -> None:
        """One line of JSON."""
        client = self.scope.get("client")
        facts = {
            "client": client[0] if client else None,
            "method": self.scope["method"],
            "path": self.scope["path"][:200],
            "status": self.status,
            "seconds": round(self.seconds, 4),
            "bytes": self.num_bytes,
            **self.scope["state"]["facts"],
        }
        level = logging.DEBUG if self.scope["path"] in OPEN_PATHS else logging.INFO
        access_log.log(level, "%s", json.dumps(facts))


class _TooLargeError(Exception):
    """A body over its limit."""


class _BuffersFullError(Exception):
    """All bodies together over theirs."""


def read_tokens(path: Path) -> list[bytes]:
    """The tokens of a file, one a line.

    Raises:
        ConfigError: it cannot be read, or holds no token, or a short one; the message holds none.
    """
    try:
        tokens = path.read_bytes().split()
    except OSError as error:
        raise ConfigError(
            f"token_file={path}: cannot be read ({error.strerror}); give a readable file"
        ) from error
    if not tokens or min(map(len, tokens)) < MIN_TOKEN_CHARS:
        raise ConfigError(
            f"token_file={path}: needs tokens of at least {MIN_TOKEN_CHARS} characters, one a line; make one "
            "with `openssl rand -hex 32`"
        )
    return tokens


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
