"""Requests to any OpenAI-compatible chat server, of a judge (row 3) or an assistant (row 11).

Requests run concurrently up to a limit, with a time limit each, and are repeated with growing pauses on 5xx,
connection errors and answers that are no chat completion. A rate limit (429) is obeyed for as long as it
takes (`servers/pacing.py`), or ends the run where it takes too long. One request that fails for good costs
one verdict; a server that never answers, or a budget that is spent (`servers/budget.py`), is a ServerError.
"""

import logging
import math
import os
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn

import httpx

from cooper_rl.addresses import redact, redact_all, split_user
from cooper_rl.config.data import ServerConfig
from cooper_rl.errors import ConfigError, ServerError
from cooper_rl.method.prompts import ChatPrompt
from cooper_rl.outgoing import basic_authorization, can_be_asked, describe, open_client, through
from cooper_rl.schema.reports import JudgeUsage
from cooper_rl.schema.texts import fits_header, replace_surrogates
from cooper_rl.servers.answers import (
    REDIRECTS,
    max_answer_bytes,
    post,
    read_retry_after,
    status_of,
)
from cooper_rl.servers.budget import Estimate, Ledger, count_tokens
from cooper_rl.servers.pacing import Pace
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)

RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
REFUSALS = frozenset({401, 403, 404, 405}) | REDIRECTS
MAX_PAUSE_SECONDS = 60.0
"""Of pauses that nobody asked for."""
MAX_ASKED_SECONDS = 366 * 86_400.0
"""A later date is not shown."""
MAX_FAILURES_IN_A_ROW = 8
"""So many requests given up without one answered between them: the server is gone, not the request bad."""

MAX_STATED_TOKENS = 10**12
"""Of one answer. JSON holds numbers that no float does, and a cost is one."""

SILENT_SECONDS = 30.0
"""A model may think for so long about an answer before that is worth a word."""

FailureKind = Literal["refused", "unreachable"]


class RequestError(Exception):
    """One request was given up; the reason is for the verdict's record."""

    def __init__(self, reason: str, kind: FailureKind) -> None:
        super().__init__(reason)
        self.kind: FailureKind = kind


class _RetryError(Exception):
    """Worth another try."""

    def __init__(self, reason: str, *, asked_pause: float | None = None, is_limited: bool = False) -> None:
        super().__init__(reason)
        self.asked_pause = asked_pause
        """Seconds that the server asks for."""
        self.is_limited = is_limited
        """The server refused the rate, not the request."""


class ChatClient:
    """One chat server: sends prompts, counts what it cost. Safe to use from many threads."""

    def __init__(self, server: ServerConfig) -> None:
        self.server = server
        url = server.base_url.rstrip("/") + "/chat/completions"
        self._url, self._shown = split_user(url)[0], redact(url)
        if not can_be_asked(self._url):
            shown = redact(server.base_url)
            raise ConfigError(
                f"server.base_url={shown!r}: is no address that can be asked; write https://host:port/v1"
            )
        # As many connections as requests: with fewer, a request's time-out would run while it waits for
        # one.
        limits = httpx.Limits(max_connections=server.max_concurrency)
        headers = _authorization(server)
        self._secret = headers.get("Authorization", "").partition(" ")[2]
        self._http = open_client(server.timeout_seconds, limits=limits, headers=headers)
        self._proxy = through(url)
        self._ledger = Ledger(server)
        self._pace = Pace(server.max_concurrency)
        limit = f"timeout_seconds={server.timeout_seconds:g}, max_attempts={server.max_attempts}"
        self._waiting = Waiting(self._shown, logger, limit=limit, first_seconds=SILENT_SECONDS)
        self._lock = threading.Lock()
        self._failures_in_a_row = 0
        self._last_answer = -math.inf
        """When anything but a refused rate was answered: while others are, patience does not run out."""
        self._gone: str | None = None
        """Why nothing more is asked; requests that wait in other threads end with the same error."""
        self._stopped = threading.Event()
        """Set with `_gone`, so that nobody sleeps on."""

    @property
    def usage(self) -> JudgeUsage:
        """Usage so far."""
        return self._ledger.usage

    def begin(self) -> None:
        """A batch of requests begins: a server that was gone in the batch before is asked again."""
        with self._lock:
            self._failures_in_a_row, self._gone = 0, None
            self._stopped.clear()

    def stop(self, why: str) -> None:
        """Ask nothing more until `begin`; callers that wait for a pause to end get a ServerError."""
        self._gone = why
        self._stopped.set()
        self._pace.resume()

    def announce(self, found: Estimate, *, is_most: bool) -> str:
        """See `Ledger.announce`."""
        return self._ledger.announce(found, is_most=is_most)

    def ask(self, prompt: ChatPrompt, *, seed: int) -> str:
        """The text of the server's answer, without a leading thought.

        Raises:
            ServerError: the server refuses this model or key, nothing at all is answered any more, or the
                budget is spent.
        """
        body = self._body(prompt, seed)
        started = time.monotonic()
        try:
            with self._waiting.asked():
                text = self._ask_patiently(body, random.Random(seed))
        except RequestError as failure:
            self._ledger.count(failed=1)
            self._count_failure(str(failure), failure.kind)
            raise
        finally:
            self._ledger.count(seconds=time.monotonic() - started)
        with self._lock:
            self._failures_in_a_row = 0
        return text

    def probe(self, prompt: ChatPrompt) -> str | None:
        """Ask once; why there is no answer, or None: a rate that is refused is an answer too.

        Raises:
            ServerError: the server refuses this model or key.
        """
        try:
            self._try_once(self._body(prompt, 0))
        except (_RetryError, RequestError) as failure:
            return None if isinstance(failure, _RetryError) and failure.is_limited else str(failure)
        return None

    def _body(self, prompt: ChatPrompt, seed: int) -> dict[str, Any]:
        return {
            "model": self.server.model,
            "messages": [
                {"role": "system", "content": prompt.system},
                {"role": "user", "content": prompt.user},
            ],
            "temperature": self.server.temperature,
            "max_tokens": self.server.max_tokens,
            "seed": seed & 0x7FFFFFFF,
        }

    def _count_failure(self, reason: str, kind: FailureKind) -> None:
        with self._lock:
            # A request that is refused is answered: the server is there.
            self._failures_in_a_row = 0 if kind == "refused" else self._failures_in_a_row + 1
            is_gone = self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW
        if is_gone:
            self._give_up(
                f"{self._shown}: {MAX_FAILURES_IN_A_ROW} requests in a row failed, last: {reason}; "
                "check that the server runs, then start again: known verdicts are not asked for twice"
            )

    def _give_up(self, why: str) -> NoReturn:
        self.stop(why)
        raise ServerError(why)

    def _ask_patiently(self, body: dict[str, Any], jitter: random.Random) -> str:
        # A 429 is no failure of the request, so it counts time and not attempts.
        started = time.monotonic()
        attempt = 0
        while True:
            try:
                text = self._try_once(body)
            except _RetryError as failure:
                self._waiting.failed(failure)
                if failure.is_limited:
                    self._check_patience(started, failure)
                    # What the server asks for is enough: the pause is everybody's, and fewer come back.
                    self._pace.slow_down(failure.asked_pause or _pause_seconds(0, None, self.server, jitter))
                    if self._gone is not None:  # another thread gave up meanwhile, and nobody is to wait
                        self._pace.resume()
                else:
                    attempt += 1
                    if attempt >= self.server.max_attempts:
                        raise RequestError(f"{failure} after {attempt} attempts", "unreachable") from failure
                    # Since now: attempts bound the waiting; only the pause that is asked for may be too long.
                    self._check_patience(time.monotonic(), failure)
                    self._stopped.wait(_pause_seconds(attempt - 1, failure.asked_pause, self.server, jitter))
                self._ledger.count(retries=1)
            else:
                self._pace.speed_up()
                return text

    def _check_patience(self, started: float, failure: _RetryError) -> None:
        """End the run where the server is not to be waited for: a rate limit costs no verdict."""
        patience = self.server.rate_limit_patience_seconds
        asked = failure.asked_pause or 0.0
        waited = time.monotonic() - max(started, self._last_answer)
        if asked <= patience and waited <= patience:
            return
        until = datetime.now(UTC) + timedelta(seconds=min(asked, MAX_ASKED_SECONDS))
        found = (
            f"asks for a pause of {asked:g} s"
            if asked > patience
            else f"has answered nothing for {waited:g} s"
        )
        self._give_up(
            f"{self._shown} {found} ({failure}), over server.rate_limit_patience_seconds={patience:g}; start "
            f"again after {until:%Y-%m-%d %H:%M} UTC, or raise it: known verdicts are not asked for twice"
        )

    def _try_once(self, body: dict[str, Any]) -> str:
        with self._pace.turn():
            if self._gone is not None:
                raise ServerError(self._gone)
            spent = self._ledger.admit()
            if spent is not None:
                self._give_up(
                    f"{self._shown}: {spent}; raise it and start again: known verdicts are not asked for "
                    "twice"
                )
            try:
                answer = self._post(body)
            except httpx.RequestError as error:
                raise _RetryError(redact_all(describe(error, self._url), self.server.base_url)) from error
            finally:
                self._ledger.end()
        if answer.status_code != 429:
            self._last_answer = time.monotonic()
        if answer.status_code == 200:
            return self._read(answer, body)
        reason = status_of(answer, self._hide) + self._proxy
        if answer.status_code in REFUSALS:
            self._give_up(
                f"{self._shown} refuses model {self.server.model!r} with {reason}; check base_url, "
                f"model and api_key_env (now {self.server.api_key_env!r})"
            )
        if answer.status_code not in RETRIED_STATUSES:
            raise RequestError(reason, "refused")
        asked = read_retry_after(answer.headers)
        raise _RetryError(reason, asked_pause=asked, is_limited=answer.status_code == 429)

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        max_bytes = max_answer_bytes(self.server.max_tokens)
        return post(self._http, self._url, body, max_bytes=max_bytes, max_seconds=self.server.timeout_seconds)

    def _read(self, answer: httpx.Response, body: dict[str, Any]) -> str:
        text, value, fault = "", None, None
        try:
            value = answer.json()
            text = replace_surrogates(value["choices"][0]["message"]["content"] or "")
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            fault = error
        prompt_tokens, completion_tokens = (
            _stated_tokens(value, name) for name in ("prompt_tokens", "completion_tokens")
        )
        if fault is None:
            sent = "".join(message["content"] for message in body["messages"])
            prompt_tokens = prompt_tokens or count_tokens(sent)
            completion_tokens = completion_tokens or count_tokens(text)
        if prompt_tokens or completion_tokens:  # of an answer without a text too, if the server says so
            self._ledger.pay(prompt_tokens, completion_tokens)
        if fault is not None:
            shown = self._hide(answer.text)[:200]
            raise _RetryError(f"not a chat completion: {shown!r}{self._proxy}") from fault
        return _without_thought(text)

    def _hide(self, text: str) -> str:
        """A text of the server without the key, which some repeat to say that it is wrong."""
        return text.replace(self._secret, "***") if self._secret else text


def _stated_tokens(value: Any, name: str) -> int:
    """A size that a server's answer states; 0 where it states none that can be read or believed."""
    try:
        found = int(value["usage"][name])
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return 0
    return found if 0 <= found <= MAX_STATED_TOKENS else 0


def _authorization(server: ServerConfig) -> dict[str, str]:
    user = split_user(server.base_url)[1]
    if user is not None:
        return basic_authorization(user)
    if server.api_key_env is None:
        return {}
    key = os.environ.get(server.api_key_env, "").strip()
    if not key:
        raise ConfigError(
            f"server.api_key_env={server.api_key_env!r}: that environment variable is not set; export it, or "
            "set api_key_env=null for a server without a key"
        )
    if not fits_header(key):
        raise ConfigError(
            f"server.api_key_env={server.api_key_env!r}: that environment variable holds characters that no "
            "header can carry; set it to the key alone"
        )
    return {"Authorization": f"Bearer {key}"}


def _pause_seconds(attempt: int, asked: float | None, server: ServerConfig, jitter: random.Random) -> float:
    """Doubling pauses up to a minute, spread so that clients do not meet again; at least what is asked."""
    pause = server.backoff_seconds * 2**attempt * jitter.uniform(0.5, 1.0)
    return max(min(pause, MAX_PAUSE_SECONDS), asked or 0.0)


def _without_thought(text: str) -> str:
    # The last end: a model may quote the tag while it thinks.
    return text.rsplit("</think>", 1)[-1].strip()
