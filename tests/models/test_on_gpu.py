"""Packed passes in bf16 on a GPU: no further from the library's fp32 than the library's own bf16 is."""

import copy
import math
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.engines.open import open_engine
from cooper_rl.models import completions as module
from cooper_rl.models.completions import batch_completions, chunked_logprobs, completion_logprobs
from cooper_rl.models.packed.forward import packed_logits, use_packed
from cooper_rl.models.packed.packing import pack
from cooper_rl.models.packed.varlen import agrees, by_torch, can_vary
from cooper_rl.models.policy import Policy
from tests.models.packed.test_packed_forward import CAUSAL, KINDS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

CUDA = torch.device("cuda", 0)
MORE = 1.5
"""Our error over the library's, both against fp32, that is still rounding."""
SIZES = {
    "vocab_size": 500, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "max_position_embeddings": 1024,
}  # fmt: skip
HEADS = {"qwen2": {}, "qwen3": {"head_dim": 64}, "llama": {}}


class Results(NamedTuple):
    values: torch.Tensor
    gradients: dict[str, torch.Tensor]


def draw_sequences(seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """Prompts in groups of four, and a completion of each: 1 to 300 tokens."""
    draw = torch.Generator().manual_seed(seed)

    def tokens(low: int, high: int) -> list[int]:
        length = int(torch.randint(low, high, (1,), generator=draw))
        return torch.randint(2, SIZES["vocab_size"], (length,), generator=draw).tolist()

    prompts = [prompt for prompt in (tokens(1, 60) for _ in range(5)) for _ in range(4)]
    return prompts, [tokens(1, 300) for _ in prompts]


def make(name: str, kind: str, **options: Any) -> Any:
    config_class, judge_class, extra = KINDS[name]
    torch.manual_seed(0)
    config = config_class(**SIZES, **(extra | HEADS[name]), **options)
    return (judge_class if kind == "verify_rm" else CAUSAL[name])(config).to(CUDA).train()


def collect(model: Any, values: torch.Tensor) -> Results:
    """Values, and the gradients of a sum that gives each of them a weight of its own."""
    model.zero_grad()
    values.float().sin().sum().backward()
    gradients = {
        key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None
    }
    return Results(values.detach().float(), gradients)


def errors(found: Results, exact: Results) -> dict[str, float]:
    """Relative, of the values and of each weight's gradient."""
    assert found.gradients.keys() == exact.gradients.keys()
    pairs = {"values": (found.values, exact.values)} | {
        key: (gradient, exact.gradients[key]) for key, gradient in found.gradients.items()
    }
    return {key: float((ours - theirs).norm() / theirs.norm()) for key, (ours, theirs) in pairs.items()}


def check(ours: Results, library: Results, exact: Results) -> None:
    allowed = errors(library, exact)
    for key, error in errors(ours, exact).items():
        assert error <= MORE * allowed[key] + 1e-3, (key, error, allowed[key])


@pytest.mark.parametrize(
    "heads", [(12, 2, 128), (14, 2, 64), (28, 4, 128), (32, 8, 64), (4, 4, 8)], ids=lambda heads: str(heads)
)
def test_torchs_attention_of_sequences_is_right_here(heads: tuple[int, int, int]) -> None:
    """Heads of Qwen2.5-1.5B, .5B and 7B, of Llama-3.2-1B, and of the laptop's models."""
    num_heads, num_shared, size = heads
    assert agrees(by_torch, num_heads=num_heads, num_shared=num_shared, head_size=size, device=CUDA)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("is_varlen", [True, False], ids=["varlen", "groups"])
def test_logprobs_and_gradients_are_as_close_as_the_librarys(
    name: str, is_varlen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, completions = draw_sequences(1)
    model = make(name, "policy")
    policy = Policy(model, None, end_ids=frozenset({1}), pad_id=0, compute="bfloat16")
    assert can_vary(model, "bfloat16")
    monkeypatch.setattr(module, "can_vary", lambda *_: is_varlen)
    found: dict[str, Results] = {}
    for side, compute in (("ours", "bfloat16"), ("library", "bfloat16"), ("exact", "float32")):
        use_packed(model, is_on=side == "ours")
        side_policy = replace(policy, compute=compute)
        batch = batch_completions(side_policy, prompts, completions)
        found[side] = collect(model, completion_logprobs(side_policy, batch, temperature=0.7))
    check(found["ours"], found["library"], found["exact"])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("is_varlen", [True, False], ids=["varlen", "groups"])
def test_verify_rms_logits_and_gradients_are_as_close_as_the_librarys(name: str, is_varlen: bool) -> None:
    prompts, completions = draw_sequences(2)
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    model = make(name, "verify_rm", num_labels=1)
    plain = [torch.tensor([row], device=CUDA) for row in rows]

    def library() -> torch.Tensor:
        return torch.cat([model(input_ids=ids).logits[:, 0] for ids in plain])

    exact = collect(model, library())
    with torch.autocast("cuda", torch.bfloat16):
        rounded = collect(model, library())
        ours = collect(model, packed_logits(model, pack(rows, device=CUDA, has_groups=not is_varlen)))
    check(ours, rounded, exact)


def test_the_heads_gradient_does_not_drift_with_the_number_of_chunks() -> None:
    """Against fp64: as close in 64 chunks as in one, and no further than rounding to bf16 takes it."""
    draw = torch.Generator().manual_seed(3)
    head = torch.nn.Linear(256, 2000, bias=False)
    torch.nn.init.normal_(head.weight, std=0.05, generator=draw)
    hidden = torch.randn(4096, 256, generator=draw)
    targets = torch.randint(0, 2000, (4096,), generator=draw)
    exact_head = copy.deepcopy(head).double()
    logprobs = exact_head(hidden.double()).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    (exact,) = torch.autograd.grad(logprobs.sin().sum(), exact_head.weight)
    head = head.to(CUDA)
    found = []
    for limit in (2**26, 64 * 2000):
        with pytest.MonkeyPatch.context() as patch, torch.autocast("cuda", torch.bfloat16):
            patch.setattr(module, "MAX_LOGITS", limit)
            values = chunked_logprobs(head, hidden.to(CUDA), targets.to(CUDA), 1.0)
        (gradient,) = torch.autograd.grad(values.sin().sum(), head.weight)
        found.append(float((gradient.double().cpu() - exact).norm() / exact.norm()))
    assert found[1] <= max(1.1 * found[0], 0.004)
    assert max(found) < 0.01


def test_drawn_tokens_have_the_log_probabilities_that_the_update_computes() -> None:
    """In bf16 both: the importance ratio of fresh completions is 1 up to its rounding."""
    prompts, _ = draw_sequences(4)
    model = make("qwen2", "policy").eval()
    policy = Policy(model, None, end_ids=frozenset({1}), pad_id=0, compute="bfloat16")
    with closing(open_engine(policy, EngineConfig())) as engine:
        groups = engine.generate(prompts[::4], GenerationConfig(max_new_tokens=64), samples=4, seed=0)
    drawn = [each for group in groups for each in group]
    batch = batch_completions(policy, prompts, [each.token_ids for each in drawn])
    with torch.no_grad():
        computed = completion_logprobs(policy, batch, temperature=1.0)[batch.mask]
    said = torch.tensor([logprob for each in drawn for logprob in each.logprobs], device=CUDA)
    assert len(said) > 500
    assert float((said - computed).abs().mean()) < 0.01
    assert math.isclose(float((computed - said).exp().mean()), 1, abs_tol=0.005)
