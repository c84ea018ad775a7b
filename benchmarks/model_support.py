"""Architectures that can be policy and backbone: the table of docs/how-to/model.md.

    python -m benchmarks.model_support

Each is tried with random weights of a few thousand numbers and the laptop world's tokenizer:
log-probabilities beside transformers' own, one policy update on a rewarded completion, and VerifyRM made from
it. It says that the code knows the architecture, and nothing about how well a model of that kind learns.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import torch

from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.models.completions import batch_completions, check_head, completion_logprobs
from cooper_rl.models.folder_check import check_backbone, check_prompting, check_trainable, check_weights
from cooper_rl.models.packed.forward import can_pack
from cooper_rl.models.policy import Policy, load_policy
from cooper_rl.models.verify_rm import VerifyItem, load_verify_rm, make_from_backbone, save_verify_rm
from tests.models.small_models import save_small

CPU = torch.device("cpu")
KINDS = {
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "llama": "Llama",
    "gemma3_text": "Gemma 3",
    "mistral": "Mistral",
    "phi3": "Phi-3",
    "olmo2": "OLMo-2",
    "smollm3": "SmolLM3",
}
"""Architecture as its config.json says it -> as people say it."""
ITEM = VerifyItem("1+1?", "2", "It is 2.")


class Support(NamedTuple):
    """The results of one architecture."""

    is_packed: bool
    max_difference: float
    """Largest difference of a completion's log-probabilities from transformers' own, in nats."""
    gain: float
    """Nats that a rewarded completion gained by one update of SGD."""
    score: float
    """VerifyRM's, after it was saved and loaded."""


def measure_support(kind: str, folder: Path) -> Support:
    """Make a small model of an architecture in a folder and use it as policy and backbone."""
    path = save_small(kind, folder / "model")
    check_weights(path)
    check_prompting(path, prompt_template=None)
    check_trainable(path)
    check_backbone(path)
    policy = load_policy(path, device=CPU)
    check_head(policy)
    prompt = policy.encode_prompt("Tom has 7 apples. How many?", None)
    completion = policy.tokenizer("The answer is 7.", add_special_tokens=False)["input_ids"]
    expected = _by_library(policy, prompt, completion)
    batch = batch_completions(policy, [prompt], [completion])
    found = completion_logprobs(policy, batch, temperature=1.0)[0]
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=1e-2)
    (-found.sum()).backward()
    optimizer.step()
    with torch.no_grad():
        after = completion_logprobs(policy, batch, temperature=1.0)[0]
    save_verify_rm(make_from_backbone(path, seed=0, device=CPU), folder / "rm")
    [score] = load_verify_rm(folder / "rm", device=CPU).score([ITEM])
    return Support(
        is_packed=can_pack(policy.model),
        max_difference=(found - expected).abs().max().item(),
        gain=(after - found).sum().item(),
        score=score,
    )


@torch.no_grad()
def _by_library(policy: Policy, prompt: list[int], completion: list[int]) -> torch.Tensor:
    logits = policy.model(input_ids=torch.tensor([[*prompt, *completion]])).logits[0]
    logprobs = logits[len(prompt) - 1 : -1].log_softmax(dim=1)
    return logprobs.gather(1, torch.tensor(completion)[:, None])[:, 0]


def main() -> None:
    """Print the table."""
    write = sys.stdout.write
    write("| architecture | forward pass | difference of log-probabilities | gain of one update |\n")
    write("|---|---|---|---|\n")
    for kind, name in KINDS.items():
        with scratch_folder() as folder:
            found = measure_support(kind, folder)
        walk = "packed" if found.is_packed else "padded"
        write(f"| {name} | {walk} | {found.max_difference:.1e} | {found.gain:.3f} |\n")


if __name__ == "__main__":
    main()
