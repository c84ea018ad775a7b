"""`python -m pipelines local | compile | submit | schedule | completion`: pipelines on this machine and on a
cluster."""

from cooper_rl.cli.starting import ending_at_ctrl_c

with ending_at_ctrl_c("pipelines"):
    import argparse
    import signal
    import sys
    from collections.abc import Sequence
    from itertools import pairwise
    from pathlib import Path
    from typing import Any

    from components.images import CPU_IMAGE
    from cooper_rl.addresses import addresses_in, redact_all
    from cooper_rl.cli.completion import add_completion
    from cooper_rl.cli.options import Parser
    from cooper_rl.cli.pipelines import PROGRAM
    from cooper_rl.cli.screen import ScreenError, UnreadError, standard_output, tell
    from cooper_rl.cli.slips import check_words
    from cooper_rl.config.load import preset_names
    from cooper_rl.errors import (
        EXIT_INTERRUPTED,
        EXIT_NOT_SHOWN,
        EXIT_USER_ERROR,
        ConfigError,
        CooperError,
    )
    from cooper_rl.machine.command import remember_command
    from pipelines.options import (
        NAMES,
        add_arguments,
        add_build,
        add_pipeline,
        check_namespace,
        check_text,
        profile_names,
        read_parameters,
    )
    from pipelines.remote.commands import add_schedule, add_submit

EXIT_PIPE_CLOSED = 128 + signal.SIGPIPE
"""Exit status where nobody reads what is written, as a shell has it."""


def main(arguments: Sequence[str] | None = None, *, program: str = "python -m pipelines") -> int:
    """Run one sub-command; returns the exit status: 0, 1 for a failed run, 2 for an error of use, 130 for
    Ctrl-C, 74 where standard output cannot be written, 141 where nobody reads it."""
    if arguments is None:
        remember_command(program)
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = argparse.Namespace()
    try:
        with standard_output():
            parser = build_parser(program)
            check_words(parser, words)
            parser.parse_args(words, options)
            for before, word in pairwise([program, *words]):
                check_text(word, place=before)
            return options.action(options)
    except UnreadError:  # `| head` has read enough
        return EXIT_PIPE_CLOSED
    except CooperError as error:
        tell(f"error: {redact_all(str(error), *addresses_in(words))}\n")
        return EXIT_NOT_SHOWN if isinstance(error, ScreenError) else EXIT_USER_ERROR
    except KeyboardInterrupt:
        tell(f"\ninterrupted; {getattr(options, 'when_interrupted', 'run the same command again')}\n")
        return EXIT_INTERRUPTED


def build_parser(program: str = "python -m pipelines") -> argparse.ArgumentParser:
    """The parser of all sub-commands."""
    parser = Parser(prog=program, description=__doc__, allow_abbrev=False)
    commands: Any = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_local(commands)
    _add_compile(commands)
    add_submit(commands)
    add_schedule(commands)
    # `python -m pipelines` is no word of a shell: the program of the same commands is completed.
    names = {"--preset": preset_names(), "--profile": profile_names()}
    add_completion(commands, PROGRAM, names).set_defaults(action=_complete)
    return parser


def _complete(options: argparse.Namespace) -> int:
    sys.stdout.write(options.run(options))
    return 0


def _add_local(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    local = commands.add_parser(
        "local", help="run a compiled pipeline on this machine through kfp.local", allow_abbrev=False
    )
    local.set_defaults(
        action=_local,
        when_interrupted="finished stages are kept: run the same command to go on from there",
    )
    add_pipeline(local, profile="local")
    add_arguments(local, preset="laptop")
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
    local.add_argument(
        "--tasks-at-once",
        type=int,
        metavar="N",
        help="how many stages that do not need each other run at once (default: one for each core; with a "
        "GPU, one)",
    )


def _add_compile(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    compile_ = commands.add_parser(
        "compile", help="write the pipelines as YAML for a cluster", allow_abbrev=False
    )
    compile_.set_defaults(action=_compile)
    compile_.add_argument(
        "--pipeline", choices=NAMES, action="append", help="only this one; may be given more than once"
    )
    add_build(compile_, profile="cluster")
    compile_.add_argument(
        "--output",
        type=Path,
        default=Path("build/pipelines"),
        metavar="DIR",
        help="folder for the YAML (default: build/pipelines)",
    )
    compile_.add_argument(
        "--manifests",
        action="store_true",
        help="also write Pipeline and PipelineVersion for a KFP that keeps pipelines in the Kubernetes API",
    )
    compile_.add_argument("--namespace", help="namespace in the manifests")


def _local(options: argparse.Namespace) -> int:
    if options.image and options.runner != "docker":
        raise ConfigError(f"--image {options.image}: stages run in an image only with --runner docker")
    if options.tasks_at_once is not None and options.tasks_at_once < 1:
        raise ConfigError(f"--tasks-at-once {options.tasks_at_once}: give 1 or more")
    from pipelines.local.run import run_local
    from pipelines.profile import load_profile

    return run_local(
        options.pipeline,
        options.preset,
        options.overrides,
        parameters=read_parameters(options.parameters),
        profile=load_profile(options.profile),
        iterations=options.iterations,
        output=options.output,
        screen=sys.stdout,
        image=(options.image or CPU_IMAGE) if options.runner == "docker" else None,
        tasks_at_once=options.tasks_at_once,
    )


def _compile(options: argparse.Namespace) -> int:
    from pipelines.compile import compile_manifests, compile_pipeline
    from pipelines.profile import load_profile

    if options.namespace and not options.manifests:
        raise ConfigError(f"--namespace {options.namespace}: stands in manifests alone; add --manifests")
    if options.namespace:
        check_namespace(options.namespace)
    profile = load_profile(options.profile)
    for name in options.pipeline or NAMES:
        path = compile_pipeline(name, options.output, profile=profile, iterations=options.iterations)
        sys.stdout.write(f"{path}\n")
        if options.manifests:
            manifests = compile_manifests(
                name,
                options.output,
                profile=profile,
                iterations=options.iterations,
                namespace=options.namespace,
            )
            sys.stdout.write(f"{manifests}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
