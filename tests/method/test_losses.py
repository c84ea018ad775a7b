"""The losses against numbers worked out by hand."""

import math

import pytest
import torch

from cooper_rl.config import names
from cooper_rl.errors import ConfigError
from cooper_rl.method.losses import (
    LOSSES,
    MAX_KL_DIFFERENCE,
    BatchSize,
    Clip,
    k3_kl,
    label_loss,
    pair_loss,
    policy_loss,
)

CLIP = Clip(0.2, 0.2)


def size(num_tokens: int, num_completions: int = 1, max_new_tokens: int = 10) -> BatchSize:
    return BatchSize(num_tokens, num_completions, max_new_tokens)


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
    loss = policy_loss(
        torch.tensor([[1.5, 0.5], [1.5, 0.5]]).log(),
        torch.zeros(2, 2),
        None,
        torch.tensor([1.0, -1.0]),
        torch.ones(2, 2, dtype=torch.bool),
        clip=CLIP,
        kl_coefficient=0.0,
        size=size(4),
    )
    assert loss.loss.item() == pytest.approx(0.15, abs=1e-6)
    assert loss.clipped_sum.item() == 2


def test_a_clipped_token_has_no_gradient_and_an_on_policy_token_has_its_advantage() -> None:
    """Token mean over 3 tokens: d loss / d logprob = -ratio * advantage / 3, and 0 for the clipped one.

    Only that one counts as clipped, not a ratio within the bounds.
    """
    old = torch.zeros(1, 3)
    logprobs = torch.tensor([[0.0, math.log(1.5), math.log(0.5)]], requires_grad=True)
    loss = policy_loss(
        logprobs, old, None, torch.tensor([2.0]), torch.ones(1, 3, dtype=torch.bool),
        clip=CLIP, kl_coefficient=0.0, size=size(3),
    )  # fmt: skip
    loss.loss.backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[-2 / 3, 0.0, -0.5 * 2 / 3]]))
    assert loss.clipped_sum.item() == 1


def test_masked_tokens_count_neither_in_the_loss_nor_in_the_kl() -> None:
    """One counted token: ratio 1, advantage .5, policy 1/4 against reference 1/2, beta .1.

    Loss = (-.5 + .1 * .306853) / 1 = -.469315. The masked token holds values that would dominate.
    """
    loss = policy_loss(
        torch.tensor([[0.25, 1e-9]]).log(),
        torch.tensor([[0.25, 0.9]]).log(),
        torch.tensor([[0.5, 0.9]]).log(),
        torch.tensor([0.5]),
        torch.tensor([[True, False]]),
        clip=CLIP,
        kl_coefficient=0.1,
        size=size(1),
    )
    assert loss.loss.item() == pytest.approx(-0.469315, abs=1e-6)
    assert loss.kl_sum.item() == pytest.approx(0.306853, abs=1e-6)


def test_k3_is_finite_and_still_pulls_where_the_reference_is_e_to_the_89_likelier() -> None:
    """d = 89 > 20: e^20 (89 - 20 + 1) - 89 - 1 = 70 x 485165195.4 - 90 = 3.3961564e10; exp(89) has no fp32.

    The slope is that at the bound, 1 - e^20 = -4.8516520e8. At d = 20 both pieces give e^20 - 21.
    """
    logprobs = torch.tensor([-89.0, -20.0, -19.0], requires_grad=True)
    values = k3_kl(logprobs, torch.zeros(3))
    expected = torch.tensor([3.3961564e10, math.exp(20) - 21, math.exp(19) - 20])
    torch.testing.assert_close(values, expected, rtol=1e-6, atol=0)
    values.sum().backward()
    slopes = torch.tensor([1 - math.exp(20), 1 - math.exp(20), 1 - math.exp(19)])
    torch.testing.assert_close(logprobs.grad, slopes, rtol=1e-6, atol=0)


def test_k3_below_its_bound_is_not_rounded_otherwise_than_without_one() -> None:
    difference = torch.linspace(-30, MAX_KL_DIFFERENCE, 1001)
    zeros = torch.zeros_like(difference)
    assert torch.equal(k3_kl(zeros, difference), torch.exp(difference) - difference - 1)


def test_as_a_loss_k3_has_the_gradient_of_the_kl_to_the_policy() -> None:
    """Policy (.25, .75), reference (.5, .5), logits z = log p: grad KL(ref || policy) = p - ref = -+.25.

    The expectation over the policy of k3's own gradient is the same: sum p (1 - ref / p) (onehot - p).
    """
    reference = torch.tensor([0.5, 0.5])
    logits = torch.tensor([0.25, 0.75]).log().requires_grad_()
    logprobs = logits.log_softmax(dim=0)
    (logprobs.detach().exp() * k3_kl(logprobs, reference.log())).sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([-0.25, 0.25]))


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
    loss = policy_loss(
        torch.zeros(2, 3), torch.zeros(2, 3), None, torch.tensor([1.0, -1.0]),
        torch.tensor([[True, False, False], [True, True, True]]),
        clip=CLIP, kl_coefficient=0.0, size=size(4),
    )  # fmt: skip
    assert loss.loss.item() == pytest.approx(0.5, abs=1e-7)


def test_the_parts_of_a_batch_add_up_to_its_loss_whatever_their_sizes() -> None:
    """Same batch, cut after the first completion: -1/4 and 3/4. Means of parts (-1 and 1) would give 0."""
    mask = torch.tensor([[True, False, False], [True, True, True]])
    parts = [
        policy_loss(
            torch.zeros(1, 3), torch.zeros(1, 3), None, torch.tensor([advantage]), mask[row : row + 1],
            clip=CLIP, kl_coefficient=0.0, size=size(4),
        ).loss.item()
        for row, advantage in enumerate((1.0, -1.0))
    ]  # fmt: skip
    assert parts == pytest.approx([-0.25, 0.75], abs=1e-7)


def test_a_clipped_token_still_feels_the_kl() -> None:
    """d k3 / d logprob = 1 - exp(ref - logprob). Policy 1/2, reference 1/4: 1 - .5 = .5, times beta .1 = .05.

    Ratio 2 with advantage 1 is clipped, so nothing else is left of the gradient.
    """
    logprobs = torch.tensor([[0.5]]).log().requires_grad_()
    loss = policy_loss(
        logprobs, torch.tensor([[0.25]]).log(), torch.tensor([[0.25]]).log(), torch.tensor([1.0]),
        torch.tensor([[True]]), clip=CLIP, kl_coefficient=0.1, size=size(1),
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


def test_a_higher_upper_bound_clips_good_tokens_later_and_bad_ones_as_before() -> None:
    """Bounds .8 and 1.5; ratios 1.4, 1.6 with advantage 1, .7 with -1.

    min(1.4, 1.4) = 1.4, min(1.6, 1.5) = 1.5 (clipped), min(-.7, -.8) = -.8 (clipped).
    Loss = -(1.4 + 1.5 - .8) / 3 = -.7.
    """
    loss = policy_loss(
        torch.tensor([[1.4], [1.6], [0.7]]).log(), torch.zeros(3, 1), None, torch.tensor([1.0, 1.0, -1.0]),
        torch.ones(3, 1, dtype=torch.bool), clip=Clip(0.2, 0.5), kl_coefficient=0.0, size=size(3, 3),
    )  # fmt: skip
    assert loss.loss.item() == pytest.approx(-0.7, abs=1e-6)
    assert loss.clipped_sum.item() == 2


@pytest.mark.parametrize(
    ("aggregation", "expected"), [("token_mean", 0.5), ("sequence_mean", 0.0), ("max_length", 0.1)]
)
def test_how_token_losses_are_averaged_decides_what_lengths_weigh(aggregation, expected: float) -> None:
    """Lengths 1 and 3 of at most 10, advantages 1 and -1, ratio 1: token losses -1 | 1 1 1.

    Tokens: (-1 + 3) / 4 = .5. Completions: (-1 + 1) / 2 = 0. Limit: (-1 + 3) / (2 x 10) = .1. The masked
    tokens have a ratio of e^9.
    """
    mask = torch.tensor([[True, False, False], [True, True, True]])
    loss = policy_loss(
        torch.full((2, 3), 9.0).masked_fill(mask, 0.0), torch.zeros(2, 3), None, torch.tensor([1.0, -1.0]),
        mask, clip=Clip(0.2, 1e9), kl_coefficient=0.0, size=size(4, 2), aggregation=aggregation,
    )  # fmt: skip
    assert loss.loss.item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "max_length"])
@pytest.mark.parametrize("name", ["grpo", "gspo", "cispo"])
def test_every_losss_parts_add_up_whatever_the_averaging(name: str, aggregation) -> None:
    """Three completions of random lengths at once, and one by one: the same loss and gradient."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(5)[None, :] < torch.tensor([[2], [5], [3]])
    start = torch.randn(3, 5, generator=generator) * 0.3
    advantages = torch.tensor([1.0, -0.5, 0.25])

    def run(parts: list[list[int]]) -> tuple[float, torch.Tensor]:
        logprobs = start.clone().requires_grad_()
        losses = [
            policy_loss(
                logprobs[rows], torch.zeros(len(rows), 5), torch.zeros(len(rows), 5), advantages[rows],
                mask[rows], clip=CLIP, kl_coefficient=0.1, size=size(10, 3), loss=name,
                aggregation=aggregation,
            ).loss
            for rows in parts
        ]  # fmt: skip
        sum(losses).backward()
        return sum(losses).item(), logprobs.grad

    whole, gradient = run([[0, 1, 2]])
    parts, parts_gradient = run([[0], [1], [2]])
    assert parts == pytest.approx(whole, abs=1e-6)
    torch.testing.assert_close(parts_gradient, gradient)
    assert gradient[~mask].abs().max() == 0


def test_gspo_clips_a_completion_by_the_geometric_mean_of_its_ratios() -> None:
    """Ratios 4 and 1: mean sqrt(4) = 2; 1 and 1 / 4: .5. Advantages 1; bounds .8 and 1.2.

    min(2, 1.2) = 1.2 for both tokens of the first (clipped), min(.5, .8) = .5 for those of the second. Mean
    over completions -(1.2 + .5) / 2 = -.85. The gradient of the second: -ratio x advantage / 2 tokens / 2 =
    -.125 for each token; the first has none.
    """
    logprobs = torch.tensor([[4.0, 1.0], [1.0, 0.25]]).log().requires_grad_()
    loss = policy_loss(
        logprobs, torch.zeros(2, 2), None, torch.tensor([1.0, 1.0]), torch.ones(2, 2, dtype=torch.bool),
        clip=CLIP, kl_coefficient=0.0, size=size(4, 2), loss="gspo", aggregation="sequence_mean",
    )  # fmt: skip
    assert loss.loss.item() == pytest.approx(-0.85, abs=1e-6)
    assert loss.clipped_sum.item() == 2
    loss.loss.backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[0.0, 0.0], [-0.125, -0.125]]))


def test_cispo_bounds_a_tokens_weight_and_leaves_it_its_gradient() -> None:
    """Probabilities .5, .1 and .3 of old .2, .2 and .3: ratios 2.5, .5, 1; bound 1 + .4; advantage 2.

    Weights 1.4 (bounded), .5, 1. d loss / d logprob = -weight x 2 / 3 tokens: -.933333, -.333333, -.666667.
    Loss = -2 (1.4 ln .5 + .5 ln .1 + ln .3) / 3 = 2 (.970406 + 1.151293 + 1.203973) / 3 = 2.217115.
    """
    logprobs = torch.tensor([[0.5, 0.1, 0.3]]).log().requires_grad_()
    loss = policy_loss(
        logprobs, torch.tensor([[0.2, 0.2, 0.3]]).log(), None, torch.tensor([2.0]),
        torch.ones(1, 3, dtype=torch.bool), clip=Clip(0.2, 0.4), kl_coefficient=0.0, size=size(3),
        loss="cispo",
    )  # fmt: skip
    assert loss.loss.item() == pytest.approx(2.217115, abs=1e-5)
    assert loss.clipped_sum.item() == 1
    loss.loss.backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([[-0.933333, -0.333333, -0.666667]]))


def test_a_weight_at_cispos_bound_is_not_counted_as_bounded() -> None:
    """Ratio 1 with a bound of 1 + 0: the weight is what it would be without a bound."""
    found = LOSSES["cispo"](
        torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1, dtype=torch.bool),
        clip=Clip(0.2, 0.0),
    )  # fmt: skip
    assert found.is_clipped.tolist() == [[False]]


def test_every_declared_loss_is_registered_once() -> None:
    assert names.LOSSES.names[:3] == ("grpo", "gspo", "cispo")
    assert all(callable(LOSSES[name]) for name in names.LOSSES.names)
    with pytest.raises(ConfigError, match=r"loss=grpo is registered already: .*; choose another"):
        LOSSES.register("grpo", LOSSES["cispo"])
    with pytest.raises(ConfigError, match=r"policy\.loss=none: nothing is registered under this name"):
        LOSSES["none"]
