"""The laptop world's tokenizer: Qwen2's own kind, with the world's words as its vocabulary.

Words carry their leading space; the numbers 0..99 do not, so that a number is the same token wherever
it stands. The tags of VerifyRM's template are single tokens. Text from outside this world is spelled in
bytes, so every text comes back unchanged. It is a `Qwen2Tokenizer` because `AutoTokenizer` takes that
class for every Qwen2 model, whatever the folder says.
"""

import re
from collections.abc import Iterator
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

PAD, END = "<pad>", "<end>"
MAX_TOKENS = 512

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}Answer: {{ message['content'] }}<end>\n"
    "{% elif message['role'] == 'user' %}Question: {{ message['content'] }}\n"
    "{% else %}{{ message['content'] }}\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}Answer: {% endif %}"
)

_WORDS = (
    "has of then How many does have more fewer as times and a for each dollars off with lamp buys pay pays "
    "do they They sell The answer is yes no"
)


def build_tokenizer() -> Any:
    """A `Qwen2Tokenizer` with chat template and distinct pad and end tokens."""
    from tokenizers import AddedToken, pre_tokenizers
    from transformers import Qwen2Tokenizer

    words = list(_words())
    merges = list(dict.fromkeys(merge for word in words for merge in _ladder(word)))
    pieces = [PAD, END, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    make: Any = Qwen2Tokenizer  # its annotations refuse what it documents
    tokenizer = make(
        vocab={piece: index for index, piece in enumerate(dict.fromkeys(pieces))},
        merges=merges,
        pad_token=PAD,
        eos_token=END,
        unk_token=None,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
    )
    # Qwen2's own splitting knows single digits only and takes tags apart.
    whole = [str(number) for number in range(10, MAX_VALUE + 1)]
    whole += re.findall(r"</?[a-z_]+>", verify_rm_text("", "", ""))
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in whole])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _words() -> Iterator[str]:
    """Every word as Qwen2's splitting sees it: with the one space or sign before it, if there is one."""
    phrases = [_WORDS, *NAMES, *OBJECTS, *CONTAINERS, *GAINS, *LOSSES]
    phrases += [*FACTORS.values(), *SHARES.values(), *COMPARED.values()]
    numbers = [spell(number) for number in range(MAX_VALUE + 1)]
    tens, units = numbers[20::10], numbers[1:10]
    for word in " ".join(phrases + numbers[:20] + tens).split():
        yield f" {word}"
    yield from (f"-{unit}" for unit in units)
    # At the start of a text or line, and in `\boxed{ten}`.
    yield from ["Question", "Answer", "They", *NAMES, "####", " \\", *(f"{{{n}" for n in numbers[:20] + tens)]
    yield "boxed"


def _ladder(word: str) -> list[tuple[str, str]]:
    """Merges that build a word from the left.

    A word begins with a sign or a capital that stands nowhere else in it, so no merge of one word can
    take another word apart (`boxed` begins with neither and therefore comes last).
    """
    spelled = word.replace(" ", "Ġ")  # the byte-level alphabet's sign for a space
    if word == "####":
        return [("#", "#"), ("##", "##")]
    return [(spelled[:end], spelled[end]) for end in range(1, len(spelled))]
