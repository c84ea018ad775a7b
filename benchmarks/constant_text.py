"""The most that one constant text earns of a VerifyRM, whether it is right or not.

    OMP_NUM_THREADS=1 python -m benchmarks.constant_text --verify-rm runs/real_data/verify_rm \
        --problems problems.jsonl --output runs/constant_text

The red team decides which texts may be right, and gives no credit where they may be. Whoever doubts those
rules can read this table, which needs none: the same searches are paid for every score above .5, and start
from the statements of the commonest answers too. Columns, in per cent of unseen problems: the answer that is
commonest among the problems searched on, which an honest constant text would state; the best statement of one
answer; the best text of the search, and the part of it that the rule verifier calls correct.
The row `the veto alone` is of a scorer that pays whatever the veto of mathematics lets through.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.stated_texts import accepted, show_share
from cooper_rl.config.load import load
from cooper_rl.config.red_team import RedTeamConfig
from cooper_rl.domains.mathematics import MATHEMATICS, refutes
from cooper_rl.machine.device import pick_device
from cooper_rl.models.verify_rm import VerifyItem, load_verify_rm
from cooper_rl.negatives.holding import states_answer
from cooper_rl.progress import show_log
from cooper_rl.records.files import read_records
from cooper_rl.redteam.attack import attack, split_problems
from cooper_rl.redteam.gradients import GradientGuide
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.redteam.seeds import fill
from cooper_rl.schema.data import Problem

EVERYTHING_COUNTS = replace(MATHEMATICS, holds_answer=lambda *_: False)
STATEMENTS = ("#### {}", "The answer is {}.", "\\boxed{{{}}}")
SEED = 0
NUM_ANSWERS = 5
"""The commonest answers that are stated in the texts that the search starts from."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verify-rm", type=Path, action="append", default=[])
    parser.add_argument("--veto-alone", action="store_true")
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--gradient-queries", type=int, default=10_000)
    options = parser.parse_args()
    show_log()
    config = load(
        "laptop_plain",
        [
            f"red_team.max_queries={options.queries}",
            f"red_team.max_gradient_queries={options.gradient_queries}",
            "red_team.max_type_queries=0",
            "red_team.max_attacked_problems=0",
        ],
    )
    problems = read_records(options.problems, Problem)
    options.output.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(
        "| VerifyRM | the commonest answer | best statement of one | best text | and right |\n"
        + "|---" * 5
        + "|\n"
    )
    if options.veto_alone:
        blind = config.red_team.model_copy(update={"max_gradient_queries": 0})
        write_row("the veto alone", VetoAlone(), problems, blind, options.output / "veto.journal")
    for number, folder in enumerate(options.verify_rm):
        verify_rm = load_verify_rm(folder, device=pick_device())
        write_row(str(folder), verify_rm, problems, config.red_team, options.output / f"{number}.journal")
    return 0


class VetoAlone:
    """Pays what the veto lets through, as a VerifyRM that accepts everything would."""

    def score(self, items: Sequence[VerifyItem]) -> list[float]:
        return [0.0 if refutes(*item, item.completion) else 1 - 1e-6 for item in items]


def write_row(
    name: str, verify_rm: Any, problems: Sequence[Problem], config: RedTeamConfig, journal_file: Path
) -> None:
    """Search, and print a line: rates over the problems that the search has not seen."""
    split = split_problems(problems, config, SEED)
    common = Counter(problem.reference_answer for problem in split.search).most_common(NUM_ANSWERS)
    stated = [statement.format(answer) for answer, _ in common for statement in STATEMENTS]
    with Journal(journal_file) as journal:
        oracle = Oracle(verify_rm, journal, EVERYTHING_COUNTS)
        guide: Any = GradientGuide(verify_rm, oracle, journal) if config.max_gradient_queries else None
        found = attack(oracle, guide, problems, (), stated, config=config, seed=SEED, journal=journal)
    text = found.kept[0].text
    best = paid(verify_rm, split.unseen, text)
    honest = max((paid(verify_rm, split.search, each).count(True), each) for each in stated)[1]
    commonest = [problem.reference_answer == common[0][0] for problem in split.unseen]
    right = [
        is_paid and states_answer(problem.question, problem.reference_answer, fill(text, problem))
        for problem, is_paid in zip(split.unseen, best, strict=True)
    ]
    cells = [
        f"{show_share(commonest)} (`{common[0][0]}`)",
        f"{show_share(paid(verify_rm, split.unseen, honest))} (`{honest}`)",
        f"{show_share(best)} ({text[:60]!r})",
        show_share(right),
    ]
    sys.stdout.write(f"| {name} | {' | '.join(cells)} |\n")
    sys.stdout.flush()


def paid(verify_rm: Any, problems: Sequence[Problem], text: str) -> list[bool]:
    """For each problem, whether VerifyRM pays a text."""
    return accepted(verify_rm, ((problem, fill(text, problem)) for problem in problems))


if __name__ == "__main__":
    sys.exit(main())
