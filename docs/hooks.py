"""Pages of the site that are made from the code: configuration, command line, changelog.

In the repository such a page says where its content is. While MkDocs builds the site, it gets it.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.pages import Page

from cooper_rl.__main__ import build_parser
from cooper_rl.cli.settings import Key, keys_of, keys_of_server, show
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.config.section import flatten
from cooper_rl.config.serve import LearnConfig, ServeConfig

ROOT = Path(__file__).parent.parent
PRESETS = sorted(path.stem for path in (ROOT / "src/cooper_rl/presets").glob("*.toml"))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The content of a generated page; any other page's as it is."""
    makers = {
        "reference/configuration.md": configuration_page,
        "reference/command_line.md": command_line_page,
        "changelog.md": changelog_page,
    }
    make = makers.get(page.file.src_uri)
    return make() if make else markdown


def changelog_page() -> str:
    """The changelog, whose links lead from the root of the repository."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")


def configuration_page() -> str:
    """Every key with its default, its docstring and what the presets set."""
    presets = {name: dict(flatten(load(name, []).model_dump())) for name in PRESETS}
    lines = [
        "# Configuration",
        "",
        "This page is generated from the docstrings of `cooper_rl.config`. A preset or a `.toml` file",
        "sets keys, `--set dotted.key=value` changes one, and the default holds for the rest.",
        "",
    ]
    sections = {name: list(keys_of(name)) for name in Config.model_fields}
    alone = [keys[0] for name, keys in sections.items() if keys[0].name == name and len(keys) == 1]
    for title, keys in {"General": alone, **sections}.items():
        if title == "General" or keys[0] not in alone:
            lines += [f"## {title}", ""]
            for key in keys:
                lines += [*_key(key), *_presets(key, presets), ""]
    lines += ["## serve-verify-rm", "", "Keys of the scoring server; no preset holds them.", ""]
    for key in keys_of_server(ServeConfig):
        lines += [*_key(key, "serve-"), ""]
    lines += ["## serve --learn", "", "Keys of the server of rewards that learn; no preset holds them.", ""]
    for key in keys_of_server(LearnConfig):
        lines += [*_key(key, "learn-"), ""]
    return "\n".join(lines)


def _key(key: Key, anchor: str = "") -> Iterator[str]:
    yield f"### `{key.name}` {{ #{anchor}{key.name} }}"
    yield ""
    if key.has_default:
        yield f"Default: `{show(key.default)}`"
    else:
        yield "A preset must set it."
    yield ""
    yield key.text


def _presets(key: Key, presets: dict[str, dict[str, Any]]) -> Iterator[str]:
    told = [
        f"{preset} `{show(values[key.name])}`"
        for preset, values in presets.items()
        if key.name in values and not (key.has_default and values[key.name] == key.default)
    ]
    if told:
        yield ""
        yield "Presets: " + ", ".join(told)


def command_line_page() -> str:
    """Every sub-command's summary and options; configuration keys have a page of their own."""
    lines = [
        "# Command line",
        "",
        "This page is generated from the parser. `cooper-rl STAGE --help` also lists the configuration keys",
        "that the stage reads; [Configuration](configuration.md) has them all. Exit status: 0, 2 for an",
        "error of use or data, 130 for Ctrl-C, or 74 for standard output that cannot be written.",
        "",
    ]
    for name, parser in _commands(build_parser()):
        parser.epilog = None
        parser.formatter_class = argparse.HelpFormatter
        lines += [f"## {name}", "", "```text", parser.format_help().strip(), "```", ""]
    return "\n".join(lines)


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._subparsers._group_actions if parser._subparsers else []:
        yield from (action.choices or {}).items()  # type: ignore[union-attr]
