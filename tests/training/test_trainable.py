"""The seam `Trainable`: a trainer of another kind goes through updates, gate and checkpoints unchanged."""

from collections.abc import Callable, Mapping
from contextlib import contextmanager, nullcontext

import pytest
import torch

from cooper_rl.distributed.ranks import ALONE
from cooper_rl.distributed.trainable import SingleProcess, Trainable
from cooper_rl.distributed.zero import Zero
from cooper_rl.errors import ConfigError
from cooper_rl.schema.data import PreferencePair
from cooper_rl.training.gate import GateReading, RewardGate, update_behind_gate
from cooper_rl.training.optimizer import make_adamw, read_tensors, write_tensors
from cooper_rl.training.reward_update import update_verify_rm
from tests.cooper_config import cooper_config
from tests.training.test_gate import BOUNDS, CANARIES, EXAMPLES

PAIR = PreferencePair(
    step=1, problem_id="1", question="2+2?", reference_answer="4", positive="4.", negative="5.", source="t"
)


class SignSGD:
    """Every weight moves by the learning rate; no torch optimiser and no state but a count of steps."""

    ranks = ALONE
    is_copying = True

    def __init__(self, model: torch.nn.Module, lr: float) -> None:
        self.model = model
        self.param_groups = [{"lr": lr}]
        self.num_steps = 0
        self.depth = 0

    @contextmanager
    def gather(self):
        self.depth += 1
        yield
        self.depth -= 1

    def backward(self, loss: torch.Tensor) -> None:
        assert self.depth, "weights are used in a gather block alone"
        loss.backward()

    def step(self, max_norm: float) -> float:
        gradients = [weight.grad for weight in self.model.parameters()]
        with torch.no_grad():
            for weight, gradient in zip(self.model.parameters(), gradients, strict=True):
                weight -= self.param_groups[0]["lr"] * gradient.sign()
                weight.grad = None
        self.num_steps += 1
        return float(torch.cat([gradient.flatten() for gradient in gradients]).norm())

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: weight.detach().clone() for name, weight in self.model.named_parameters()}

    def state(self) -> dict[str, torch.Tensor]:
        return {f"{next(iter(self.weights()))}/step": torch.tensor(float(self.num_steps))}

    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        self.model.load_state_dict(weights, strict=False)

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.num_steps = int(next(iter(tensors.values())))

    def snapshot(self) -> Callable[[], None]:
        weights = self.weights()
        return lambda: self.load_weights(weights)

    def averaging(self, decay: float):
        assert not decay
        return nullcontext()


def is_same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_another_trainer_is_stepped_saved_and_put_back(make_verify_rm) -> None:
    """Every weight with a gradient moves by 1e-3, which no AdamW at that rate does in a second step."""
    verify_rm = make_verify_rm(0)
    trained: Trainable = SignSGD(verify_rm.model, lr=1e-3)
    config = cooper_config()
    update_verify_rm(verify_rm, trained, [PAIR], config=config)
    saved = read_tensors(verify_rm.model, trained)
    update_verify_rm(verify_rm, trained, [PAIR], config=config)
    moved = trained.weights()["score.weight"] - saved.weights["score.weight"]
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, 1e-3), atol=1e-6, rtol=0)
    write_tensors(verify_rm.model, trained, saved, place="here")
    assert is_same(trained.weights(), saved.weights)
    assert trained.state()[next(iter(saved.optimizer))] == 1


def test_the_gate_takes_another_trainers_update_back(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    trained = SignSGD(verify_rm.model, lr=1e-3)
    before = trained.weights()
    shut = RewardGate(BOUNDS, EXAMPLES, CANARIES, GateReading(accuracy=2.0, canary_rate=0.0))
    found = update_behind_gate(shut, verify_rm, trained, [PAIR], config=cooper_config())
    assert found is not None
    assert found.is_rolled_back
    assert trained.num_steps == 1
    assert is_same(trained.weights(), before)


def test_a_process_alone_loads_what_it_gave(make_verify_rm) -> None:
    """Weights and state of a model that took a step, in a fresh one with a fresh optimiser."""
    first, second = make_verify_rm(0), make_verify_rm(1)
    one, other = (
        SingleProcess(each.model, make_adamw(each.model, lr=1e-3, weight_decay=0.01))
        for each in (first, second)
    )
    update_verify_rm(first, one, [PAIR], config=cooper_config())
    write_tensors(second.model, other, read_tensors(first.model, one), place="here")
    assert is_same(one.weights(), other.weights())
    assert is_same(one.state(), other.state())


def test_an_average_is_refused_where_no_process_has_the_weights_whole() -> None:
    zero = Zero.__new__(Zero)  # making one takes DeepSpeed
    with pytest.raises(ConfigError, match=r"ema_decay=0\.5 is kept by one process without DeepSpeed"):
        zero.averaging(0.5)
    with zero.averaging(0):
        pass


def test_an_update_that_fails_leaves_the_average_and_the_stepped_weights_as_they_were(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    trained = SingleProcess(verify_rm.model, make_adamw(verify_rm.model, lr=1e-3, weight_decay=0.0))
    update_verify_rm(verify_rm, trained, [PAIR], config=cooper_config(reward__ema_decay=0.5))
    before = {name: value.clone() for name, value in (trained.weights() | trained.state()).items()}

    def fail() -> None:
        assert not is_same(trained.weights(), {name: before[name] for name in trained.weights()})
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"), trained.averaging(0.5):
        fail()
    assert is_same(trained.weights() | trained.state(), before)
