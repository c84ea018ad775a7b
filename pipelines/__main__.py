"""`python -m pipelines local | compile`: run the pipeline on this machine, or write it for a cluster."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from components.images import CPU_IMAGE
from cooper_rl.config import preset_names
from cooper_rl.errors import ConfigError, CooperError

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns the exit status: 0, 1 for a failed stage, 2 for an error of use."""
    options = build_parser().parse_args(arguments)
    try:
        return _local(options) if options.command == "local" else _compile(options)
    except CooperError as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write(
            "\ninterrupted; finished stages are kept: run the same command to go on from there\n"
        )
        return EXIT_INTERRUPTED


def build_parser() -> argparse.ArgumentParser:
    """The parser of both sub-commands."""
    parser = argparse.ArgumentParser(prog="python -m pipelines", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    local = commands.add_parser(
        "local", help="run the compiled pipeline on this machine through kfp.local", allow_abbrev=False
    )
    local.add_argument(
        "--preset",
        default="laptop",
        help=f"one of {', '.join(preset_names())}, or the path of a .toml file (default: laptop)",
    )
    local.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change the preset, e.g. --set cooper.steps=2; may be given more than once",
    )
    local.add_argument(
        "--output",
        type=Path,
        default=Path("runs/local"),
        metavar="DIR",
        help="folder for everything that the run writes; stages that it has finished are not run again "
        "(default: runs/local)",
    )
    local.add_argument(
        "--runner",
        choices=("subprocess", "docker"),
        default="subprocess",
        help="run each stage as a process of this Python, or in a container (default: subprocess)",
    )
    local.add_argument(
        "--image",
        help=f"image for --runner docker, which this machine's engine holds (default: {CPU_IMAGE})",
    )
    compile_ = commands.add_parser(
        "compile", help="write the pipeline as YAML for a cluster", allow_abbrev=False
    )
    compile_.add_argument(
        "--output",
        type=Path,
        default=Path("build/pipelines"),
        metavar="DIR",
        help="folder for the YAML (default: build/pipelines)",
    )
    for command in (local, compile_):
        command.add_argument(
            "--iterations",
            type=int,
            default=2,
            metavar="K",
            help="iterations of co-training, each one task of cooper.steps steps (default: 2, at most 5)",
        )
    return parser


def _local(options: argparse.Namespace) -> int:
    if options.image and options.runner != "docker":
        raise ConfigError(f"--image {options.image}: stages run in an image only with --runner docker")
    from pipelines._local import run_local

    return run_local(
        options.preset,
        options.overrides,
        iterations=options.iterations,
        output=options.output,
        screen=sys.stdout,
        image=(options.image or CPU_IMAGE) if options.runner == "docker" else None,
    )


def _compile(options: argparse.Namespace) -> int:
    from pipelines._compile import compile_end_to_end

    path = compile_end_to_end(options.output, iterations=options.iterations)
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
