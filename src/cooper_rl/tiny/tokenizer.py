"""The laptop world's tokenizer: Qwen2's own kind, with the world's words as its vocabulary.

Words carry their leading space; the numbers 0..99 do not, so that a number is the same token wherever
it stands. Text from outside this world is spelled in bytes, so every text comes back unchanged. It is a
`Qwen2Tokenizer` because `AutoTokenizer` takes that class for every Qwen2 model, whatever the folder says.
"""

from collections.abc import Sequence
from typing import Any

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


def build_tokenizer(*, pieces: Sequence[str] = ()) -> Any:
    """A `Qwen2Tokenizer` with chat template and distinct pad and end tokens; `pieces` are a world's own."""
    from tokenizers import AddedToken, pre_tokenizers
    from transformers import Qwen2Tokenizer

    alphabet = [PAD, END, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    make: Any = Qwen2Tokenizer  # its annotations refuse what it documents
    tokenizer = make(
        vocab={piece: index for index, piece in enumerate(alphabet)},
        merges=[],
        pad_token=PAD,
        eos_token=END,
        unk_token=None,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
    )
    # Added tokens are found before Qwen2's own splitting, longest first; the rest is spelled in bytes.
    tokenizer.add_tokens(
        [AddedToken(piece, normalized=False) for piece in dict.fromkeys((*_pieces(), *pieces))]
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _pieces() -> list[str]:
    """Every word and number once, in a fixed order."""
    numbers = [spell(number) for number in range(MAX_VALUE + 1)]
    phrases = [_WORDS, *NAMES, *OBJECTS, *CONTAINERS, *GAINS, *LOSSES]
    phrases += [*FACTORS.values(), *SHARES.values(), *COMPARED.values()]
    pieces = [str(number) for number in range(10, MAX_VALUE + 1)]
    pieces += [f" {word}" for word in (*" ".join(phrases).split(), *numbers)]
    # Without a space: at the start of a text or line, and inside braces.
    pieces += ["Question", "Answer", "The", "They", "boxed", "####", *NAMES, *numbers]
    return list(dict.fromkeys(pieces))
