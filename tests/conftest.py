"""Models small enough for a test, made by hand: random weights, the laptop world's tokenizer."""

import os
import signal

# Two workers share two cores: a second thread in each only waits. Child processes inherit this too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

from cooper_rl.models.policy import Policy
from cooper_rl.models.verify_rm import VerifyRM, new_verify_rm
from cooper_rl.tiny.tokenizer import build_tokenizer
from tests.stand_ins.fixtures import bucket, gateway, s3_server
from tests.stand_ins.verify_rm import serve

__all__ = ["bucket", "gateway", "s3_server", "serve"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with Ctrl-C ignored, which processes that tests interrupt would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)

CPU = torch.device("cpu")


def _config(tokenizer, **options) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=512, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, **options,
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_policy() -> Callable[[int], Policy]:
    """A random policy by seed."""

    def make(seed: int) -> Policy:
        tokenizer = build_tokenizer()
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(_config(tokenizer)).eval()
        return Policy(model, tokenizer, frozenset({tokenizer.eos_token_id}), tokenizer.pad_token_id)

    return make


@pytest.fixture(scope="session")
def make_verify_rm() -> Callable[[int], VerifyRM]:
    """A random VerifyRM by seed."""

    def make(seed: int) -> VerifyRM:
        tokenizer = build_tokenizer()
        torch.manual_seed(seed)
        model = Qwen2ForSequenceClassification(_config(tokenizer, num_labels=1)).eval()
        return new_verify_rm(model, tokenizer, reads_added_words=True)

    return make
