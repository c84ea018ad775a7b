"""Losses, gradients and advantages against TRL's trainers, which compute them independently.

TRL pads prompts left and completions right, walks the library's own forward pass and takes the whole batch at
once; here sequences are joined, packed or split. The gradient is read from what one step of plain SGD
changes. Both sides work in fp32 on weights near .02 to 1, so a gradient read that way is exact to about 1e-7,
and sums over a few hundred tokens in another order differ by about 1e-6.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, RewardConfig, RewardTrainer, RLOOConfig, RLOOTrainer
from trl.rewards import get_soft_overlong_punishment

from cooper_rl.config.cooper import CooperConfig
from cooper_rl.engines.base import Generation
from cooper_rl.method.advantages import group_advantages, overlong_penalties
from cooper_rl.models.policy import Policy, save_policy
from cooper_rl.models.verify_rm import VerifyItem
from cooper_rl.schema.data import PreferencePair, Problem
from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.reward_update import update_verify_rm
from cooper_rl.training.rollout import RolloutGroup
from tests.cooper_config import cooper_config

ATOL, RTOL = 2e-6, 1e-4
GROUP_REWARDS = ((0.9, 0.1, 0.4, 0.2), (0.05, 0.6, 0.95, 0.3))
COMPLETIONS = (
    ("7+9=16. #### 16", "The answer is ten.", "5.", "7-2=5;5*2=10. \\boxed{10}"),
    ("The answer is 4.", "1+1=2;2+2=4;4+4=8. #### 8", "#### 3", "So it is 12. The answer is 12."),
)
KL, EPSILON, TEMPERATURE = 0.05, 0.2, 0.7


def make_groups(policy: Policy) -> list[RolloutGroup]:
    """Prompts and completions of different lengths; every other completion was cut at its limit."""
    groups = []
    for number, texts in enumerate(COMPLETIONS):
        question = "Tom has 7 apples." + " Ann has 2 more." * (2 * number)
        problem = Problem(id=str(number), source="t", question=question, reference_answer="1")
        generations = []
        for place, text in enumerate(texts):
            ids = tuple(policy.tokenizer(text)["input_ids"])
            ids = ids if place % 2 else (*ids, policy.tokenizer.eos_token_id)
            generations.append(Generation(ids, (0.0,) * len(ids), "length" if place % 2 else "stop"))
        prompt = tuple(policy.encode_prompt(question, None))
        groups.append(RolloutGroup(problem, prompt, tuple(generations), texts))
    return groups


def cooper(**values) -> CooperConfig:
    """Settings that TRL's below equal; no clipping of the gradient's norm."""
    return cooper_config(**({
            "group_size": 4, "problems_per_step": 2, "policy__kl_coefficient": KL,
            "policy__clip_epsilon": EPSILON, "max_grad_norm": 1e9, "generation": {"temperature": TEMPERATURE},
        } | values))  # fmt: skip


class Rollouts(NamedTuple):
    """A TRL trainer and what it made of our rollouts."""

    trainer: GRPOTrainer
    inputs: dict[str, torch.Tensor]


def trl_rollouts(
    policy: Policy, reference: Policy, groups: Sequence[RolloutGroup], folder, **settings: Any
) -> Rollouts:
    """TRL scores the given rollouts: advantages, old and reference log-probabilities are its own."""
    save_policy(reference, folder / "reference")  # TRL loads its reference policy by the policy's name
    policy.model.config._name_or_path = str(folder / "reference")
    rows = [(group.prompt_ids, made.token_ids) for group in groups for made in group.generations]
    rewards = [reward for group in GROUP_REWARDS for reward in group]
    config = GRPOConfig(
        **({"output_dir": str(folder / "trl"), "beta": KL, "epsilon": EPSILON} | settings),
        temperature=TEMPERATURE, num_generations=4, per_device_train_batch_size=8,
        per_device_eval_batch_size=8, num_iterations=2, use_cpu=True, bf16=False, report_to=[],
        activation_checkpointing=False,
        use_bias_correction_kl=False,  # TRL's own default adds the ratio's gradient; the paper's k3 has none
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=lambda **_: rewards,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=policy.tokenizer,
        rollout_func=lambda *_: {
            "prompt_ids": [list(prompt) for prompt, _ in rows],
            "completion_ids": [list(completion) for _, completion in rows],
            "logprobs": None,
        },
    )
    policy.model.eval()
    return Rollouts(trainer, trainer._generate_and_score_completions([{"prompt": "a"}] * len(rows)))


def trl_loss(trainer: GRPOTrainer, inputs: dict[str, torch.Tensor]) -> tuple[float, dict[str, torch.Tensor]]:
    """TRL's loss and its gradient by weight name."""
    trainer.model.zero_grad()
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.item(), {name: weight.grad.clone() for name, weight in trainer.model.named_parameters()}


class Recorder:
    """Plain SGD, and the weights before the first and after every step."""

    def __init__(self, model: torch.nn.Module, lr: float) -> None:
        self.model, self.lr = model, lr
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.weights = [self._copy()]
        self.optimizer.register_step_post_hook(lambda *_: self.weights.append(self._copy()))

    def gradient(self, step: int) -> dict[str, torch.Tensor]:
        before, after = self.weights[step], self.weights[step + 1]
        return {name: (before[name] - after[name]) / self.lr for name in before}

    def _copy(self) -> dict[str, torch.Tensor]:
        return {name: weight.detach().clone() for name, weight in self.model.named_parameters()}


def assert_same_gradient(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-3
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, atol=ATOL, rtol=RTOL, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_advantages_are_trls(make_policy: Callable[[int], Policy], tmp_path) -> None:
    """TRL divides by std + 1e-4, here by max(std, floor): the same to 1e-4 / std; both are over .3."""
    policy = make_policy(0)
    _, inputs = trl_rollouts(policy, make_policy(1), make_groups(policy), tmp_path, loss_type="dapo")
    rewards = torch.tensor(GROUP_REWARDS).flatten()
    found = group_advantages(rewards, group_size=4, std_floor=1e-6)
    torch.testing.assert_close(found, inputs["advantages"], atol=0, rtol=4e-4)


@pytest.mark.parametrize("max_tokens_per_batch", [1, 10_000], ids=["one_by_one", "at_once"])
@pytest.mark.parametrize("loss_type", ["dapo", "bnpo"])
def test_the_policy_loss_and_its_gradient_on_policy_are_trls(
    make_policy: Callable[[int], Policy], tmp_path, loss_type: str, max_tokens_per_batch: int
) -> None:
    """With KL. TRL's `dapo` divides by the tokens of the batch, its `bnpo` by those of the part at hand."""
    policy, reference = make_policy(0), make_policy(1)
    groups = make_groups(policy)
    trainer, inputs = trl_rollouts(make_policy(0), reference, groups, tmp_path, loss_type=loss_type)
    expected, gradient = trl_loss(trainer, inputs)
    recorder = Recorder(policy.model, lr=1.0)
    found = update_policy(
        policy, reference, recorder.optimizer, groups, inputs["advantages"],
        config=cooper(max_tokens_per_batch=max_tokens_per_batch),
    )  # fmt: skip
    assert found.loss == pytest.approx(expected, abs=ATOL)
    assert found.kl == pytest.approx(trainer._metrics["eval"]["kl"][-1], rel=RTOL)
    assert found.kl > 0.01
    assert_same_gradient(recorder.gradient(0), gradient)


def test_the_correction_for_the_engine_is_trls(make_policy: Callable[[int], Policy], tmp_path) -> None:
    """Engine log-probabilities that are wrong by up to .7 either way; weights up to 1.25, KL not weighed."""
    policy, reference = make_policy(0), make_policy(1)
    groups = make_groups(policy)
    trainer, inputs = trl_rollouts(make_policy(0), reference, groups, tmp_path, loss_type="dapo")
    torch.manual_seed(0)
    wrong = 1.4 * torch.rand(inputs["old_per_token_logps"].shape) - 0.7
    engine_logprobs = (inputs["old_per_token_logps"] + wrong).tolist()
    rows = iter(engine_logprobs)
    groups = [
        dataclasses.replace(
            group,
            generations=tuple(
                dataclasses.replace(made, logprobs=tuple(next(rows)[: len(made.token_ids)]))
                for made in group.generations
            ),
        )
        for group in groups
    ]
    trainer.use_vllm = True
    weights = (-wrong).exp().clamp(max=1.25)
    expected, gradient = trl_loss(trainer, inputs | {"importance_sampling_ratio": weights})
    recorder = Recorder(policy.model, lr=1.0)
    found = update_policy(
        policy, reference, recorder.optimizer, groups, inputs["advantages"],
        config=cooper(policy__max_importance_weight=1.25),
    )  # fmt: skip
    assert found.loss == pytest.approx(expected, abs=ATOL)
    assert_same_gradient(recorder.gradient(0), gradient)


def test_the_clipped_loss_of_an_off_policy_update_is_trls(
    make_policy: Callable[[int], Policy], tmp_path
) -> None:
    """The second of two updates, after a step large enough that tokens are clipped on both sides."""
    policy, reference = make_policy(0), make_policy(1)
    groups = make_groups(policy)
    trainer, inputs = trl_rollouts(make_policy(0), reference, groups, tmp_path, loss_type="dapo")
    recorder = Recorder(policy.model, lr=2.0)
    found = update_policy(
        policy, reference, recorder.optimizer, groups, inputs["advantages"],
        config=cooper(policy__updates_per_step=2, max_tokens_per_batch=100),
    )  # fmt: skip
    halves = [
        {name: value[rows] for name, value in inputs.items() if value.ndim}
        for rows in (slice(4), slice(4, 8))
    ]
    num_tokens = [int(half["completion_mask"].sum()) for half in halves]
    losses = []
    for half, count, step in zip(halves, num_tokens, (0, 1), strict=True):
        trainer.model.load_state_dict(recorder.weights[step], strict=False)
        loss, gradient = trl_loss(trainer, half | {"num_items_in_batch": torch.tensor(count)})
        assert_same_gradient(recorder.gradient(step), gradient)
        losses.append(loss * count / sum(num_tokens))
    assert found.loss == pytest.approx(sum(losses), abs=ATOL)
    low, high = (trainer._metrics["eval"][f"clip_ratio/{side}_mean"] for side in ("low", "high"))
    assert low[0] == high[0] == 0
    assert min(low[1], high[1]) > 0.05
    assert found.clip_fraction * sum(num_tokens) == pytest.approx(
        (low[1] + high[1]) * num_tokens[1], abs=1e-3
    )


LOSSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo": ({"loss_type": "grpo"}, {"policy__loss_aggregation": "sequence_mean"}),
    "dr_grpo": (
        {"loss_type": "dr_grpo", "max_completion_length": 512},
        {"policy__loss_aggregation": "max_length"},
    ),
    "clip_higher": ({"loss_type": "dapo", "epsilon_high": 0.4}, {"policy__clip_epsilon_high": 0.4}),
    "gspo": (
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 0.02,
            "epsilon_high": 0.03,
        },
        {
            "policy__loss": "gspo",
            "policy__loss_aggregation": "sequence_mean",
            "policy__clip_epsilon": 0.02,
            "policy__clip_epsilon_high": 0.03,
        },
    ),
    # TRL's bound of the weight is ours + 1.
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 1.1},
        {"policy__loss": "cispo", "policy__clip_epsilon_high": 0.1},
    ),
}


@pytest.mark.parametrize(("theirs", "ours"), LOSSES.values(), ids=LOSSES)
def test_every_other_loss_of_two_updates_is_trls(
    make_policy: Callable[[int], Policy], tmp_path, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    """With KL; the second update is so far from the first that the clip acts. Micro-batches of a few rows."""
    policy, reference = make_policy(0), make_policy(1)
    groups = make_groups(policy)
    trainer, inputs = trl_rollouts(make_policy(0), reference, groups, tmp_path, **theirs)
    recorder = Recorder(policy.model, lr=2.0)
    found = update_policy(
        policy, reference, recorder.optimizer, groups, inputs["advantages"],
        config=cooper(policy__updates_per_step=2, max_tokens_per_batch=100, **ours),
    )  # fmt: skip
    loss_sum = 0.0
    for step in (0, 1):
        half = {name: value[4 * step : 4 * step + 4] for name, value in inputs.items() if value.ndim}
        count = int(half["completion_mask"].sum())
        trainer.model.load_state_dict(recorder.weights[step], strict=False)
        loss, gradient = trl_loss(trainer, half | {"num_items_in_batch": torch.tensor(count)})
        assert_same_gradient(recorder.gradient(step), gradient)
        loss_sum += loss * count
    assert found.loss == pytest.approx(loss_sum / int(inputs["completion_mask"].sum()), abs=2 * ATOL)
    assert found.clip_fraction > 0.02


class GivenRLOO(RLOOTrainer):
    """TRL's trainer on given completions."""

    given: list[list[int]]

    def _generate_single_turn(self, prompt_ids, images, multimodal_fields):
        return self.given


def test_rloos_advantages_are_trls(make_policy: Callable[[int], Policy], tmp_path) -> None:
    policy = make_policy(0)
    rewards = [reward for group in GROUP_REWARDS for reward in group]
    config = RLOOConfig(
        output_dir=str(tmp_path), beta=0.0, num_generations=4, per_device_train_batch_size=8,
        per_device_eval_batch_size=8, use_cpu=True, bf16=False, report_to=[], activation_checkpointing=False,
    )  # fmt: skip
    trainer = GivenRLOO(
        model=policy.model,
        reward_funcs=lambda **_: rewards,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=policy.tokenizer,
    )
    trainer.given = [list(made.token_ids) for group in make_groups(policy) for made in group.generations]
    policy.model.eval()
    inputs = trainer._generate_and_score_completions([{"prompt": "a"}] * len(rewards))
    found = group_advantages(
        torch.tensor(rewards), group_size=4, std_floor=1.0, scale="none", estimator="rloo"
    )
    torch.testing.assert_close(found, inputs["advantages"], atol=1e-6, rtol=0)


def test_the_overlong_penalty_is_trls() -> None:
    lengths = list(range(1, 65))
    theirs = get_soft_overlong_punishment(64, 24)([[0] * length for length in lengths])
    found = overlong_penalties(lengths, max_new_tokens=64, buffer_tokens=24, weight=1.0)
    assert found == pytest.approx(theirs)


@pytest.mark.parametrize("max_tokens_per_batch", [1, 10_000], ids=["one_by_one", "at_once"])
def test_the_pair_loss_and_its_gradient_are_trls(make_verify_rm, tmp_path, max_tokens_per_batch: int) -> None:
    """Three pairs: an odd number does not split evenly."""
    verify_rm, other = make_verify_rm(0), make_verify_rm(0)
    pairs = [
        PreferencePair(
            step=1, problem_id=str(n), question="Tom has 7 apples." * (n + 1), reference_answer="7",
            positive="The answer is 7.", negative="It is 9; the answer is 9." * (n % 2 + 1), source="t",
        )
        for n in range(3)
    ]  # fmt: skip
    config = RewardConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], activation_checkpointing=False
    )
    trainer = RewardTrainer(
        model=other.model,
        args=config,
        train_dataset=Dataset.from_dict({"chosen": ["a"], "rejected": ["b"]}),
        processing_class=other.tokenizer,
    )
    other.model.eval()
    halves = [
        other.encode(
            [VerifyItem(pair.question, pair.reference_answer, getattr(pair, half)) for pair in pairs]
        )
        for half in ("positive", "negative")
    ]
    rows = [
        {"chosen_ids": chosen, "rejected_ids": rejected} for chosen, rejected in zip(*halves, strict=True)
    ]
    other.model.zero_grad()
    expected = trainer.compute_loss(other.model, trainer.data_collator(rows))
    expected.backward()
    recorder = Recorder(verify_rm.model, lr=1.0)
    found = update_verify_rm(
        verify_rm, recorder.optimizer, pairs, config=cooper(max_tokens_per_batch=max_tokens_per_batch)
    )
    assert found is not None
    assert found.loss == pytest.approx(expected.item(), abs=ATOL)
    assert found.pair_accuracy == pytest.approx(trainer._metrics["eval"]["accuracy"][-1])
    gradient = {name: weight.grad for name, weight in other.model.named_parameters()}
    assert_same_gradient(recorder.gradient(0), gradient)
