"""Files to put into a store."""

import os
from pathlib import Path

from cooper_rl.storage.base import content_sha256

MIB = 1 << 20


def make_file(folder: Path, size: int) -> tuple[Path, str]:
    """A file of random bytes, and its hash."""
    path = folder / f"{size}.bin"
    path.write_bytes(os.urandom(size))
    return path, content_sha256(path)
