"""Answers between `<answer>` and `</answer>` (row 3), as models write that think in `<think>` first."""

import re
from typing import NamedTuple

_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_SAYS_SOMETHING = re.compile(r"[^\s.…]")


class Tagged(NamedTuple):
    """The text after an opening tag, up to the next tag or the end."""

    start: int
    end: int
    """After the closing tag."""
    content: str
    is_closed: bool


def read_tags(text: str) -> list[Tagged]:
    """The stretches after opening tags that hold something."""
    tags = list(_TAG.finditer(text))
    found: list[Tagged] = []
    for place, tag in enumerate(tags):
        following = tags[place + 1] if place + 1 < len(tags) else None
        content = text[tag.end() : following.start() if following else len(text)]
        if not tag[1] and _SAYS_SOMETHING.search(content):
            is_closed = following is not None and following[1] == "/"
            end = following.end() if following and is_closed else tag.end() + len(content)
            found.append(Tagged(tag.start(), end, content.strip(), is_closed))
    return found
