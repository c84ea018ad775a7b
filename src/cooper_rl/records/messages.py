"""Chat messages, as trainers keep prompts and completions: `[{"role": "user", "content": "1+1?"}]`."""

from collections.abc import Mapping, Sequence
from typing import Any


def is_chat(value: Any) -> bool:
    """True if a value is a list of messages."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and bool(value)
        and all(isinstance(message, Mapping) and "role" in message for message in value)
    )


def last_text(messages: Sequence[Any], *, role: str) -> Any:
    """The text of the last message of a role; None where there is none, or where it is no text."""
    own = [message for message in messages if isinstance(message, Mapping) and message.get("role") == role]
    return _content(own[-1].get("content")) if own else None


def _content(content: Any) -> Any:
    """A message's text; blocks of text are joined, a message that only calls tools is empty."""
    if content is None:
        return ""
    if isinstance(content, str) or not isinstance(content, Sequence):
        return content
    texts = [block.get("text") for block in content if isinstance(block, Mapping)]
    return "".join(text for text in texts if isinstance(text, str))
