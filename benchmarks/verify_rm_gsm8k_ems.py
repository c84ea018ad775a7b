"""Train the small from-scratch VerifyRM on half of the problems of gsm8k_ems, score it on the other half.

    python -m benchmarks.verify_rm_gsm8k_ems --data ../shared/data --output runs/gsm8k_ems

gsm8k_ems holds 2,640 completions of four models on GSM8K with exact labels. The halves share no problem; a
tenth of the first half's problems validates, so that the test half chooses nothing.
The model has no pre-training at all, so this shows that the stage runs on real text and what such a model
is worth, next to the majority baseline; it is no claim about VerifyRM from a real backbone.
"""

import argparse
import hashlib
import logging
import sys
from pathlib import Path

from cooper_rl.config.load import load
from cooper_rl.records.files import read_rows, write_records
from cooper_rl.schema.data import VerifyExample
from cooper_rl.schema.reports import BinaryScores
from cooper_rl.stages import evaluate_verify_rm, train_verify_rm


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("runs/gsm8k_ems"))
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = load("laptop_plain", ["verify_rm.num_epochs=5", *options.overrides])
    parts: dict[str, list[VerifyExample]] = {"train": [], "validation": [], "test": []}
    for row in read_rows(options.data / "labelled" / "gsm8k_ems.jsonl"):
        value = row.value
        example = VerifyExample(
            question=value["question"],
            reference_answer=value["gold"],
            completion=value["completion"],
            label=int(value["label"]),
            source=value["model"],
        )
        parts[_part(example.question)].append(example)
    folder = options.output
    for name, examples in parts.items():
        write_records(folder / f"{name}.jsonl", examples)
    trained = train_verify_rm.run(
        config,
        train=folder / "train.jsonl",
        validation=folder / "validation.jsonl",
        verify_rm=folder / "verify_rm",
        report=folder / "train.json",
    )
    evaluated = evaluate_verify_rm.run(
        config,
        verify_rm=folder / "verify_rm",
        examples=folder / "test.jsonl",
        report=folder / "evaluate.json",
    )
    lines = [
        f"trained on {trained.num_examples} completions, {trained.num_updates} updates, "
        f"{trained.seconds:.0f} s, final loss {trained.final_loss:.3f}",
        _describe("all", evaluated.overall),
        *(_describe(source, scores) for source, scores in sorted(evaluated.by_source.items())),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _part(question: str) -> str:
    """Half of the problems test, a twentieth validates, the rest trains; decided by the question's hash."""
    place = hashlib.sha256(question.encode()).digest()[0]
    return "test" if place >= 128 else "validation" if place < 13 else "train"


def _describe(name: str, scores: BinaryScores) -> str:
    accuracy = scores.accuracy
    auroc = "-" if scores.auroc is None else f"{scores.auroc:.3f}"
    return (
        f"{name:34} n={scores.num_examples:5} accuracy {accuracy.value:.3f} "
        f"[{accuracy.low:.3f}, {accuracy.high:.3f}]  majority {scores.majority_accuracy:.3f}  AUROC {auroc}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
