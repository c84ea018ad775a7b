"""Small tokenizers of the kinds that backbones bring, with all their special and added tokens."""

import json
from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

from cooper_rl.tiny.tokenizer import build_tokenizer

TEXTS = [
    "Tom has 7 apples. How many apples does Ann have? The answer is \\boxed{42}.",
    "<question>1+1?</question>\n<reference_answer>2</reference_answer>\n<completion>It is 2.</completion>",
    "<|im_start|>user\nWhat?<|im_end|> <think> <tool_call> </s> [INST] <|eot_id|> question end cut",
] * 20

QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|vision_pad|>"]
QWEN_ADDED = [
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>",
    "<tool_response>", "</tool_response>", "<think>", "</think>",
]  # fmt: skip
LLAMA3_SPECIAL = [
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<|eom_id|>", "<|python_tag|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_0|>",
]  # fmt: skip
SENTENCEPIECE_SPECIAL = ["<unk>", "<s>", "</s>"]
CONTROL_TOKENS = [*QWEN_SPECIAL, *QWEN_ADDED, *LLAMA3_SPECIAL, *SENTENCEPIECE_SPECIAL, "<pad>", "<end>"]


def qwen() -> Any:
    """Byte-level BPE, NFC; added tokens of which some are special and some are not."""
    make: Any = Qwen2Tokenizer
    backend = make(vocab={"<|endoftext|>": 0}, merges=[]).backend_tokenizer
    backend.train_from_iterator(TEXTS, _bpe_trainer())
    merges = [tuple(merge) for merge in json.loads(backend.to_str())["model"]["merges"]]
    tokenizer = make(vocab=backend.get_vocab(with_added_tokens=False), merges=merges)
    tokenizer.add_tokens([AddedToken(token, special=True) for token in QWEN_SPECIAL], special_tokens=True)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in QWEN_ADDED[:-2]])
    tokenizer.add_tokens(QWEN_ADDED[-2:])  # as a user adds them: found in normalised text
    return tokenizer


def llama3() -> Any:
    """Byte-level BPE that takes a whole word of its vocabulary before any merge."""
    backend = Tokenizer(models.BPE(ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(TEXTS, _bpe_trainer())
    backend.add_special_tokens(LLAMA3_SPECIAL)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>"
    )


def sentencepiece_bpe() -> Any:
    """As Llama 2: a space before every text, unknown characters in bytes, `<s>` in the vocabulary."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    special = [*SENTENCEPIECE_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    backend.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    )
    content = json.loads(backend.to_str())
    content["added_tokens"] = content["added_tokens"][:3]  # bytes are pieces and nothing more
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(content)),
        bos_token="<s>", eos_token="</s>", unk_token="<unk>",
    )  # fmt: skip


def unigram() -> Any:
    """As T5: its control tokens are pieces of its vocabulary, with the best score of all."""
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


def _bpe_trainer() -> trainers.BpeTrainer:
    return trainers.BpeTrainer(
        vocab_size=500, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "qwen": qwen,
    "llama3": llama3,
    "sentencepiece_bpe": sentencepiece_bpe,
    "unigram": unigram,
    "laptop": build_tokenizer,
}
