"""The gate: an update that makes VerifyRM worse is taken back as if it had never been."""

import copy

import pytest
import torch

from cooper_rl.backends.verify_rm import VerifyRM
from cooper_rl.config.cooper import CooperConfig, GateConfig
from cooper_rl.core.canaries import Canary
from cooper_rl.errors import TrainingError
from cooper_rl.schema import PreferencePair, VerifyExample
from cooper_rl.training.gate import GateReading, RewardGate, read_gate, update_behind_gate
from cooper_rl.training.optimizer import make_adamw, optimizer_tensors

CONFIG = CooperConfig.model_validate({"assistant": {"tiny": True}})
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


def state(verify_rm: VerifyRM, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    tensors = verify_rm.model.state_dict() | optimizer_tensors(verify_rm.model, optimizer)
    return copy.deepcopy(dict(tensors))


def is_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name]) for name, tensor in one.items()
    )


def gate(start: GateReading) -> RewardGate:
    return RewardGate(BOUNDS, EXAMPLES, CANARIES, start)


def test_the_gates_reading_is_accuracy_and_mean_canary_rate(make_verify_rm) -> None:
    """One text under both labels: half are right. One canary: 1 or 0 with the sign of the head."""
    yes, no = (says_yes(make_verify_rm(0), to_canaries=flag) for flag in (True, False))
    assert read_gate(yes, EXAMPLES, CANARIES) == GateReading(accuracy=0.5, canary_rate=1.0)
    assert read_gate(no, EXAMPLES, CANARIES) == GateReading(accuracy=0.5, canary_rate=0.0)
    assert read_gate(no, EXAMPLES, []) == GateReading(accuracy=0.5, canary_rate=0.0)


@pytest.mark.parametrize(
    ("accuracy", "canary_rate", "is_open"),
    [(0.9, 0.1, True), (0.88, 0.14, True), (1.0, 0.0, True), (0.86, 0.1, False), (0.9, 0.16, False)],
)
def test_both_bounds_hold_against_the_start_of_the_run(
    accuracy: float, canary_rate: float, is_open: bool
) -> None:
    """Start .9 and .1; bounds .03 and .05: down to .87, up to .15."""
    found = gate(GateReading(0.9, 0.1)).is_open_to(GateReading(accuracy, canary_rate))
    assert found == is_open


@pytest.mark.parametrize(
    "start", [GateReading(accuracy=0.6, canary_rate=1.0), GateReading(accuracy=0.5, canary_rate=0.9)],
    ids=["accuracy", "canaries"],
)  # fmt: skip
@pytest.mark.parametrize("average", [0.0, 0.5])
def test_an_update_beyond_a_bound_leaves_no_trace(make_verify_rm, start: GateReading, average: float) -> None:
    """After it, VerifyRM reads .5 and 1: .1 below the one start, .1 above the other.

    The update after it is that of a VerifyRM that never had the first: optimiser and average went back too.
    """
    config = CONFIG.model_copy(update={"verify_rm_average": average})
    wide = RewardGate(GateConfig(max_accuracy_drop=1, max_canary_rise=1), EXAMPLES, CANARIES, start)
    verify_rm, twin = (says_yes(make_verify_rm(0), to_canaries=True) for _ in range(2))
    optimizer, other = (make_adamw(model.model, lr=1e-6, weight_decay=0.01) for model in (verify_rm, twin))
    for model, steps in ((verify_rm, optimizer), (twin, other)):
        update_behind_gate(wide, model, steps, PAIRS, config=config)
    before = state(verify_rm, optimizer)

    shut = update_behind_gate(gate(start), verify_rm, optimizer, PAIRS[:2], config=config)
    assert shut is not None
    assert shut.is_rolled_back
    assert shut.reading == GateReading(0.5, 1.0)
    assert is_same(before, state(verify_rm, optimizer))

    for model, steps in ((verify_rm, optimizer), (twin, other)):
        update_behind_gate(wide, model, steps, PAIRS, config=config)
    assert not is_same(before, state(verify_rm, optimizer))
    assert is_same(state(verify_rm, optimizer), state(twin, other))


def test_the_first_update_of_all_is_taken_back_to_an_empty_optimiser(make_verify_rm) -> None:
    verify_rm = says_yes(make_verify_rm(0), to_canaries=True)
    optimizer = make_adamw(verify_rm.model, lr=1e-6, weight_decay=0.0)
    before = state(verify_rm, optimizer)
    shut = update_behind_gate(gate(GateReading(1.0, 1.0)), verify_rm, optimizer, PAIRS, config=CONFIG)
    assert shut is not None
    assert shut.is_rolled_back
    assert len(optimizer.state) == 0
    assert is_same(before, state(verify_rm, optimizer))


def test_an_update_within_the_bounds_stays(make_verify_rm) -> None:
    verify_rm = says_yes(make_verify_rm(0), to_canaries=False)
    optimizer = make_adamw(verify_rm.model, lr=1e-6, weight_decay=0.0)
    before = state(verify_rm, optimizer)
    start = read_gate(verify_rm, EXAMPLES, CANARIES)
    stays = update_behind_gate(gate(start), verify_rm, optimizer, PAIRS, config=CONFIG)
    assert stays is not None
    assert not stays.is_rolled_back
    assert stays.reading == read_gate(verify_rm, EXAMPLES, CANARIES)
    assert not is_same(before, state(verify_rm, optimizer))


def test_without_pairs_nothing_is_read_or_changed(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    optimizer = make_adamw(verify_rm.model, lr=1e-3, weight_decay=0.1)
    before = state(verify_rm, optimizer)
    assert update_behind_gate(gate(GateReading(1, 0)), verify_rm, optimizer, [], config=CONFIG) is None
    assert is_same(before, state(verify_rm, optimizer))


def test_an_update_after_which_no_score_is_finite_is_taken_back_and_named(make_verify_rm) -> None:
    """An infinite learning rate makes every weight NaN."""
    verify_rm = make_verify_rm(0)
    optimizer = make_adamw(verify_rm.model, lr=float("inf"), weight_decay=0.0)
    before = state(verify_rm, optimizer)
    with pytest.raises(TrainingError, match="VerifyRM's score is NaN for the question 'Q'"):
        update_behind_gate(gate(GateReading(0, 1)), verify_rm, optimizer, PAIRS, config=CONFIG)
    assert is_same(before, state(verify_rm, optimizer))
