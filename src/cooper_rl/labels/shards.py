"""One labelling in several pods: each labels the rows of its shard, and `merge_labels` puts them together.

A question's rows are all in one shard, so that equal rows are asked about once, as in a single process.
"""

import hashlib
import json

from cooper_rl.config.data import ShardConfig
from cooper_rl.labels.rows import Row
from cooper_rl.method.questions import question_key
from cooper_rl.schema.data import Label


def is_in_shard(question: str, shard: ShardConfig) -> bool:
    """True if a question's rows belong to a shard."""
    return shard_of(question, shard.count) == shard.number


def shard_of(question: str, count: int) -> int:
    """The number of the shard, from 0, that a question's rows belong to."""
    digest = hashlib.blake2b(question_key(question).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


class Digest:
    """Names texts with their labels, in order: a label alone knows an id, which another draw has too."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, row: Row, label: Label) -> None:
        """The next row."""
        texts = (row.problem.question, row.problem.reference_answer, row.completion.text)
        self._hash.update(json.dumps([*texts, label.model_dump_json()]).encode())

    def name(self) -> str:
        """The name of all that were added."""
        return self._hash.hexdigest()
