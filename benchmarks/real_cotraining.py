"""Co-train VerifyRM on real completions: groups of other people's models stand for a policy's rollouts.

    OMP_NUM_THREADS=1 python -m benchmarks.real_cotraining --run runs/real_data

RUN is the output of `benchmarks/verify_rm_real_data.py`. Each step takes 16 training questions and up to 8
labelled completions of each, and calls `CooperReward` as a trainer does: rule verdicts, pairs, replayed
examples, gate on validation rows. No policy learns from the rewards, so the groups do not move. VerifyRM
of the last step is written to `RUN/after`, and evaluated there on the test rows, beside VerifyRM as it was.
"""

import argparse
import random
import sys
from pathlib import Path

from benchmarks.verify_rm_real_data import SETTINGS
from cooper_rl import CooperReward
from cooper_rl.config.load import load
from cooper_rl.progress import show_log
from cooper_rl.records.files import read_records, read_report
from cooper_rl.schema.data import VerifyExample
from cooper_rl.schema.reports import EvaluateVerifyRMReport
from cooper_rl.stages import evaluate_verify_rm

STEPS = 30
LR = 3e-4
PROBLEMS_PER_STEP = 16
GROUP_SIZE = 8
MIN_GROUP_SIZE = 4
NUM_HELD_OUT = 100
"""Validation rows that the gate scores before and after every update."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--lr", type=float, default=LR)
    options = parser.parse_args()
    show_log()
    run, after = options.run, options.run / "after"
    if not (after / "config.json").is_file():
        co_train(run, after, steps=options.steps, lr=options.lr)
    sys.stdout.write("| VerifyRM | accuracy | recall | AUROC | wrong reference accepted | worst canary |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    before = read_report(run / "evaluate.json", EvaluateVerifyRMReport)
    found = evaluate_verify_rm.run(
        load("laptop_plain", SETTINGS),
        verify_rm=after,
        examples=run / "test.jsonl",
        report=run / "evaluate-after.json",
    )
    sys.stdout.write(describe("before", before) + describe("after", found))
    return 0


def co_train(
    run: Path, folder: Path, *, steps: int = STEPS, lr: float = LR, hostile_fraction: float = 0.25
) -> None:
    """Take the steps, and write VerifyRM as it is then."""
    groups = read_groups(run / "train.jsonl")
    config = {"reward": {"lr": lr, "hostile_fraction": hostile_fraction}}
    held_out = read_records(run / "validation.jsonl", VerifyExample)[:NUM_HELD_OUT]
    with CooperReward(
        str(run / "verify_rm"), config=config, replay=run / "train.jsonl", held_out=held_out
    ) as reward:
        for step in range(steps):
            draw = random.Random(step)
            rows = [
                row
                for group in draw.sample(groups, PROBLEMS_PER_STEP)
                for row in draw.sample(group, min(GROUP_SIZE, len(group)))
            ]
            reward(
                [row.completion for row in rows],
                questions=[row.question for row in rows],
                reference_answers=[row.reference_answer for row in rows],
            )
            done = reward.metrics[-1]
            sys.stderr.write(f"step {step + 1}/{steps}: {done.get('pairs/count', 0):.0f} pairs\n")
        reward.save_verify_rm(folder)


def read_groups(path: Path) -> list[list[VerifyExample]]:
    """Completions of one question and reference answer, where there are enough for a group."""
    found: dict[tuple[str, str], list[VerifyExample]] = {}
    for row in read_records(path, VerifyExample):
        found.setdefault((row.question, row.reference_answer), []).append(row)
    return [group for group in found.values() if len(group) >= MIN_GROUP_SIZE]


def describe(name: str, found: EvaluateVerifyRMReport) -> str:
    """A line of the table."""
    scores, area, recall = found.overall, found.intervals["auroc"], found.overall.recall or 0.0
    wrong = "-" if found.wrong_reference is None else f"{found.wrong_reference.value:.3f}"
    attack, rate = max(found.canaries.items(), key=lambda each: each[1].value)
    accuracy = scores.accuracy
    return (
        f"| {name} | {accuracy.value:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}] | {recall:.2f} "
        f"| {area.value:.3f} [{area.low:.3f}, {area.high:.3f}] | {wrong} | {rate.value:.2f} (`{attack}`) |\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
