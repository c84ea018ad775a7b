"""Train a small from-scratch VerifyRM on real labelled completions; compare with two baselines on others.

    OMP_NUM_THREADS=1 python -m benchmarks.verify_rm_real_data --data ../shared/data --output runs/real_data

All files of `labelled/` with completions, split by question (65 / 10 / 25 %). Compared with the more frequent
label of the file; with a logistic regression on a bag of words of completion and reference answer and the
features of the shortcut probe, fitted on all training rows; and with that probe alone, fitted on test rows
of other questions. Differences have bootstrap intervals over questions. A folder that holds a VerifyRM is
evaluated as it is.
"""

import argparse
import hashlib
import logging
import random
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.machine.device import pick_device
from cooper_rl.method.metrics import THRESHOLD, auroc, binary_scores
from cooper_rl.method.questions import question_key
from cooper_rl.method.shortcuts import (
    cross_validated_scores,
    fit_logistic,
    predict_logistic,
    shortcut_features,
)
from cooper_rl.models.verify_rm import load_verify_rm, score_examples
from cooper_rl.records.files import read_rows, write_records
from cooper_rl.schema.data import VerifyExample
from cooper_rl.schema.reports import BinaryScores, TrainVerifyRMReport
from cooper_rl.stages import evaluate_verify_rm, train_verify_rm

SETTINGS = [
    "verify_rm.scratch.num_layers=3", "verify_rm.scratch.num_matching_examples=16000",
    "verify_rm.scratch.matching_lr=4e-3", "verify_rm.optimizer=muon", "verify_rm.lr=2e-3",
    "verify_rm.batch_size=64", "verify_rm.answer_spans=[60, 160, 400]",
    "verify_rm.swapped_references=true", "verify_rm.num_canary_problems=100", "verify_rm.num_epochs=1",
    "verify_rm.validate_every=30", "verify_rm.num_decoys=23", "verify_rm.matching_fraction=0.5",
    "verify_rm.hostile_fraction=0.25",
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("runs/real_data"))
    parser.add_argument("--rows", type=int, help="train on so many rows, drawn at random; default: all")
    parser.add_argument("--models", type=Path, help="of prepare-models: from its backbone, not from scratch")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = load("laptop_plain", [*SETTINGS, *options.overrides])
    folder = options.output
    parts = split(options.data / "labelled")
    test = parts["test"]
    used = {**parts, "train": parts["train"][: options.rows]}
    if trained := train(config, used, folder, models=options.models):
        sys.stdout.write(f"trained on {trained.num_examples} completions in {trained.seconds:.0f} s\n")
    found = evaluate_verify_rm.run(
        config,
        verify_rm=folder / "verify_rm",
        examples=folder / "test.jsonl",
        report=folder / "evaluate.json",
    )
    bag = bag_scores(parts["train"], test)
    lines = [describe("all", found.overall, bag_of(test, bag))]
    for source, scores in sorted(found.by_source.items()):
        places = [place for place, row in enumerate(test) if row.source == source]
        lines.append(describe(source, scores, bag_of([test[p] for p in places], [bag[p] for p in places])))
    lines += [f"canary {name}: {rate.value:.2f}" for name, rate in found.canaries.items()]
    if found.wrong_reference is not None and found.overall.auroc is not None:
        area = found.intervals["auroc"]
        lines.append(f"wrong reference {found.wrong_reference.value:.3f}, ECE {found.overall.ece:.3f}")
        lines.append(f"AUROC {area.value:.3f} [{area.low:.3f}, {area.high:.3f}]")
    ours = score_examples(load_verify_rm(folder / "verify_rm", device=pick_device()), test)
    lines += compare(test, ours, {"bag of features": bag, "shortcut probe": probe_scores(test)})
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def split(folder: Path) -> dict[str, list[VerifyExample]]:
    """Train, validation and test rows; a question is in one of them, whatever its files.

    The training rows are shuffled.
    """
    parts: dict[str, list[VerifyExample]] = {"train": [], "validation": [], "test": []}
    for path in sorted(folder.glob("*.jsonl")):
        if path.stem == "suite_pairs":
            continue  # pairs of answers, no completions
        for value in (row.value for row in read_rows(path)):
            if value.get("policy_dependent") or not isinstance(value["completion"], str):
                continue
            share = hashlib.sha256(question_key(value["question"]).encode()).digest()[0] / 256
            part = "test" if share < 0.25 else "validation" if share < 0.35 else "train"
            example = VerifyExample(
                question=value["question"], reference_answer=value["gold"],
                completion=value["completion"],
                label=int(value["label"] if "label" in value else value["correct"]), source=path.stem,
            )  # fmt: skip
            parts[part].append(example)
    random.Random(0).shuffle(parts["train"])
    return parts


def train(
    config: Config, parts: Mapping[str, Sequence[VerifyExample]], folder: Path, *, models: Path | None = None
) -> TrainVerifyRMReport | None:
    """Write the rows of the three parts, and train VerifyRM on them; None where the folder holds one."""
    for name, rows in parts.items():
        write_records(folder / f"{name}.jsonl", rows)
    if (folder / "verify_rm" / "config.json").is_file():
        return None
    return train_verify_rm.run(
        config, train=folder / "train.jsonl", validation=folder / "validation.jsonl",
        models=models, verify_rm=folder / "verify_rm", report=folder / "train.json",
    )  # fmt: skip


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


def bag_of_words(text: str, num_buckets: int) -> list[float]:
    """Log counts of words, numbers and signs, hashed into buckets (the same on every machine)."""
    counts = [0.0] * num_buckets
    for word in re.findall(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]", text):
        digest = hashlib.blake2b(word.lower().encode(), digest_size=4).digest()
        counts[int.from_bytes(digest, "big") % num_buckets] += 1
    return [float(np.log1p(count)) for count in counts]


def probe_scores(test: list[VerifyExample]) -> list[float]:
    """Scores of the probe that reads neither answer nor reference, each from a fit on other questions."""
    features = np.array([shortcut_features(row.completion) for row in test])
    found = cross_validated_scores(features, [row.label for row in test], [row.question for row in test])
    assert found is not None, "the test rows have one label only"
    return found


def compare(test: list[VerifyExample], ours: list[float], others: dict[str, list[float]]) -> list[str]:
    """AUROC and accuracy of VerifyRM minus another's, with 95 % bootstrap intervals over questions."""
    labels, mine = np.array([row.label for row in test]), np.array(ours)
    by_question: dict[str, list[int]] = {}
    for place, row in enumerate(test):
        by_question.setdefault(row.question, []).append(place)
    groups = [np.array(places) for places in by_question.values()]
    rng = np.random.default_rng(0)
    lines: list[str] = []
    for name, scores in others.items():
        theirs = np.array(scores)
        draws: list[tuple[float, float]] = []
        for _ in range(400):
            picked = np.concatenate([groups[n] for n in rng.integers(len(groups), size=len(groups))])
            draws.append(_difference(labels[picked], mine[picked], theirs[picked]))
        low, high = np.quantile(np.array(draws), [0.025, 0.975], axis=0)
        area, accuracy = _difference(labels, mine, theirs)
        lines.append(
            f"over the {name} (AUROC {auroc(labels.tolist(), scores):.3f}): AUROC {area:+.3f} "
            f"[{low[0]:+.3f}, {high[0]:+.3f}], accuracy {accuracy:+.3f} [{low[1]:+.3f}, {high[1]:+.3f}]"
        )
    return lines


def _difference(labels: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    areas = [auroc(labels, scores) or 0.5 for scores in (mine, theirs)]
    hits = [((scores > THRESHOLD) == (labels == 1)).mean() for scores in (mine, theirs)]
    return areas[0] - areas[1], float(hits[0] - hits[1])


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
