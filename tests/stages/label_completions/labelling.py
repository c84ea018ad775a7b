"""Labelling of thirty small problems, as the tests of this folder begin."""

import json
from pathlib import Path

from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.records.files import write_records
from cooper_rl.schema.data import Completion, Problem
from cooper_rl.schema.reports import LabelReport
from cooper_rl.stages import label_completions

NUM_PROBLEMS = 30


def rule_only(*overrides: str) -> Config:
    return load("laptop", ["labeling.judge=null", "labeling.rule.num_workers=1", *overrides])


def write_inputs(folder: Path, texts: list[str], *, source: str = "test") -> None:
    """Thirty problems `1 + i`, each answered by every text with `{answer}` and `{wrong}` filled in."""
    problems = [
        Problem(id=f"p{i}", source=source, question=f"What is 1 + {i}?", reference_answer=str(1 + i))
        for i in range(NUM_PROBLEMS)
    ]
    completions = [
        Completion(
            id=f"p{i}-{j}",
            problem_id=f"p{i}",
            model="sampler",
            text=text.format(answer=1 + i, wrong=2 + i),
            finish_reason="stop",
        )
        for i in range(NUM_PROBLEMS)
        for j, text in enumerate(texts)
    ]
    write_records(folder / "problems.jsonl", problems)
    write_records(folder / "completions.jsonl", completions)


KILLED = (
    "import os, sys; from pathlib import Path\n"
    "from tests.stages.label_completions.labelling import label\n"
    "from cooper_rl.config.load import load\n"
    "from cooper_rl.verdicts.journal import Journal\n"
    "keep, left = Journal.keep, [int(sys.argv[2])]\n"
    "def keep_then_die(self, *verdict):\n"
    "    keep(self, *verdict)\n"
    "    left[0] -= 1\n"
    "    if left[0] == 0: os.kill(os.getpid(), 9)\n"
    "Journal.keep = keep_then_die\n"
    "label(Path(sys.argv[1]), load('laptop', sys.argv[3:]))\n"
)
"""Labels in a folder, and is killed after so many verdicts were kept; its other arguments are overrides."""


def label(folder: Path, config: Config, **frozen: Path) -> LabelReport:
    return label_completions.run(
        config,
        problems=folder / "problems.jsonl",
        completions=folder / "completions.jsonl",
        labels=folder / "labels.jsonl",
        train=folder / "train.jsonl",
        validation=folder / "validation.jsonl",
        test=folder / "test.jsonl",
        report=folder / "report.json",
        **frozen,
    )


def damage(path: Path, edits: dict[int, str | dict[str, str]]) -> None:
    """Replace lines, counted from 1, by text, or change fields of the row that stands there."""
    lines = path.read_text().splitlines()
    for number, edit in edits.items():
        old = json.loads(lines[number - 1])
        lines[number - 1] = edit if isinstance(edit, str) else json.dumps(old | edit)
    path.write_text("\n".join(lines) + "\n")
