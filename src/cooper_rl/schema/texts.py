"""Characters that no file can hold, halves of surrogate pairs, which Python's texts and JSON can spell; and
those that a terminal or a Markdown page obeys.

Texts in memory are mended where they come in (`api`, a chat server's answers). Rows of files and requests
over HTTP that hold one are refused, with their place.
"""

import re

_MARKUP = re.compile(r"[\\`*\[\]<>|]")


def has_surrogates(text: str) -> bool:
    """True if a text holds a lone surrogate, so that it has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def fits_header(text: str) -> bool:
    """True if a key or token can stand in a header of HTTP."""
    return text.isascii() and text.isprintable()


def replace_surrogates(text: str) -> str:
    """The same text with U+FFFD for each lone surrogate, which no tokenizer, file or hash takes."""
    if not has_surrogates(text):
        return text
    # Through UTF-16, in which a pair of surrogates is its character and a lone one an error.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable(text: str) -> str:
    """The same text with U+FFFD for each character that a terminal would obey: controls, line ends, marks of
    direction, and lone surrogates."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def in_one_line(text: object) -> str:
    """Somebody else's text as a terminal may show it: one line, in which it obeys nothing."""
    return printable(" ".join(str(text).split()))


def plain(text: str) -> str:
    """Somebody else's text in a Markdown page: one line, with links, images, HTML and columns escaped."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
