"""A sub-command for every stage.

Its options are read from the source of the stage's `run` (`Annotated[Path, "help"]`), so that `--help`
answers at once: no stage, and with it no torch, is imported before one runs. `--help` lists the configuration
keys that the stage reads too.
"""

import argparse
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cooper_rl.cli.options import add_configuration, path_with_name
from cooper_rl.cli.presets import show_config
from cooper_rl.cli.settings import describe_sections
from cooper_rl.config.load import load
from cooper_rl.errors import DataError
from cooper_rl.machine.drafts import settle_drafts
from cooper_rl.records.files import check_output, is_same_file
from cooper_rl.records.standard_input import NAME as STANDARD_INPUT
from cooper_rl.records.standard_input import standard_input
from cooper_rl.records.written import remove_written
from cooper_rl.schema.paths import OutputFile
from cooper_rl.schema.reports import Report
from cooper_rl.schema.texts import printable
from cooper_rl.stages import STAGES, Parameter, check_overrides, import_run, read_signature

MAX_NAME_CHARS = 80
"""Of a row in the table of a report's numbers."""


class _ShowConfig(argparse.Action):
    """`--show-config`: the configuration alone, for which no path is needed."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        for path in parser.get_default("paths"):
            path.required = False
        namespace.run = _show_config


def add_stages(commands: Any, preset: str | None = None) -> None:
    """All of them, in their order; `--help` shows the preset's values."""
    for stage, sections in STAGES.items():
        signature = read_signature(stage)
        command = commands.add_parser(
            stage.replace("_", "-"),
            help=signature.summary.replace("%", "%%"),
            description=signature.summary,
            epilog=describe_sections(sections, preset),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(run=_run, stage=stage)
        add_configuration(command)
        command.add_argument(
            "--show-config",
            action=_ShowConfig,
            nargs=0,
            help="print the keys that the stage reads, with value and source, and end",
        )
        paths = [
            command.add_argument(
                _option(parameter.name),
                type=path_with_name,
                metavar="PATH",
                nargs="+" if parameter.is_list else None,
                required=parameter.is_required,
                help=parameter.kind.text.replace("%", "%%"),
            )
            for parameter in signature.parameters
        ]
        command.set_defaults(paths=paths)


def format_report(report: Report, *, path: Path) -> str:
    """A report's numbers as an aligned table, an interval in one row, and where the whole report is."""
    # Names come from data too: a source's may hold what a terminal obeys, or be a whole text.
    rows = [(_cut(printable(name)), text) for name, text in _rows(report.metrics()).items()]
    width = max((len(name) for name, _ in rows), default=0)
    lines = [f"  {name:<{width}}  {text}\n" for name, text in rows]
    return f"{type(report).__name__}\n{''.join(lines)}report: {path}\n"


def _cut(name: str) -> str:
    """Its beginning and its end, which says what is measured."""
    return name if len(name) <= MAX_NAME_CHARS else f"{name[:40]}…{name[-(MAX_NAME_CHARS - 41) :]}"


def _rows(numbers: Mapping[str, float]) -> dict[str, str]:
    rows: dict[str, str] = {}
    for name, value in numbers.items():
        whole, _, part = name.rpartition("/")
        if f"{whole}/value" not in numbers or f"{whole}/low" not in numbers:
            rows[name] = f"{value:.6g}"
        elif part == "value":
            low, high, count = (numbers[f"{whole}/{each}"] for each in ("low", "high", "count"))
            rows[whole] = f"{value:.6g} [{low:.3g}, {high:.3g}], n={count:.0f}"
    return rows


def _run(options: argparse.Namespace) -> str:
    parameters = read_signature(options.stage).parameters
    paths = {parameter.name: getattr(options, parameter.name) for parameter in parameters}
    config = load(options.preset, options.overrides)
    check_overrides(options.stage, options.overrides)
    _check_outputs(parameters, paths)
    with _piped(parameters, paths) as given:
        report = import_run(options.stage)(config, **given)
    if os.environ.get("RANK", "0") != "0":  # of the processes that torchrun started, one speaks
        return ""
    return format_report(report, path=paths["report"])


def _show_config(options: argparse.Namespace) -> str:
    check_overrides(options.stage, options.overrides)
    return show_config(options, sections=("seed", *STAGES[options.stage]))


@contextmanager
def _piped(
    parameters: Sequence[Parameter], paths: Mapping[str, Path | list[Path] | None]
) -> Generator[Mapping[str, Path | list[Path] | None]]:
    """The paths with what is piped in as a file in place of `-`."""
    names = [each.name for each in parameters if not each.is_output and paths[each.name] == STANDARD_INPUT]
    with ExitStack() as stack:
        yield {**paths, **dict.fromkeys(names, stack.enter_context(standard_input()))} if names else paths


def _option(name: str) -> str:
    """A path's name as the command line has it."""
    return f"--{name.replace('_', '-')}"


def _check_beside(parameters: Sequence[Parameter], given: Mapping[str, Path]) -> None:
    """Nobody named the files that a stage writes beside its outputs: no other path may be one of them."""
    for parameter in parameters:
        if not (isinstance(parameter.kind, OutputFile) and parameter.kind.beside and parameter.name in given):
            continue
        path = given[parameter.name]
        second = path.with_name(path.name + parameter.kind.beside)
        for name, other in given.items():
            if name != "rejected" and is_same_file(second, other):
                raise DataError(
                    f"{_option(name)} {other}: the stage writes a file of this name beside "
                    f"{_option(parameter.name)}; choose another path for one of them"
                )


def _check_outputs(parameters: Sequence[Parameter], paths: Mapping[str, Path | list[Path] | None]) -> None:
    """Before hours of work: every output can be written, and none takes the place of another file."""
    given: dict[str, Path] = {}
    for name, path in paths.items():
        if isinstance(path, Path):
            given[name] = path
        for place, each in enumerate(path if isinstance(path, list) else [], start=1):
            given[f"{name} {place}"] = each
    _check_beside(parameters, given)
    for parameter in parameters:
        if not parameter.is_output or parameter.name not in given:
            continue
        path = given[parameter.name]
        for name, other in given.items():
            if name != parameter.name and is_same_file(other, path):
                options = " and ".join(map(_option, (parameter.name, name)))
                raise DataError(
                    f"{options} are both {path}, of which one would be lost; give each its own path"
                )
        check_output(path, is_folder=parameter.is_folder)
        # Also of a model that this start will write in hours, and not yet.
        settle_drafts(path.parent, remove_old=remove_written)
