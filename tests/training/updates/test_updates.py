"""Policy update and reward update: what they change, what they leave alone, and that splits do not matter."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.distributed.trainable import SingleProcess, optimizer_tensors
from cooper_rl.engines.base import Generation
from cooper_rl.errors import ModelError, TrainingError
from cooper_rl.models.completions import batch_completions, completion_logprobs
from cooper_rl.models.policy import Policy
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.schema.data import PreferencePair, Problem
from cooper_rl.training.optimizer import apply_gradients, make_adamw, restore_optimizer
from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.reward_update import update_verify_rm
from cooper_rl.training.rollout import RolloutGroup
from tests.cooper_config import cooper_config

ADVANTAGES = torch.tensor([1.0, -1.0, 0.5, -0.5])


def cooper(**values) -> CooperConfig:
    return cooper_config(**({"group_size": 2, "policy__lr": 1e-3, "reward__lr": 1e-3} | values))


def groups_of(policy: Policy) -> list[RolloutGroup]:
    """Two problems, two completions each, of different lengths; one was cut."""
    groups = []
    texts = (("7+9=16. #### 16", "The answer is ten."), ("5.", "7-2=5;5*2=10. \\boxed{10}"))
    for number, pair in enumerate(texts):
        problem = Problem(
            id=str(number), source="t", question=f"Tom has {number} apples.", reference_answer="1"
        )
        ids = [tuple(policy.tokenizer(text)["input_ids"]) for text in pair]
        ids[0] = (*ids[0], policy.tokenizer.eos_token_id)
        generations = (
            Generation(ids[0], (0.0,) * len(ids[0]), "stop"),
            Generation(ids[1], (0.0,) * len(ids[1]), "length"),
        )
        prompt = tuple(policy.encode_prompt(problem.question, None))
        groups.append(RolloutGroup(problem, prompt, generations, pair))
    return groups


def pairs_of(count: int) -> list[PreferencePair]:
    return [
        PreferencePair(
            step=1, problem_id=str(n), question="Tom has 7 apples." * (n + 1), reference_answer="7",
            positive="The answer is 7.", negative="The answer is 9." * (n % 2 + 1), source="t",
        )
        for n in range(count)
    ]  # fmt: skip


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def run_policy_update(
    make_policy: Callable[[int], Policy], **values
) -> tuple[object, dict[str, torch.Tensor]]:
    policy, reference = make_policy(0), make_policy(1)
    optimizer = make_adamw(policy.model, lr=1e-4, weight_decay=0.0)
    result = update_policy(
        policy, reference, optimizer, groups_of(policy), ADVANTAGES, config=cooper(**values)
    )
    return result, weights(policy.model)


def test_recomputed_activations_change_no_number(make_policy) -> None:
    """Loss, norm and weights after the update; afterwards the model is in eval mode again."""
    kept, kept_weights = run_policy_update(make_policy)
    again, again_weights = run_policy_update(make_policy, gradient_checkpointing=True)
    assert kept.model_dump() == pytest.approx(again.model_dump(), abs=1e-6)
    for name, tensor in kept_weights.items():
        torch.testing.assert_close(tensor, again_weights[name], atol=1e-6, rtol=1e-6)
    policy = make_policy(0)
    optimizer = make_adamw(policy.model, lr=1e-4, weight_decay=0.0)
    config = cooper(gradient_checkpointing=True)
    update_policy(policy, make_policy(1), optimizer, groups_of(policy), ADVANTAGES, config=config)
    assert policy.model.get_decoder().gradient_checkpointing
    assert not policy.model.training


def test_the_policy_update_does_not_depend_on_the_micro_batches(make_policy) -> None:
    """All four completions at once, and one by one: the same loss, norm and weights to 1e-5."""
    whole, whole_weights = run_policy_update(make_policy, max_tokens_per_batch=10_000)
    single, single_weights = run_policy_update(make_policy, max_tokens_per_batch=1)
    assert whole.model_dump() == pytest.approx(single.model_dump(), abs=1e-5)
    for name, tensor in whole_weights.items():
        torch.testing.assert_close(tensor, single_weights[name], atol=1e-5, rtol=1e-5)


def test_the_first_update_on_policy_has_ratio_one(make_policy) -> None:
    """Without KL the loss is -sum(advantage * length) / tokens."""
    policy = make_policy(0)
    lengths = [len(g.token_ids) for group in groups_of(policy) for g in group.generations]
    expected = -sum(a * n for a, n in zip(ADVANTAGES.tolist(), lengths, strict=True)) / sum(lengths)
    result, _ = run_policy_update(make_policy, policy__kl_coefficient=0.0)
    assert result.loss == pytest.approx(expected, abs=1e-6)
    assert result.clip_fraction == 0.0
    assert result.kl is None, "the reference is not asked"


def test_zero_advantages_without_kl_leave_the_policy_as_it_is(make_policy) -> None:
    policy, reference = make_policy(0), make_policy(1)
    before = weights(policy.model)
    optimizer = make_adamw(policy.model, lr=1e-3, weight_decay=0.0)
    update_policy(
        policy,
        reference,
        optimizer,
        groups_of(policy),
        torch.zeros(4),
        config=cooper(policy__kl_coefficient=0.0),
    )
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(policy.model).items())


def test_an_advantage_moves_the_probability_of_its_completion(make_policy) -> None:
    policy, reference = make_policy(0), make_policy(0)
    group = groups_of(policy)[0]

    def logprob(index: int) -> float:
        batch = batch_completions(policy, [group.prompt_ids], [group.generations[index].token_ids])
        return completion_logprobs(policy, batch, temperature=1.0).sum().item()

    before = logprob(0), logprob(1)
    optimizer = make_adamw(policy.model, lr=1e-3, weight_decay=0.0)
    update_policy(policy, reference, optimizer, [group], torch.tensor([1.0, -1.0]), config=cooper())
    assert logprob(0) > before[0]
    assert logprob(1) < before[1]


def test_several_updates_use_the_log_probabilities_from_before_the_first(make_policy) -> None:
    """Two updates on half of the groups each: the second one's ratio is no longer one."""
    result, after_two = run_policy_update(make_policy, policy__updates_per_step=2, problems_per_step=2)
    _, after_one = run_policy_update(make_policy)
    assert result.loss != 0
    assert any(not torch.equal(after_two[name], tensor) for name, tensor in after_one.items())


def test_a_nan_in_the_loss_stops_and_leaves_the_weights(make_policy) -> None:
    policy, reference = make_policy(0), make_policy(1)
    before = weights(policy.model)
    optimizer = make_adamw(policy.model, lr=1e-3, weight_decay=0.01)
    with pytest.raises(TrainingError, match="the policy's gradient is nan; its weights are unchanged"):
        update_policy(
            policy, reference, optimizer, groups_of(policy), torch.full((4,), torch.nan), config=cooper()
        )
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(policy.model).items())


def run_reward_update(verify_rm: VerifyRM, pairs: list[PreferencePair], **values):
    optimizer = make_adamw(verify_rm.model, lr=1e-4, weight_decay=0.0)
    return update_verify_rm(verify_rm, optimizer, pairs, config=cooper(**values))


def test_the_reward_update_is_the_mean_over_all_pairs_however_they_are_split(make_verify_rm) -> None:
    """The release averages per micro-batch and per rank; five pairs do not split evenly."""
    whole, single = make_verify_rm(0), make_verify_rm(0)
    first = run_reward_update(whole, pairs_of(5), max_tokens_per_batch=10_000)
    second = run_reward_update(single, pairs_of(5), max_tokens_per_batch=1)
    assert first == pytest.approx(second, abs=1e-5)
    for name, tensor in weights(whole.model).items():
        # Adam's first step is lr * sign(gradient), so where the gradient is nearly 0 rounding shows.
        torch.testing.assert_close(tensor, single.model.state_dict()[name], atol=1e-5, rtol=1e-5)


def test_the_loss_of_one_pair_is_that_of_its_two_logits(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    pair = pairs_of(1)[0]
    positive, negative = (
        verify_rm.logits(verify_rm.encode([VerifyItem(pair.question, pair.reference_answer, text)])).item()
        for text in (pair.positive, pair.negative)
    )
    expected = torch.nn.functional.softplus(torch.tensor(negative - positive)).item()
    assert run_reward_update(verify_rm, [pair]).loss == pytest.approx(expected, abs=1e-6)


def test_a_pair_whose_halves_score_alike_is_not_in_order(make_verify_rm) -> None:
    """A head of zeros gives every text the logit 0."""
    verify_rm = make_verify_rm(0)
    torch.nn.init.zeros_(verify_rm.model.score.weight)
    assert run_reward_update(verify_rm, pairs_of(2)).pair_accuracy == 0


def test_no_pairs_take_no_optimiser_step(make_verify_rm) -> None:
    """The release steps on an all-invalid batch; with weight decay and momentum that moves the weights."""
    verify_rm = make_verify_rm(0)
    optimizer = make_adamw(verify_rm.model, lr=1e-3, weight_decay=0.1)
    update_verify_rm(verify_rm, optimizer, pairs_of(2), config=cooper())
    before = weights(verify_rm.model)
    assert update_verify_rm(verify_rm, optimizer, [], config=cooper()) is None
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(verify_rm.model).items())


def test_the_reward_update_learns_its_pairs(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    optimizer = make_adamw(verify_rm.model, lr=1e-3, weight_decay=0.0)
    losses = [update_verify_rm(verify_rm, optimizer, pairs_of(4), config=cooper()).loss for _ in range(30)]
    assert losses[-1] < 0.1 * losses[0]


def test_nearly_every_weight_moves_at_a_learning_rate_of_1e_5(make_verify_rm) -> None:
    """The release steps bf16 weights, of which 84-90 % stay put at this rate."""
    verify_rm = make_verify_rm(0)
    before = weights(verify_rm.model)
    optimizer = make_adamw(verify_rm.model, lr=1e-5, weight_decay=0.0)
    update_verify_rm(verify_rm, optimizer, pairs_of(4), config=cooper())
    name = "model.layers.0.mlp.up_proj.weight"
    moved = (before[name] != verify_rm.model.state_dict()[name]).float().mean()
    assert moved > 0.99


def test_a_restored_optimiser_continues_bit_for_bit(make_verify_rm) -> None:
    straight, resumed = make_verify_rm(0), make_verify_rm(0)
    optimizer = make_adamw(straight.model, lr=1e-3, weight_decay=0.01)
    for _ in range(2):
        update_verify_rm(straight, optimizer, pairs_of(3), config=cooper())
    first = make_adamw(resumed.model, lr=1e-3, weight_decay=0.01)
    update_verify_rm(resumed, first, pairs_of(3), config=cooper())
    second = make_adamw(resumed.model, lr=1e-3, weight_decay=0.01)
    saved = copy.deepcopy(optimizer_tensors(resumed.model, first))
    restore_optimizer(resumed.model, second, saved, place="here")
    update_verify_rm(resumed, second, pairs_of(3), config=cooper())
    for name, tensor in straight.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name])


def test_an_offloaded_optimiser_takes_one_pass_to_the_same_weights(make_verify_rm) -> None:
    plain, offloaded = make_verify_rm(0), make_verify_rm(0)
    for each, is_offloaded in ((plain, False), (offloaded, True)):
        optimizer = make_adamw(each.model, lr=1e-3, weight_decay=0.01, is_offloaded=is_offloaded)
        assert bool(optimizer.defaults["fused"]) == is_offloaded
        for _ in range(3):
            update_verify_rm(each, optimizer, pairs_of(3), config=cooper())
    for name, tensor in plain.model.state_dict().items():
        torch.testing.assert_close(offloaded.model.state_dict()[name], tensor, rtol=1e-5, atol=1e-6)


def test_on_a_gpu_weights_are_stepped_in_one_pass_that_finds_all_state_there() -> None:
    """A GPU that torch only plays. The pass would take a step in the CPU's memory for one in its own."""
    with FakeTensorMode():
        model = torch.nn.Module()
        model.weight = torch.nn.Parameter(torch.zeros(3, 2, device="cuda"))
        optimizer = make_adamw(model, lr=1e-3, weight_decay=0.01)
        assert optimizer.defaults["fused"]
        saved = {"step": torch.zeros(()), "exp_avg": torch.zeros(3, 2), "exp_avg_sq": torch.zeros(3, 2)}
        named = {f"weight/{key}": tensor for key, tensor in saved.items()}
        restore_optimizer(model, optimizer, named, place="here")
        state = optimizer.state[model.weight]
        assert {key: tensor.device.type for key, tensor in state.items()} == dict.fromkeys(saved, "cuda")


def test_optimiser_state_of_another_model_is_refused(make_verify_rm) -> None:
    model = make_verify_rm(0).model
    optimizer = make_adamw(model, lr=1e-3, weight_decay=0.01)
    with pytest.raises(
        ModelError, match=r"here: optimiser state 'score\.weight/exp_avg' of shape \(3,\) fits no"
    ):
        restore_optimizer(model, optimizer, {"score.weight/exp_avg": torch.zeros(3)}, place="here")


def test_optimiser_state_of_a_weight_that_is_not_there_is_refused(make_verify_rm) -> None:
    """A count of steps has no shape to tell it by."""
    model = make_verify_rm(0).model
    with pytest.raises(
        ModelError,
        match=r"here: optimiser state 'nowhere/step' of shape \(\) fits no weight of the model beside it; "
        r"use the checkpoint's own folders together, and its cooper\.policy\.lora\.rank$",
    ):
        restore_optimizer(
            model,
            make_adamw(model, lr=1e-3, weight_decay=0.01),
            {"nowhere/step": torch.zeros(())},
            place="here",
        )


def test_an_infinite_gradient_stops_and_leaves_the_weights(make_verify_rm) -> None:
    model = make_verify_rm(0).model
    before = weights(model)
    model.score.weight.grad = torch.full_like(model.score.weight, torch.inf)
    trained = SingleProcess(model, torch.optim.SGD(model.parameters(), lr=1.0))
    with pytest.raises(
        TrainingError,
        match=r"the VerifyRM's gradient is inf; its weights are unchanged: lower "
        r"its learning rate or look at what it was given in this step$",
    ):
        apply_gradients(trained, 1.0, name="VerifyRM")
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(model).items())
