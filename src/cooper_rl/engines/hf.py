"""The Hugging Face engine: any causal LM, on CPU or one GPU.

A group's prompt is computed once; finished rows leave the batch; nothing is padded to a global maximum. vLLM
has continuous batching, this engine does not.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from cooper_rl.config.data import GenerationConfig
from cooper_rl.engines.base import Generation
from cooper_rl.engines.decoding import start_decoding
from cooper_rl.machine.device import float64_device
from cooper_rl.models.policy import check_lengths
from cooper_rl.models.precision import Compute, is_bfloat16, round_weights
from cooper_rl.randomness import derive_seed

COMPACT_BELOW = 0.9
"""Share of live rows under which finished rows are taken out of the cache; a copy costs about a step."""


class HFEngine:
    """Implements `Engine` on a model that may be the very one that is trained."""

    def __init__(
        self, model: Any, *, end_ids: frozenset[int], pad_id: int, compute: Compute = "auto"
    ) -> None:
        """With bf16 it keeps a copy of the weights in bf16, which `load_weights` renews."""
        if is_bfloat16(model, compute) and model.dtype != torch.bfloat16:
            # A copy, because the trained weights stay fp32: an update of 1e-6 would vanish when it is added
            # to a bf16 weight.
            model = copy.deepcopy(model).requires_grad_(False)
            round_weights(model)
        self._model = model
        self._end_ids = torch.tensor(sorted(end_ids), device=model.device)
        self._pad_id = pad_id

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generation: GenerationConfig,
        *,
        samples: int,
        seed: int,
        places: Sequence[int] | None = None,
    ) -> list[list[Generation]]:
        """See `Engine.generate`. Prompts of similar length share a batch; the output keeps input order.

        Raises:
            ModelError: it has no positions for a prompt with `max_new_tokens`; see `check_lengths`.
        """
        # The last token that is drawn is read by nobody.
        longest = max(map(len, prompts), default=0) + generation.max_new_tokens - 1
        check_lengths(self._model, longest, remedy=f"lower max_new_tokens={generation.max_new_tokens}")
        numbers = range(len(prompts)) if places is None else places
        # Prompts are padded to the longest of their batch, so that similar lengths together compute the
        # least padding.
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        # As many completions at a time as are allowed, also of a prompt that is asked for more.
        most = min(samples, generation.batch_size)
        size = generation.batch_size // most
        results: dict[int, list[Generation]] = {index: [] for index in order}
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            for first in range(0, samples, most):
                drawn = range(first, min(first + most, samples))
                seeds = [
                    # The number of the prompt in the whole step, not in this batch or rank: a completion is
                    # the same however the work was divided.
                    derive_seed(seed, numbers[index], sample)
                    for index in chosen
                    for sample in drawn
                ]
                rows = self._generate_batch(
                    [prompts[index] for index in chosen], generation, len(drawn), seeds
                )
                for place, index in enumerate(chosen):
                    results[index] += rows[place * len(drawn) : (place + 1) * len(drawn)]
        return [results[index] for index in range(len(prompts))]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy weights in place; a tensor that the engine's model already holds is left alone."""
        own = self._model.state_dict()
        with torch.no_grad():
            for name, tensor in weights:
                # In fp32 the engine draws with the trained model itself, and there is nothing to copy.
                if own[name].data_ptr() != tensor.data_ptr():
                    own[name].copy_(tensor)

    def sleep(self) -> None:
        """Nothing to hand back: the model is the caller's."""

    def close(self) -> None:
        """Nothing to free."""

    @torch.no_grad()
    def _generate_batch(
        self, prompts: Sequence[Sequence[int]], generation: GenerationConfig, samples: int, seeds: list[int]
    ) -> list[Generation]:
        rows = [_Row() for _ in seeds]
        # Drawn ahead for whole rows, so that a row that leaves the batch takes no draw from the others.
        uniforms = _uniforms(seeds, generation.max_new_tokens, self._model.device)
        live = list(range(len(seeds)))
        ids, mask = self._pad_left(prompts)
        logits, decoder = start_decoding(self._model, ids, mask, samples=samples)
        for step in range(generation.max_new_tokens):
            tokens, logprobs = _draw(logits, uniforms[:, step], generation)
            is_end = torch.isin(tokens, self._end_ids)
            _append(rows, live, tokens.tolist(), logprobs.tolist(), is_end.tolist())
            kept = [place for place, row in enumerate(live) if not rows[row].is_done]
            # Before the next forward pass, whose logits nobody would draw from.
            if not kept or step + 1 == generation.max_new_tokens:
                break
            if len(kept) < COMPACT_BELOW * len(live):
                chosen = torch.tensor(kept, device=tokens.device)
                decoder.keep(chosen)
                live = [live[place] for place in kept]
                tokens, uniforms = tokens[chosen], uniforms[chosen]
            logits = decoder.step(tokens)
        return [row.finish() for row in rows]

    def _pad_left(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(len(prompt) for prompt in prompts)
        # On the left, so that all prompts end in the same column and the first drawn token follows every
        # one of them.
        ids = torch.tensor([[*[self._pad_id] * (longest - len(prompt)), *prompt] for prompt in prompts])
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        mask = torch.arange(longest)[None, :] >= longest - lengths[:, None]
        return ids.to(self._model.device), mask.to(self._model.device)


@dataclass
class _Row:
    """A completion while it grows."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    is_done: bool = False

    def finish(self) -> Generation:
        reason = "stop" if self.is_done else "length"
        return Generation(tuple(self.token_ids), tuple(self.logprobs), reason)


def _append(
    rows: list[_Row], live: list[int], tokens: list[int], logprobs: list[float], is_end: list[bool]
) -> None:
    for row_index, token, logprob, ended in zip(live, tokens, logprobs, is_end, strict=True):
        row = rows[row_index]
        if not row.is_done:
            row.token_ids.append(token)
            row.logprobs.append(logprob)
            row.is_done = ended


def _uniforms(seeds: list[int], length: int, device: torch.device) -> torch.Tensor:
    """(rows, length) float64 in [0, 1): one stream per row, so that a row's draws are its own."""
    streams = [
        # On the CPU, whose generator gives the same numbers on every machine; a GPU's depends on its kind.
        torch.rand(length, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        for seed in seeds
    ]
    return torch.stack(streams).to(float64_device(device))


def _draw(
    logits: torch.Tensor, uniforms: torch.Tensor, generation: GenerationConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (R,) by inverse cumulative distribution, and their log-probabilities (R,).

    At temperature 0 the token is the argmax, and its log-probability that of the untempered model.
    """
    # The cumulative distribution of 150,000 probabilities needs more digits than bf16 has.
    logits = logits.float()
    if generation.temperature == 0:
        tokens = logits.argmax(dim=1)
        logprobs = logits.log_softmax(dim=1)
    else:
        logprobs = (logits / generation.temperature).log_softmax(dim=1)
        if generation.top_p < 1:
            logprobs = _keep_nucleus(logprobs, generation.top_p)
        probabilities = logprobs.exp().to(float64_device(logprobs.device))
        # In fp64: the rounding of so many additions in fp32 is larger than most tokens' probability.
        cumulative = probabilities.cumsum(dim=1, dtype=torch.float64)
        # Times the total, which rounding leaves a little off 1: a draw beyond it would find no token.
        targets = uniforms[:, None] * cumulative[:, -1:]
        # Right side: a draw that hits a bound exactly must not take a token of probability 0.
        tokens = torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp_max(logits.shape[1] - 1)
        tokens = tokens.to(logprobs.device)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _keep_nucleus(logprobs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Renormalise over the smallest set of tokens whose probability reaches `top_p`."""
    ordered, order = logprobs.sort(dim=1, descending=True)
    # What comes before a token, so that the one that crosses `top_p` stays in; at least one always does.
    before = ordered.exp().cumsum(dim=1) - ordered.exp()
    kept = torch.zeros_like(logprobs, dtype=torch.bool).scatter(1, order, before < top_p)
    return logprobs.masked_fill(~kept, -torch.inf).log_softmax(dim=1)
