"""CooperReward in TRL's own GRPOTrainer, on the laptop world with random models."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from cooper_rl import CooperReward, load_verify_rm
from cooper_rl.config.data import AnswerPolicy, RuleConfig
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.models.policy import load_policy, save_policy
from cooper_rl.models.verify_rm import VerifyRM, save_verify_rm
from cooper_rl.tiny.problems import generate_problems
from tests.api.rewarding import same_weights

ROOT = Path(__file__).parent.parent.parent
RULE = RuleConfig(num_workers=1, policy=AnswerPolicy(number_words=False))


@pytest.fixture
def start(make_policy, make_verify_rm, tmp_path) -> Path:
    """Folder with a policy and a VerifyRM."""
    save_policy(make_policy(0), tmp_path / "policy")
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    return tmp_path


def rows(column: str = "reference_answer", *, is_chat: bool = False) -> Dataset:
    problems = generate_problems(6, seed=0)
    prompts: list[Any] = [problem.question for problem in problems]
    if is_chat:
        prompts = [[{"role": "user", "content": question}] for question in prompts]
    return Dataset.from_dict({"prompt": prompts, column: [problem.reference_answer for problem in problems]})


def make_reward(start: Path, **options: Any) -> CooperReward:
    config = {"reward": {"lr": 1e-3}, "pairs": {"negatives": {"assistant": 0, "perturb": 1}}}
    return CooperReward(start / "verify_rm", **({"config": config, "rule": RULE, "device": "cpu"} | options))


def make_trainer(start: Path, reward: Any, dataset: Dataset, **options: Any) -> GRPOTrainer:
    """Three problems with two completions in every step; the engine's answers are drawn by the policy."""
    policy = load_policy(str(start / "policy"), device=torch.device("cpu"))
    config = {
        "output_dir": str(start / "trl"), "num_generations": 2, "per_device_train_batch_size": 6,
        "max_completion_length": 6, "use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no",
        "logging_steps": 1, "max_steps": 2, "disable_tqdm": True, "learning_rate": 1e-4, "seed": 0,
    }  # fmt: skip
    return GRPOTrainer(
        model=policy.model,
        reward_funcs=reward,
        args=GRPOConfig(**(config | options)),
        train_dataset=dataset,
        eval_dataset=dataset,
        processing_class=policy.tokenizer,
    )


class Right(CooperReward):
    """A random policy is never right: every other completion is made so."""

    def __call__(self, completions, **columns):
        answers = columns["reference_answer"]
        made = [
            f"#### {a}\n" if n % 2 == 0 else c
            for n, (a, c) in enumerate(zip(answers, completions, strict=True))
        ]
        return super().__call__(made, **columns)


def right(start: Path) -> Right:
    return Right(
        start / "verify_rm",
        config={"reward": {"lr": 1e-3}, "pairs": {"negatives": {"assistant": 0, "perturb": 1}}},
        rule=RULE,
        device="cpu",
    )


def test_the_policy_and_verify_rm_are_trained_and_evaluation_teaches_nothing(start: Path) -> None:
    """TRL evaluates after every step, with the same reward function."""
    with right(start) as reward:
        trainer = make_trainer(start, reward, rows(), eval_strategy="steps", eval_steps=1)
        before = load_policy(str(start / "policy"), device=torch.device("cpu")).model.state_dict()
        trainer.train()
        assert [row["step"] for row in reward.metrics] == [1, 2]
        assert reward.metrics[0]["pairs/positives"] == 3
        assert len(reward.pairs) >= 3
        assert not same_weights(reward.verify_rm, load_verify_rm(start / "verify_rm", device="cpu"))
        after = trainer.model.state_dict()
        assert any(not torch.equal(before[name], after[name]) for name in before)
        logged = [row for row in trainer.state.log_history if "rewards/cooper_reward/mean" in row]
        assert [row["cooper/pairs_count"] for row in logged] == [row["pairs/count"] for row in reward.metrics]
        assert [row["rewards/cooper_reward/mean"] for row in logged] == pytest.approx(
            [row["rollout/reward"] for row in reward.metrics], abs=1e-4
        )


def test_a_conversational_data_set_gives_the_rewards_of_a_plain_one(start: Path) -> None:
    """TRL passes lists of messages then; the question is the user's message."""
    with make_reward(start) as reward, make_reward(start) as plain:
        trainer = make_trainer(start, reward, rows(is_chat=True), max_steps=1)
        seen: list[dict[str, Any]] = []
        call = reward.__class__.__call__

        class Recorder(CooperReward):
            def __call__(self, completions, **columns):
                seen.append({"completions": completions, **columns})
                return call(self, completions, **columns)

        reward.__class__ = Recorder
        trainer.train()
        assert seen[0]["completions"][0][0]["role"] == "assistant"
        texts = [messages[0]["content"] for messages in seen[0]["completions"]]
        questions = [messages[-1]["content"] for messages in seen[0]["prompts"]]
        rewards = plain(texts, questions=questions, reference_answers=seen[0]["reference_answer"])
        assert sum(rewards) / len(rewards) == reward.metrics[0]["rollout/reward"]


def test_a_column_of_another_name_is_named_by_the_user(start: Path) -> None:
    with (
        make_reward(start) as reward,
        pytest.raises(DataError, match=r"no column 'reference_answer' \(passed: solution\)"),
    ):
        make_trainer(start, reward, rows("solution"), max_steps=1).train()
    with make_reward(start, reference_column="solution") as reward:
        make_trainer(start, reward, rows("solution"), max_steps=1).train()
        assert reward.step == 1


def test_training_that_resumes_goes_on_with_the_reward_of_its_checkpoint(start: Path) -> None:
    """TRL 1.16 itself draws other batches after resuming; what VerifyRM had learned is all there."""
    options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
    with right(start) as before:
        make_trainer(start, before, rows(), **options).train()
        saved = load_verify_rm(start / "trl/checkpoint-2/cooper_reward/step-000002/verify_rm", device="cpu")
        assert same_weights(saved, before.verify_rm)
    with right(start) as resumed:
        trainer = make_trainer(start, resumed, rows(), **(options | {"max_steps": 3}))
        trainer.train(resume_from_checkpoint=True)
        assert [row["step"] for row in resumed.metrics] == [1, 2, 3]
        assert resumed.metrics[:2] == before.metrics
        assert resumed.pairs[: len(before.pairs)] == before.pairs
        assert not same_weights(resumed.verify_rm, saved)


def test_an_evaluation_before_training_resumes_does_not_hide_the_rewards_state(start: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    with right(start) as before:
        make_trainer(start, before, rows(), **options).train()
    with right(start) as resumed:
        trainer = make_trainer(start, resumed, rows(), **(options | {"max_steps": 2}))
        trainer.evaluate()
        assert resumed.step == 0
        trainer.train(resume_from_checkpoint=True)
        assert [row["step"] for row in resumed.metrics] == [1, 2]
        assert resumed.metrics[:1] == before.metrics


def test_a_checkpoint_without_the_rewards_state_is_refused(start: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    with make_reward(start) as reward:
        make_trainer(start, reward, rows(), **options).train()
    shutil.rmtree(start / "trl" / "checkpoint-1" / "cooper_reward")
    with (
        make_reward(start) as reward,
        pytest.raises(DataError, match="the trainer resumed at step 1, and "),
    ):
        make_trainer(start, reward, rows(), **(options | {"max_steps": 2})).train(resume_from_checkpoint=True)


def test_a_training_over_the_checkpoints_of_an_earlier_one_replaces_their_rewards_too(
    start: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """TRL writes over its own checkpoints; with other settings the reward would end the training there."""
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    with make_reward(start) as earlier:
        make_trainer(start, earlier, rows(), **options).train()
    with make_reward(start, seed=7) as reward:
        make_trainer(start, reward, rows(), **options).train()
    assert "replaces the state of an earlier run" in caplog.text
    with make_reward(start, seed=7) as resumed:
        assert resumed.load(start / "trl" / "checkpoint-1" / "cooper_reward")
        assert resumed.metrics == reward.metrics


def test_a_folder_of_its_own_is_refused_under_trl(start: Path) -> None:
    said = r"^CooperReward\(folder=...\) under TRL: its state is kept in the trainer's own checkpoints"
    with make_reward(start, folder=start / "own") as reward, pytest.raises(ConfigError, match=said):
        make_trainer(start, reward, rows(), max_steps=1).train()


def test_two_rewards_in_one_trainer_are_refused_before_the_first_step(start: Path) -> None:
    """At the first checkpoint the second one would find the state of the first."""
    with (
        make_reward(start) as one,
        make_reward(start, seed=7) as other,
        pytest.raises(ConfigError, match=r"holds two CooperReward, and .* leave one out"),
    ):
        make_trainer(start, [one, other], rows(), max_steps=1).train()


def train_in_a_process(folder: Path) -> None:
    """What each of two processes runs: `python -m tests.api.test_trl FOLDER`."""
    is_first = os.environ["RANK"] == "0"
    reward = right(folder)
    seen: list[list[float]] = []
    call = Right.__call__

    class Recorder(Right):
        def __call__(self, completions, **columns):
            seen.append(call(self, completions, **columns))
            return seen[-1]

    reward.__class__ = Recorder
    make_trainer(folder, reward, rows(), per_device_train_batch_size=3, max_steps=2).train()
    (folder / f"rewards-{os.environ['RANK']}.json").write_text(json.dumps(seen))
    if is_first:
        reward.save_verify_rm(folder / "trained")
        (folder / "metrics.json").write_text(json.dumps([reward.metrics, len(reward.pairs)]))
    reward.close()


@pytest.mark.slow
def test_two_processes_learn_on_the_first_from_the_groups_of_both(start: Path) -> None:
    """Three completions each: the second of three groups lies in both processes."""
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29637", "WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    command = [sys.executable, "-m", "tests.api.test_trl", str(start)]
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, text=True,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    metrics, num_pairs = json.loads((start / "metrics.json").read_text())
    shares = [json.loads((start / f"rewards-{rank}.json").read_text()) for rank in range(2)]
    for step, row in enumerate(metrics):
        assert [len(share[step]) for share in shares] == [3, 3]
        assert sum(shares[0][step] + shares[1][step]) / 6 == pytest.approx(row["rollout/reward"], abs=1e-6)
        assert row["pairs/positives"] == 3
    assert num_pairs >= 6
    trained: VerifyRM = load_verify_rm(start / "trained", device="cpu")
    assert not same_weights(trained, load_verify_rm(start / "verify_rm", device="cpu"))


if __name__ == "__main__":
    train_in_a_process(Path(sys.argv[1]))


class Stated(CooperReward):
    """The right answer in place of every completion; each is as long as the trainer allows."""

    def __init__(self, start: Path, *, are_ended: bool) -> None:
        super().__init__(start / "verify_rm", rule=RULE, device="cpu")
        self._are_ended = are_ended

    def __call__(self, completions, **columns):
        trainer = columns["log_metric"].__self__
        last = trainer.eos_token_ids[0] if self._are_ended else trainer.eos_token_ids[0] + 1
        columns["completion_ids"] = [[1] * (trainer.max_completion_length - 1) + [last] for _ in completions]
        return super().__call__([f"#### {answer}" for answer in columns["reference_answer"]], **columns)


@pytest.mark.parametrize("are_ended", [True, False])
def test_a_number_at_the_end_of_a_cut_completion_is_no_answer(start: Path, are_ended: bool) -> None:
    with Stated(start, are_ended=are_ended) as reward:
        make_trainer(start, reward, rows(), max_steps=1).train()
        (found,) = reward.metrics
    assert found["rollout/rule_accuracy"] == are_ended
    assert found["rollout/rule_unparsable"] == (not are_ended)
