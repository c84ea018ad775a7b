"""What the tests of the service send, and what its folder holds afterwards."""

import hashlib
import json
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from cooper_rl.api.reward_config import make_settings
from cooper_rl.checkpoints.manifest import LATEST
from cooper_rl.config.load import load_learn
from cooper_rl.schema.data import VerifyExample
from cooper_rl.service.runs import Start

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


HELD_OUT = [
    VerifyExample(
        question=f"{n} + 9?", reference_answer=str(n + 9), completion=f"It is {n + 8 + label}.", label=label
    )
    for n in range(4)
    for label in (0, 1)
]
"""For the gate and its canaries."""


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


def start_of(verify_rm: Path, state: Path, *settings: str, held_out: Sequence[VerifyExample] = ()) -> Start:
    config = load_learn([*SETTINGS, *settings])
    made = make_settings(
        config.cooper, rule=config.rule, replay=(), held_out=held_out, seed=config.seed, device="cpu"
    )
    return Start(verify_rm, made, state)


def post(
    client: httpx.AsyncClient, name: str, batch: list[dict[str, str]], run: str = "a", **more: Any
) -> Awaitable[httpx.Response]:
    body = {"request_id": name, "items": batch, **more}
    return client.post(f"/v1/runs/{run}/rewards", json=body, timeout=60)


def falling(n: int) -> list[dict[str, str]]:
    """All right in the first steps, all wrong afterwards."""
    return [
        {**item, "completion": f"The answer is {item['reference_answer'] if n < 4 else 77}."}
        for item in items(1)
    ]
