"""`RewardClient`: asks a server of rewards that learn (`cooper-rl serve --learn`)."""

import logging
import os
import ssl
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import httpx

from cooper_rl.addresses import redact
from cooper_rl.errors import ConfigError, ServerError
from cooper_rl.outgoing import describe, distrust_in, open_client, through
from cooper_rl.schema.texts import fits_header, replace_surrogates
from cooper_rl.servers.answers import SPARE_BYTES, post, read_retry_after, status_of
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)

RETRIED = frozenset({429, 502, 503, 504})
"""Statuses that say: later."""
MAX_BYTES_PER_REWARD = 64
"""A number in JSON has at most 25."""
SILENT_SECONDS = 30.0
"""A step of learning may take so long before that is worth a word."""


class RewardClient:
    """Rewards of one run of the server; may be called from several threads.

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
            ConfigError: address, token or certificates cannot be used.
        """
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"url={url!r}: write it with http:// or https:// (COOPER_REWARD_URL)")
        self._url = f"{url.rstrip('/')}/v1/runs/{run}/rewards"
        self._timeout_seconds, self._retry_seconds = timeout_seconds, retry_seconds
        self._waiting = Waiting(
            redact(self._url), logger, limit=f"retry_seconds={retry_seconds:g}", first_seconds=SILENT_SECONDS
        )
        self._proxy = through(self._url)
        self._http = open_client(
            timeout_seconds,
            headers={} if token is None else {"authorization": f"Bearer {_bare_token(token)}"},
            verify=True if certificates is None else _trust(certificates),
        )

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
        completions: Sequence[str],
        *,
        questions: Sequence[str],
        reference_answers: Sequence[str],
        group_ids: Sequence[object] | None = None,
        learn: Literal["now", "later", "never"] = "now",
        request_id: str | None = None,
    ) -> list[float]:
        """One reward per completion, in order.

        Args:
            completions: Texts.
            questions: One per completion.
            reference_answers: Likewise.
            group_ids: Equal for completions of one problem; absent: consecutive equal questions are a group.
            learn: `now`: the completions are one step of training. `later`: they are a part of one
                (`collect_items`). `never`: they are only scored, as in an evaluation.
            request_id: Of a request that another process may send again; absent: a new one.

        Raises:
            ServerError: the server refuses the request, did not answer in `retry_seconds`, or its certificate
                is not trusted.
        """
        # Completions stand in for absent group ids: one `zip` then checks all lengths.
        groups = completions if group_ids is None else group_ids
        columns = zip(completions, questions, reference_answers, groups, strict=True)
        items = [
            {
                "completion": replace_surrogates(completion),
                "question": replace_surrogates(question),
                "reference_answer": replace_surrogates(reference_answer),
                "group": None if group_ids is None else replace_surrogates(str(group)),
            }
            for completion, question, reference_answer, group in columns
        ]
        if not items:
            return []
        body = {"request_id": request_id or uuid.uuid4().hex, "learn": learn, "items": items}
        with self._waiting.asked():
            answer = self._post(body, max_bytes=SPARE_BYTES + MAX_BYTES_PER_REWARD * len(items))
        return self._read(answer, len(items))

    def close(self) -> None:
        self._http.close()

    def _post(self, body: dict[str, Any], *, max_bytes: int) -> httpx.Response:
        deadline = time.monotonic() + self._retry_seconds
        while True:
            seconds = 1.0
            try:
                answer = post(
                    self._http, self._url, body, max_bytes=max_bytes, max_seconds=self._timeout_seconds
                )
            except httpx.RequestError as error:
                self._check_trust(error)
                problem = describe(error, self._url)
            else:
                if answer.status_code == 200:
                    return answer
                problem = status_of(answer) + self._proxy
                if answer.status_code not in RETRIED:
                    raise ServerError(f"{self._url}: refused the request with {problem}")
                asked = read_retry_after(answer.headers)
                seconds = seconds if asked is None else asked
            if time.monotonic() + seconds > deadline:
                raise ServerError(
                    f"{self._url}: no answer in retry_seconds={self._retry_seconds:g}; the last try: "
                    f"{problem}; look at the server's log"
                )
            self._waiting.failed(problem)
            time.sleep(seconds)

    def _read(self, answer: httpx.Response, num_items: int) -> list[float]:
        """The rewards of an answer.

        Raises:
            ServerError: it is none of this server, such as a page to log in.
        """
        try:
            rewards = [float(reward) for reward in answer.json()["rewards"]]
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            said = f"{answer.text[:200]!r}{self._proxy}"
            raise ServerError(
                f"{self._url}: answers as no server of rewards does, with {said}; check the address "
                "(COOPER_REWARD_URL)"
            ) from error
        if len(rewards) != num_items:
            raise ServerError(
                f"{self._url}: gave {len(rewards)} rewards for {num_items} completions; check the address"
            )
        return rewards

    def _check_trust(self, error: httpx.RequestError) -> None:
        """Another try cannot mend a certificate that nobody vouches for.

        Raises:
            ServerError: the error is about one.
        """
        if (cause := distrust_in(error)) is not None:
            raise ServerError(
                f"{self._url}: its certificate is not trusted ({cause.verify_message}); give "
                "certificates=FILE (COOPER_REWARD_CERTIFICATES) with the authority that signed it, and the "
                "server's name as the certificate has it"
            ) from error


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
