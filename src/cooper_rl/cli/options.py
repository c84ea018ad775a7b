"""Options that several sub-commands share."""

import argparse
import math
import sys
from pathlib import Path
from typing import NoReturn

from cooper_rl.addresses import addresses_in, redact_all
from cooper_rl.config.load import preset_names


class Parser(argparse.ArgumentParser):
    """A parser whose errors show no password or signature of the words that it was given."""

    def error(self, message: str) -> NoReturn:
        super().error(redact_all(message, *addresses_in(sys.argv[1:])))


def add_configuration(command: argparse.ArgumentParser) -> None:
    """The options `--preset` and `--set`."""
    command.add_argument(
        "--preset",
        required=True,
        help=f"one of {', '.join(preset_names())}, or the path of a .toml file",
    )
    add_overrides(command)


def add_overrides(
    command: argparse.ArgumentParser, purpose: str = "change the preset, e.g. --set cooper.steps=2"
) -> None:
    """The option `--set`."""
    command.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help=f"{purpose}; may be given more than once",
    )


def count(text: str) -> int:
    """A whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is too few; give a whole number above 0")
    return number


def path_with_name(text: str) -> Path:
    """A path beside which a stage can write: with its name in place of `.` and `..`."""
    found = Path(text)
    if found.name in {"", ".."}:
        found = found.resolve()
    if not found.name:
        raise argparse.ArgumentTypeError(f"{text} has no name; give a file or folder in it")
    return found


def size(text: str) -> float:
    """A number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no size; give a number above 0")
    return number
