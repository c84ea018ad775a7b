"""The losses against numbers worked out by hand."""

import math

import pytest
import torch

from cooper_rl.method.losses import grpo_loss, k3_kl, label_loss, pair_loss


def test_k3_kl_of_a_halved_and_a_doubled_probability() -> None:
    """d = ref - policy.

    Policy 1/4, reference 1/2: d = ln 2, exp(d) - d - 1 = 2 - .693147 - 1 = .306853.
    Policy 1/2, reference 1/4: d = -ln 2, .5 + .693147 - 1 = .193147.
    Equal: 0.
    """
    policy = torch.tensor([0.25, 0.5, 0.3]).log()
    reference = torch.tensor([0.5, 0.25, 0.3]).log()
    torch.testing.assert_close(
        k3_kl(policy, reference), torch.tensor([0.306853, 0.193147, 0.0]), atol=1e-6, rtol=0
    )


def test_clip_acts_only_where_it_removes_an_incentive() -> None:
    """Ratios 1.5, 0.5 with advantage +1, then 1.5, 0.5 with advantage -1; epsilon .2, no KL.

    +1: min(1.5, 1.2) = 1.2 (clipped), min(.5, .8) = .5;   -1: min(-1.5, -1.2) = -1.5, min(-.5, -.8) = -.8
    (clipped). Loss = -(1.2 + .5 - 1.5 - .8) / 4 = .15; two of four tokens are clipped.
    """
    loss = grpo_loss(
        torch.tensor([[1.5, 0.5], [1.5, 0.5]]).log(),
        torch.zeros(2, 2),
        None,
        torch.tensor([1.0, -1.0]),
        torch.ones(2, 2, dtype=torch.bool),
        clip_epsilon=0.2,
        kl_coefficient=0.0,
        num_batch_tokens=4,
    )
    assert loss.loss.item() == pytest.approx(0.15, abs=1e-6)
    assert loss.clipped_sum.item() == 2


def test_a_clipped_token_has_no_gradient_and_an_on_policy_token_has_its_advantage() -> None:
    """Token mean over 3 tokens: d loss / d logprob = -ratio * advantage / 3, and 0 for the clipped one.

    Only that one counts as clipped, not a ratio within the bounds.
    """
    old = torch.zeros(1, 3)
    logprobs = torch.tensor([[0.0, math.log(1.5), math.log(0.5)]], requires_grad=True)
    loss = grpo_loss(
        logprobs, old, None, torch.tensor([2.0]), torch.ones(1, 3, dtype=torch.bool),
        clip_epsilon=0.2, kl_coefficient=0.0, num_batch_tokens=3,
    )  # fmt: skip
    loss.loss.backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[-2 / 3, 0.0, -0.5 * 2 / 3]]))
    assert loss.clipped_sum.item() == 1


def test_masked_tokens_count_neither_in_the_loss_nor_in_the_kl() -> None:
    """One counted token: ratio 1, advantage .5, policy 1/4 against reference 1/2, beta .1.

    Loss = (-.5 + .1 * .306853) / 1 = -.469315. The masked token holds values that would dominate.
    """
    loss = grpo_loss(
        torch.tensor([[0.25, 1e-9]]).log(),
        torch.tensor([[0.25, 0.9]]).log(),
        torch.tensor([[0.5, 0.9]]).log(),
        torch.tensor([0.5]),
        torch.tensor([[True, False]]),
        clip_epsilon=0.2,
        kl_coefficient=0.1,
        num_batch_tokens=1,
    )
    assert loss.loss.item() == pytest.approx(-0.469315, abs=1e-6)
    assert loss.kl_sum.item() == pytest.approx(0.306853, abs=1e-6)


def test_pair_loss_is_the_mean_over_all_pairs_of_the_step_not_of_the_part() -> None:
    """Differences ln 3 and 0: log(4/3) + log 2 = .287682 + .693147 = .980829, over 4 pairs = .245207."""
    loss = pair_loss(torch.tensor([math.log(3.0), 1.0]), torch.tensor([0.0, 1.0]), num_batch_pairs=4)
    assert loss.item() == pytest.approx(0.245207, abs=1e-6)


def test_label_loss_of_a_sure_and_an_unsure_answer() -> None:
    """Logit ln 9 (p = .9) with label 1: -ln .9 = .105361; logit 0 with label 0: .693147; mean .399254."""
    loss = label_loss(torch.tensor([math.log(9.0), 0.0]), torch.tensor([1.0, 0.0]), num_batch_examples=2)
    assert loss.item() == pytest.approx(0.399254, abs=1e-6)


def test_a_long_completion_weighs_by_its_tokens_and_not_as_one_sequence() -> None:
    """Lengths 1 and 3, advantages 1 and -1, ratio 1: (-1 + 3) / 4 = .5; a mean of sequence means gives 0."""
    loss = grpo_loss(
        torch.zeros(2, 3), torch.zeros(2, 3), None, torch.tensor([1.0, -1.0]),
        torch.tensor([[True, False, False], [True, True, True]]),
        clip_epsilon=0.2, kl_coefficient=0.0, num_batch_tokens=4,
    )  # fmt: skip
    assert loss.loss.item() == pytest.approx(0.5, abs=1e-7)


def test_the_parts_of_a_batch_add_up_to_its_loss_whatever_their_sizes() -> None:
    """Same batch, cut after the first completion: -1/4 and 3/4. Means of parts (-1 and 1) would give 0."""
    mask = torch.tensor([[True, False, False], [True, True, True]])
    parts = [
        grpo_loss(
            torch.zeros(1, 3), torch.zeros(1, 3), None, torch.tensor([advantage]), mask[row : row + 1],
            clip_epsilon=0.2, kl_coefficient=0.0, num_batch_tokens=4,
        ).loss.item()
        for row, advantage in enumerate((1.0, -1.0))
    ]  # fmt: skip
    assert parts == pytest.approx([-0.25, 0.75], abs=1e-7)


def test_a_clipped_token_still_feels_the_kl() -> None:
    """d k3 / d logprob = 1 - exp(ref - logprob). Policy 1/2, reference 1/4: 1 - .5 = .5, times beta .1 = .05.

    Ratio 2 with advantage 1 is clipped, so nothing else is left of the gradient.
    """
    logprobs = torch.tensor([[0.5]]).log().requires_grad_()
    loss = grpo_loss(
        logprobs, torch.tensor([[0.25]]).log(), torch.tensor([[0.25]]).log(), torch.tensor([1.0]),
        torch.tensor([[True]]), clip_epsilon=0.2, kl_coefficient=0.1, num_batch_tokens=1,
    )  # fmt: skip
    loss.loss.backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[0.05]]))


def test_the_pair_loss_pulls_the_halves_apart_by_the_chance_of_a_mistake() -> None:
    """d loss / d positive = -(1 - sigmoid(difference)) / 2 pairs: ln 3 and 0 give -.25 / 2 and -.5 / 2."""
    positive = torch.tensor([math.log(3.0), 1.0], requires_grad=True)
    negative = torch.tensor([0.0, 1.0], requires_grad=True)
    pair_loss(positive, negative, num_batch_pairs=2).backward()
    torch.testing.assert_close(positive.grad, torch.tensor([-0.125, -0.25]))
    torch.testing.assert_close(negative.grad, torch.tensor([0.125, 0.25]))


def test_label_weights_multiply_each_examples_loss() -> None:
    """Losses .105361 and .693147 with weights 2 and .5: (.210721 + .346574) / 2 = .278647."""
    loss = label_loss(
        torch.tensor([math.log(9.0), 0.0]), torch.tensor([1.0, 0.0]),
        num_batch_examples=2, weights=torch.tensor([2.0, 0.5]),
    )  # fmt: skip
    assert loss.item() == pytest.approx(0.278647, abs=1e-6)
