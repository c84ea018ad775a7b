"""Text from data or a store in a Markdown page: a dashboard shows markup, and such a text may hold any."""

import re

_MARKUP = re.compile(r"[\\`*\[\]<>|]")


def plain(text: str) -> str:
    """The text on one line, with what would be a link, an image, HTML or a column escaped."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
