"""The one interface of whatever generates text (row 6): the Hugging Face engine, vLLM, the double.

An engine knows token ids and nothing of questions, answers or rewards.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from cooper_rl.config import GenerationConfig
from cooper_rl.schema import FinishReason


@dataclass(frozen=True)
class Generation:
    """One completion as the engine made it; ids are kept and never re-tokenised."""

    token_ids: tuple[int, ...]
    """Includes the end token when `finish_reason` is `stop`; nothing is dropped when it was cut."""
    logprobs: tuple[float, ...]
    """Log-probability of each token under the distribution it was drawn from, one per token id."""
    finish_reason: FinishReason


class Engine(Protocol):
    """Generates completions for prompts of token ids."""

    def generate(
        self, prompts: Sequence[Sequence[int]], generation: GenerationConfig, *, samples: int, seed: int
    ) -> list[list[Generation]]:
        """`samples` generations for every prompt; outer order = prompts, inner order = samples.

        The draw of prompt i, sample j depends on (seed, i, j) only, not on what shares its batch.
        """
        ...

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over the policy's weights in place (state-dict names)."""
        ...
