"""New models of the laptop world: Qwen2 architecture, random weights, and a sense of number.

Real base models come with number embeddings in which 10, `ten` and ` ten` are close and neighbours look
alike. Pre-training that into a model of this size would take most of the laptop's time, so it is given at
the start: the embedding of a number holds waves of its value, and its words begin as copies of it.
"""

import math
from typing import Any

import torch
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

from cooper_rl.config.models import TinyModel
from cooper_rl.tiny.meaning import spell
from cooper_rl.tiny.problems import MAX_VALUE
from cooper_rl.tiny.tokenizer import MAX_TOKENS

INITIAL_STD = 0.05
WAVE_PERIODS = (2.0, 5.0, 10.0, 20.0, 33.0, 50.0, 100.0, 200.0)
WAVE_SCALE = 0.2
FORM_SCALE = 0.5
"""Length of what sets `ten` apart from `10`, in units of `INITIAL_STD`."""


def new_model(size: TinyModel, tokenizer: Any, *, seed: int) -> Any:
    """A causal LM for this tokenizer; the same seed gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # transformers draws weights from the global generator
        model: Any = Qwen2ForCausalLM(
            Qwen2Config(
                vocab_size=len(tokenizer),
                hidden_size=size.hidden_size,
                intermediate_size=size.intermediate_size or size.hidden_size * 7 // 2,
                num_hidden_layers=size.num_layers,
                num_attention_heads=size.num_heads,
                num_key_value_heads=max(1, size.num_heads // 2),
                max_position_embeddings=MAX_TOKENS,
                tie_word_embeddings=True,
                initializer_range=INITIAL_STD,
                bos_token_id=None,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    model.generation_config = GenerationConfig(
        do_sample=True, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    _give_sense_of_number(model, tokenizer, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def _give_sense_of_number(model: Any, tokenizer: Any, generator: torch.Generator) -> None:
    weight = model.get_input_embeddings().weight
    values = torch.arange(MAX_VALUE + 1)
    angles = values[:, None] * 2 * math.pi / torch.tensor(WAVE_PERIODS)
    waves = torch.cat([angles.cos(), angles.sin()], dim=1)
    plane = torch.randn(weight.shape[1], waves.shape[1], generator=generator) / math.sqrt(weight.shape[1])
    digits = tokenizer.convert_tokens_to_ids([str(value) for value in values.tolist()])
    weight[digits] += WAVE_SCALE * waves @ plane.T
    for space in ("", " "):
        words = tokenizer.convert_tokens_to_ids([space + spell(value) for value in values.tolist()])
        offset = torch.randn(weight.shape[1], generator=generator)
        weight[words] = weight[digits] + FORM_SCALE * INITIAL_STD * offset
