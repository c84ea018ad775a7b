"""`RewardClient`: asks a server of rewards that learn (`cooper-rl serve --learn`)."""

import logging
import math
import os
import ssl
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import httpx

from cooper_rl.addresses import redact, split_user
from cooper_rl.api.rows import Row, read_rows
from cooper_rl.errors import ConfigError, ServerError
from cooper_rl.outgoing import (
    basic_authorization,
    can_be_asked,
    describe,
    distrust_in,
    open_client,
    through,
)
from cooper_rl.schema.texts import fits_header
from cooper_rl.servers.answers import SPARE_BYTES, post, read_retry_after, status_of
from cooper_rl.waiting import MAX_SECONDS, Waiting

logger = logging.getLogger(__name__)

RETRIED = frozenset({429, 502, 503, 504})
"""Statuses that say: later."""
MAX_BYTES_PER_REWARD = 64
"""A number in JSON has at most 25."""
ADDRESS_REMEDY = (
    "; give the address of a server of rewards without /v1 (COOPER_REWARD_URL), and a run with a name that a "
    "folder may have (COOPER_REWARD_RUN)"
)
"""Of an address that the server does not know."""
PAUSE_SECONDS = 1.0
"""Between two tries, where the server asks for no pause."""
SILENT_SECONDS = 30.0
"""A step of learning may take so long before that is worth a word."""


class RewardClient:
    """Rewards of one run of the server; may be called from several threads, forked and pickled.

    A request that was not answered is sent again with the same id, so that it is learned from once.

    Examples:
        >>> client = RewardClient("http://127.0.0.1:8080", run="my-run")
        >>> rewards = client(
        ...     ["It is 2.", "It is 3."], questions=["1+1?"] * 2, reference_answers=["2"] * 2
        ... )
    """

    def __init__(
        self,
        url: str,
        *,
        run: str = "default",
        token: str | None = None,
        certificates: str | Path | None = None,
        timeout_seconds: float = 600.0,
        retry_seconds: float = 1800.0,
    ) -> None:
        """Nothing is sent yet.

        Args:
            url: The server's, such as https://rewards:8080.
            run: Each run has a VerifyRM of its own; two trainings must not share one.
            token: Bearer token.
            certificates: PEM file of the authorities that vouch for the server, in place of the public ones.
            timeout_seconds: Of one try.
            retry_seconds: How long a server that is away or busy is asked again.

        Raises:
            ConfigError: address, token, certificates or times cannot be used.
        """
        for name, seconds in (("timeout_seconds", timeout_seconds), ("retry_seconds", retry_seconds)):
            if not 0 <= seconds <= MAX_SECONDS:
                raise ConfigError(f"{name}={seconds}: is no time to wait; give 0 to {MAX_SECONDS} (14 days)")
        address, user = split_user(url.rstrip("/"))
        shown = redact(url.rstrip("/"))
        _check_address(address, shown=shown)
        if user is not None and token is not None:
            raise ConfigError(f"url={shown}: has a user and password; leave them out, or the token")
        # Clients log the addresses that they ask.
        self._url, self._shown = (f"{each}/v1/runs/{run}/rewards" for each in (address, shown))
        self._timeout_seconds, self._retry_seconds = timeout_seconds, retry_seconds
        self._headers = {} if user is None else basic_authorization(user)
        if token is not None:
            self._headers = {"Authorization": f"Bearer {_bare_token(token)}"}
        self._certificates = certificates
        self._proxy = through(self._url)
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._waiting = Waiting(
            self._shown, logger, limit=f"retry_seconds={self._retry_seconds:g}", first_seconds=SILENT_SECONDS
        )
        trusted = True if self._certificates is None else _trust(self._certificates)
        self._http = open_client(self._timeout_seconds, headers=self._headers, verify=trusted)

    def __getstate__(self) -> dict[str, Any]:
        """Without the connection, of which a copy opens its own. The token is among the rest."""
        return {
            name: value for name, value in vars(self).items() if name not in {"_http", "_waiting", "_pid"}
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    @classmethod
    def from_environment(cls) -> Self:
        """A client from COOPER_REWARD_URL, COOPER_REWARD_RUN, COOPER_REWARD_TOKEN_FILE and
        COOPER_REWARD_CERTIFICATES.

        Raises:
            ConfigError: the address is missing, the token's file cannot be read, or one cannot be used.
        """
        url = os.environ.get("COOPER_REWARD_URL")
        if not url:
            raise ConfigError(
                "COOPER_REWARD_URL is not set; give every worker of the trainer the server's address, such "
                "as http://rewards:8080"
            )
        path = os.environ.get("COOPER_REWARD_TOKEN_FILE")
        try:
            token = Path(path).read_text(encoding="utf-8").split()[0] if path else None
        except (OSError, IndexError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"COOPER_REWARD_TOKEN_FILE={path}: holds no token ({type(error).__name__}); name a file with "
                "one, such as the server's token_file"
            ) from error
        return cls(
            url,
            run=os.environ.get("COOPER_REWARD_RUN", "default"),
            token=token,
            certificates=os.environ.get("COOPER_REWARD_CERTIFICATES"),
        )

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        prompts: Sequence[Any] | None = None,
        questions: Sequence[str] | None = None,
        reference_answers: Sequence[str],
        group_ids: Sequence[object] | None = None,
        are_cut: Sequence[bool] | None = None,
        learn: Literal["now", "later", "never"] = "now",
        request_id: str | None = None,
    ) -> list[float]:
        """One reward per completion, in order.

        Args:
            completions: Texts, or chat messages of which the last assistant message is read.
            prompts: Texts, or chat messages whose last user message is the question.
            questions: In place of prompts, where they hold more than the question.
            reference_answers: One per completion.
            group_ids: Equal for completions of one problem; absent: consecutive equal questions are a group.
            are_cut: Whether each completion reached the limit of its length; absent: not known.
            learn: `now`: the completions are one step of training. `later`: they are a part of one
                (`collect_items`). `never`: they are only scored, as in an evaluation.
            request_id: Of a request that another process may send again; absent: a new one.

        Raises:
            DataError: a column is missing, of another length, or holds no text.
            ServerError: the server refuses the request, did not answer in `retry_seconds`, or its certificate
                is not trusted.
        """
        found = read_rows(
            completions,
            prompts=prompts,
            questions=questions,
            reference_answers=reference_answers,
            group_ids=group_ids,
            are_cut=are_cut,
        )
        rows = [row for row in found if row is not None]  # all of them
        if not rows:
            return []
        request_id = request_id or uuid.uuid4().hex
        body = {"request_id": request_id, "learn": learn, "items": [_as_item(row) for row in rows]}
        # A connection that a process and its fork share gives each of them the other's answers.
        if os.getpid() != self._pid:
            self._open()
        with self._waiting.asked():
            return self._post(body, max_bytes=SPARE_BYTES + MAX_BYTES_PER_REWARD * len(rows))

    def close(self) -> None:
        self._http.close()

    def _post(self, body: dict[str, Any], *, max_bytes: int) -> list[float]:
        deadline = time.monotonic() + self._retry_seconds
        while True:
            asked = None
            try:
                answer = post(
                    self._http, self._url, body, max_bytes=max_bytes, max_seconds=self._timeout_seconds
                )
            except httpx.RequestError as error:
                self._check_trust(error)
                problem = describe(error, self._url)
            else:
                if answer.status_code == 200:
                    return self._read(answer, body)
                problem = status_of(answer) + self._proxy
                if answer.status_code not in RETRIED:
                    remedy = ADDRESS_REMEDY if answer.status_code == 404 else ""
                    raise ServerError(f"{self._shown}: refused the request with {problem}{remedy}")
                asked = read_retry_after(answer.headers)
            # Another clock makes a date in the past of one to come.
            seconds = asked if asked is not None and asked > 0 else PAUSE_SECONDS
            if time.monotonic() + seconds > deadline:
                raise ServerError(
                    f"{self._shown}: no answer in retry_seconds={self._retry_seconds:g}; the last try: "
                    f"{problem}; look at the server's log"
                )
            self._waiting.failed(problem)
            time.sleep(seconds)

    def _read(self, answer: httpx.Response, body: dict[str, Any]) -> list[float]:
        """The rewards of an answer.

        Raises:
            ServerError: it is none of this server, such as a page to log in, or that to another request.
        """
        try:
            found = answer.json()
            rewards = [_finite(reward) for reward in found["rewards"]]
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            said = f"{answer.text[:200]!r}{self._proxy}"
            raise ServerError(
                f"{self._shown}: answers as no server of rewards does, with {said}; check the address "
                "(COOPER_REWARD_URL)"
            ) from error
        if len(rewards) != len(body["items"]):
            raise ServerError(
                f"{self._shown}: gave {len(rewards)} rewards for {len(body['items'])} completions; check the "
                "address"
            )
        if found.get("request_id") != body["request_id"]:
            raise ServerError(
                f"{self._shown}: gave the answer to another request; look at what stands between this "
                "process and the server"
            )
        return rewards

    def _check_trust(self, error: httpx.RequestError) -> None:
        """Another try cannot mend a certificate that nobody vouches for.

        Raises:
            ServerError: the error is about one.
        """
        if (cause := distrust_in(error)) is not None:
            raise ServerError(
                f"{self._shown}: its certificate is not trusted ({cause.verify_message}); give "
                "certificates=FILE (COOPER_REWARD_CERTIFICATES) with the authority that signed it, and the "
                "server's name as the certificate has it"
            ) from error


def _as_item(row: Row) -> dict[str, Any]:
    """A row in a request; a server of an earlier version knows no `is_cut`."""
    return {key: value for key, value in row._asdict().items() if key != "is_cut" or value}


def _check_address(address: str, *, shown: str) -> None:
    """Raises ConfigError for one that cannot be asked."""
    url = httpx.URL(address) if can_be_asked(address) else None
    if url is None or url.scheme not in {"http", "https"} or url.query or url.fragment:
        raise ConfigError(
            f"url={shown!r}: cannot be used; write it with http:// or https:// and without a query "
            "(COOPER_REWARD_URL)"
        )


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no reward")
    return float(value)


def _bare_token(token: str) -> str:
    """The token without white space round it, as a file's content has.

    Raises:
        ConfigError: no header can carry it; the message never holds it. httpx would say so with the token.
    """
    bare = token.strip()
    if not (bare and fits_header(bare)):
        raise ConfigError(
            "token: is empty, or holds a line break or a character outside ASCII; give the token alone "
            "(COOPER_REWARD_TOKEN_FILE)"
        )
    return bare


def _trust(certificates: str | Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificates)
    except OSError as error:  # an SSLError is one
        raise ConfigError(
            f"certificates={certificates}: cannot be used ({error}); give a PEM file of authorities "
            "(COOPER_REWARD_CERTIFICATES)"
        ) from error
