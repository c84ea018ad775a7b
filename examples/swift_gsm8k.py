"""GRPO with ms-swift 4.6 on GSM8K, with a reward that learns, for one GPU.

    cooper-rl serve --learn --verify-rm verify_rm --state runs/rewards --set collect_items=64
    export COOPER_REWARD_URL=http://127.0.0.1:8080 COOPER_REWARD_RUN=swift
    python examples/swift_gsm8k.py

`collect_items` is the number of completions of a step, those of all processes together.
"""

import importlib.util
import json
import subprocess
from pathlib import Path

from datasets import load_dataset

FOLDER = Path("runs/swift")
OPTIONS = """
    --rlhf_type grpo
    --model Qwen/Qwen2.5-1.5B-Instruct
    --dataset {folder}/train.jsonl
    --external_plugins {plugin}
    --reward_funcs cooper
    --split_dataset_ratio 0
    --num_generations 8
    --per_device_train_batch_size 8
    --gradient_accumulation_steps 8
    --max_completion_length 512
    --learning_rate 1e-6
    --beta 1e-3
    --tuner_type full
    --torch_dtype bfloat16
    --use_vllm true
    --vllm_mode colocate
    --num_train_epochs 1
    --output_dir {folder}/policy
"""


def main() -> None:
    """Write the problems, then train."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "train.jsonl").open("w", encoding="utf-8") as file:
        for row in load_dataset("openai/gsm8k", "main", split="train"):
            file.write(json.dumps(make_row(row)) + "\n")
    (package,) = importlib.util.find_spec("cooper_rl").submodule_search_locations
    plugin = f"{package}/adapters/ms_swift/cooper_plugin.py"
    words = [word.format(folder=FOLDER, plugin=plugin) for word in OPTIONS.split()]
    subprocess.run(["swift", "rlhf", *words], check=True)


def make_row(row: dict[str, str]) -> dict[str, object]:
    """A problem in ms-swift's columns. The reference answer of GSM8K stands behind `####`."""
    return {
        "messages": [{"role": "user", "content": row["question"]}],
        "solution": row["answer"].rpartition("####")[2].strip(),
    }


if __name__ == "__main__":
    main()
