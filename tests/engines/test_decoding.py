"""The decoder of our own against the library's forward, token by token."""

import random

import pytest
import torch

from cooper_rl.engines.decoding import GROWTH, LibraryDecoder, SharedPromptDecoder, start_decoding
from tests.models.test_verify_rm_backbones import KINDS

SIZES = {
    "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("samples", [1, 3])
@torch.no_grad()
def test_rows_that_leave_change_nothing_for_those_that_stay(
    kind: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of unequal lengths, of which some lose a row and some all; past the room's first growth."""
    torch.manual_seed(0)
    config, model_of = KINDS[kind]
    model = model_of(config(**SIZES)).eval()
    ids = torch.randint(0, 50, (5, 7))
    mask = torch.arange(7)[None] >= torch.tensor([0, 2, 5, 1, 6])[:, None]
    first, ours = start_decoding(model, ids, mask, samples=samples)
    monkeypatch.setattr("cooper_rl.engines.decoding.can_pack", lambda model: False)
    expected, library = start_decoding(model, ids, mask, samples=samples)
    assert isinstance(ours, SharedPromptDecoder)
    assert isinstance(library, LibraryDecoder)
    torch.testing.assert_close(first, expected)
    drawn = random.Random(0)
    live = 5 * samples
    for step in range(2 * GROWTH + 3):
        if step % 5 == 4 and live > 2:
            rows = torch.tensor(sorted(drawn.sample(range(live), live - max(1, live // 4))))
            ours.keep(rows)
            library.keep(rows)
            live = len(rows)
        tokens = torch.randint(0, 50, (live,))
        torch.testing.assert_close(ours.step(tokens), library.step(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_prompts_head_reads_states_that_lie_together(kind: str) -> None:
    """For a view, which skips the other states, a CPU copies the head once for every prompt."""
    torch.manual_seed(0)
    config, model_of = KINDS[kind]
    model = model_of(config(**SIZES)).eval()
    read: list[torch.Tensor] = []
    model.lm_head.register_forward_pre_hook(lambda _, states: read.append(states[0]))
    start_decoding(model, torch.randint(0, 50, (5, 7)), torch.ones(5, 7, dtype=torch.bool), samples=2)
    assert [(states.shape, states.is_contiguous()) for states in read] == [((5, 1, 32), True)]
