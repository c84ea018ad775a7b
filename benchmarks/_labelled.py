"""Real completions that are labelled correct or wrong, from a folder outside the repository.

The folder is `../shared/data`, or what COOPER_REAL_DATA names. Hostile texts that are too long for a data
file are stored as a note there and made here.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Literal, NamedTuple

FILES = (
    "gsm8k_ems",
    "hardverify",
    "zeroeval_gsm",
    "zeroeval_mathl5",
    "mr_gsm8k",
    "bbm_arith",
    "olympiad_scoring",
    "suite_pairs",
    "nasty_pairs",
)


class Case(NamedTuple):
    """A completion with its reference answer, and what a verifier should say."""

    id: str
    reference_answer: str
    completion: str
    is_correct: bool
    is_policy_dependent: bool
    """Either verdict can be defended."""
    question: str = ""
    finish_reason: Literal["stop", "length"] | None = None


def find_data() -> Path | None:
    """The folder with real data, if this machine has one."""
    root = Path(__file__).resolve().parent.parent
    folder = Path(os.environ.get("COOPER_REAL_DATA") or root.parent / "shared" / "data")
    return folder if (folder / "labelled").is_dir() else None


Half = Literal["tune", "report", "fresh"]
"""`fresh`: rows of `report` that no earlier version was mended by, since `FORMER_SEED` reported them too."""


def read_cases(data: Path, name: str, *, half: Half | None = None) -> list[Case]:
    """Rows of one labelled file, in order: all, or a half of its questions.

    The verifier may be mended by the rows of `tune`; its figures come from those of `report`.
    """
    with (data / "labelled" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        rows: list[dict[str, object]] = [json.loads(line) for line in lines]
    return [_case(row) for row in rows if half is None or _is_in(row, half)]


def _is_in(row: dict[str, object], half: Half) -> bool:
    is_reported = _is_drawn(row, SPLIT_SEED)
    if half == "fresh":
        return is_reported and _is_drawn(row, FORMER_SEED)
    return is_reported == (half == "report")


def _is_drawn(row: dict[str, object], seed: str) -> bool:
    question = " ".join(str(row.get("question") or row["gold"]).lower().split())
    return bool(hashlib.blake2b(f"{seed}:{question}".encode()).digest()[0] % 2)


SPLIT_SEED, FORMER_SEED = "labels-2026-11-24", "labels-2026-11-23"


def _case(row: dict[str, object]) -> Case:
    label = next(row[key] for key in ("label", "correct", "expected") if key in row)
    completion = row["completion"] if "completion" in row else row["pred"]
    if completion is None:
        completion = _HOSTILE[str(row["note"])]
    return Case(
        str(row["id"]),
        str(row["gold"]),
        str(completion),
        bool(label),
        bool(row.get("policy_dependent")),
        str(row.get("question") or ""),
        row.get("finish_reason"),  # pyright: ignore[reportArgumentType] the data's own words
    )


_HOSTILE = {
    "deep parens (5000)": r"\boxed{" + "(" * 5000 + "1" + ")" * 5000 + "}",
    "400 kB of tokens; last number 1": "token " * 66_666 + " 1",
    "20k unclosed boxes": r"\boxed{" * 20_000,
    "long comma list": r"\boxed{" + ",".join(["1"] * 50_000) + "}",
}
