"""One labelling in several pods: each labels the rows of its shard, and `merge_labels` puts them together.

A question's rows are all in one shard, so that equal rows are asked about once, as in a single process.
"""

import hashlib

from cooper_rl.config.data import ShardConfig
from cooper_rl.method.questions import question_key


def is_in_shard(question: str, shard: ShardConfig) -> bool:
    """True if a question's rows belong to a shard."""
    return shard_of(question, shard.count) == shard.number


def shard_of(question: str, count: int) -> int:
    """The number of the shard, from 0, that a question's rows belong to."""
    digest = hashlib.blake2b(question_key(question).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count
