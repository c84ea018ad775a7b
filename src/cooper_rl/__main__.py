"""The command line: one sub-command per stage, `cooper-rl train-cooper --preset laptop --models ...`.

A sub-command names the function that runs it, which returns the text shown at the end. Errors of users are
told here, in one line. The stages are in `stages/`.
"""

from cooper_rl.cli.starting import ending_at_ctrl_c

with ending_at_ctrl_c("cooper-rl"):
    import argparse
    import sys
    from collections.abc import Sequence
    from contextlib import suppress
    from importlib import metadata

    from cooper_rl.addresses import addresses_in, redact_all
    from cooper_rl.cli.completion import add_completion
    from cooper_rl.cli.experiment import add_experiment
    from cooper_rl.cli.options import Parser
    from cooper_rl.cli.plan import add_plan
    from cooper_rl.cli.presets import add_presets
    from cooper_rl.cli.screen import ScreenError, UnreadError, standard_output, tell
    from cooper_rl.cli.serve import add_servers
    from cooper_rl.cli.slips import check_words
    from cooper_rl.cli.stages import add_stages
    from cooper_rl.cli.watch import add_watch
    from cooper_rl.config.load import preset_names
    from cooper_rl.errors import EXIT_INTERRUPTED, EXIT_NOT_SHOWN, EXIT_USER_ERROR, CooperError
    from cooper_rl.machine.command import remember_command
    from cooper_rl.progress import show_log


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns the exit status: 0, 2 for an error of use or data, 130 for Ctrl-C, 74 for
    standard output that cannot be written."""
    if arguments is None:
        remember_command("cooper-rl")
    words = sys.argv[1:] if arguments is None else arguments
    name = "cooper-rl"
    try:
        with standard_output():
            parser = build_parser(_find_preset(words) if {"-h", "--help"} & set(words) else None)
            check_words(parser, words)
            options = parser.parse_args(words)
            name = f"{parser.prog} {options.command}"
            show_log()
            sys.stdout.write(options.run(options))
    except UnreadError:  # `| head` has read enough
        return 0
    except CooperError as error:
        tell(f"{name}: {redact_all(str(error), *addresses_in(list(words)))}\n")
        return EXIT_NOT_SHOWN if isinstance(error, ScreenError) else EXIT_USER_ERROR
    except KeyboardInterrupt:
        tell(f"\n{name}: interrupted; files that were complete stay\n")
        return EXIT_INTERRUPTED
    return 0


def build_parser(preset: str | None = None) -> argparse.ArgumentParser:
    """The parser of all sub-commands; `--help` shows the values of a preset."""
    parser = Parser(
        prog="cooper-rl",
        description="Co-train a policy and its reward model, stage by stage. Stages in their order:",
        epilog="`cooper-rl STAGE --help` lists a stage's files and the configuration keys that it reads.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"cooper-rl {metadata.version('cooper-rl')}")
    commands = parser.add_subparsers(metavar="STAGE", dest="command", required=True, title="stages")
    add_stages(commands, preset)
    add_servers(commands)
    add_experiment(commands)
    add_watch(commands)
    add_plan(commands)
    add_presets(commands)
    add_completion(commands, parser.prog, {"--preset": preset_names()})
    return parser


def _find_preset(words: Sequence[str]) -> str | None:
    """The value of `--preset`, read before the words are parsed: `--help` ends the program at once."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--preset")
    with suppress(argparse.ArgumentError):
        return parser.parse_known_args(words)[0].preset
    return None


if __name__ == "__main__":
    sys.exit(main())
