"""The sub-commands `presets` and `show-config`: what a preset holds, and what holds in the end."""

import argparse
from collections.abc import Sequence
from typing import Any

from cooper_rl.addresses import redact_values
from cooper_rl.cli.options import add_configuration
from cooper_rl.cli.settings import show
from cooper_rl.config.load import load, preset_names, read_preset_text
from cooper_rl.config.sources import find_sources


def add_presets(commands: Any) -> None:
    """Their options."""
    listing = commands.add_parser(
        "presets",
        help="List the presets that ship with the package, or print one of them.",
        description="List the presets, or print one: `cooper-rl presets laptop > mine.toml` copies it.",
        allow_abbrev=False,
    )
    listing.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(preset_names())}")
    listing.set_defaults(run=_list_or_print)
    merged = commands.add_parser(
        "show-config",
        help="Print every value of the configuration and where it comes from.",
        description="Merge defaults, preset and --set, check the result, and print it in the form of --set.",
        allow_abbrev=False,
    )
    add_configuration(merged)
    merged.set_defaults(run=show_config)


def _list_or_print(options: argparse.Namespace) -> str:
    if options.name:
        return read_preset_text(options.name)
    names = preset_names()
    width = max(map(len, names))
    return "".join(f"{name:<{width}}  {_opening(read_preset_text(name))}\n" for name in names)


def _opening(text: str) -> str:
    """The first sentence of the comment that a preset begins with."""
    comment: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    return " ".join(comment).partition(". ")[0].rstrip(".") + "."


def show_config(options: argparse.Namespace, *, sections: Sequence[str] = ()) -> str:
    """Every value of the configuration with its source, or those of some sections and keys alone."""
    config = load(options.preset, options.overrides)
    rows = [
        (f"{key} = {show(redact_values(value))}".replace("\n", "\\n"), source)
        for key, value, source in find_sources(config, options.preset, options.overrides)
        if not sections or any(f"{key}.".startswith(f"{section}.") for section in sections)
    ]
    width = min(max(len(text) for text, _ in rows), 60)
    return "".join(f"{text:<{width}}  # {source}\n" for text, source in rows)
