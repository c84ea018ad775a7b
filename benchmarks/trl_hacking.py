"""TRL's own GRPOTrainer on the laptop world, with a frozen VerifyRM as the reward and with CooperReward.

All arms start from the models that the pipeline `verify_rm` made, see the same problems in the same order and
take equally many steps. `frozen` is VerifyRM as it is. `cooper` is CooperReward with the settings of the
preset's own co-training (assistant, judge, replayed examples). `alone` is CooperReward with VerifyRM and a
learning rate.
Accuracy by the rule and by meaning is that of the same held-out problems before, half way and after.

    python -m pipelines local verify_rm --preset laptop_plain --output runs/plain
    OMP_NUM_THREADS=1 python -m benchmarks.trl_hacking --run runs/plain/verify-rm-* \
        --arms frozen,cooper --seeds 0,1,2 --output runs/trl_hacking.json

A finished arm is written at once; the same command goes on with those that are missing.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig, GRPOTrainer

from cooper_rl import CooperReward, VerifyItem, VerifyRM, load_verify_rm
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.domains.open import find_domain
from cooper_rl.engines.open import open_engine
from cooper_rl.models.policy import Policy, load_policy
from cooper_rl.records.files import read_records
from cooper_rl.run.evaluator import Evaluator, make_evaluator
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.reports import EvalReport

ARMS = ("frozen", "cooper", "alone")
CPU = torch.device("cpu")


class Start(NamedTuple):
    """What both arms begin with."""

    config: Config
    policy: Path
    verify_rm: Path
    problems: list[Problem]
    held_out: list[Problem]
    replay: Path
    examples: list[VerifyExample]


def read_start(run: Path) -> Start:
    """The outputs of a finished pipeline run of the preset `laptop_plain`."""
    return Start(
        config=load("laptop_plain", []),
        policy=run / "prepare-models/models/policy",
        verify_rm=run / "train-verify-rm/verify_rm",
        problems=read_records(run / "collect-problems/problems", Problem),
        held_out=read_records(run / "collect-problems/held_out", Problem),
        replay=run / "label-completions/train",
        examples=read_records(run / "label-completions/test", VerifyExample),
    )


def main() -> None:
    """Train the arms that the output lacks, one after the other, and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of a finished run of `make demo`")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", default="0", help="of TRL's sampling and of the order of the problems")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no arm after so long")
    options = parser.parse_args()
    disable_progress_bar()
    start, ends_at = read_start(options.run), time.monotonic() + 60 * options.minutes
    options.output.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(options.output.read_text()) if options.output.exists() else []
    known = {(row["arm"], row["seed"], row["steps"]) for row in found}
    for seed in map(int, options.seeds.split(",")):
        for arm in options.arms.split(","):
            if (arm, seed, options.steps) in known or time.monotonic() > ends_at:
                continue
            folder = options.output.with_suffix("") / f"{arm}-{seed}"
            found.append(train_arm(start, arm, seed=seed, steps=options.steps, folder=folder))
            options.output.write_text(json.dumps(found, indent=1))
            sys.stdout.write(show(found[-1]) + "\n")
            sys.stdout.flush()


def train_arm(start: Start, arm: str, *, seed: int, steps: int, folder: Path) -> dict[str, Any]:
    """One training; its evaluations and the reward of every step."""
    began = time.monotonic()
    policy = load_policy(start.policy, device=CPU)
    frozen = load_verify_rm(start.verify_rm, device="cpu")
    reward = make_frozen_reward(frozen) if arm == "frozen" else make_cooper_reward(start, arm, seed=seed)
    domain = find_domain(start.config.problems.domain)
    with (
        reward if isinstance(reward, CooperReward) else nullcontext(),
        closing(domain.open_verifier(start.config.labeling.rule)) as rule,
    ):
        evaluator = make_evaluator(start.config, start.held_out, start.examples, rule)
        looks = Looks(
            evaluator,
            policy,
            lambda: reward.verify_rm if isinstance(reward, CooperReward) else frozen,
            every=max(1, steps // 2),
        )
        trainer = make_trainer(start, policy, reward, seed=seed, steps=steps, folder=folder)
        trainer.add_callback(looks)
        trainer.train()
        metrics = reward.metrics if isinstance(reward, CooperReward) else []
    name = f"rewards/{reward.__name__}/mean"
    logged = [row[name] for row in trainer.state.log_history if name in row]
    return {
        "arm": arm,
        "seed": seed,
        "steps": steps,
        "seconds": round(time.monotonic() - began, 1),
        "evaluations": looks.found,
        "rewards": logged,
        "metrics": metrics,
    }


def make_frozen_reward(verify_rm: VerifyRM) -> Callable[..., list[float]]:
    """What a user writes who has a VerifyRM and no co-training."""

    def frozen(prompts: Any, completions: Any, reference_answer: list[str], **_: Any) -> list[float]:
        columns = zip(prompts, reference_answer, completions, strict=True)
        return verify_rm.score(
            [
                VerifyItem(asked[-1]["content"], answer, given[-1]["content"])
                for asked, answer, given in columns
            ]
        )

    return frozen


def make_cooper_reward(start: Start, arm: str, *, seed: int) -> CooperReward:
    """With everything that the preset's own co-training has, or `alone`."""
    cooper = start.config.cooper
    if arm == "alone":
        config: dict[str, Any] = {"reward": {"lr": cooper.reward.lr}}
        return CooperReward(
            start.verify_rm, config=config, rule=start.config.labeling.rule, seed=seed, device="cpu"
        )
    config = cooper.model_dump(include={"reward", "pairs", "judge", "monitor", "max_tokens_per_batch"})
    return CooperReward(
        start.verify_rm,
        config=config,
        rule=start.config.labeling.rule,
        replay=start.replay,
        seed=seed,
        device="cpu",
    )


def make_trainer(
    start: Start, policy: Policy, reward: Any, *, seed: int, steps: int, folder: Path
) -> GRPOTrainer:
    """With the preset's batch, learning rate, KL weight and temperature; all else is TRL's default."""
    cooper = start.config.cooper
    config = GRPOConfig(
        output_dir=str(folder), max_steps=steps, seed=seed, num_generations=cooper.group_size,
        per_device_train_batch_size=cooper.problems_per_step * cooper.group_size,
        max_completion_length=cooper.generation.max_new_tokens, temperature=cooper.generation.temperature,
        beta=cooper.policy.kl_coefficient, learning_rate=cooper.policy.lr,
        warmup_steps=cooper.policy.warmup_steps, lr_scheduler_type="constant_with_warmup",
        weight_decay=cooper.policy.weight_decay, max_grad_norm=cooper.max_grad_norm, use_cpu=True, bf16=False,
        activation_checkpointing=False, save_strategy="no", report_to=[], logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    rows = {
        "prompt": [[{"role": "user", "content": problem.question}] for problem in start.problems],
        "reference_answer": [problem.reference_answer for problem in start.problems],
    }
    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict(rows),
        processing_class=policy.tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class Looks(TrainerCallback):
    """Evaluates the policy on the held-out problems before, while and after TRL trains it."""

    def __init__(
        self, evaluator: Evaluator, policy: Policy, verify_rm: Callable[[], VerifyRM], *, every: int
    ) -> None:
        self.found: list[dict[str, Any]] = []
        self._evaluator, self._policy, self._verify_rm, self._every = evaluator, policy, verify_rm, every

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._look(step=0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self._every == 0:
            self._look(step=state.global_step)

    def _look(self, *, step: int) -> None:
        model = self._policy.model
        was_training = model.training
        model.eval()
        with (
            torch.inference_mode(),
            closing(open_engine(replace(self._policy, model=model), self._evaluator.config.engine)) as engine,
        ):
            report = self._evaluator.evaluate(engine, self._policy, self._verify_rm(), step=step).report
        model.train(was_training)
        self.found.append(read_report(report))


def read_report(report: EvalReport) -> dict[str, Any]:
    """Values with their 95 % intervals over the problems."""
    names = ("rule_accuracy", "judge_accuracy", "verify_rm_reward")
    values = {name: getattr(report, name) for name in names}
    return {"step": report.step} | {
        name: None if each is None else [each.value, each.low, each.high] for name, each in values.items()
    }


def show(row: dict[str, Any]) -> str:
    """One line: accuracy by meaning, by the rule, and VerifyRM's score, at each evaluation."""
    parts = [
        f"step {each['step']}: meaning {each['judge_accuracy'][0]:.3f} rule {each['rule_accuracy'][0]:.3f} "
        f"score {each['verify_rm_reward'][0]:.3f}"
        for each in row["evaluations"]
    ]
    return f"{row['arm']} seed {row['seed']} ({row['seconds']:.0f} s): " + "; ".join(parts)


if __name__ == "__main__":
    main()
