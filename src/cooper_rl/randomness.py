"""Seeds for every draw of a run, derived from what the draw is for.

Nothing keeps a random state between steps: the draw of step 7 is a function of (run seed, purpose, 7),
so a resumed run makes the draws of the uninterrupted one.
"""

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on their order."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
