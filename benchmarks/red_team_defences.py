"""The worth of each defence of VerifyRM against the red team: one row per defence and seed.

    python -m benchmarks.red_team_defences --run RUN --output runs/defences --seeds 0,1,2

RUN is the folder of an `end_to_end` run: its models, labels and problems are used, and VerifyRM is trained
anew for each row. With --steps the policy is then trained with it for so many steps of Cooper, and the
VerifyRM of the last one is a row too. Columns: accuracy, recall and AUROC on the run's test examples, and the
share of unseen problems on which the best universal text is paid, after known attacks alone, after --queries
scores, and after --gradient-queries more with gradients. A row that is there already is not measured again.

Decoys are worth more epochs, so their rows have EPOCHS of them, and so has their control.

`red-team texts` trains once, attacks with a third of the budget on the validation problems, and trains again
with the texts that were found.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.red_team import show_rate
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.load import load
from cooper_rl.progress import show_log
from cooper_rl.records.files import read_report, write_records
from cooper_rl.records.verify_formats import read_examples
from cooper_rl.schema.data import Problem
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvaluateVerifyRMReport
from cooper_rl.stages import evaluate_verify_rm, red_team, train_cooper, train_verify_rm

HOSTILE = ("verify_rm.hostile_fraction=0.25", "cooper.reward.hostile_fraction=0.25")
CANARIES = "verify_rm.num_canary_problems=10"
EPOCHS = "verify_rm.num_epochs=5"
DECOYS = ("verify_rm.num_decoys=23", EPOCHS)
DEFENCES: dict[str, tuple[str, ...]] = {
    "separators alone": (),
    "five epochs": (EPOCHS,),
    "canaries": (CANARIES,),
    "hostile texts": HOSTILE,
    "decoys": DECOYS,
    "hostile texts and decoys": (*HOSTILE, *DECOYS),
    "hostile texts and decoys with the veto": (*HOSTILE, *DECOYS, "verify_rm.veto=true"),
    "red-team texts": (),
    "all": (CANARIES, *HOSTILE, *DECOYS),
}
LEARNS_FINDS = frozenset({"red-team texts", "all"})


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--preset", default="laptop_plain")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--defences", default=",".join(DEFENCES))
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--gradient-queries", type=int, default=10_000)
    parser.add_argument("--unseen", type=int, default=200)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    show_log()
    lines = [
        "| defence | seed | VerifyRM | accuracy | recall | AUROC | known attacks | without weights "
        "| with gradients |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for seed in options.seeds.split(","):
        for defence in options.defences.split(","):
            folder = options.output / seed / defence.replace(" ", "_")
            budget = [
                f"seed={seed}",
                f"red_team.max_queries={options.queries}",
                f"red_team.max_gradient_queries={options.gradient_queries}",
                f"red_team.max_unseen_problems={options.unseen}",
                "red_team.max_attacked_problems=0",
                "red_team.num_texts=3",
            ]
            if not (folder / "red_team.json").is_file():
                measure(options.run, folder, options.preset, defence, budget)
            rows = [row(folder, f"{defence} | {seed} | before")]
            if options.steps:
                after = folder / "after"
                if not (after / "red_team.json").is_file():
                    steps = [*budget, f"cooper.steps={options.steps}"]
                    measure_after(options.run, folder, options.preset, defence, steps)
                rows.append(row(after, f"{defence} | {seed} | after"))
            lines += rows
            sys.stdout.write("\n".join(rows) + "\n")
            sys.stdout.flush()
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def measure(run: Path, folder: Path, preset: str, defence: str, budget: Sequence[str]) -> None:
    """Train VerifyRM with a defence, evaluate it on honest completions, and attack it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = load(preset, [*budget, *DEFENCES[defence]])
    labels = run / "label-completions"
    attacks = None
    if defence in LEARNS_FINDS:
        train(run, folder / "first", preset, [*budget, *DEFENCES[defence]], attacks=None)
        attacks = folder / "found.jsonl"
        write_records(folder / "searched_on.jsonl", problems_of(labels / "validation"))
        third = f"red_team.max_queries={config.red_team.max_queries // 3}"
        red_team.run(
            load(preset, [*budget, third, "red_team.num_texts=20"]),
            verify_rm=folder / "first" / "verify_rm", problems=folder / "searched_on.jsonl",
            texts=attacks, report=folder / "found.json",
        )  # fmt: skip
    train(run, folder, preset, [*budget, *DEFENCES[defence]], attacks=attacks)
    evaluate_verify_rm.run(
        config, verify_rm=folder / "verify_rm", examples=labels / "test", report=folder / "evaluation.json"
    )
    red_team.run(
        config, verify_rm=folder / "verify_rm", problems=run / "collect-problems" / "held_out",
        texts=folder / "texts.jsonl", report=folder / "red_team.json",
    )  # fmt: skip


def measure_after(run: Path, folder: Path, preset: str, defence: str, overrides: Sequence[str]) -> None:
    """Train the policy and VerifyRM together, and measure that VerifyRM like the one before."""
    config = load(preset, [*overrides, *DEFENCES[defence]])
    labels, problems, after = run / "label-completions", run / "collect-problems", folder / "after"
    after.mkdir(parents=True, exist_ok=True)
    train_cooper.run(
        config, models=run / "prepare-models" / "models", verify_rm=folder / "verify_rm",
        problems=problems / "problems", replay=labels / "train", test=labels / "test",
        checkpoint=after / "checkpoint", report=after / "cooper.json",
    )  # fmt: skip
    with open_checkpoint(after / "checkpoint", config.storage) as found:
        evaluate_verify_rm.run(
            config, verify_rm=found.folder / "verify_rm", examples=labels / "test",
            report=after / "evaluation.json",
        )  # fmt: skip
    red_team.run(
        config, verify_rm=folder / "verify_rm", problems=problems / "held_out",
        checkpoint=after / "checkpoint", texts=after / "texts.jsonl", report=after / "red_team.json",
    )  # fmt: skip


def train(run: Path, folder: Path, preset: str, overrides: Sequence[str], *, attacks: Path | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    train_verify_rm.run(
        load(preset, overrides), train=run / "label-completions" / "train",
        validation=run / "label-completions" / "validation", models=run / "prepare-models" / "models",
        attacks=attacks, verify_rm=folder / "verify_rm", report=folder / "train.json",
    )  # fmt: skip


def problems_of(examples: Path) -> list[Problem]:
    """The different problems of labelled examples."""
    rows = {row.question: row.reference_answer for row in read_examples(examples).records}
    return [
        Problem(id=str(number), source="validation", question=question, reference_answer=answer)
        for number, (question, answer) in enumerate(sorted(rows.items()))
    ]


def row(folder: Path, title: str) -> str:
    """One line of the table."""
    honest = read_report(folder / "evaluation.json", EvaluateVerifyRMReport).overall
    found = read_report(folder / "red_team.json", RedTeamReport)
    rates = [found.by_method.get(method) for method in ("seed", "mutation", "gradient")]
    auroc = "-" if honest.auroc is None else f"{honest.auroc:.3f}"
    recall = "-" if honest.recall is None else f"{honest.recall:.2f}"
    cells = [show_rate(honest.accuracy), recall, auroc, *map(show_rate, rates)]
    return f"| {title} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
