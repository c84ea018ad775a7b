"""Metrics of the server of rewards that learn, for Prometheus."""

from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from cooper_rl.servers.numbers import HttpNumbers


class RewardNumbers(HttpNumbers):
    """With the name of the run as a label where it matters."""

    def __init__(self) -> None:
        super().__init__("cooper_reward", done="Completions rewarded.")
        named: dict[str, Any] = {"registry": self.registry, "labelnames": ["run"]}
        self.step = Gauge("cooper_reward_step", "Steps that VerifyRM has learned from.", **named)
        self.saved_step = Gauge("cooper_reward_saved_step", "Step of the last checkpoint.", **named)
        self.is_stopped = Gauge("cooper_reward_stopped", "1: the run takes no more requests.", **named)
        self.repeated = Counter("cooper_reward_repeated", "Requests that were answered before.", **named)
        self.learn_seconds = Histogram(
            "cooper_reward_learn_seconds",
            "Time of a step from the answer to the updated VerifyRM.",
            buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000),
            **named,
        )
