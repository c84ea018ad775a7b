"""GRPO with OpenRLHF 0.11 on GSM8K, with a reward that learns, for one GPU.

    cooper-rl serve --learn --verify-rm verify_rm --state runs/rewards --set collect_items=1024 \\
        --set question_pattern='(?s)<\\|im_start\\|>user\\n(.*?)<\\|im_end\\|>'
    ray start --head
    python examples/openrlhf_gsm8k.py --rewards http://127.0.0.1:8080/v1/runs/openrlhf/openrlhf

`collect_items` is the number of completions of a step, and the pattern finds the question in Qwen's chat
template.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from datasets import load_dataset

FOLDER = Path("runs/openrlhf")
OPTIONS = """
    --actor.model_name_or_path Qwen/Qwen2.5-1.5B-Instruct
    --data.prompt_dataset {folder}/train.jsonl
    --data.input_key prompt
    --data.label_key answer
    --data.apply_chat_template
    --data.max_len 1024
    --reward.remote_url {rewards}
    --rollout.batch_size 128
    --rollout.n_samples_per_prompt 8
    --rollout.micro_batch_size 8
    --rollout.max_new_tokens 512
    --train.batch_size 1024
    --train.micro_batch_size 4
    --train.num_episodes 1
    --train.colocate_all
    --algo.advantage.estimator group_norm
    --algo.kl.use_loss
    --algo.kl.estimator k2
    --algo.kl.init_coef 1e-3
    --actor.adam.lr 1e-6
    --actor.gradient_checkpointing_enable
    --actor.num_nodes 1
    --actor.num_gpus_per_node 1
    --ref.num_nodes 1
    --ref.num_gpus_per_node 1
    --vllm.num_engines 1
    --vllm.tensor_parallel_size 1
    --vllm.gpu_memory_utilization 0.5
    --vllm.enable_sleep
    --ds.enable_sleep
    --ds.zero_stage 2
    --ckpt.output_dir {folder}/policy
"""


def main() -> None:
    """Write the problems, then train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rewards", required=True, help="address of the run of rewards")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "train.jsonl").open("w", encoding="utf-8") as file:
        for row in load_dataset("openai/gsm8k", "main", split="train"):
            file.write(json.dumps(make_row(row)) + "\n")
    words = OPTIONS.format(folder=FOLDER, rewards=options.rewards).split()
    subprocess.run([sys.executable, "-m", "openrlhf.cli.train_ppo_ray", *words], check=True)


def make_row(row: dict[str, str]) -> dict[str, object]:
    """A problem in OpenRLHF's columns. The reference answer of GSM8K stands behind `####`."""
    return {
        "prompt": [{"role": "user", "content": row["question"]}],
        "answer": row["answer"].rpartition("####")[2].strip(),
    }


if __name__ == "__main__":
    main()
