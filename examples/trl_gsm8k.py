"""GRPO with TRL 1.16 on GSM8K, with a reward that learns.

    pip install 'cooper_rl-0.2.0-py3-none-any.whl[hub]' trl  # from `make wheel`; '.[hub]' in a clone
    accelerate launch examples/trl_gsm8k.py

`verify_rm` is a folder that `cooper-rl train-verify-rm` or `train_verify_rm` wrote, `train.jsonl` and
`validation.jsonl` are its labelled examples. For GSM8K the reference answer is what follows `####`.
"""

from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

from cooper_rl import CooperReward


def main() -> None:
    """Train: the policy learns from VerifyRM's scores, and VerifyRM from the policy's completions."""
    # Before the trainer: VerifyRM is loaded on the first process, outside of what DeepSpeed divides.
    reward = CooperReward(
        "verify_rm",
        replay="train.jsonl",
        held_out="validation.jsonl",
        config={"reward": {"lr": 1e-5}, "monitor": {"action": "stop"}},
    )
    problems = load_dataset("openai/gsm8k", "main", split="train").map(
        lambda row: {
            "prompt": [{"role": "user", "content": row["question"]}],
            "reference_answer": row["answer"].rpartition("####")[2].strip(),
        },
        remove_columns=["answer"],
    )
    trainer = GRPOTrainer(
        model="Qwen/Qwen2.5-1.5B-Instruct",
        reward_funcs=reward,
        args=GRPOConfig(output_dir="runs/trl", num_generations=8, learning_rate=1e-6, bf16=True),
        train_dataset=problems,
    )
    trainer.train()
    if trainer.is_world_process_zero():
        reward.save_verify_rm("runs/trl/verify_rm")
    reward.close()


if __name__ == "__main__":
    main()
