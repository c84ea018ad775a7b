"""Label gsm8k_ems through the stage, by the rule alone, and score the labels against its own.

    python -m benchmarks.label_gsm8k_ems --data ../shared/data --output runs/label_gsm8k_ems

gsm8k_ems holds 2,640 completions of four models on GSM8K, labelled by exact match. They become the two files
that `label-completions` reads; what it writes to `labels` is compared with the labels that came with them.
"""

import argparse
import logging
import sys
import time
from pathlib import Path

from cooper_rl.config.load import load
from cooper_rl.records.files import read_records, read_rows, write_records
from cooper_rl.schema.data import Completion, Label, Problem
from cooper_rl.stages import label_completions

OVERRIDES = ("labeling.judge=null", "labeling.rule.policy.number_words=true")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("runs/label_gsm8k_ems"))
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    folder = options.output
    gold = write_inputs(options.data / "labelled" / "gsm8k_ems.jsonl", folder)
    started = time.process_time()
    report = label_completions.run(
        load("laptop", [*OVERRIDES, *options.overrides]),
        problems=folder / "problems.jsonl",
        completions=folder / "completions.jsonl",
        labels=folder / "labels.jsonl",
        train=folder / "train.jsonl",
        validation=folder / "validation.jsonl",
        test=folder / "test.jsonl",
        report=folder / "report.json",
    )
    sys.stdout.write(
        f"{report.num_completions} completions, {report.num_labelled} labelled, {report.num_dropped} "
        f"dropped, {report.num_rejected} set aside; {report.seconds:.1f} s by the clock, "
        f"{time.process_time() - started:.1f} CPU s\n"
        f"{score(gold, read_records(folder / 'labels.jsonl', Label))}\n"
        f"examples: train {report.num_train}, validation {report.num_validation}, test {report.num_test}\n"
    )
    return 0


def write_inputs(source: Path, folder: Path) -> dict[str, bool]:
    """Write problems.jsonl and completions.jsonl; returns completion id -> is correct."""
    problems: dict[str, Problem] = {}
    completions: list[Completion] = []
    gold: dict[str, bool] = {}
    for row in read_rows(source):
        value = row.value
        question = value["question"]
        if question not in problems:
            problems[question] = Problem(
                id=f"gsm8k-{len(problems)}",
                source="gsm8k",
                question=question,
                reference_answer=value["gold"],
            )
        completions.append(
            Completion(
                id=value["id"],
                problem_id=problems[question].id,
                model=value["model"],
                text=value["completion"],
                finish_reason="stop",
            )
        )
        gold[value["id"]] = value["label"]
    write_records(folder / "problems.jsonl", problems.values())
    write_records(folder / "completions.jsonl", completions)
    return gold


def score(gold: dict[str, bool], labels: list[Label]) -> str:
    """A dropped completion is neither: it counts against recall where it is correct."""
    accepted = [gold[label.completion_id] for label in labels if label.is_correct]
    dropped = [gold[label.completion_id] for label in labels if label.is_correct is None]
    num_correct = sum(gold.values())
    return (
        f"precision {sum(accepted)}/{len(accepted)} = {sum(accepted) / len(accepted):.4f}, "
        f"recall {sum(accepted)}/{num_correct} = {sum(accepted) / num_correct:.4f}, "
        f"correct among the dropped: {sum(dropped)} of {len(dropped)}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
