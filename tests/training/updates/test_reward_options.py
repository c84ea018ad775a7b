"""The reward update's options: replayed labelled examples, and an average of the weights that scores."""

import copy

import pytest
import torch

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.distributed.trainable import TRAINED, optimizer_tensors
from cooper_rl.errors import TrainingError
from cooper_rl.method.losses import label_loss, pair_loss
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.schema.data import PreferencePair, VerifyExample
from cooper_rl.schema.step_metrics import VerifyRMMetrics
from cooper_rl.training.optimizer import make_adamw, restore_optimizer
from cooper_rl.training.reward_learner import describe_verify_rm
from cooper_rl.training.reward_update import RewardUpdate, update_verify_rm
from tests.cooper_config import cooper_config

PAIR = PreferencePair(
    step=1, problem_id="p", question="Tom has 7 apples.", reference_answer="7",
    positive="The answer is 7.", negative="The answer is 9.", source="t",
)  # fmt: skip
REPLAY = [
    VerifyExample(
        question="Ann has 3 pens.", reference_answer="3", completion=f"The answer is {n}.", label=label
    )
    for n, label in ((3, 1), (4, 0), (5, 0))
]
Weights = dict[str, torch.Tensor]


def cooper(**values) -> CooperConfig:
    return cooper_config(**values)


def weights(verify_rm: VerifyRM) -> Weights:
    return {name: tensor.detach().clone() for name, tensor in verify_rm.model.named_parameters()}


def logits(verify_rm: VerifyRM, items: list[VerifyItem]) -> torch.Tensor:
    return verify_rm.logits(verify_rm.encode(items))


def hand_made_gradient(verify_rm: VerifyRM, *, weight: float) -> tuple[Weights, float]:
    """Of -log sigmoid(positive - negative) + weight * mean log loss, and the mean log loss."""
    both = [VerifyItem(PAIR.question, PAIR.reference_answer, text) for text in (PAIR.positive, PAIR.negative)]
    positive, negative = logits(verify_rm, both)
    of_pair = pair_loss(positive[None], negative[None], num_batch_pairs=1)
    replayed = logits(verify_rm, [VerifyItem(e.question, e.reference_answer, e.completion) for e in REPLAY])
    of_replay = label_loss(replayed, torch.tensor([1.0, 0.0, 0.0]), num_batch_examples=3)
    (of_pair + weight * of_replay).backward()
    found = {name: tensor.grad.clone() for name, tensor in verify_rm.model.named_parameters()}
    verify_rm.model.zero_grad(set_to_none=True)
    return found, of_replay.item()


@pytest.mark.parametrize("max_tokens", [10_000, 1], ids=["one batch", "one by one"])
def test_replay_adds_its_weighted_mean_loss_to_the_gradient(make_verify_rm, max_tokens: int) -> None:
    """Plain gradient descent with rate 1 moves every weight by its gradient, against the sum made by hand."""
    verify_rm = make_verify_rm(0)
    gradient, replay_loss = hand_made_gradient(verify_rm, weight=2.5)
    before = weights(verify_rm)
    optimizer = torch.optim.SGD(verify_rm.model.parameters(), lr=1.0)
    config = cooper(reward__replay_weight=2.5, max_grad_norm=1e9, max_tokens_per_batch=max_tokens)
    found = update_verify_rm(verify_rm, optimizer, [PAIR], REPLAY, config=config)
    assert found is not None
    assert found.replay_loss == pytest.approx(replay_loss, abs=1e-5)
    for name, tensor in weights(verify_rm).items():
        torch.testing.assert_close(before[name] - tensor, gradient[name], atol=1e-5, rtol=1e-3)


def test_a_step_without_an_update_still_says_how_the_anchors_score() -> None:
    assert describe_verify_rm(0.25, None) == VerifyRMMetrics(anchor_score=0.25)


def test_a_step_tells_the_numbers_of_its_update() -> None:
    update = RewardUpdate(loss=0.5, pair_accuracy=0.75, grad_norm=2.0, replay_loss=0.125)
    assert describe_verify_rm(None, update) == VerifyRMMetrics(
        anchor_score=None, loss=0.5, pair_accuracy=0.75, grad_norm=2.0, replay_loss=0.125
    )


def test_labels_are_learned_without_any_pair(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    before = weights(verify_rm)
    optimizer = make_adamw(verify_rm.model, lr=1e-3, weight_decay=0.1)
    update = update_verify_rm(verify_rm, optimizer, [], REPLAY, config=cooper())
    assert update is not None
    assert (update.loss, update.pair_accuracy) == (0, None)
    assert update.replay_loss > 0
    assert not all(torch.equal(before[name], tensor) for name, tensor in weights(verify_rm).items())
    assert update_verify_rm(verify_rm, optimizer, [], [], config=cooper()) is None


def test_the_average_follows_the_stepped_weights(make_verify_rm) -> None:
    """Decay .75 from w0: a1 = w1 + .75 (w0 - w1) = .75 w0 + .25 w1; a2 = .75 a1 + .25 w2.

    w1 and w2 are those of a run without an average: the steps go on from the stepped weights.
    """
    plain, averaged = make_verify_rm(0), make_verify_rm(0)
    steps = torch.optim.SGD(plain.model.parameters(), lr=0.1)
    optimizer = torch.optim.SGD(averaged.model.parameters(), lr=0.1)
    path = [weights(plain)]
    for _ in range(2):
        update_verify_rm(plain, steps, [PAIR], config=cooper())
        path.append(weights(plain))
    assert not any(TRAINED in name for name in optimizer_tensors(plain.model, steps)), "a second copy"
    for step in (1, 2):
        update_verify_rm(averaged, optimizer, [PAIR], config=cooper(reward__ema_decay=0.75))
        found = weights(averaged)
        for name in found:
            first = 0.75 * path[0][name] + 0.25 * path[1][name]
            expected = first if step == 1 else 0.75 * first + 0.25 * path[2][name]
            torch.testing.assert_close(found[name], expected, atol=1e-6, rtol=1e-5)
            trained = optimizer_tensors(averaged.model, optimizer)[f"{name}/{TRAINED}"]
            torch.testing.assert_close(trained, path[step][name], atol=1e-6, rtol=1e-5)


def test_an_averaged_run_resumes_bit_for_bit(make_verify_rm) -> None:
    config = cooper(reward__ema_decay=0.9)
    straight, resumed = make_verify_rm(0), make_verify_rm(0)
    optimizer, first = (make_adamw(each.model, lr=1e-3, weight_decay=0.01) for each in (straight, resumed))
    for _ in range(3):
        update_verify_rm(straight, optimizer, [PAIR], REPLAY, config=config)
    update_verify_rm(resumed, first, [PAIR], REPLAY, config=config)
    saved = copy.deepcopy(optimizer_tensors(resumed.model, first))
    assert any(name.endswith(f"/{TRAINED}") for name in saved)
    second = make_adamw(resumed.model, lr=1e-3, weight_decay=0.01)
    restore_optimizer(resumed.model, second, saved, place="here")
    for _ in range(2):
        update_verify_rm(resumed, second, [PAIR], REPLAY, config=config)
    assert all(torch.equal(tensor, weights(resumed)[name]) for name, tensor in weights(straight).items())


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_a_failed_update_leaves_the_weights_that_score(make_verify_rm, average: float) -> None:
    """Of an average not the stepped weights, which the update had taken out already."""
    verify_rm = make_verify_rm(0)
    optimizer = make_adamw(verify_rm.model, lr=1e-3, weight_decay=0.0)
    config = cooper(reward__ema_decay=average, reward__replay_weight=3e38)
    update_verify_rm(verify_rm, optimizer, [PAIR], config=config)
    before = weights(verify_rm)
    with pytest.raises(TrainingError, match=r"VerifyRM's gradient is (inf|nan); its weights are unchanged"):
        update_verify_rm(verify_rm, optimizer, [PAIR], REPLAY, config=config)
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(verify_rm).items())
