"""Seconds of a step on one GPU by kind of kernel, estimated from FLOPs and bytes (rows 6 to 12).

The floor is what the products and caches of a configuration take at the card's peaks: each kind of kernel its
FLOPs or its bytes, whichever takes longer. The other column takes shares of the peaks that kernels usually
reach, and adds the passes over states and logits between the products, which fused kernels would not make.
Not counted: Python, the start of kernels, rule verdicts, the assistant.

Legend: P problems, R completions of C tokens in all; N weights.
"""

from typing import NamedTuple

from cooper_rl.models.completions import MAX_LOGITS
from cooper_rl.models.memory import activation_bytes, cache_bytes
from cooper_rl.models.shape import Shape, count_weights

PRODUCT_SHARE = 0.65
ATTENTION_SHARE = 0.5
BANDWIDTH_SHARE = 0.8
"""Of the card's peaks; chosen."""
LOGIT_BYTES = 16
"""Passes over one logit forward: bf16 out of the product and in again, fp32 written, read, written, read."""
OPTIMIZER_BYTES = 32
"""Of a weight: gradient for its norm; AdamW reads four fp32 numbers and writes three."""
ENGINE_BYTES = 6
"""Of a weight that is handed to the engine: fp32 read, bf16 written."""
ANSWER_TOKENS = 8
"""Of a reference answer with its separators; chosen."""


class Card(NamedTuple):
    """Peaks of a GPU."""

    flops: float
    """Of dense bf16 products, a second."""
    bandwidth: float
    """Bytes a second."""


H100 = Card(flops=989e12, bandwidth=3.35e12)
"""NVIDIA H100 SXM, by its data sheet."""


class Work(NamedTuple):
    """The tokens of a step."""

    num_problems: int
    group_size: int
    prompt_tokens: int
    completion_tokens: int
    """Of each completion."""
    num_drawn: int
    """Completions that the engine draws at a time."""
    num_pairs: int
    is_checkpointed: bool
    num_rivals: int = 0
    """Rows that VerifyRM compares a completion's score with."""

    @property
    def num_completions(self) -> int:
        return self.num_problems * self.group_size


class Load(NamedTuple):
    """Kernels of one kind."""

    flops: float = 0
    bytes: float = 0

    def seconds(self, card: Card) -> float:
        return max(self.flops / card.flops, self.bytes / card.bandwidth)


class Phase(NamedTuple):
    """A part of a step; its kinds of kernels run one after the other."""

    name: str
    products: Load
    """Matrix products; of the optimisers their pass over weights."""
    attention: Load
    passes: Load
    """Over states and logits between the products."""

    def floor(self, card: Card) -> float:
        """Seconds."""
        return self.products.seconds(card) + self.attention.seconds(card)

    def estimated(self, card: Card) -> float:
        """Seconds at the shares above."""
        bandwidth = card.bandwidth * BANDWIDTH_SHARE
        return (
            self.products.seconds(Card(card.flops * PRODUCT_SHARE, bandwidth))
            + self.attention.seconds(Card(card.flops * ATTENTION_SHARE, bandwidth))
            + self.passes.seconds(Card(card.flops, bandwidth))
        )


def make_budget(policy: Shape, verify_rm: Shape, work: Work) -> list[Phase]:
    """The phases of a step in their order."""
    unique = work.num_problems * work.prompt_tokens + work.num_completions * work.completion_tokens
    length = work.prompt_tokens + work.completion_tokens
    drawn = work.num_completions * work.completion_tokens
    reading = _Pass(policy, tokens=unique, rows=work.num_completions, length=length, head_tokens=drawn)
    scoring = _judge(verify_rm, work, num_completions=work.num_completions, tokens=unique, length=length)
    # The halves of a pair share question and reference answer, which take a prompt's tokens here.
    pairs = work.num_pairs * (work.prompt_tokens + 2 * work.completion_tokens)
    judging = _judge(verify_rm, work, num_completions=2 * work.num_pairs, tokens=pairs, length=length)
    stepped = count_weights(policy) + count_weights(verify_rm, is_classifier=True)
    handed = OPTIMIZER_BYTES * stepped + ENGINE_BYTES * count_weights(policy)
    return [
        _draw(policy, work),
        _phase("reward", scoring, forwards=1, backwards=0),
        _phase("reference policy", reading, forwards=1, backwards=0),
        _phase("policy update", reading, forwards=1 + work.is_checkpointed, backwards=1),
        _phase("reward update", judging, forwards=1 + work.is_checkpointed, backwards=1),
        Phase("optimisers, weights to the engine", Load(bytes=handed), Load(), Load()),
    ]


def describe_budget(phases: list[Phase], card: Card) -> str:
    """A table, ending with a line for the whole step."""
    lines = [f"{'phase':<34}{'PFLOP':>8}{'TB':>8}{'floor s':>10}{'estimated s':>12}"]
    for phase in phases:
        kinds = (phase.products, phase.attention)
        flops, moved = sum(kind.flops for kind in kinds), sum(kind.bytes for kind in (*kinds, phase.passes))
        lines.append(
            f"{phase.name:<34}{flops / 1e15:8.2f}{moved / 1e12:8.2f}"
            f"{phase.floor(card):10.2f}{phase.estimated(card):12.2f}"
        )
    floor, estimated = (
        sum(each) for each in zip(*((p.floor(card), p.estimated(card)) for p in phases), strict=True)
    )
    lines.append(f"{'together':<34}{'':16}{floor:10.2f}{estimated:12.2f}")
    return "\n".join(lines)


class _Pass(NamedTuple):
    """The sizes of one forward pass."""

    shape: Shape
    tokens: int
    """Through the layers, shared prompts once."""
    rows: int
    length: int
    """Of a row of attention."""
    head_tokens: int = 0


def _judge(shape: Shape, work: Work, *, num_completions: int, tokens: int, length: int) -> _Pass:
    """VerifyRM's pass: a rival adds the tokens of its answer, and on a GPU a whole row of attention."""
    return _Pass(
        shape,
        tokens=tokens + num_completions * work.num_rivals * ANSWER_TOKENS,
        rows=num_completions * (1 + work.num_rivals),
        length=length,
    )


def _layer_weights(shape: Shape) -> int:
    """Without embeddings and head."""
    return count_weights(shape, is_classifier=True) - shape.vocab_size * shape.hidden_size


def _draw(shape: Shape, work: Work) -> Phase:
    """Prefill and decoding: a token reads its own cache, and all weights together with those beside it."""
    head = shape.vocab_size * shape.hidden_size
    weights, drawn = _layer_weights(shape) + head, work.num_completions * work.completion_tokens
    prefill = work.num_problems * work.prompt_tokens
    # A round gives a token to each completion that is drawn at a time, and reads all weights once, in bf16.
    rounds = -(-work.num_completions // work.num_drawn) * work.completion_tokens
    # Tokens that a completion's tokens look back at, on average half of its own.
    seen = drawn * (work.prompt_tokens + work.completion_tokens / 2)
    return Phase(
        "rollouts",
        Load(2 * weights * drawn + 2 * _layer_weights(shape) * prefill, 2 * weights * rounds),
        Load(4 * shape.attention_size * shape.num_layers * seen, cache_bytes(shape, num_tokens=1) * seen),
        Load(),
    )


def _phase(name: str, each: _Pass, *, forwards: int, backwards: int) -> Phase:
    """A backward has twice the products and passes of a forward, and 2.5 times its attention."""
    shape = each.shape
    layers = 2 * _layer_weights(shape) * each.tokens
    head = 2 * shape.vocab_size * shape.hidden_size * each.head_tokens
    logits = each.head_tokens * shape.vocab_size
    # Chunks of logits are made again in the backward whether activations are kept or not.
    heads = 1 + backwards * (logits > MAX_LOGITS)
    # Scores and mix: two products of two FLOPs a pair, over the half of the pairs that a causal mask leaves.
    attention = 2 * shape.attention_size * shape.num_layers * each.rows * each.length**2
    states = 2 * activation_bytes(shape, max_tokens=each.tokens, is_checkpointed=False)
    return Phase(
        name,
        Load((forwards + 2 * backwards) * layers + (heads + 2 * backwards) * head),
        # Flash attention's forward makes two products, and its backward five: it makes the scores again.
        Load((forwards + 2.5 * backwards) * attention),
        Load(bytes=(forwards + 2 * backwards) * states + (heads + backwards) * LOGIT_BYTES * logits),
    )
