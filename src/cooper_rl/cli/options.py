"""Options that several sub-commands share."""

import argparse

from cooper_rl.config.load import preset_names


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
