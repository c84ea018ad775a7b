"""Real completions that are labelled correct or wrong, from a folder outside the repository.

The folder is `../shared/data`, or what COOPER_REAL_DATA names. Hostile texts that are too long for a data
file are stored as a note there and made here.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

from cooper_rl.records.layouts import Translation, find_layout, translate

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


STATES = "The answer is "
"""Begins the completion that an answer of `read_odyssey` is made into."""


def read_odyssey(folder: Path) -> dict[str, list[Case]]:
    """The graded answers of a checkout of github.com/protagolabs/odyssey-math: to choices, and all others.

    They are the answers of eighteen runs of language models to MathOdyssey's 387 problems, each different one
    once, with the label that most runs have. GPT-4 gave the labels. An answer is a sentence here.
    """
    problems = _read_problems(folder / "final-odyssey-math-with-levels.jsonl")
    labels: dict[tuple[str, str], list[bool]] = {}
    for path in sorted((folder / "jsonl" / "eval").glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                [(name, row)] = json.loads(line).items()
                answer = _without_json(str(row["prediction"]))
                if answer not in {"", "None", "null"} and row["is_correct"] in {"0", "1"}:
                    labels.setdefault((name, answer), []).append(row["is_correct"] == "1")
    found: dict[str, list[Case]] = {"choices": [], "other answers": []}
    for (name, answer), given in labels.items():
        problem = problems[name]
        kind = "choices" if _CHOICE.fullmatch(problem.reference_answer) else "other answers"
        case = Case(
            name,
            problem.reference_answer,
            STATES + answer,
            2 * sum(given) > len(given),
            is_policy_dependent=False,
            question=problem.question,
        )
        found[kind].append(case)
    return found


def _read_problems(path: Path) -> dict[str, Translation]:
    """MathOdyssey's problems by their names, as `collect-problems` reads them."""
    with path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    layout = find_layout(rows)
    assert layout is not None, "MathOdyssey's own columns"
    return {next(iter(row)): translate(row, layout) for row in rows}


_CHOICE = re.compile(r"\$?[A-J]\$?\.?")


def _without_json(text: str) -> str:
    """An answer that was cut out of a JSON object, without what was cut out with it."""
    bare = re.sub(r"\s*\n\s*\}\s*$", "", re.sub(r'^"?answer"?:\s*', "", text.strip()))
    bare = bare.strip().rstrip(",").strip()
    return bare[1:-1].strip() if len(bare) > 1 and bare[0] == bare[-1] == '"' else bare


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
