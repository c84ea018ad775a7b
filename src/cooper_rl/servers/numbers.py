"""Metrics of the servers for Prometheus."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = tuple(2**power for power in range(6, 19))


class HttpNumbers:
    """Counters and histograms of any server in a registry of their own, so that two apps in a process do not
    clash.

    Args:
        prefix: First part of every name.
        done: What `items` counts.
    """

    def __init__(self, prefix: str, *, done: str) -> None:
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(f"{prefix}_requests", "Requests below /v1/ by status.", ["status"], **named)
        self.rejected = Counter(
            f"{prefix}_rejected", "Requests that were refused, by reason.", ["reason"], **named
        )
        self.aborted = Counter(
            f"{prefix}_aborted",
            "Requests whose client went away or was too slow: while it sent, or while it waited.",
            ["while_it"],
            **named,
        )
        self.items = Counter(f"{prefix}_items", done, **named)
        self.seconds = Histogram(f"{prefix}_request_seconds", "Time from request to answer.", **named)
        self.waiting = Gauge(f"{prefix}_waiting_items", "Items that wait or are being scored.", **named)

    def text(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self.registry)


class ServerNumbers(HttpNumbers):
    """The numbers of VerifyRM's server."""

    def __init__(self) -> None:
        super().__init__("verify_rm", done="Items scored.")
        named: dict[str, Any] = {"registry": self.registry}
        self.queue_seconds = Histogram(
            "verify_rm_queue_seconds", "Time from a request to its first batch.", buckets=_SECONDS, **named
        )
        self.batch_items = Histogram("verify_rm_batch_items", "Items of a batch.", buckets=_ITEMS, **named)
        self.batch_tokens = Histogram(
            "verify_rm_batch_tokens", "Tokens of a batch.", buckets=_TOKENS, **named
        )
