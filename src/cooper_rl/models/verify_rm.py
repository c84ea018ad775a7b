"""VerifyRM: a causal LM whose head is one logit (row 5). Load, save, make, score.

The folder is an `AutoModelForSequenceClassification` with the template's separators in its configuration.
Texts are encoded here with VerifyRM's own tokenizer, so the policy may use another one.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForSequenceClassification

from cooper_rl.config.models import ScratchModel
from cooper_rl.domains.base import Refutes
from cooper_rl.domains.veto import veto_of
from cooper_rl.errors import ModelError, TrainingError
from cooper_rl.machine.memory import explains_memory
from cooper_rl.method.metrics import binary_scores
from cooper_rl.models.decoys import Decoys, decoys_of
from cooper_rl.models.packed.batching import pad_right, split_by_tokens
from cooper_rl.models.packed.forward import can_pack, limit_tokens, packed_logits
from cooper_rl.models.packed.packing import MAX_ROWS, pack, split_packed
from cooper_rl.models.packed.varlen import can_vary
from cooper_rl.models.policy import (
    batch_dependent_rope,
    check_architecture,
    check_tokens,
    load_model,
    load_tokenizer,
    save_folder,
)
from cooper_rl.models.precision import Compute, is_bfloat16
from cooper_rl.models.template import Template, add_template, open_template
from cooper_rl.models.verify_rm_card import write_card
from cooper_rl.schema.data import VerifyExample
from cooper_rl.schema.reports import BinaryScores
from cooper_rl.schema.texts import replace_surrogates

ENCODED_TOGETHER = 1024
"""Items whose token ids are held at a time; with decoys each has dozens of sequences."""
CPU_ROWS = 8
"""`MAX_ROWS` of a pass on a CPU, whose memory is not what a batch is bounded for."""


class VerifyItem(NamedTuple):
    """VerifyRM's input: it judges the completion's final answer, in the light of the other two fields.

    Examples:
        >>> from cooper_rl import VerifyItem
        >>> VerifyItem("1+1?", "2", "It is 2.").reference_answer
        '2'
    """

    question: str
    reference_answer: str
    completion: str


@dataclass(frozen=True)
class VerifyRM:
    """The reward model with its tokenizer; `load_verify_rm` and `train_verify_rm` give one.

    Examples:
        >>> from cooper_rl import VerifyItem, load_verify_rm
        >>> verify_rm = load_verify_rm("verify_rm", device="cpu")
        >>> [score] = verify_rm.score([VerifyItem("1+1?", "2", "It is 2.")])
        >>> 0 < score < 1
        True
    """

    model: Any
    """Weights in fp32, also when the forward runs in bf16 under autocast."""
    tokenizer: Any
    compute: Compute = "auto"
    """Precision of the forward pass; see `VerifyRMConfig.precision`."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    @cached_property
    def template(self) -> Template:
        """The template that turns the fields into token ids.

        Raises:
            ModelError: the model has no template, or one of another version; see `open_template`.
        """
        return open_template(self.model, self.tokenizer, self.model.name_or_path)

    @cached_property
    def decoys(self) -> Decoys | None:
        """The decoys that scores are compared with; None: nothing.

        Raises:
            ModelError: the model's note of them is damaged.
        """
        return decoys_of(self.model)

    @cached_property
    def veto(self) -> Refutes | None:
        """The rules that can veto a score; None: no veto.

        Raises:
            ModelError: the model's note names a domain that has no such rules.
        """
        return veto_of(self.model)

    def is_vetoed(self, item: VerifyItem) -> bool:
        """True if the score is 0 by the veto (`domains/veto.py`).

        An answer where VerifyRM does not read is no reason to pay what stands elsewhere: a universal text
        could hide a list of all answers in the middle, which is cut away.
        """
        if self.veto is None:
            return False
        item = VerifyItem(*map(replace_surrogates, item))
        return self.veto(*item, self.template.read_completion(item))

    def compared(self, item: VerifyItem, *, epoch: int | None = None) -> list[VerifyItem]:
        """The item, and what its score is compared with (`Decoys.rivals`)."""
        if self.decoys is None:
            return [item]
        # Texts in memory may hold half a surrogate pair, of which no draw can be made.
        item = VerifyItem(*map(replace_surrogates, item))
        rivals = self.decoys.rivals(*item, epoch=epoch)
        return [item, *(VerifyItem(item.question, answer, completion) for answer, completion in rivals)]

    def encode_compared(
        self, items: Sequence[VerifyItem], *, epoch: int | None = None
    ) -> list[list[list[int]]]:
        """Token ids of `compared`, one list of sequences per item."""
        groups = [self.compared(item, epoch=epoch) for item in items]
        sequences = iter(self.encode([item for group in groups for item in group]))
        return [list(itertools.islice(sequences, len(group))) for group in groups]

    def encode(self, items: Sequence[VerifyItem]) -> list[list[int]]:
        """Token ids of the filled-in template, one list per item; see `Template.encode`."""
        return [check_tokens(token_ids, self.model) for token_ids in self.template.encode(items)]

    def split(self, units: Sequence[Sequence[Sequence[int]]], max_tokens: int) -> list[list[int]]:
        """Indices of units (one sequence, or a pair that stays together) in batches for `logits`.

        Under the token budget as far as single units are; every index appears exactly once.
        """
        if not can_pack(self.model):
            return split_by_tokens([len(unit) * max(map(len, unit)) for unit in units], max_tokens)
        limit = limit_tokens(self.model, self.compute, max_tokens)
        # Decoys share nearly all rows: with the bound for a GPU a pass would compute a few hundred tokens.
        return split_packed(units, limit, max_rows=CPU_ROWS if self.device.type == "cpu" else MAX_ROWS)

    def logits(self, sequences: Sequence[Sequence[int]]) -> torch.Tensor:
        """Raw logits (N,) in fp32 for N encoded items in one forward pass, differentiable."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=is_bfloat16(self.model, self.compute)):
            if can_pack(self.model):
                has_groups = not can_vary(self.model, self.compute)
                batch = pack(sequences, device=self.device, has_groups=has_groups)
                return packed_logits(self.model, batch).float()
            batch = pad_right(sequences, pad_id=self.tokenizer.pad_token_id, device=self.device)
            out = self.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)
        return out.logits[:, 0].float()

    def counted_logits(self, groups: Sequence[Sequence[Sequence[int]]]) -> torch.Tensor:
        """The logits (N,) that scores count, of N groups of `encode_compared` in one forward pass,
        differentiable. Training and scoring see the same number."""
        logits = self.logits([ids for group in groups for ids in group])
        if self.decoys is None:
            return logits
        return torch.stack([self.decoys.compare(part) for part in logits.split([len(g) for g in groups])])

    @torch.no_grad()
    def score(
        self, items: Sequence[VerifyItem], *, max_tokens_per_batch: int = 16384, with_veto: bool = True
    ) -> list[float]:
        """Scores in [0, 1), one per item, in order: the sigmoid of the logit, or of its lead over the
        decoys' (`Decoys.compare`). The score of a completion that is vetoed is 0. Without items: an empty
        list.

        Args:
            items: What to score; plain tuples of question, reference answer and completion will not do.
            max_tokens_per_batch: Of one forward pass; the scores do not depend on it but for rounding.
            with_veto: False: the model's own scores, which its training looks at.

        Raises:
            TrainingError: a score is not finite; names the question. Or out of memory.
        """
        remedy = (
            f"lower cooper.max_tokens_per_batch={max_tokens_per_batch} (that of labelled examples is fixed), "
            "or end what else runs on this device"
        )
        places = [place for place, item in enumerate(items) if not (with_veto and self.is_vetoed(item))]
        scores = [0.0] * len(items)
        with explains_memory("VerifyRM's scores", remedy):
            for start in range(0, len(places), ENCODED_TOGETHER):
                judged = places[start : start + ENCODED_TOGETHER]
                own = self._score([items[place] for place in judged], max_tokens_per_batch)
                for place, score in zip(judged, own, strict=True):
                    scores[place] = score
        for item, score in zip(items, scores, strict=True):
            if score != score:
                raise TrainingError(
                    f"VerifyRM's score is NaN for the question {item.question[:100]!r}; "
                    "its weights are damaged: go back to an earlier checkpoint and lower its learning rate"
                )
        return scores

    def _score(self, items: Sequence[VerifyItem], max_tokens_per_batch: int) -> list[float]:
        groups = self.encode_compared(items)
        logits = torch.zeros(len(groups), dtype=torch.float32, device="cpu")
        for batch in self.split(groups, max_tokens_per_batch):
            logits[batch] = self.counted_logits([groups[index] for index in batch]).cpu()
        return torch.sigmoid(logits).tolist()


def score_examples(
    verify_rm: VerifyRM, examples: Sequence[VerifyExample], *, with_veto: bool = True
) -> list[float]:
    """Scores of labelled examples, in order; see `VerifyRM.score`."""
    items = [VerifyItem(e.question, e.reference_answer, e.completion) for e in examples]
    return verify_rm.score(items, with_veto=with_veto)


def measure(examples: Sequence[VerifyExample], scores: Sequence[float]) -> BinaryScores:
    """Scores of labelled examples, one each, against their labels; the intervals are over questions."""
    return binary_scores(
        [example.label for example in examples],
        scores,
        problems=[example.question for example in examples],
    )


def load_verify_rm(path: str | Path, *, device: torch.device) -> VerifyRM:
    """Load a VerifyRM folder (or hub id).

    Raises:
        ModelError: missing, of another architecture, more than one logit, incomplete, without tokenizer, or
            with a template of another version.
    """
    name = check_architecture(path, suffix="ForSequenceClassification")
    model = load_model(AutoModelForSequenceClassification, name, device=device)
    check_rotary(model.config, name)
    if model.config.num_labels != 1:
        raise ModelError(f"{name}: has {model.config.num_labels} logits; VerifyRM has one (num_labels=1)")
    tokenizer = load_tokenizer(name)
    # Only to be refused with the folder's name: the property `template` opens it again.
    open_template(model, tokenizer, name)
    return new_verify_rm(model, tokenizer)


def make_from_backbone(path: str | Path, *, seed: int, device: torch.device) -> VerifyRM:
    """Replace a causal LM's head by one logit, drawn with the seed.

    Raises:
        ModelError: missing, of another architecture, incomplete, without tokenizer.
    """
    name = check_architecture(path, suffix="ForCausalLM")
    tokenizer = load_tokenizer(name)
    with _drawing(seed):
        model = load_model(
            AutoModelForSequenceClassification,
            name,
            device=device,
            num_labels=1,
            pad_token_id=tokenizer.pad_token_id,
            new_weights={"score.weight"},
        )
        check_rotary(model.config, name)
        return new_verify_rm(model, tokenizer)


def check_rotary(config: Any, name: str) -> None:
    """Refuse rotary positions whose frequencies follow from the longest sequence of a batch.

    Raises:
        ModelError: one long completion would change the score of every other one beside it.
    """
    for entry in batch_dependent_rope(config):
        raise ModelError(
            f"{name}: rope_type={entry['rope_type']!r} in config.json makes a score depend on what is "
            "scored beside it; use a model with another one, such as default, linear, yarn or llama3"
        )


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Seed the global generator, from which transformers draws weights, and give the caller's back."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def make_from_scratch(
    texts: Iterable[str], size: ScratchModel, *, seed: int, device: torch.device
) -> VerifyRM:
    """A Qwen2-architecture model with random weights and a byte-level BPE tokenizer of these texts."""
    from transformers import Qwen2Config

    tokenizer = _train_tokenizer(texts, size.vocab_size)
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
    with _drawing(seed):
        model = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32).to(device).eval()
        return new_verify_rm(model, tokenizer, is_random=True)


def new_verify_rm(
    model: Any, tokenizer: Any, *, reads_added_words: bool = False, is_random: bool = False
) -> VerifyRM:
    """VerifyRM of a classifier with one logit, which gets the template's separators if it has none."""
    add_template(model, tokenizer, reads_added_words=reads_added_words, is_random=is_random)
    # Without it, Qwen classifiers refuse batches over 1.
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.id2label, model.config.label2id = {0: "correct"}, {"correct": 0}
    return VerifyRM(model=model, tokenizer=tokenizer)


def save_verify_rm(verify_rm: VerifyRM, path: Path) -> None:
    """Write a folder that `AutoModelForSequenceClassification` and `AutoTokenizer` load, with a card.

    Raises:
        DataError: a file is in the way, or the disk refuses; what stood there before stays.

    Examples:
        >>> from pathlib import Path
        >>> from cooper_rl import load_verify_rm, save_verify_rm
        >>> save_verify_rm(load_verify_rm("verify_rm", device="cpu"), Path("copy"))
        >>> Path("copy/README.md").is_file()
        True
    """
    save_folder(verify_rm.model, verify_rm.tokenizer, path)
    write_card(path, verify_rm.model)


def _train_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """A `Qwen2Tokenizer`: `AutoTokenizer` splits text for every Qwen2 folder as that class does, so texts are
    split that way here already."""
    from tokenizers import pre_tokenizers, trainers
    from transformers import Qwen2Tokenizer

    make: Any = Qwen2Tokenizer  # its annotations refuse what it documents
    special = {"pad_token": "<|pad|>", "eos_token": "<|end|>", "unk_token": None}
    trained = make(vocab={"<|pad|>": 0, "<|end|>": 1}, merges=[], **special).backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|pad|>", "<|end|>"],
        # All 256 bytes: without an unknown token, a byte that no training text has would vanish from a field.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    learned = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in learned["merges"]]
    return make(vocab=learned["vocab"], merges=merges, clean_up_tokenization_spaces=False, **special)
