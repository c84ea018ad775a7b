"""A sub-command for every stage.

Its options are read from the source of the stage's `run` (`Annotated[Path, "help"]`), so that `--help`
answers at once: no stage, and with it no torch, is imported before one runs. `--help` lists the configuration
keys that the stage reads too.
"""

import argparse
import ast
import importlib
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from cooper_rl.cli.options import add_configuration
from cooper_rl.cli.settings import describe_sections
from cooper_rl.config.load import load
from cooper_rl.errors import DataError
from cooper_rl.records.files import check_output
from cooper_rl.schema.data import Report

# Stages in the order of the walk, each with the configuration sections or keys that it reads.
STAGES: dict[str, tuple[str, ...]] = {
    "prepare_models": ("models", "problems", "storage", "instruction"),
    "collect_problems": ("problems", "storage"),
    "sample_completions": ("sampling", "engine", "storage", "instruction"),
    "label_completions": ("labeling",),
    "train_verify_rm": ("verify_rm", "storage"),
    "evaluate_verify_rm": ("verify_rm",),
    "train_cooper": (
        "cooper",
        "engine",
        "distributed",
        "evaluation",
        "labeling.rule",
        "storage",
        "tracker",
        "launch",
        "instruction",
    ),
    "evaluate_policy": (
        "evaluation",
        "engine",
        "labeling.rule",
        "cooper.max_tokens_per_batch",
        "storage",
        "instruction",
    ),
    "report": (),
    "take_champion": ("registry", "storage"),
    "promote": ("registry", "storage", "evaluation", "instruction", "labeling.rule"),
    "summarise_run": ("storage",),
}

OUTPUT_TEXTS = ("Where to write", "Folder to write", "Folder for")
"""How the help of a path begins that a stage writes."""


class Parameter(NamedTuple):
    """One path that a stage reads or writes."""

    name: str
    text: str
    """What a person reads in `--help`; `Where to write` and `Folder for` make it an output."""
    is_required: bool

    @property
    def is_output(self) -> bool:
        """Whether the stage writes it; all others are only read."""
        return self.text.startswith(OUTPUT_TEXTS)


class Signature(NamedTuple):
    """What the command line needs to know of a stage."""

    summary: str
    """First line of the docstring of `run`."""
    parameters: list[Parameter]


def add_stages(commands: Any) -> None:
    """All of them, in their order."""
    for stage, sections in STAGES.items():
        signature = read_signature(stage)
        command = commands.add_parser(
            stage.replace("_", "-"),
            help=signature.summary.replace("%", "%%"),
            description=signature.summary,
            epilog=describe_sections(sections),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(run=_run, stage=stage)
        add_configuration(command)
        for parameter in signature.parameters:
            command.add_argument(
                f"--{parameter.name.replace('_', '-')}",
                type=Path,
                metavar="PATH",
                required=parameter.is_required,
                help=parameter.text.replace("%", "%%"),
            )


def read_signature(stage: str) -> Signature:
    """Read a stage's summary and the paths of its `run` from its source, without importing it."""
    source = resources.files("cooper_rl").joinpath("stages", f"{stage}.py").read_text(encoding="utf-8")
    module = ast.parse(source)
    run = next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "run")
    parameters: list[Parameter] = []
    for argument, default in zip(run.args.kwonlyargs, run.args.kw_defaults, strict=True):
        assert isinstance(argument.annotation, ast.Subscript), f"{stage}.run: {argument.arg} is not Annotated"
        text = ast.literal_eval(argument.annotation.slice.elts[1])  # pyright: ignore[reportAttributeAccessIssue] Annotated[Path, "text"]
        parameters.append(Parameter(argument.arg, text, is_required=default is None))
    summary = (ast.get_docstring(run) or "").partition("\n")[0]
    return Signature(summary, parameters)


def format_report(report: Report, *, path: Path) -> str:
    """A report's numbers as an aligned table, and where the whole report is."""
    numbers = report.metrics()
    width = max(map(len, numbers), default=0)
    lines = [f"  {name:<{width}}  {value:.6g}\n" for name, value in numbers.items()]
    return f"{type(report).__name__}\n{''.join(lines)}report: {path}\n"


def _run(options: argparse.Namespace) -> str:
    parameters = read_signature(options.stage).parameters
    paths = {parameter.name: getattr(options, parameter.name) for parameter in parameters}
    config = load(options.preset, options.overrides)
    _check_outputs(parameters, paths)
    report = importlib.import_module(f"cooper_rl.stages.{options.stage}").run(config, **paths)
    if os.environ.get("RANK", "0") != "0":  # of the processes that torchrun started, one speaks
        return ""
    return format_report(report, path=paths["report"])


def _check_outputs(parameters: Sequence[Parameter], paths: Mapping[str, Path | None]) -> None:
    """Before hours of work: every output can be written, and none takes the place of another file."""
    given = {name: path for name, path in paths.items() if path is not None}
    for parameter in parameters:
        if not parameter.is_output:
            continue
        path = given[parameter.name]
        for name, other in given.items():
            if name != parameter.name and os.path.realpath(other) == os.path.realpath(path):
                options = " and ".join(f"--{key.replace('_', '-')}" for key in (parameter.name, name))
                raise DataError(
                    f"{options} are both {path}, of which one would be lost; give each its own path"
                )
        check_output(path, is_folder=parameter.text.startswith("Folder"))
