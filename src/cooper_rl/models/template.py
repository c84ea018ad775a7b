"""VerifyRM's input: three fields between separators that no text can write (row 5).

Every model input is made by `Template.encode`, in training, scoring and serving alike. The paper's tags are
replaced by token ids of their own: a text that spells a tag, a chat token or a separator's name is encoded as
the plain text that it is. Why: docs/decisions/0011.

The fields stand in the paper's order, or with the reference answer last. A completion that is scored with
many reference answers is then a beginning that they share, and computed once (`models/packed/packing.py`).
Why: docs/decisions/0015.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from tokenizers import Tokenizer

from cooper_rl.config import names
from cooper_rl.domains.base import CutCompletion
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import ConfigError, ModelError
from cooper_rl.method.prompts import cut_field
from cooper_rl.schema.texts import replace_surrogates

VERSION = 2
"""1 was the paper's: tags that a completion could write itself."""
READING_VERSION = 3
"""The same, with another order or with a domain that cuts completions in its own way. What knows version 2
alone would make other inputs, and refuses."""
KEY = "verify_rm_template"
"""The key in a model's `config.json`: version, separators, whether added words are read in fields, and in
version 3 the domain and the order."""

_WORDS = {
    "question": " question",
    "question_end": " end question",
    "reference_answer": " reference answer",
    "reference_answer_end": " end reference answer",
    "completion": " completion",
    "completion_end": " end completion",
    "cut": " ...",
}
"""In a pre-trained model a new embedding begins near the mean of these tokens. The paper's own tags would
give nearly the same one for two separators: most of their tokens are the same."""


class Separators(NamedTuple):
    """Token ids that the tokenizer does not have, so that it cannot produce them from any text.

    One opens and one closes each field, as the paper's tags do: the model gathers a field where it ends.
    VerifyRM's logit is read where the last field ends.
    """

    question: int
    question_end: int
    reference_answer: int
    reference_answer_end: int
    completion: int
    completion_end: int
    cut: int
    """Stands where the middle of a long field was left out."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The separators that open and close question, reference answer and completion."""
        return (
            (self.question, self.question_end),
            (self.reference_answer, self.reference_answer_end),
            (self.completion, self.completion_end),
        )


class Fields(NamedTuple):
    """The three fields of an input, each in the one or two parts that are left of it."""

    question: tuple[str, ...]
    reference_answer: tuple[str, ...]
    completion: tuple[str, ...]


def cut_fields(item: tuple[str, str, str], cut_completion: CutCompletion | None = None) -> Fields:
    """The fields (question, reference answer, completion) as VerifyRM reads them.

    `cut_completion` is the domain's.
    """
    question, reference_answer, completion = item
    read = cut_completion(reference_answer, completion) if cut_completion else cut_field(completion)
    return Fields(cut_field(question), cut_field(reference_answer), read)


@dataclass(frozen=True)
class Template:
    """Makes token ids of a question, a reference answer and a completion."""

    separators: Separators
    field_tokenizer: Tokenizer = field(repr=False)
    """Encodes text as text; see `make_field_tokenizer`."""
    control_ids: frozenset[int]
    """Control tokens that a word-level or Unigram vocabulary holds itself: left out of an encoded field."""
    cut_completion: CutCompletion | None = None
    """That of the model's domain (`Domain.cut_completion`)."""
    reference_last: bool = False
    """True if the reference answer stands after the completion."""

    @property
    def order(self) -> tuple[int, ...]:
        """The places of question, reference answer and completion in an input's order."""
        return (0, 2, 1) if self.reference_last else (0, 1, 2)

    def read_completion(self, item: tuple[str, str, str]) -> str:
        """The text that is read of an item's completion, its parts on lines of their own."""
        return "\n".join(cut_fields(item, self.cut_completion).completion)

    def encode(self, items: Iterable[tuple[str, str, str]]) -> list[list[int]]:
        """Token ids of (question, reference answer, completion), one list per item.

        Separators stand in an input where this function puts them, and nowhere else: `field_tokenizer` has no
        token of their ids. A lone surrogate, which is no character, is read as U+FFFD. Each text is encoded
        once, however many items share it.
        """
        cut = [cut_fields(item, self.cut_completion) for item in items]
        texts = list(dict.fromkeys(part for fields in cut for parts in fields for part in parts))
        encodings = self.field_tokenizer.encode_batch_fast(
            [replace_surrogates(text) for text in texts], add_special_tokens=False
        )
        ids = {
            text: [token for token in encoding.ids if token not in self.control_ids]
            for text, encoding in zip(texts, encodings, strict=True)
        }
        # Rivals of a completion share two fields of three: each is laid out once.
        different = {(place, fields[place]) for fields in cut for place in self.order}
        laid_out = {
            (place, parts): self._lay_out(place, [ids[part] for part in parts]) for place, parts in different
        }
        first, second, third = self.order
        return [
            laid_out[first, fields[first]] + laid_out[second, fields[second]] + laid_out[third, fields[third]]
            for fields in cut
        ]

    def _lay_out(self, place: int, parts: Sequence[Sequence[int]]) -> list[int]:
        """A field's token ids between its separators."""
        separator, closing = self.separators.pairs[place]
        sequence: list[int] = []
        for part in parts:
            sequence += [separator, *part]
            separator = self.separators.cut
        return [*sequence, closing]

    def decode(self, token_ids: Sequence[int]) -> Fields:
        """The fields of an encoded input, as the tokenizer spells them.

        A byte-level tokenizer gives back the text itself, after its normalisation (Qwen2's is NFC). One of
        the SentencePiece kind may write a space before each part, and loses characters that it does not know.
        """
        openings, closings = zip(*self.separators.pairs, strict=True)
        parts: list[list[list[int]]] = [[] for _ in openings]
        place = 0
        for token in token_ids:
            if token in openings:
                place = openings.index(token)
                parts[place].append([])
            elif token == self.separators.cut:
                parts[place].append([])
            elif token not in closings:
                parts[place][-1].append(token)
        spelled = [
            tuple(self.field_tokenizer.decode(part, skip_special_tokens=False) for part in field_parts)
            for field_parts in parts
        ]
        return Fields(*spelled)


class TemplateRecord(NamedTuple):
    """The template in a model's configuration."""

    separators: Separators
    reads_added_words: bool
    """True if fields are read with the words that were added to the tokenizer. False for tokenizers of
    others, whose added tokens direct a conversation."""
    domain: str = names.DOMAINS.names[0]
    """Whose `cut_completion` it was trained with."""
    reference_last: bool = False
    """The order that it was trained with."""

    @classmethod
    def of(cls, config: Any, name: str) -> Self:
        """Read it.

        Raises:
            ModelError: there is none, it is of another version, or it is not readable.
        """
        found: Any = getattr(config, KEY, {})
        version = found.get("version") if isinstance(found, dict) else None
        if version not in (VERSION, READING_VERSION):
            was = "the paper's tags, which any completion can write," if not found else f"template {version}"
            raise ModelError(
                f"{name}: this VerifyRM was trained with {was} and this version of cooper-rl reads templates "
                f"{VERSION} and {READING_VERSION} ({KEY} in config.json); train it again from its backbone "
                "with train-verify-rm, and start a new run or registry with it"
            )
        try:
            ids = {str(key): int(value) for key, value in found["separators"].items()}
            record = cls(Separators(**ids), bool(found["reads_added_words"]))
            if version == VERSION:
                return record
            return record._replace(
                domain=str(found.get("domain", record.domain)),
                reference_last=bool(found.get("reference_last", False)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"{name}: {KEY} in config.json is damaged ({error}); copy the folder again"
            ) from error


def open_template(model: Any, tokenizer: Any, name: str) -> Template:
    """The template that a model was trained with.

    Raises:
        ModelError: none or another version (`TemplateRecord.of`), or the tokenizer is another model's.
    """
    record = TemplateRecord.of(model.config, name)
    return make_template(tokenizer, record, num_embeddings=model.config.vocab_size, name=name)


def make_template(tokenizer: Any, record: TemplateRecord, *, num_embeddings: int, name: str) -> Template:
    """Check that the separators are beyond the tokenizer and within the model.

    Raises:
        ModelError: they are not, the tokenizer has no tokenizer.json, or the domain is not registered.
    """
    separators = record.separators
    known = set(tokenizer.get_vocab().values())
    if len({*separators}) < len(separators) or known & {*separators}:
        raise ModelError(
            f"{name}: its tokenizer has tokens with the ids of the separators {tuple(separators)}, so text "
            "could write them; copy the tokenizer that was saved with this model there"
        )
    if max(separators) >= num_embeddings:
        raise ModelError(
            f"{name}: the model knows {num_embeddings} tokens, and its separators are {tuple(separators)}; "
            "copy the folder again"
        )
    field_tokenizer = make_field_tokenizer(tokenizer, reads_added_words=record.reads_added_words)
    return Template(separators, *field_tokenizer, _find_cut(record.domain, name), record.reference_last)


def _find_cut(domain: str, name: str) -> CutCompletion | None:
    try:
        return find_domain(domain).cut_completion
    except ConfigError as error:
        raise ModelError(
            f"{name}: this VerifyRM reads completions as problems.domain={domain} cuts them ({KEY} in "
            f"config.json), and {error}"
        ) from error


def add_template(
    model: Any, tokenizer: Any, *, reads_added_words: bool = False, is_random: bool = False
) -> None:
    """Give a model the separators: ids after the tokenizer's last one, rows in its embedding, a note in its
    configuration. A model that has them keeps them.

    A new row is the mean of the embeddings of words that say what the separator is, moved by a vector of a
    token's usual size: the same for the same model, and different for each separator. The tokenizer stays as
    it is.

    Args:
        model: A causal LM or a classifier.
        tokenizer: Its tokenizer.
        reads_added_words: See `TemplateRecord`.
        is_random: The weights were just drawn, and mean nothing: new rows are drawn as they were, from the
            global generator. Means of letters would be much alike.
    """
    if hasattr(model.config, KEY):
        return
    # The largest id, not the count: a vocabulary may have gaps.
    first = max(tokenizer.get_vocab().values()) + 1
    separators = Separators(*range(first, first + len(Separators._fields)))
    record = TemplateRecord(separators, reads_added_words)
    num_embeddings = max(model.config.vocab_size, max(separators) + 1)
    template = make_template(tokenizer, record, num_embeddings=num_embeddings, name=model.name_or_path)
    if num_embeddings > model.config.vocab_size:
        # Off: it draws the rows like the old ones. They are set below, or must be drawn like a new model's.
        model.resize_token_embeddings(num_embeddings, mean_resizing=False)
    weight = model.get_input_embeddings().weight
    if not is_random:
        with torch.no_grad():
            # Rows past the tokenizer's last token are spare; no text has trained them.
            length = _usual_length(weight[:first])
            for name, row in separators._asdict().items():
                pieces = template.field_tokenizer.encode(_WORDS[name], add_special_tokens=False).ids
                # A tokenizer of digits alone writes no word: the mean of no row would be NaN.
                near = weight[pieces] if pieces else weight[:first]
                # A large vocabulary has ` question` as one token: without the step aside, text could write
                # the separator's very embedding.
                weight[row] = near.mean(dim=0) + _step_aside(weight[row], length, seed=row - first)
    note = {"version": VERSION, "separators": separators._asdict(), "reads_added_words": reads_added_words}
    setattr(model.config, KEY, note)


def note_reading(model: Any, *, domain: str, reference_last: bool) -> None:
    """Note how a model with a template reads its fields, before it learns to.

    The paper's order and a domain that cuts as mathematics does leave the note of version 2. To be called
    before the model's first score, since `VerifyRM.template` reads the note once.

    Args:
        model: With a template.
        domain: Whose `cut_completion` it learns.
        reference_last: Whether it reads the reference answer after the completion.

    Raises:
        ConfigError: the domain is not registered.
    """
    found: dict[str, Any] = getattr(model.config, KEY)
    reading: dict[str, Any] = {}
    if find_domain(domain).cut_completion is not None:
        reading["domain"] = domain
    if reference_last:
        reading["reference_last"] = True
    kept = {key: found[key] for key in ("separators", "reads_added_words")}
    setattr(model.config, KEY, {"version": READING_VERSION if reading else VERSION, **kept, **reading})


def noted_domain(model: Any) -> str | None:
    """The domain in a model's note; None: it has no such note, and completions are cut as every field is."""
    note: Any = getattr(model.config, KEY, None)
    return note.get("domain") if isinstance(note, dict) else None


def _usual_length(weight: torch.Tensor) -> float:
    """The usual distance of an embedding from the mean; the first ten thousand stand for a vocabulary."""
    rows = weight[:10_000].float()
    return float((rows - rows.mean(dim=0)).norm(dim=1).median())


def _step_aside(row: torch.Tensor, length: float, *, seed: int) -> torch.Tensor:
    """A vector of this length like `row` (H,), drawn with a seed of its own."""
    drawn = torch.randn(row.shape, generator=torch.Generator().manual_seed(seed))
    return (length * drawn / drawn.norm()).to(row)


class FieldTokenizer(NamedTuple):
    """A tokenizer that reads text as text."""

    tokenizer: Tokenizer
    control_ids: frozenset[int]
    """Control tokens that it may produce all the same, since they stand in its vocabulary of texts."""


def make_field_tokenizer(tokenizer: Any, *, reads_added_words: bool) -> FieldTokenizer:
    """A copy of a tokenizer that finds no special and no added token in text.

    `split_special_tokens` of transformers covers special tokens alone: `<tool_call>` and `<think>` are added
    and not special.

    Raises:
        ModelError: not a tokenizer of the library `tokenizers`.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ModelError(
            f"{tokenizer.name_or_path}: {type(tokenizer).__name__} has no tokenizer.json; convert it "
            "to a fast tokenizer, as VerifyRM's fields are encoded without the tokens that were added to it"
        )
    content = json.loads(backend.to_str())
    added = content["added_tokens"]
    content["added_tokens"] = [token for token in added if reads_added_words and not token["special"]]
    plain = Tokenizer.from_str(json.dumps(content))
    # tokenizer.json may say how its author cut and padded: a field would lose its end without a word.
    plain.no_truncation()
    plain.no_padding()
    own = plain.get_vocab()
    controls = {token["content"] for token in added if token["special"]} - {_unknown_token(content["model"])}
    return FieldTokenizer(plain, frozenset(own[token] for token in controls if token in own))


def _unknown_token(model: dict[str, Any]) -> str | None:
    """The token for characters that the vocabulary lacks: text, though it is a special token."""
    if model.get("unk_id") is not None:
        # Unigram's vocabulary is a list of (piece, score); the other kinds name the token itself.
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")
