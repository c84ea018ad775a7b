"""What the tests of the service send, and what its folder holds afterwards."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from cooper_rl.checkpoints.manifest import LATEST

SETTINGS = [
    "cooper.reward.lr=1e-3",
    "cooper.checkpoint_every=2",
    "rule.num_workers=1",
    "rule.policy.number_words=false",
    "collect_items=6",
]


def items(start: int, *, size: int = 4) -> list[dict[str, str]]:
    """Two problems; every other completion is right."""
    return [
        {
            "question": f"{start} + {more}?",
            "reference_answer": str(start + more),
            "completion": f"The answer is {start + more + number % 2 * (number + 1)}.",
            "group": str(more),
        }
        for more in range(2)
        for number in range(size)
    ]


REQUESTS: list[dict[str, Any]] = [
    {"request_id": "one", "items": items(1)},
    {"request_id": "looked at", "items": items(9), "learn": "never"},
    {"request_id": "two", "items": items(2)},
    {"request_id": "first half", "items": items(3, size=2), "learn": "later"},
    {"request_id": "second half", "items": items(4, size=2), "learn": "later"},
    {"request_id": "third", "items": items(5, size=1), "learn": "later"},
    {"request_id": "four", "items": items(6)},
]
"""Four steps: the third is collected from the halves; a part of the fourth was collected before it."""


class Outcome(NamedTuple):
    """What must not depend on kills."""

    answers: list[dict[str, Any]]
    metrics: list[dict[str, float]]
    files: dict[str, str]
    """SHA-256 of weights, optimiser and pairs of the last checkpoint."""


def read_outcome(run: Path, answers: list[dict[str, Any]]) -> Outcome:
    place = run / "checkpoints" / (run / "checkpoints" / LATEST).read_text().strip()
    log = {kind: read_log(place, kind) for kind in ("metrics.jsonl", "pairs.jsonl")}
    lines = log["metrics.jsonl"].decode().splitlines()
    metrics = [
        {name: value for name, value in json.loads(line).items() if not name.startswith("seconds/")}
        for line in lines
    ]
    names = ("verify_rm/model.safetensors", "verify_rm_optimizer.safetensors", "anchors.jsonl")
    contents = {name: (place / name).read_bytes() for name in names} | {"pairs": log["pairs.jsonl"]}
    files = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return Outcome(answers, metrics, files)


def read_log(place: Path, kind: str) -> bytes:
    """The rows of every step, from the pieces that a checkpoint names."""
    pieces = json.loads((place / "manifest.json").read_text())["log"]["pieces"]
    return b"".join(
        (place.parent / each["name"] / kind).read_bytes() for each in pieces if kind in each["sha256"]
    )
