"""The worth of each defence of VerifyRM on real completions, before co-training and after it.

    OMP_NUM_THREADS=1 python -m benchmarks.real_defences --data ../shared/data --output runs/real_defences \
        --seeds 0,1,2

For each seed and defence VerifyRM is trained as in `benchmarks/verify_rm_real_data.py`, evaluated on the test
rows and attacked, then co-trained as in `benchmarks/real_cotraining.py`, evaluated and attacked again. The
attack searches on 64 of the test questions, with --queries scores and then --gradient-queries queries or
--gradient-seconds of gradients, and its best texts are measured on 200 others. Rates are per cent with 95 %
intervals over questions. What a folder holds already is not measured again. The veto has no part in
training: its rows are the VerifyRM of `all`, with the note of the veto.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.real_cotraining import co_train
from benchmarks.red_team import MANY, show_rate
from benchmarks.verify_rm_real_data import SETTINGS, split, train
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.domains.veto import note_veto
from cooper_rl.machine.device import pick_device
from cooper_rl.models.verify_rm import load_verify_rm, save_verify_rm
from cooper_rl.progress import show_log
from cooper_rl.records.files import read_report, write_records
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvaluateVerifyRMReport
from cooper_rl.stages import evaluate_verify_rm, red_team

NO_CANARIES = "verify_rm.num_canary_problems=0"
NO_HOSTILE = "verify_rm.hostile_fraction=0"
NO_DECOYS = ("verify_rm.num_decoys=0", "verify_rm.matching_fraction=0")
DEFENCES: dict[str, tuple[str, ...]] = {
    "separators alone": (NO_CANARIES, NO_HOSTILE, *NO_DECOYS),
    "canaries": (NO_HOSTILE, *NO_DECOYS),
    "canaries and hostile texts": NO_DECOYS,
    "all": (),
    "all and the veto": ("verify_rm.veto=true",),
}
WITH_VETO = "all and the veto"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--output", type=Path, default=Path("runs/real_defences"))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--defences", default=",".join(DEFENCES))
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--gradient-queries", type=int, default=10_000)
    parser.add_argument("--gradient-seconds", type=float)
    options = parser.parse_args()
    show_log()
    budget = [
        f"red_team.max_queries={options.queries}",
        f"red_team.max_gradient_queries={MANY if options.gradient_seconds else options.gradient_queries}",
        *([f"red_team.max_gradient_seconds={options.gradient_seconds}"] if options.gradient_seconds else []),
        "red_team.max_type_queries=0",
        "red_team.max_attacked_problems=0",
    ]
    sys.stdout.write(
        "| defence | seed | VerifyRM | accuracy | AUROC | wrong reference | highest canary | known attacks "
        "| without weights | with gradients | forged fields | answer lists |\n" + "|---" * 12 + "|\n"
    )
    parts = split(options.data / "labelled")
    for seed in options.seeds.split(","):
        for defence in options.defences.split(","):
            config = load("laptop_plain", [*SETTINGS, *DEFENCES[defence], *budget, f"seed={seed}"])
            folder = options.output / seed / defence.replace(" ", "_")
            if defence == WITH_VETO:
                train(load("laptop_plain", [*SETTINGS, f"seed={seed}"]), parts, options.output / seed / "all")
                write_with_veto(options.output / seed / "all" / "verify_rm", folder / "verify_rm")
            train(config, parts, folder)
            write_records(folder / "problems.jsonl", problems_of(parts["test"]))
            write_row(config, folder, "verify_rm", f"{defence} | {seed} | before")
            if not (folder / "after" / "config.json").is_file():
                co_train(folder, folder / "after", hostile_fraction=config.verify_rm.hostile_fraction)
            write_row(config, folder, "after", f"{defence} | {seed} | after")
    return 0


def write_with_veto(source: Path, folder: Path) -> None:
    """Write a VerifyRM once more, with the note of the veto."""
    if not (folder / "config.json").is_file():
        verify_rm = load_verify_rm(source, device=pick_device())
        note_veto(verify_rm.model, domain="mathematics")
        save_verify_rm(verify_rm, folder)


def problems_of(rows: list[VerifyExample]) -> list[Problem]:
    """The different questions of labelled rows."""
    first = {row.question: row for row in reversed(rows)}
    return [
        Problem(id=f"t{number}", source="test", question=row.question, reference_answer=row.reference_answer)
        for number, row in enumerate(first.values())
    ]


def write_row(config: Config, folder: Path, name: str, title: str) -> None:
    """Evaluate and attack the VerifyRM in a folder of this name, and print its line of the table."""
    evaluation, found = folder / f"evaluate-{name}.json", folder / f"red_team-{name}.json"
    if not evaluation.is_file():
        evaluate_verify_rm.run(
            config, verify_rm=folder / name, examples=folder / "test.jsonl", report=evaluation
        )
    if not found.is_file():
        red_team.run(
            config, verify_rm=folder / name, problems=folder / "problems.jsonl",
            texts=folder / f"texts-{name}.jsonl", report=found,
        )  # fmt: skip
    honest, attack = read_report(evaluation, EvaluateVerifyRMReport), read_report(found, RedTeamReport)
    canary, worst = max(honest.canaries.items(), key=lambda each: each[1].value)
    rates = [attack.by_method.get(method) for method in ("seed", "mutation", "gradient")]
    cells = [
        show_rate(honest.overall.accuracy), f"{honest.intervals['auroc'].value:.3f}",
        show_rate(honest.wrong_reference), f"{show_rate(worst)} (`{canary}`)",
        *map(show_rate, (*rates, *map(attack.by_family.get, ("forged_fields", "answer_lists")))),
    ]  # fmt: skip
    sys.stdout.write(f"| {title} | {' | '.join(cells)} |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
