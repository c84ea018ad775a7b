"""VerifyRM: a causal LM whose head is one logit (row 5). Load, save, make, score.

The folder is a plain `AutoModelForSequenceClassification`. Texts are tokenised here with VerifyRM's own
tokenizer, so the policy may use another one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForSequenceClassification

from cooper_rl.config.models import ScratchModel
from cooper_rl.errors import ModelError, TrainingError
from cooper_rl.machine.memory import explains_memory
from cooper_rl.method.prompts import verify_rm_text
from cooper_rl.models.packed.batching import pad_right, split_by_tokens
from cooper_rl.models.packed.forward import can_pack, limit_tokens, packed_logits
from cooper_rl.models.packed.packing import pack, split_packed
from cooper_rl.models.policy import (
    check_architecture,
    check_tokens,
    load_model,
    load_tokenizer,
    save_folder,
)
from cooper_rl.models.precision import Compute, is_bfloat16
from cooper_rl.schema.data import VerifyExample


class VerifyItem(NamedTuple):
    """What VerifyRM sees of one completion."""

    question: str
    reference_answer: str
    completion: str


@dataclass(frozen=True)
class VerifyRM:
    """The reward model with its tokenizer."""

    model: Any
    """Weights in fp32, also when the forward runs in bf16 under autocast."""
    tokenizer: Any
    compute: Compute = "auto"
    """Precision of the forward pass; see `VerifyRMConfig.precision`."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    def encode(self, items: Sequence[VerifyItem]) -> list[list[int]]:
        """Token ids of the rendered template, one list per item; nothing is appended."""
        texts = [verify_rm_text(*item) for item in items]
        encoded = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [check_tokens(token_ids, self.model) for token_ids in encoded]

    def split(self, units: Sequence[Sequence[Sequence[int]]], max_tokens: int) -> list[list[int]]:
        """Indices of units (one sequence, or a pair that stays together) in batches for `logits`.

        Under the token budget as far as single units are; every index appears exactly once.
        """
        if not can_pack(self.model):
            return split_by_tokens([len(unit) * max(map(len, unit)) for unit in units], max_tokens)
        return split_packed(units, limit_tokens(self.model, self.compute, max_tokens))

    def logits(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """Raw logits (N,) in fp32 for N encoded items in one forward pass, differentiable."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=is_bfloat16(self.model, self.compute)):
            if can_pack(self.model):
                return packed_logits(self.model, pack(sequences, device=self.device)).float()
            batch = pad_right(sequences, pad_id=self.tokenizer.pad_token_id, device=self.device)
            out = self.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)
        return out.logits[:, 0].float()

    @torch.no_grad()
    def score(self, items: Sequence[VerifyItem], *, max_tokens_per_batch: int = 16384) -> list[float]:
        """Scores in (0, 1), one per item, in order; sigmoid of the logit.

        Raises:
            TrainingError: a score is not finite; names the question. Or out of memory.
        """
        remedy = (
            f"lower cooper.max_tokens_per_batch={max_tokens_per_batch} (that of labelled examples is fixed), "
            "or end what else runs on this device"
        )
        with explains_memory("VerifyRM's scores", remedy):
            scores = self._score(items, max_tokens_per_batch)
        for item, score in zip(items, scores, strict=True):
            if score != score:
                raise TrainingError(
                    f"VerifyRM's score is NaN for the question {item.question[:100]!r}; "
                    "its weights are damaged: go back to an earlier checkpoint and lower its learning rate"
                )
        return scores

    def _score(self, items: Sequence[VerifyItem], max_tokens_per_batch: int) -> list[float]:
        sequences = self.encode(items)
        scores = [0.0] * len(items)
        for batch in self.split([[ids] for ids in sequences], max_tokens_per_batch):
            values = torch.sigmoid(self.logits([sequences[index] for index in batch]))
            for index, value in zip(batch, values.tolist(), strict=True):
                scores[index] = value
        return scores


def score_examples(verify_rm: VerifyRM, examples: Sequence[VerifyExample]) -> list[float]:
    """Scores of labelled examples, in order; see `VerifyRM.score`."""
    return verify_rm.score([VerifyItem(e.question, e.reference_answer, e.completion) for e in examples])


def load_verify_rm(path: str | Path, *, device: torch.device) -> VerifyRM:
    """Load a VerifyRM folder (or hub id).

    Raises:
        ModelError: missing, of another architecture, more than one logit, incomplete, without tokenizer.
    """
    name = check_architecture(path, suffix="ForSequenceClassification")
    model = load_model(AutoModelForSequenceClassification, name, device=device)
    if model.config.num_labels != 1:
        raise ModelError(f"{name}: has {model.config.num_labels} logits; VerifyRM has one (num_labels=1)")
    return _with_padding(model, load_tokenizer(name))


def make_from_backbone(path: str | Path, *, seed: int, device: torch.device) -> VerifyRM:
    """Replace a causal LM's head by one logit, drawn with the seed.

    Raises:
        ModelError: missing, of another architecture, incomplete, without tokenizer.
    """
    name = check_architecture(path, suffix="ForCausalLM")
    tokenizer = load_tokenizer(name)
    torch.manual_seed(seed)  # transformers draws the head from the global generator
    model = load_model(
        AutoModelForSequenceClassification,
        name,
        device=device,
        num_labels=1,
        pad_token_id=tokenizer.pad_token_id,
        new_weights={"score.weight"},
    )
    return _with_padding(model, tokenizer)


def make_from_scratch(
    texts: Sequence[str], size: ScratchModel, *, seed: int, device: torch.device
) -> VerifyRM:
    """A Qwen2-architecture model with random weights and a byte-level BPE tokenizer of these texts."""
    from transformers import Qwen2Config

    tokenizer = _train_tokenizer(texts, size.vocab_size)
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden_size,
        intermediate_size=4 * size.hidden_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        num_key_value_heads=size.num_heads,
        max_position_embeddings=8192,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config.num_labels = 1
    model = AutoModelForSequenceClassification.from_config(config).to(device).eval()
    return _with_padding(model, tokenizer)


def save_verify_rm(verify_rm: VerifyRM, path: Path) -> None:
    """Write a folder that `AutoModelForSequenceClassification` and `AutoTokenizer` load as it is."""
    save_folder(verify_rm.model, verify_rm.tokenizer, path)


def _with_padding(model: Any, tokenizer: Any) -> VerifyRM:
    # Without it, Qwen classifiers refuse batches over 1.
    model.config.pad_token_id = tokenizer.pad_token_id
    return VerifyRM(model=model, tokenizer=tokenizer)


def _train_tokenizer(texts: Sequence[str], vocab_size: int) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|pad|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # A tag is one token: a mark to look for, and a tenth fewer tokens.
    tags = re.findall(r"</?[a-z_]+>", verify_rm_text("", "", ""))
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|end|>")
