"""The gate: an update that makes VerifyRM worse is taken back."""

import copy
from dataclasses import replace

import pytest
import torch

from cooper_rl.config.cooper import GateConfig
from cooper_rl.distributed.trainable import TRAINED, optimizer_tensors
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import TrainingError
from cooper_rl.models.verify_rm import VerifyRM
from cooper_rl.negatives.canaries import Canary
from cooper_rl.schema.data import PreferencePair, VerifyExample
from cooper_rl.schema.step_metrics import GateMetrics
from cooper_rl.training.gate import (
    GateReading,
    RewardGate,
    data_key,
    make_gate,
    read_gate,
    update_behind_gate,
)
from cooper_rl.training.optimizer import make_adamw
from cooper_rl.training.reward_update import update_verify_rm
from tests.cooper_config import cooper_config

CONFIG = cooper_config()
BOUNDS = GateConfig(max_accuracy_drop=0.03, max_canary_rise=0.05)
PAIRS = [
    PreferencePair(
        step=1, problem_id=str(n), question=f"Tom has {n} apples.", reference_answer="7",
        positive="The answer is 7.", negative="The answer is 9.", source="t",
    )
    for n in range(3)
]  # fmt: skip


def example(label: int, completion: str = "The answer is 7.") -> VerifyExample:
    return VerifyExample(question="Q", reference_answer="7", completion=completion, label=label)


EXAMPLES = [example(1), example(0)]
"""The same text with both labels: the accuracy is .5 whatever VerifyRM says."""
CANARIES = [Canary("colon", example(0, ":"))]


def says_yes(verify_rm: VerifyRM, *, to_canaries: bool) -> VerifyRM:
    """The same VerifyRM, turned round where needed: without a bias the sign of the head is the answer's."""
    if (read_gate(verify_rm, EXAMPLES, CANARIES).canary_rate == 1.0) != to_canaries:
        with torch.no_grad():
            verify_rm.model.score.weight.neg_()
    return verify_rm


def moments(verify_rm: VerifyRM, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    tensors = optimizer_tensors(verify_rm.model, optimizer)
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(f"/{TRAINED}")}


def weights(verify_rm: VerifyRM, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The model's, and those that are stepped where the model has an average of them."""
    tensors = optimizer_tensors(verify_rm.model, optimizer)
    trained = {name: tensor for name, tensor in tensors.items() if name.endswith(f"/{TRAINED}")}
    return copy.deepcopy({**verify_rm.model.state_dict(), **trained})


def is_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name]) for name, tensor in one.items()
    )


WIDE = RewardGate(
    GateConfig(max_accuracy_drop=1, max_canary_rise=1), EXAMPLES, CANARIES, GateReading(0.5, 1.0)
)


def gate(start: GateReading) -> RewardGate:
    return RewardGate(BOUNDS, EXAMPLES, CANARIES, start)


def test_the_gates_reading_is_accuracy_and_mean_canary_rate(make_verify_rm) -> None:
    """One text under both labels: half are right. One canary: 1 or 0 with the sign of the head.

    Wilson's upper end of none in one is z^2 / (1 + z^2), with z = 1.959964: .79345.
    """
    yes, no = (says_yes(make_verify_rm(0), to_canaries=flag) for flag in (True, False))
    assert read_gate(yes, EXAMPLES, CANARIES) == GateReading(0.5, 1.0, {"colon": 1.0}, 1.0)
    reading = read_gate(no, EXAMPLES, CANARIES)
    assert reading._replace(worst_high=None) == GateReading(0.5, 0.0, {"colon": 0.0})
    assert reading.worst_high == pytest.approx(0.79345, abs=1e-5)
    assert read_gate(no, EXAMPLES, []) == GateReading(accuracy=0.5, canary_rate=0.0)


@pytest.mark.parametrize(
    ("accuracy", "canary_rate", "is_open"),
    [(0.75, 0.25, True), (0.5, 0.375, True), (1.0, 0.0, True), (0.49, 0.25, False), (0.75, 0.38, False)],
)
def test_both_bounds_hold_against_the_start_of_the_run(
    accuracy: float, canary_rate: float, is_open: bool
) -> None:
    """Start .75 and .25, bounds .25 and .125: .5 and .375 are not worse by more than that."""
    bounds = GateConfig(max_accuracy_drop=0.25, max_canary_rise=0.125)
    start = RewardGate(bounds, EXAMPLES, CANARIES, GateReading(0.75, 0.25))
    assert start.is_open_to(GateReading(accuracy, canary_rate)) == is_open


def test_a_change_by_exactly_the_bound_stays_wherever_it_began() -> None:
    """Of 100 examples 3 more may be wrong, and 5 more of 20 canaries pass: .27 - .03 is above .24 in floating
    point, and .55 - .3 above .25."""
    for begin in range(3, 101):
        gate = RewardGate(GateConfig(max_accuracy_drop=0.03), EXAMPLES, CANARIES, GateReading(begin / 100, 0))
        assert gate.is_open_to(GateReading((begin - 3) / 100, 0))
        assert not gate.is_open_to(GateReading((begin - 4) / 100, 0))
    for begin in range(16):
        bounds, rate = GateConfig(max_canary_rise=0.25, max_attack_rise=0.25), begin / 20
        gate = RewardGate(bounds, EXAMPLES, CANARIES, GateReading(1, rate, {"empty": rate}))
        for more, is_open in ((5, True), (6, False)):
            after = (begin + more) / 20
            assert gate.is_open_to(GateReading(1, after, {"empty": after})) == is_open


@pytest.mark.parametrize(("rate", "is_open"), [(0.25, True), (0.375, True), (0.5, False)])
def test_one_attack_that_rises_shuts_the_gate_though_the_mean_does_not(rate: float, is_open: bool) -> None:
    """One attack starts at .125 and may rise by .25; one that the start does not know is not bounded."""
    bounds = GateConfig(max_accuracy_drop=1, max_canary_rise=1, max_attack_rise=0.25)
    start = GateReading(0.5, 0.0625, {"empty": 0.125, "colon": 0.0})
    reading = GateReading(0.5, 0.0625, {"empty": rate, "colon": 0.0, "new": 1.0})
    gate = RewardGate(bounds, EXAMPLES, CANARIES, start)
    assert gate.worst_rise(reading) == rate - 0.125
    assert gate.is_open_to(reading) == is_open


@pytest.mark.parametrize(
    "start", [GateReading(accuracy=0.6, canary_rate=1.0), GateReading(accuracy=0.5, canary_rate=0.9)],
    ids=["accuracy", "canaries"],
)  # fmt: skip
@pytest.mark.parametrize("average", [0.0, 0.5])
@pytest.mark.parametrize("num_before", [0, 1])
def test_an_update_beyond_a_bound_leaves_the_weights_and_teaches_the_optimiser(
    make_verify_rm, start: GateReading, average: float, num_before: int
) -> None:
    """After it, VerifyRM reads .5 and 1: .1 below the one start, .1 above the other.

    Weights, and those that an average is of, are those of before. The moments are those of a twin whose
    update stayed: without this gradient the next update would go the same way, and be taken back as well.
    """
    config = cooper_config(reward__ema_decay=average)
    verify_rm, twin = (says_yes(make_verify_rm(0), to_canaries=True) for _ in range(2))
    optimizer, other = (make_adamw(model.model, lr=1e-6, weight_decay=0.01) for model in (verify_rm, twin))
    for model, steps in num_before * ((verify_rm, optimizer), (twin, other)):
        update_behind_gate(WIDE, model, steps, PAIRS, config=config)
    before = weights(verify_rm, optimizer)

    shut = update_behind_gate(gate(start), verify_rm, optimizer, PAIRS[:2], config=config)
    assert shut is not None
    assert shut.is_rolled_back
    assert shut.reading == GateReading(0.5, 1.0, {"colon": 1.0}, 1.0)
    assert is_same(before, weights(verify_rm, optimizer))

    update_behind_gate(WIDE, twin, other, PAIRS[:2], config=config)
    assert not is_same(before, weights(twin, other))
    assert is_same(moments(verify_rm, optimizer), moments(twin, other))


def test_an_update_within_the_bounds_stays(make_verify_rm) -> None:
    verify_rm = says_yes(make_verify_rm(0), to_canaries=False)
    optimizer = make_adamw(verify_rm.model, lr=1e-6, weight_decay=0.0)
    before = weights(verify_rm, optimizer)
    start = read_gate(verify_rm, EXAMPLES, CANARIES)
    stays = update_behind_gate(gate(start), verify_rm, optimizer, PAIRS, config=CONFIG)
    assert stays is not None
    assert not stays.is_rolled_back
    assert stays.reading == read_gate(verify_rm, EXAMPLES, CANARIES)
    assert not is_same(before, weights(verify_rm, optimizer))


def test_what_is_said_of_an_update_names_the_start_its_data_and_the_worst_rise(make_verify_rm) -> None:
    """After the update .5 and 1; the one attack started at .125."""
    verify_rm = says_yes(make_verify_rm(0), to_canaries=True)
    optimizer = make_adamw(verify_rm.model, lr=1e-6, weight_decay=0.0)
    shut = RewardGate(BOUNDS, EXAMPLES, CANARIES, GateReading(0.75, 0.25, {"colon": 0.125}), data=7)
    gated = update_behind_gate(shut, verify_rm, optimizer, PAIRS, config=CONFIG)
    assert gated is not None
    assert shut.describe(gated) == GateMetrics(
        accuracy=0.5, canary_rate=1.0, rolled_back=True, data=7, start_accuracy=0.75, start_canary_rate=0.25,
        worst_attack_rise=0.875, worst_canary_high=1.0, start_attacks={"colon": 0.125},
    )  # fmt: skip


def test_a_run_reads_its_start_once_for_each_data(make_verify_rm) -> None:
    """A start that was recorded on the same data counts as it was; one on other data is read anew."""
    verify_rm = make_verify_rm(0)
    held_out = [example(n % 2, f"The answer is {n}.") for n in range(8)]
    config = GateConfig(num_examples=4, num_canary_problems=2)
    made = make_gate(config, verify_rm, held_out, seed=0, starts=[])
    assert len(made.examples) == 4
    assert all(row in held_out for row in made.examples)
    assert made.start == read_gate(verify_rm, made.examples, made.canaries)
    assert made.data == data_key(made.examples, made.canaries)

    known = GateMetrics(data=made.data, start_accuracy=0.75, start_canary_rate=0.25)
    assert make_gate(config, verify_rm, held_out, seed=0, starts=[known]).start == GateReading(0.75, 0.25, {})
    other = known.model_copy(update={"data": made.data + 1})
    assert make_gate(config, verify_rm, held_out, seed=0, starts=[other]) == made


def test_a_start_counts_where_it_names_the_gates_data_and_nothing_is_missing(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    held_out = [example(n % 2, f"The answer is {n}.") for n in range(8)]

    def make(*starts: GateMetrics) -> RewardGate:
        return make_gate(GateConfig(), verify_rm, held_out, seed=0, starts=starts)

    def start(*starts: GateMetrics) -> GateReading:
        return make(*starts).start

    fresh = make()
    read = fresh.start
    attacks = {"empty": 0.125}
    known = GateMetrics(data=fresh.data, start_accuracy=0.75, start_canary_rate=0.25, start_attacks=attacks)
    later = known.model_copy(update={"start_accuracy": 0.5})
    assert start(known, later) == GateReading(0.75, 0.25, attacks)
    for missing in ("data", "start_accuracy", "start_canary_rate"):
        assert start(known.model_copy(update={missing: None})) == read


def test_the_gate_watches_canaries_of_the_domain_and_the_red_teams_texts_on_problems_of_the_seed(
    make_verify_rm,
) -> None:
    """Two of 40 problems for every attack."""
    rows = [example(n % 2).model_copy(update={"question": f"Q{n}"}) for n in range(40)]
    config = GateConfig(num_examples=4, num_canary_problems=2)

    def canaries(seed: int, domain: Domain | None = None) -> list[Canary]:
        attacks = ["777777", "@@"]
        made = make_gate(
            config, make_verify_rm(0), rows, seed=seed, starts=[], domain=domain, attacks=attacks
        )
        return list(made.canaries)

    found = canaries(1)
    red_team = [(each.attack, each.example.completion) for each in found if "red_team" in each.attack]
    assert red_team == [("red_team_0", "777777")] * 2 + [("red_team_1", "@@")] * 2
    assert sum(each.attack == "empty" for each in found) == 2
    assert found == canaries(1)
    assert found != canaries(2)
    without = replace(default_domain(), make_canaries=lambda *_, **__: [])
    assert {each.attack for each in canaries(1, without)} == {"red_team_0", "red_team_1"}


def test_the_gates_examples_are_drawn_by_the_seed(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    held_out = [example(n % 2, f"The answer is {n}.") for n in range(40)]
    one, same, other = (
        make_gate(GateConfig(num_examples=8), verify_rm, held_out, seed=seed, starts=[]) for seed in (1, 1, 2)
    )
    assert one.examples == same.examples
    assert one.examples != other.examples


@pytest.mark.parametrize("pairs", [PAIRS, []], ids=["pairs", "labels alone"])
def test_labels_are_learned_behind_the_gate_as_without_one(make_verify_rm, pairs: list) -> None:
    gated, plain = make_verify_rm(0), make_verify_rm(0)
    labelled = [example(1), example(0, "The answer is 9.")]
    optimizer, other = (make_adamw(each.model, lr=1e-3, weight_decay=0.01) for each in (gated, plain))
    found = update_behind_gate(WIDE, gated, optimizer, pairs, labelled, config=CONFIG)
    expected = update_verify_rm(plain, other, pairs, labelled, config=CONFIG)
    assert found is not None
    assert found.update == expected
    assert found.update.replay_loss > 0
    assert is_same(weights(gated, optimizer), weights(plain, other))


def test_without_pairs_nothing_is_read_or_changed(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    optimizer = make_adamw(verify_rm.model, lr=1e-3, weight_decay=0.1)
    before = weights(verify_rm, optimizer)
    assert update_behind_gate(gate(GateReading(1, 0)), verify_rm, optimizer, [], config=CONFIG) is None
    assert is_same(before, weights(verify_rm, optimizer))


def test_an_update_after_which_no_score_is_finite_is_taken_back_and_named(make_verify_rm) -> None:
    """An infinite learning rate makes every weight NaN."""
    verify_rm = make_verify_rm(0)
    optimizer = make_adamw(verify_rm.model, lr=float("inf"), weight_decay=0.0)
    before = weights(verify_rm, optimizer)
    with pytest.raises(TrainingError, match="VerifyRM's score is NaN for the question 'Q'"):
        update_behind_gate(gate(GateReading(0, 1)), verify_rm, optimizer, PAIRS, config=CONFIG)
    assert is_same(before, weights(verify_rm, optimizer))
