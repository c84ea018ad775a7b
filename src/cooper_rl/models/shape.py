"""The number of a decoder's weights, from its config.json alone: Qwen2, Qwen3 and Llama."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from cooper_rl.errors import ConfigError


class Shape(NamedTuple):
    """Sizes of a decoder, from its config.json."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    attention_size: int
    """Heads x head size."""
    key_value_size: int
    """Key-value heads x head size."""
    head_size: int
    has_bias: bool
    """Query, key and value have biases (Qwen2)."""
    has_head_norms: bool
    """Query and key are normalised in each head (Qwen3)."""
    is_tied: bool


def read_shape(config: Mapping[str, Any], *, place: str) -> Shape:
    """The sizes that a Hugging Face config.json states.

    Raises:
        ConfigError: another architecture than Qwen2, Qwen3 or Llama, or a size is missing or no number.
    """
    kind = config.get("model_type")
    if kind not in ("qwen2", "qwen3", "llama"):
        raise ConfigError(
            f"{place}: no memory plan for model_type={kind!r}; qwen2, qwen3 and llama are known"
        )
    try:
        heads = config["num_attention_heads"]
        head_size = config.get("head_dim") or config["hidden_size"] // heads
        return Shape(
            num_layers=config["num_hidden_layers"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            vocab_size=config["vocab_size"],
            attention_size=heads * head_size,
            key_value_size=config.get("num_key_value_heads", heads) * head_size,
            head_size=head_size,
            has_bias=kind == "qwen2",
            has_head_norms=kind == "qwen3",
            is_tied=bool(config.get("tie_word_embeddings", False)),
        )
    except (ArithmeticError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{place}: not the sizes of a {kind} model ({type(error).__name__}: {error}); copy the file again"
        ) from error


def count_weights(shape: Shape, *, is_classifier: bool = False) -> int:
    """N of a causal LM, or of a VerifyRM, whose head is one logit."""
    h, a, kv = shape.hidden_size, shape.attention_size, shape.key_value_size
    layer = 2 * h * a + 2 * h * kv + 3 * h * shape.intermediate_size + 2 * h
    if shape.has_bias:
        layer += a + 2 * kv
    if shape.has_head_norms:
        layer += 2 * shape.head_size
    embeddings = shape.vocab_size * h
    head = h if is_classifier else 0 if shape.is_tied else embeddings
    return embeddings + shape.num_layers * layer + h + head


def count_unrounded(shape: Shape) -> int:
    """Weights that `models/precision.round_layers` leaves in fp32: embeddings and norms; a tied head is the
    embeddings'."""
    norms = 2 * shape.hidden_size + (2 * shape.head_size if shape.has_head_norms else 0)
    return shape.vocab_size * shape.hidden_size + shape.num_layers * norms + shape.hidden_size


def count_adapters(shape: Shape, *, rank: int) -> int:
    """Weights of LoRA beside every linear layer: rank x (inputs + outputs)."""
    h, a, kv = shape.hidden_size, shape.attention_size, shape.key_value_size
    return rank * shape.num_layers * (2 * (h + a) + 2 * (h + kv) + 3 * (h + shape.intermediate_size))
