"""GRPO with veRL 0.9 on GSM8K, with a reward that learns, for one GPU.

    cooper-rl serve --learn --verify-rm verify_rm --state runs/rewards --set collect_items=1024
    export COOPER_REWARD_URL=http://127.0.0.1:8080 COOPER_REWARD_RUN=verl
    python examples/verl_gsm8k.py

The server may run on another machine. `collect_items` is the number of completions of a step.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset

FOLDER = Path("runs/verl")
SETTINGS = (
    "algorithm.adv_estimator=grpo",
    f"data.train_files={FOLDER}/train.parquet",
    f"data.val_files={FOLDER}/test.parquet",
    "data.train_batch_size=128",
    "data.max_prompt_length=512",
    "data.max_response_length=512",
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-1.5B-Instruct",
    "actor_rollout_ref.actor.optim.lr=1e-6",
    "actor_rollout_ref.actor.ppo_mini_batch_size=128",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
    "reward.custom_reward_function.path=pkg://cooper_rl.adapters.verl",
    "reward.custom_reward_function.name=compute_score",
    "trainer.logger=[console]",
    "trainer.n_gpus_per_node=1",
    "trainer.nnodes=1",
    "trainer.total_epochs=1",
    f"trainer.default_local_dir={FOLDER}/checkpoints",
)


def main() -> None:
    """Write both Parquet files, then train."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        rows = load_dataset("openai/gsm8k", "main", split=split)
        Dataset.from_list([make_row(row, split) for row in rows]).to_parquet(FOLDER / f"{split}.parquet")
    subprocess.run([sys.executable, "-m", "verl.trainer.main_ppo", *SETTINGS], check=True)


def make_row(row: dict[str, str], split: str) -> dict[str, Any]:
    """A problem in veRL's columns. The reference answer of GSM8K stands behind `####`."""
    question = row["question"]
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": question}],
        "reward_model": {"style": "rule", "ground_truth": row["answer"].rpartition("####")[2].strip()},
        "extra_info": {"question": question, "split": split},
    }


if __name__ == "__main__":
    main()
