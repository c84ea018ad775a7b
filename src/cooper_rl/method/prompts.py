"""Model inputs: the fields of VerifyRM (row 5 of the walk), and the form of a chat prompt.

VerifyRM's fields are cut here, and `models/template.py` makes token ids of them. A domain writes the prompts.
"""

from typing import NamedTuple

MAX_FIELD_CHARS = 1500
HEAD_CHARS = 500
TAIL_CHARS = 1000


def cut_field(text: str) -> tuple[str, ...]:
    """A field of VerifyRM in parts: itself, or its first 500 and last 1000 characters if it is over 1500.

    The template puts a separator of its own between two parts, so that text before a cut cannot run on after
    it. The mark tells that something is missing and not what: a completion that takes its answer back in the
    middle still looks like one that does not. The canaries `cut_join` and `cut_retraction` measure both.
    Source: ZJU-REAL/Cooper recipe/cooper/fsdp_workers.py, which joins the two and cuts the reference answer
    and the completion only; the question is cut by the same rule here, so that the input is bounded.
    """
    if len(text) <= MAX_FIELD_CHARS:
        return (text,)
    return text[:HEAD_CHARS], text[-TAIL_CHARS:]


class ChatPrompt(NamedTuple):
    """The messages to a chat server: the rules, and the data to apply them to."""

    system: str
    user: str
