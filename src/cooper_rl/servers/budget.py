"""Requests and tokens that a chat server is asked for, their cost, and the budget (rows 3 and 11).

Every request that is sent counts: first tries, retries, tries that are refused for their rate, and second
requests for a late answer. Tokens are those that the server states, else estimated from the texts.
"""

import math
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from cooper_rl.config.data import ServerConfig
from cooper_rl.method.prompts import ChatPrompt
from cooper_rl.schema.reports import JudgeUsage

CHARS_PER_TOKEN = 3
"""Of a judge's prompts about mathematics, rounded down so that a cost is rather over- than underestimated."""
PER_MILLION = 1e6


class Estimate(NamedTuple):
    """The cost of asking if every request is answered at once."""

    num_requests: int = 0
    prompt_tokens: int = 0
    """With the instructions."""
    completion_tokens: int = 0
    """As many for each answer as `server.expected_answer_tokens` says."""


def count_tokens(text: str) -> int:
    """About so many."""
    return math.ceil(len(text) / CHARS_PER_TOKEN)


def estimate(prompts: Iterable[ChatPrompt], server: ServerConfig) -> Estimate:
    """The cost of asking these; the prompts are read one by one, and none is kept."""
    num_requests = prompt_tokens = 0
    for prompt in prompts:
        num_requests += 1
        prompt_tokens += count_tokens(prompt.system) + count_tokens(prompt.user)
    answer = min(server.expected_answer_tokens, server.max_tokens)
    return Estimate(num_requests, prompt_tokens, num_requests * answer)


class Ledger:
    """Counts what one client sends and is told, and refuses what would go over a limit. Thread-safe."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._sent = self._answered = self._on_their_way = 0
        self._prompt = self._completion = 0
        self._retries = self._failed = 0
        self._seconds = 0.0

    def admit(self) -> str | None:
        """Count a request that is sent next; or say which limit forbids it, and then it may not be sent.

        Those on their way are taken to cost as much as the mean of those that were answered.
        """
        with self._lock:
            spent = self._find_spent_limit()
            if spent is None:
                self._sent += 1
                self._on_their_way += 1
            return spent

    def end(self) -> None:
        """A request that was admitted is over, however it ended."""
        with self._lock:
            self._on_their_way -= 1

    def pay(self, prompt_tokens: int, completion_tokens: int) -> None:
        """An answer came."""
        with self._lock:
            self._answered += 1
            self._prompt += max(0, prompt_tokens)
            self._completion += max(0, completion_tokens)

    def count(self, *, retries: int = 0, failed: int = 0, seconds: float = 0.0) -> None:
        """Tries that were repeated, texts that were given up, and time spent waiting for answers."""
        with self._lock:
            self._retries += retries
            self._failed += failed
            self._seconds += seconds

    @property
    def usage(self) -> JudgeUsage:
        """Usage so far."""
        with self._lock:
            return JudgeUsage(
                num_requests=self._sent,
                num_retries=self._retries,
                num_failed=self._failed,
                prompt_tokens=self._prompt,
                completion_tokens=self._completion,
                cost=self._cost(self._prompt, self._completion),
                seconds=round(self._seconds, 3),
            )

    def announce(self, found: Estimate, *, is_most: bool) -> str:
        """An estimate in words, with the limits that it goes over; `is_most`: fewer may be asked."""
        cost = self._cost(found.prompt_tokens, found.completion_tokens)
        parts = [
            f"{'at most' if is_most else 'about'} {found.num_requests} requests",
            f"{found.prompt_tokens} prompt tokens with the instructions",
            f"{found.completion_tokens} completion tokens",
            *([] if cost is None else [f"a cost of {cost:.2f}"]),
        ]
        over = [
            f"server.{key}={limit:g} ends it after about {max(0.0, limit - spent) / more:.0%} of them"
            for key, limit, spent, more in self._limits(found, cost)
            if spent + more > limit
        ]
        return ", ".join(parts) + "".join(f"; {said}" for said in over)

    def _limits(self, found: Estimate, cost: float | None) -> list[tuple[str, float, float, float]]:
        """Key, limit, what is spent and what comes, of every limit that is set."""
        with self._lock:
            tokens = found.prompt_tokens + found.completion_tokens
            limits: list[tuple[str, float | None, float, float]] = [
                ("max_requests", self._server.max_requests, self._sent, found.num_requests),
                ("max_total_tokens", self._server.max_total_tokens, self._prompt + self._completion, tokens),
                (
                    "max_cost",
                    self._server.max_cost,
                    self._cost(self._prompt, self._completion) or 0.0,
                    cost or 0,
                ),
            ]
        return [(key, limit, spent, more) for key, limit, spent, more in limits if limit is not None]

    def _find_spent_limit(self) -> str | None:
        # Requests that are on their way were admitted, and will be paid.
        share = 1 + self._on_their_way / self._answered if self._answered else 1.0
        tokens = self._prompt + self._completion
        spent = {
            "max_requests": float(self._sent),
            "max_total_tokens": share * tokens,
            "max_cost": share * (self._cost(self._prompt, self._completion) or 0.0),
        }
        for key, count in spent.items():
            limit: Any = getattr(self._server, key)
            if limit is not None and count >= limit:
                return f"the budget server.{key}={limit:g} is spent ({count:g} with what is on its way)"
        return None

    def _cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        prices = (
            self._server.price_per_million_prompt_tokens,
            self._server.price_per_million_completion_tokens,
        )
        if prices[0] is None or prices[1] is None:
            return None
        return (prompt_tokens * prices[0] + completion_tokens * prices[1]) / PER_MILLION
