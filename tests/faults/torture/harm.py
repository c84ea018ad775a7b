"""What may happen to a run: it is ended, somebody damages its folder, its store misbehaves."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

from tests.stand_ins.proxy import Proxy, http_answer

END = {"kill": "SIGKILL", "stop": "SIGTERM"}
"""The process is sent this signal at a random call."""
KILL_WEIGHT = 3
"""A kill is drawn this much more often than any other fault."""


def flip_a_byte(checkpoint: Path, rng: random.Random) -> Path | None:
    path = some_file(checkpoint, rng)
    content = bytearray(path.read_bytes()) if path else b""
    if path is None or not content:
        return None
    content[rng.randrange(len(content))] ^= 1
    path.unlink()  # published files may share their bytes with a draft
    path.write_bytes(content)
    return path


def cut_a_file(checkpoint: Path, rng: random.Random) -> Path | None:
    path = some_file(checkpoint, rng)
    content = path.read_bytes() if path else b""
    if path is None or not content:
        return None
    path.unlink()
    path.write_bytes(content[: len(content) // 2])
    return path


def remove_a_file(checkpoint: Path, rng: random.Random) -> Path | None:
    path = some_file(checkpoint, rng)
    if path is not None:
        path.unlink()
    return path


def remove_the_pointer(checkpoint: Path, rng: random.Random) -> Path | None:
    pointer = checkpoint / "LATEST"
    if not pointer.exists():
        return None
    pointer.unlink()
    return pointer


def some_file(checkpoint: Path, rng: random.Random) -> Path | None:
    """One file of the checkpoints or the log; None where there is none yet."""
    found = sorted(path for path in checkpoint.glob("[sl]*/**/*") if path.is_file())
    return rng.choice(found) if found else None


def refuse(proxy: Proxy, rng: random.Random) -> None:
    """Down for longer or shorter than the run tries again."""
    proxy.refuse = True
    threading.Timer(rng.choice([0.5, 5.0]), lambda: setattr(proxy, "refuse", False)).start()


def overload(proxy: Proxy, rng: random.Random) -> None:
    proxy.answers = [http_answer("503 Slow Down")] * rng.randint(1, 6)


def cut_requests(proxy: Proxy, rng: random.Random) -> None:
    proxy.cut_after = [rng.randrange(100_000) for _ in range(rng.randint(1, 4))]


def cut_answers(proxy: Proxy, rng: random.Random) -> None:
    proxy.cut_answer_after = [rng.randrange(2_000) for _ in range(rng.randint(1, 4))]


DAMAGE: dict[str, Callable[[Path, random.Random], Path | None]] = {
    "byte flipped": flip_a_byte,
    "file cut short": cut_a_file,
    "file removed": remove_a_file,
    "LATEST removed": remove_the_pointer,
}
"""Each returns what it damaged; None where there was nothing to damage."""
STORE_FAULTS: dict[str, Callable[[Proxy, random.Random], None]] = {
    "store down": refuse,
    "store overloaded": overload,
    "requests cut": cut_requests,
    "answers cut": cut_answers,
}


def draw(others: dict[str, object], rng: random.Random, *, most: int) -> list[str]:
    """One to `most` faults out of these and the ends of a process."""
    names = [*END, *others]
    weights = [KILL_WEIGHT if name == "kill" else 1 for name in names]
    return rng.choices(names, weights, k=rng.randint(1, most))
