"""The one interface of whatever generates text (row 6): the Hugging Face engine, vLLM.

An engine knows token ids and nothing of questions, answers or rewards.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from cooper_rl.config.data import GenerationConfig
from cooper_rl.schema.data import FinishReason


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
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        *,
        samples: int,
        seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Generation]]:
        """`samples` generations for every prompt; outer order = prompts, inner order = samples.

        The draw of prompt i, sample j depends on (seed, places[i], j) only, not on what shares its batch.
        `places` is where each prompt stands in the whole of which these are a share; None: 0, 1, 2, ...
        """
        ...

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take over the policy's weights in place (state-dict names)."""
        ...

    def sleep(self) -> None:
        """Hand memory back while models are trained; `load_weights` must come before the next `generate`."""
        ...

    def close(self) -> None:
        """Free everything; the engine is not used again."""
        ...


@runtime_checkable
class Overlapping(Engine, Protocol):
    """An engine that draws beside its caller."""

    def begin(
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        *,
        samples: int,
        seed: int,
        places: Sequence[int],
    ) -> Future[list[list[Generation]]]:
        """Begin `generate`. Calls take effect in their order, so that it draws with the weights of now."""
        ...


def begin_generating(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    generation: GenerationConfig,
    *,
    samples: int,
    seed: int,
    places: Sequence[int],
) -> Future[list[list[Generation]]]:
    """`Overlapping.begin`; an engine that has none has drawn when this returns. No prompts: nothing."""
    if prompts and isinstance(engine, Overlapping):
        return engine.begin(prompts, generation, samples=samples, seed=seed, places=places)
    drawn: Future[list[list[Generation]]] = Future()
    drawn.set_result(
        engine.generate(prompts, generation, samples=samples, seed=seed, places=places) if prompts else []
    )
    return drawn
