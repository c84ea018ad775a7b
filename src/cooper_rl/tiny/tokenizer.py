"""The laptop world's tokenizer: one token a word or number, lossless on every text.

Words carry their leading space; the numbers 0..99 do not, so that a number is the same token wherever
it stands. The tags of VerifyRM's template are single tokens. Text from outside this world is spelled in
characters and bytes. Saved, it loads with `AutoTokenizer` like any other.
"""

import re
from typing import Any

from cooper_rl.core.prompts import verify_rm_text
from cooper_rl.tiny.meaning import spell
from cooper_rl.tiny.problems import (
    COMPARED,
    CONTAINERS,
    FACTORS,
    GAINS,
    LOSSES,
    MAX_VALUE,
    NAMES,
    OBJECTS,
    SHARES,
)

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
MAX_TOKENS = 512

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}Answer: {{ message['content'] }}<end>\n"
    "{% elif message['role'] == 'user' %}Question: {{ message['content'] }}\n"
    "{% else %}{{ message['content'] }}\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}Answer: {% endif %}"
)

_PIECE = r"</?[a-z_]+>| ?[A-Za-z]+(?:-[a-z]+)*|[0-9]+|####|[\s\S]"
_WORDS = (
    "has of then How many does have more fewer as times and a for each dollars off with lamp buys pay pays "
    "do they They sell The answer is yes no"
)


def build_tokenizer() -> Any:
    """A `PreTrainedTokenizerFast` with chat template and distinct pad, end and unknown tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: index for index, piece in enumerate(_vocabulary())}
    # With no merges, a piece is either one entry or spelled in its characters (in bytes, if need be).
    inner = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN, byte_fallback=True, ignore_merges=True)
    )
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECE), "isolated")  # pyright: ignore[reportAttributeAccessIssue] the stub has no setter
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])  # pyright: ignore[reportAttributeAccessIssue] the stub has no setter
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _vocabulary() -> list[str]:
    """Every entry once, in a fixed order."""
    pieces = [PAD, END, UNKNOWN]
    pieces += [str(number) for number in range(MAX_VALUE + 1)]
    pieces += re.findall(r"</?[a-z_]+>|\n", verify_rm_text("", "", ""))
    phrases = [_WORDS, *NAMES, *OBJECTS, *CONTAINERS, *GAINS, *LOSSES]
    phrases += [*FACTORS.values(), *SHARES.values(), *COMPARED.values()]
    words = [word for phrase in phrases for word in phrase.split()]
    words += [spell(number) for number in range(MAX_VALUE + 1)]
    pieces += [f" {word}" for word in words]
    # Without a space: at the start of a text or line, and inside braces.
    pieces += ["Question", "Answer", "boxed", "They", *NAMES, *(spell(n) for n in range(MAX_VALUE + 1))]
    pieces += ["####", *(chr(code) for code in range(32, 127))]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    return list(dict.fromkeys(pieces))
