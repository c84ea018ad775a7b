"""Train a small from-scratch VerifyRM on real labelled completions; compare with two baselines on others.

    OMP_NUM_THREADS=1 python benchmarks/verify_rm_real_data.py --data ../shared/data --output runs/real_data

All files of `labelled/` with completions, split by question (65 / 10 / 25 %). The baselines: the more
frequent label of the file, and a logistic regression on a bag of words of completion and reference answer
with the features of the shortcut probe. A folder that holds a VerifyRM already is evaluated as it is.
"""

import argparse
import hashlib
import logging
import sys
from pathlib import Path

import numpy as np

from cooper_rl.config.load import load
from cooper_rl.core.metrics import auroc, binary_scores
from cooper_rl.core.shortcuts import bag_of_words, fit_logistic, predict_logistic, shortcut_features
from cooper_rl.records import read_records, read_rows, write_records
from cooper_rl.schema import BinaryScores, VerifyExample
from cooper_rl.stages import evaluate_verify_rm, train_verify_rm

SETTINGS = [
    "verify_rm.scratch.num_layers=3", "verify_rm.scratch.num_matching_examples=26000",
    "verify_rm.scratch.matching_lr=4e-3", "verify_rm.optimizer=muon", "verify_rm.lr=2e-3",
    "verify_rm.batch_size=64", "verify_rm.answer_span_epochs=1", "verify_rm.answer_span_chars=60",
    "verify_rm.swapped_references=true", "verify_rm.num_epochs=1",
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("runs/real_data"))
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = load("laptop", [*SETTINGS, *options.overrides])
    folder = options.output
    for name, rows in split(options.data / "labelled").items():
        write_records(folder / f"{name}.jsonl", rows)
    if not (folder / "verify_rm" / "config.json").is_file():
        trained = train_verify_rm.run(
            config, train=folder / "train.jsonl", validation=folder / "validation.jsonl",
            verify_rm=folder / "verify_rm", report=folder / "train.json",
        )  # fmt: skip
        sys.stdout.write(f"trained on {trained.num_examples} completions in {trained.seconds:.0f} s\n")
    found = evaluate_verify_rm.run(
        config,
        verify_rm=folder / "verify_rm",
        examples=folder / "test.jsonl",
        report=folder / "evaluate.json",
    )
    test = read_records(folder / "test.jsonl", VerifyExample)
    bag = bag_scores(read_records(folder / "train.jsonl", VerifyExample), test)
    lines = [describe("all", found.overall, bag_of(test, bag))]
    for source, scores in sorted(found.by_source.items()):
        places = [place for place, row in enumerate(test) if row.source == source]
        lines.append(describe(source, scores, bag_of([test[p] for p in places], [bag[p] for p in places])))
    lines += [f"canary {name}: {rate.value:.2f}" for name, rate in found.canaries.items()]
    if found.wrong_reference is not None and found.overall.auroc is not None:
        area = found.intervals["auroc"]
        lines.append(f"wrong reference {found.wrong_reference.value:.3f}, ECE {found.overall.ece:.3f}")
        lines.append(f"AUROC {area.value:.3f} [{area.low:.3f}, {area.high:.3f}]")
        lines.append(f"AUROC of the shortcut probe {found.shortcut_auroc:.3f}")
        lines.append(f"AUROC of the bag of features {auroc([row.label for row in test], bag):.3f}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def split(folder: Path) -> dict[str, list[VerifyExample]]:
    """Train, validation and test rows; a question is in one of them, whatever its files."""
    parts: dict[str, list[VerifyExample]] = {"train": [], "validation": [], "test": []}
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem == "suite_pairs":
            continue  # pairs of answers, no completions
        for value in (row.value for row in read_rows(path)):
            if value.get("policy_dependent") or not isinstance(value["completion"], str):
                continue
            share = hashlib.sha256(value["question"].encode()).digest()[0] / 256
            part = "test" if share < 0.25 else "validation" if share < 0.35 else "train"
            example = VerifyExample(
                question=value["question"], reference_answer=value["gold"],
                completion=value["completion"],
                label=int(value["label"] if "label" in value else value["correct"]), source=path.stem,
            )  # fmt: skip
            parts[part].append(example)
    return parts


def bag_scores(train: list[VerifyExample], test: list[VerifyExample]) -> list[float]:
    """Scores of the bag-of-features probe, fitted on the training rows."""

    def features(rows: list[VerifyExample]) -> np.ndarray:
        return np.array(
            [
                shortcut_features(row.completion)
                + bag_of_words(row.completion, 512)
                + bag_of_words(row.reference_answer, 64)
                for row in rows
            ]
        )

    targets = np.array([float(row.label) for row in train])
    return predict_logistic(fit_logistic(features(train), targets, l2=30.0), features(test)).tolist()


def bag_of(rows: list[VerifyExample], scores: list[float]) -> BinaryScores:
    return binary_scores([row.label for row in rows], scores, problems=[row.question for row in rows])


def describe(name: str, scores: BinaryScores, bag: BinaryScores) -> str:
    accuracy = scores.accuracy
    areas = ["-" if found is None else f"{found:.3f}" for found in (scores.auroc, bag.auroc)]
    return (
        f"| {name} | {scores.num_examples} "
        f"| {accuracy.value:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}] | "
        f"{scores.majority_accuracy:.3f} | {bag.accuracy.value:.3f} | {areas[0]} | {areas[1]} |"
    )


if __name__ == "__main__":
    raise SystemExit(main())
