"""The sub-command `experiment`: all stages for several arms and seeds."""

import argparse
from pathlib import Path
from typing import Any

from cooper_rl.cli.options import add_configuration, count
from cooper_rl.cli.stages import format_report
from cooper_rl.comparison.arms import ABLATIONS, ARMS, parse_names, parse_seeds
from cooper_rl.errors import ConfigError


def add_experiment(commands: Any) -> None:
    """Its options."""
    command = commands.add_parser(
        "experiment",
        help="Compare arms over seeds: all stages, in parallel, and one report.",
        description="Train every arm with every seed, and write report.html. Arms differ only in the "
        "settings listed below. The same command continues a stopped experiment; arms and seeds may be "
        "added later.",
        epilog="\n".join(
            [
                "arms and what they set:",
                *(f"  {name}: {' '.join(values)}" for name, values in ARMS.items()),
                "ablations of the arm cooper (--ablate):",
                *(f"  {name}: {' '.join(values)}" for name, values in ABLATIONS.items()),
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=_run)
    add_configuration(command)
    command.add_argument(
        "--arms", default="rule,frozen,cooper,exact", help="names, separated by commas, or all"
    )
    command.add_argument(
        "--ablate", default="", metavar="NAMES", help="ablations beside the arms, separated by commas, or all"
    )
    command.add_argument("--seeds", default="0,1,2", help="seeds of co-training, separated by commas")
    command.add_argument(
        "--output", type=Path, required=True, metavar="PATH", help="folder of the experiment"
    )
    command.add_argument("--workers", type=count, help="processes at a time (default: one per core)")


def _run(options: argparse.Namespace) -> str:
    arms = parse_names(options.arms, allowed=list(ARMS), option="--arms")
    ablations = parse_names(options.ablate, allowed=list(ABLATIONS), option="--ablate")
    if not [*arms, *ablations]:
        raise ConfigError(f"--arms and --ablate name nothing to train; use some of {', '.join(ARMS)}")
    seeds = parse_seeds(options.seeds)
    from cooper_rl.experiment.run import run_experiment

    report = run_experiment(
        options.preset,
        options.overrides,
        arms=[*arms, *ablations],
        seeds=seeds,
        output=options.output,
        num_workers=options.workers,
    )
    return format_report(report, path=options.output / "report.html")
