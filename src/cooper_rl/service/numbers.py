"""Metrics of the server of rewards that learn, for Prometheus."""

from collections.abc import Sequence
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from cooper_rl.schema.step_metrics import StepMetrics
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
        self.staleness = Gauge(
            "cooper_reward_staleness_steps", "Steps whose pairs VerifyRM has yet to learn from.", **named
        )
        self._score = Gauge(
            "cooper_reward_verify_rm_score", "VerifyRM's mean score of the last step's completions.", **named
        )
        self._rule_accuracy = Gauge(
            "cooper_reward_rule_accuracy_ratio",
            "Share of the last step's completions that the rule verifier calls correct.",
            **named,
        )
        self._canary_high = Gauge(
            "cooper_reward_worst_canary_high_ratio",
            "Upper end of the 95 % interval of the attack that VerifyRM pays most often, after the last "
            "update, also one that the gate took back; absent without held-out examples.",
            **named,
        )
        self._pairs = Counter("cooper_reward_pairs", "Preference pairs.", **named)
        self._alarms = Counter("cooper_reward_alarms", "Steps at which the monitor saw hacking.", **named)

    def open_run(self, run: str, rows: Sequence[StepMetrics], *, num_pairs: int, num_alarms: int) -> None:
        """Show a run as its checkpoint has it."""
        # 0 from the start: Prometheus sees no rise in a number that was not there, and a board no good run.
        self.repeated.labels(run)
        self._pairs.labels(run).inc(num_pairs)
        self._alarms.labels(run).inc(num_alarms)
        self.is_stopped.labels(run).set(0)
        for row in rows:
            self._show(run, row)

    def add_step(self, run: str, row: StepMetrics) -> None:
        """Show the last step's numbers, and count its pairs and alarm."""
        self._show(run, row)
        self._pairs.labels(run).inc(row.pairs.count or 0)
        self._alarms.labels(run).inc(bool(row.monitor.alarm))

    def _show(self, run: str, row: StepMetrics) -> None:
        self.step.labels(run).set(row.step)
        self._score.labels(run).set(row.rollout.verify_rm_reward)
        self._rule_accuracy.labels(run).set(row.rollout.rule_accuracy)
        if row.gate.worst_canary_high is not None:
            self._canary_high.labels(run).set(row.gate.worst_canary_high)
