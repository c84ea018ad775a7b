"""GRPO with TRL 1.16 on the laptop world, with a reward that learns: CPU, no download, minutes.

    pip install '.' trl  # in a clone
    python examples/trl_laptop.py --output runs/trl_laptop

Stages of `cooper-rl` make the start. Then TRL trains the policy, and CooperReward trains VerifyRM.
`trl_gsm8k.py` is the same for a real model and GSM8K.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import mean

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from cooper_rl import AnswerPolicy, CooperReward, RuleConfig

START = (
    "collect-problems --problems problems.jsonl --held-out held_out.jsonl --rejected rejected.jsonl "
    "--report collect.json",
    "prepare-models --models models --report models.json",
    "sample-completions --models models --problems problems.jsonl --completions completions.jsonl "
    "--report sample.json",
    "label-completions --problems problems.jsonl --completions completions.jsonl --labels labels.jsonl "
    "--train train.jsonl --validation validation.jsonl --test test.jsonl --report label.json",
    "train-verify-rm --models models --train train.jsonl --validation validation.jsonl "
    "--verify-rm verify_rm --report train_verify_rm.json",
)
"""Stages of `cooper-rl` that make problems, a policy of a million parameters and a VerifyRM."""


def main() -> None:
    """Make the start, unless the folder holds one, train, and print how reward and rule accuracy moved."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--preset", default="laptop", help="for the start")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "train_verify_rm.json").exists():
        for stage in START:
            command = [sys.executable, "-m", "cooper_rl", *stage.split(), "--preset", options.preset]
            subprocess.run(command, cwd=folder, check=True)
    reward = CooperReward(
        folder / "verify_rm",
        replay=folder / "train.jsonl",
        held_out=folder / "validation.jsonl",
        config={"reward": {"lr": 1e-3}},
        # It misses answers in words, as the rule verifier of the laptop world does: what VerifyRM is for.
        rule=RuleConfig(policy=AnswerPolicy(number_words=False)),
        device="cpu",
    )
    trainer = GRPOTrainer(
        model=str(folder / "models/policy"),
        reward_funcs=reward,
        args=make_config(folder / "trl", steps=options.steps),
        train_dataset=read_problems(folder / "problems.jsonl"),
    )
    trainer.train()
    trainer.save_model(str(folder / "policy"))
    reward.save_verify_rm(folder / "trained_verify_rm")
    reward.close()
    show(reward.metrics)


def make_config(folder: Path, *, steps: int) -> GRPOConfig:
    """The laptop preset's own settings of the policy: 16 problems of 8 completions in each step."""
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        num_generations=8,
        per_device_train_batch_size=128,
        max_completion_length=64,
        learning_rate=2e-4,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=20,
        beta=1e-3,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
    )


def read_problems(path: Path) -> Dataset:
    """The columns that TRL and CooperReward need."""
    rows = Dataset.from_json(str(path))
    return rows.map(
        lambda row: {"prompt": [{"role": "user", "content": row["question"]}]},
        remove_columns=[name for name in rows.column_names if name != "reference_answer"],
    )


def show(metrics: list[dict[str, float]]) -> None:
    """Means of the first and the last ten steps. A reward that rises while rule accuracy falls is hacked."""
    for name in ("rollout/reward", "rollout/rule_accuracy"):
        values = [row[name] for row in metrics]
        sys.stdout.write(f"{name:<22} {mean(values[:10]):.3f} -> {mean(values[-10:]):.3f}\n")


if __name__ == "__main__":
    main()
