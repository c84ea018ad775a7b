"""The command line: one sub-command per stage, `cooper-rl train-cooper --preset laptop --models ...`.

A sub-command's options are read from the source of the stage's `run` (`Annotated[Path, "help"]`), so
that `--help` answers at once: no stage, and with it no torch, is imported before one runs. `--help`
lists the configuration keys that the stage reads too. Deliberately left out: what a stage does.
"""

import argparse
import ast
import importlib
import logging
import os
import sys
import types
from collections.abc import Iterator, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cooper_rl.config.load import load, load_serve, preset_names
from cooper_rl.config.models import ServeConfig
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, CooperError
from cooper_rl.experiment.arms import ABLATIONS, ARMS, parse_names, parse_seeds
from cooper_rl.schema import Report

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130

# Stages in the order of the walk, each with the configuration sections or keys that it reads.
STAGES: dict[str, tuple[str, ...]] = {
    "prepare_models": ("models", "problems", "instruction"),
    "collect_problems": ("problems",),
    "sample_completions": ("sampling", "engine", "instruction"),
    "label_completions": ("labeling",),
    "train_verify_rm": ("verify_rm",),
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


SERVER = "serve_verify_rm"
"""A sub-command that is no stage: it answers until it is stopped, and writes no report."""
EXPERIMENT = "experiment"
"""Another: it runs all stages for several arms and seeds."""


PLAN = "plan"
"""A third: what co-training needs of a GPU."""


class Parameter(NamedTuple):
    """One path that a stage reads or writes."""

    name: str
    text: str
    """What a person reads in `--help`."""
    is_required: bool


class Signature(NamedTuple):
    """What the command line needs to know of a stage."""

    summary: str
    """First line of the docstring of `run`."""
    parameters: list[Parameter]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns the exit status: 0, 2 for an error of use or data, 130 for Ctrl-C."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.captureWarnings(True)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line per request otherwise
    if options.stage == SERVER:
        return _serve(options, parser.prog)
    if options.stage == EXPERIMENT:
        return _experiment(options, parser.prog)
    if options.stage == PLAN:
        return _plan(options, parser.prog)
    paths = {
        parameter.name: getattr(options, parameter.name)
        for parameter in read_signature(options.stage).parameters
    }
    try:
        config = load(options.preset, options.overrides)
        report = importlib.import_module(f"cooper_rl.stages.{options.stage}").run(config, **paths)
    except CooperError as error:
        sys.stderr.write(f"{parser.prog} {_command(options.stage)}: {error}\n")
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\n{parser.prog} {_command(options.stage)}: interrupted; files that were complete stay\n"
        )
        return EXIT_INTERRUPTED
    if os.environ.get("RANK", "0") == "0":  # of the processes that torchrun started, one speaks
        sys.stdout.write(format_report(report, path=paths["report"]))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The parser of all sub-commands."""
    parser = argparse.ArgumentParser(
        prog="cooper-rl",
        description="Co-train a policy and its reward model, stage by stage. Stages in their order:",
        epilog="`cooper-rl STAGE --help` lists a stage's files and the configuration keys that it reads.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"cooper-rl {metadata.version('cooper-rl')}")
    commands = parser.add_subparsers(metavar="STAGE", required=True, title="stages")
    for stage, sections in STAGES.items():
        signature = read_signature(stage)
        command = commands.add_parser(
            _command(stage),
            help=signature.summary.replace("%", "%%"),
            description=signature.summary,
            epilog=_describe_sections(sections),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(stage=stage)
        _add_options(command, signature)
    _add_server(commands)
    _add_experiment(commands)
    _add_plan(commands)
    return parser


def _add_server(commands: Any) -> None:
    keys = [f"  {key} = {_show(default)}\n      {text}" for key, default, text in _walk_model(ServeConfig)]
    command = commands.add_parser(
        _command(SERVER),
        help="Answer scoring requests over HTTP (needs the extra `serve`).",
        description="Score completions over HTTP until SIGTERM: POST /v1/score.",
        epilog="configuration (--set KEY=VALUE):\n" + "\n".join(keys),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(stage=SERVER)
    command.add_argument("--verify-rm", type=Path, required=True, metavar="PATH", help="Folder of VerifyRM")
    command.add_argument("--set", dest="overrides", metavar="KEY=VALUE", action="append", default=[])


def _add_experiment(commands: Any) -> None:
    command = commands.add_parser(
        EXPERIMENT,
        help="Compare arms over seeds: all stages, in parallel, and one report.",
        description="Train every arm with every seed, with the same settings but for what the arm sets, and "
        "write report.html. Started again, it continues; arms and seeds may be added later.",
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
    command.set_defaults(stage=EXPERIMENT)
    _add_configuration(command)
    command.add_argument("--arms", default="rule,frozen,cooper,exact", help="names, or all")
    command.add_argument("--ablate", default="", metavar="NAMES", help="ablations beside the arms, or all")
    command.add_argument("--seeds", default="0,1,2", help="whole numbers: seeds of co-training")
    command.add_argument(
        "--output", type=Path, required=True, metavar="PATH", help="folder of the experiment"
    )
    command.add_argument("--workers", type=int, help="processes at a time; absent: one per core")


def _experiment(options: argparse.Namespace, prog: str) -> int:
    try:
        arms = parse_names(options.arms, allowed=list(ARMS), option="--arms")
        ablations = parse_names(options.ablate, allowed=list(ABLATIONS), option="--ablate")
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
    except CooperError as error:
        sys.stderr.write(f"{prog} {EXPERIMENT}: {error}\n")
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{prog} {EXPERIMENT}: interrupted; start it again to continue\n")
        return EXIT_INTERRUPTED
    sys.stdout.write(format_report(report, path=options.output / "report.html"))
    return 0


def _add_plan(commands: Any) -> None:
    command = commands.add_parser(
        PLAN,
        help="What co-training needs of a GPU's memory, before anything is loaded.",
        description="Add up what train-cooper holds on each GPU in its largest phase; exit 2: too much.",
        allow_abbrev=False,
    )
    command.set_defaults(stage=PLAN)
    _add_configuration(command)
    command.add_argument("--policy", metavar="MODEL", help="folder or hub id; absent: models.policy")
    command.add_argument(
        "--verify-rm", metavar="MODEL", help="VerifyRM or its backbone; absent: models.backbone"
    )
    command.add_argument("--processes", type=int, default=1, help="that train together")
    command.add_argument("--gpu-gib", type=float, default=80.0, help="memory of each GPU")


def _plan(options: argparse.Namespace, prog: str) -> int:
    try:
        config = load(options.preset, options.overrides)
        names = (options.policy or config.models.policy, options.verify_rm or config.models.backbone)
        if not all(names):
            raise ConfigError(f"preset {options.preset!r} names no models: give --policy and --verify-rm")
        from cooper_rl.stages._memory import explain_memory

        policy, verify_rm = map(str, names)
        shown = explain_memory(config, policy, verify_rm, options.processes, options.gpu_gib)
    except CooperError as error:
        sys.stderr.write(f"{prog} {PLAN}: {error}\n")
        return EXIT_USER_ERROR
    sys.stdout.write(shown)
    return 0


def _walk_model(section: type[BaseModel]) -> Iterator[tuple[str, Any, str]]:
    for key, field in section.model_fields.items():
        yield key, field.default, " ".join((field.description or "").split())


def _serve(options: argparse.Namespace, prog: str) -> int:
    try:
        config = load_serve(options.overrides)
        from cooper_rl.backends.device import pick_device
        from cooper_rl.backends.verify_rm import load_verify_rm

        try:
            from cooper_rl.backends.serve_verify_rm import serve
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"{error}; install the server's libraries: pip install 'cooper-rl[serve]'"
            ) from error
        serve(load_verify_rm(options.verify_rm, device=pick_device()), config, name=options.verify_rm.name)
    except CooperError as error:
        sys.stderr.write(f"{prog} {_command(SERVER)}: {error}\n")
        return EXIT_USER_ERROR
    return 0


def _add_configuration(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--preset",
        required=True,
        help=f"one of {', '.join(preset_names())}, or the path of a .toml file",
    )
    add_overrides(command)


def add_overrides(command: argparse.ArgumentParser) -> None:
    """The option `--set`."""
    command.add_argument(
        "--set",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change the preset, e.g. --set cooper.steps=2; may be given more than once",
    )


def _add_options(command: argparse.ArgumentParser, signature: Signature) -> None:
    _add_configuration(command)
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


def _command(stage: str) -> str:
    return stage.replace("_", "-")


def _describe_sections(sections: Sequence[str]) -> str:
    lines = ["configuration (--set KEY=VALUE; shown with the value that holds where a preset says nothing):"]
    for section in ("seed", *sections):
        for key, default, text in _walk(section, _find_field(section)):
            shown = "" if default is PydanticUndefined else f" = {_show(default)}"
            lines.append(f"  {key}{shown}")
            lines += [f"      {line.strip()}" for line in (text or "").splitlines()]
    return "\n".join(lines)


def _find_field(dotted: str) -> FieldInfo:
    section: type[BaseModel] = Config
    *outer, last = dotted.split(".")
    for part in outer:
        section = _section_of(section.model_fields[part].annotation) or section
    return section.model_fields[last]


def _walk(key: str, field: FieldInfo) -> Iterator[tuple[str, Any, str | None]]:
    """Every leaf below a field as (dotted key, default, docstring)."""
    section = _section_of(field.annotation)
    if section is None:
        yield key, field.default, field.description
        return
    if not isinstance(field.default, BaseModel) and field.default is not PydanticUndefined:
        yield key, field.default, field.description
    inner = f"{key}.NAME" if getattr(field.annotation, "__origin__", None) is dict else key
    for name, child in section.model_fields.items():
        yield from _walk(f"{inner}.{name}", child)


def _section_of(annotation: Any) -> type[BaseModel] | None:
    kinds = [annotation, *get_args(annotation)]
    return next(
        (
            kind
            for kind in kinds
            if isinstance(kind, type)
            and not isinstance(kind, types.GenericAlias)
            and issubclass(kind, BaseModel)
        ),
        None,
    )


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))  # pyright: ignore[reportUnknownArgumentType] a default of the configuration
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
