"""The gate on reward updates: one that makes VerifyRM worse is taken back (phase 6 of a step).

Bounds hold against the start of the run, so that many small steps down do not pass one by one.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

import torch

from cooper_rl.config.cooper import CooperConfig, GateConfig
from cooper_rl.distributed.trainable import Trainable, as_trainable
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import TrainingError
from cooper_rl.method.metrics import ROUNDING, right_verdicts
from cooper_rl.models.verify_rm import VerifyRM, score_examples
from cooper_rl.negatives.canaries import Canary, canary_rates, mean_rate
from cooper_rl.randomness import derive_seed
from cooper_rl.redteam.negatives import draw_canaries
from cooper_rl.schema.data import PreferencePair, VerifyExample
from cooper_rl.schema.step_metrics import GateMetrics
from cooper_rl.training.reward_update import RewardUpdate, update_verify_rm


class GateReading(NamedTuple):
    """VerifyRM on the gate's own data."""

    accuracy: float
    canary_rate: float
    """Mean over the attacks of the share that scores above 0.5."""
    attacks: Mapping[str, float] = {}
    """The share of each attack."""
    worst_high: float | None = None
    """The highest upper end of the 95 % intervals of these shares; None without canaries, or where an earlier
    process read it."""


@dataclass(frozen=True)
class RewardGate:
    """Takes back a reward update after which VerifyRM is worse than at the start by more than the bounds."""

    config: GateConfig
    examples: Sequence[VerifyExample]
    """Held-out labelled examples."""
    canaries: Sequence[Canary]
    start: GateReading
    """The reading from before the first step of the run."""
    data: int = 0
    """Says which examples and canaries the start was read on; see `data_key`."""

    def is_open_to(self, reading: GateReading) -> bool:
        """True if an update with this reading stays."""
        return (
            self.start.accuracy - reading.accuracy <= self.config.max_accuracy_drop + ROUNDING
            and reading.canary_rate - self.start.canary_rate <= self.config.max_canary_rise + ROUNDING
            and self.worst_rise(reading) <= self.config.max_attack_rise + ROUNDING
        )

    def worst_rise(self, reading: GateReading) -> float:
        """The largest rise of one attack's share: the mean hides one attack among many."""
        before = self.start.attacks
        # A start that an earlier version recorded has no shares of single attacks, and bounds none.
        rises = [rate - before[attack] for attack, rate in reading.attacks.items() if attack in before]
        return max(rises, default=0.0)

    def describe(self, gated: "GatedUpdate") -> GateMetrics:
        """The metrics of an update, with the start, from which a continued run knows its bounds."""
        return GateMetrics(
            accuracy=gated.reading.accuracy,
            canary_rate=gated.reading.canary_rate,
            rolled_back=gated.is_rolled_back,
            data=self.data,
            start_accuracy=self.start.accuracy,
            start_canary_rate=self.start.canary_rate,
            worst_attack_rise=self.worst_rise(gated.reading),
            worst_canary_high=gated.reading.worst_high,
            start_attacks=dict(self.start.attacks),
        )


def make_gate(
    config: GateConfig,
    verify_rm: VerifyRM,
    held_out: Sequence[VerifyExample],
    *,
    seed: int,
    starts: Sequence[GateMetrics],
    domain: Domain | None = None,
    attacks: Sequence[str] = (),
) -> RewardGate:
    """The gate of a run; its bounds hold against the first step on its data.

    Args:
        config: Bounds and sizes.
        verify_rm: Read for the start, unless `starts` knows it.
        held_out: Labelled examples that the gate's own are drawn from.
        seed: Of the draws.
        starts: Step metrics that name a start on some data; see `RunState.gate_starts`.
        domain: Whose canaries are made; None: the default domain.
        attacks: Texts of the red team, each watched like a canary's attack.

    Raises:
        TrainingError: a score is not finite.
    """
    # Drawn from the run's seed: a continued run must read the same examples, or its bounds would hold for
    # others.
    rng = random.Random(derive_seed(seed, "gate"))
    examples = rng.sample(list(held_out), min(config.num_examples, len(held_out)))
    domain, count = domain or default_domain(), config.num_canary_problems
    canaries = draw_canaries(held_out, attacks, num_problems=count, seed=seed, domain=domain)
    key = data_key(examples, canaries)
    start = _known_start(starts, key) or read_gate(verify_rm, examples, canaries)
    return RewardGate(config, examples, canaries, start, key)


def _known_start(starts: Sequence[GateMetrics], key: int) -> GateReading | None:
    """The start as the first step on the same data recorded it."""
    for gate in starts:
        if gate.data == key and gate.start_accuracy is not None and gate.start_canary_rate is not None:
            return GateReading(gate.start_accuracy, gate.start_canary_rate, gate.start_attacks)
    return None


def data_key(examples: Sequence[VerifyExample], canaries: Sequence[Canary]) -> int:
    """Fingerprint (CRC-32) of the gate's data. A start that was measured on other data is ignored."""
    rows = [*examples, *(canary.example for canary in canaries)]
    return crc32("\n".join(row.model_dump_json() for row in rows).encode())


def read_gate(
    verify_rm: VerifyRM, examples: Sequence[VerifyExample], canaries: Sequence[Canary]
) -> GateReading:
    """Score the gate's data, without a veto: it would hide what an update does to the model.

    Raises:
        TrainingError: a score is not finite.
    """
    rows = [*examples, *(canary.example for canary in canaries)]
    scores = score_examples(verify_rm, rows, with_veto=False)
    hits = right_verdicts([example.label for example in examples], scores[: len(examples)])
    rates = canary_rates(canaries, scores[len(examples) :])
    return GateReading(
        accuracy=sum(hits) / len(hits),
        canary_rate=mean_rate(rates),
        attacks={attack: rate.value for attack, rate in rates.items()},
        worst_high=max((rate.high for rate in rates.values()), default=None),
    )


class GatedUpdate(NamedTuple):
    """A reward update and what the gate said of it."""

    update: RewardUpdate
    reading: GateReading
    """After the update, also when that was taken back."""
    is_rolled_back: bool


def update_behind_gate(
    gate: RewardGate,
    verify_rm: VerifyRM,
    optimizer: Trainable | torch.optim.Optimizer,
    pairs: Sequence[PreferencePair],
    labelled: Sequence[VerifyExample] = (),
    *,
    config: CooperConfig,
) -> GatedUpdate | None:
    """`update_verify_rm`, whose weights are taken back where the gate is shut; None without pairs and labels.

    The optimiser's moments stay, so that the next update is another one. Needs the memory of a second copy of
    the weights.

    Raises:
        TrainingError: the gradient or a score is not finite; the weights are left as before.
    """
    if not pairs and not labelled:
        return None
    # Before the update, which overwrites them: a second copy of the weights is the price of the gate.
    put_back = as_trainable(verify_rm.model, optimizer).snapshot()
    update = update_verify_rm(verify_rm, optimizer, pairs, labelled, config=config)
    assert update is not None, "there is something to learn"
    try:
        reading = read_gate(verify_rm, gate.examples, gate.canaries)
    # All ranks see a score that is not finite, so that all of them enter the collective call below.
    except TrainingError:
        put_back()
        raise
    is_open = gate.is_open_to(reading)
    if not is_open:
        put_back()
    return GatedUpdate(update, reading, is_rolled_back=not is_open)
