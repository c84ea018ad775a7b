"""An engine that replays completions; it keeps the contract of `tests/engines/test_engine_contract.py`."""

from collections.abc import Iterable, Mapping, Sequence

import torch

from cooper_rl.config.data import GenerationConfig
from cooper_rl.engines.base import Generation


class ScriptedEngine:
    """Replays given completions instead of running a model."""

    def __init__(
        self, script: Mapping[tuple[int, ...], Sequence[tuple[int, ...]]], *, end_ids: frozenset[int]
    ) -> None:
        """`script`: prompt ids -> completions as token ids, replayed in turn for as many as are asked."""
        self._script = script
        self._end_ids = end_ids
        self.num_weight_loads = 0
        self.is_asleep = False

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        *,
        samples: int,
        seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Generation]]:
        """See `Engine.generate`; seed and places have no effect, log-probabilities are 0."""
        return [
            [self._replay(tuple(prompt), sample, generation) for sample in range(samples)]
            for prompt in prompts
        ]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Counts the calls; there is no model."""
        self.num_weight_loads += 1
        self.is_asleep = False

    def sleep(self) -> None:
        """Nothing to hand back."""
        self.is_asleep = True

    def close(self) -> None:
        """Nothing to free."""

    def _replay(self, prompt: tuple[int, ...], sample: int, generation: GenerationConfig) -> Generation:
        lines = self._script[prompt]
        token_ids = lines[sample % len(lines)][: generation.max_new_tokens]
        reason = "stop" if token_ids and token_ids[-1] in self._end_ids else "length"
        return Generation(token_ids, (0.0,) * len(token_ids), reason)
