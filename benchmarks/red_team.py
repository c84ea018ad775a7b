"""The resistance of a VerifyRM to the red team: one row per VerifyRM and seed of the search.

    python -m benchmarks.red_team --verify-rm RUN/train-verify-rm/verify_rm --checkpoint RUN/.../checkpoint \
        --problems RUN/collect-problems/held_out --output runs/red_team --seeds 0,1,2

Rows: `before`, the VerifyRM of --verify-rm, and `after`, that of each --checkpoint. Rates are over problems
that no search has seen, in per cent with 95 % intervals: the best seed, the best universal text after
--queries scores, after --gradient-seconds more of search with gradients, and the problems for which a text of
their own was found. A search that was stopped goes on when the same command is given again.
"""

import argparse
import sys
from pathlib import Path

from cooper_rl.config.load import load
from cooper_rl.progress import show_log
from cooper_rl.schema.reports import Interval
from cooper_rl.stages import red_team

MANY = 10**9
"""Queries of the search with gradients, which its seconds bound."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--verify-rm", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, action="append", default=[])
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--gradient-seconds", type=float, default=600.0)
    options = parser.parse_args()
    show_log()
    lines = [
        "| VerifyRM | seed | best seed text | without weights | with gradients | a problem's own text |",
        "|---|---|---|---|---|---|",
    ]
    for checkpoint in (None, *options.checkpoint):
        name = "before" if checkpoint is None else f"after ({checkpoint})"
        for seed in options.seeds.split(","):
            folder = options.output / name.replace("/", "_") / seed
            config = load(
                options.preset,
                [
                    f"seed={seed}",
                    f"red_team.max_queries={options.queries}",
                    f"red_team.max_gradient_queries={MANY}",
                    f"red_team.max_gradient_seconds={options.gradient_seconds}",
                ],
            )
            result = red_team.run(
                config, verify_rm=options.verify_rm, problems=options.problems, checkpoint=checkpoint,
                texts=folder / "texts.jsonl", report=folder / "report.json",
            )  # fmt: skip
            rates = [result.by_method.get(method) for method in ("seed", "mutation", "gradient")]
            cells = [show_rate(rate) for rate in (*rates, result.per_problem)]
            lines.append(f"| {name} | {seed} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def show_rate(rate: Interval | None) -> str:
    """A share in percent with its interval and count."""
    if rate is None:
        return "-"
    return f"{100 * rate.value:.1f} [{100 * rate.low:.1f}, {100 * rate.high:.1f}] of {rate.count}"


if __name__ == "__main__":
    sys.exit(main())
