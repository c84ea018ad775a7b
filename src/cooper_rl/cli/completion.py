"""The sub-command `completion`: what a shell needs to complete commands, options and their values.

Made from the parser itself, so that it cannot be behind it. Files are completed where no option fits.
`cooper-rl` and `cooper-rl-pipelines` share it.
"""

import argparse
import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from cooper_rl.cli.slips import commands_of, options_of

SCRIPT = """\
{function}() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    case "$before" in
{values}
    *)
        if [ "$COMP_CWORD" = 1 ]; then words={commands}
        elif [ "${{word:0:1}}" = - ]; then
            case "${{COMP_WORDS[1]}}" in
{options}
            esac
        elif [ "$COMP_CWORD" = 2 ]; then
            case "${{COMP_WORDS[1]}}" in
{second}
            esac
        fi ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F {function} {program}
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_completion(
    commands: Any, program: str, values: Mapping[str, Iterable[str]]
) -> argparse.ArgumentParser:
    """Its options; its `run` returns the script.

    Args:
        commands: The sub-commands, this one among them.
        program: The name of the program in a shell.
        values: Option -> words that may follow it, beside those that the parser itself names.
    """
    command = commands.add_parser(
        "completion",
        help=f'Print the completion script of a shell: eval "$({program} completion bash)" in ~/.bashrc.',
        description="Print the completion script of a shell. Evaluate it in the shell's start file.",
        allow_abbrev=False,
    )
    command.add_argument("shell", choices=("bash", "zsh"))
    command.set_defaults(run=partial(_write, commands, program, values))
    return command


def _write(
    commands: Any, program: str, values: Mapping[str, Iterable[str]], options: argparse.Namespace
) -> str:
    parsers: Mapping[str, argparse.ArgumentParser] = commands.choices
    script = SCRIPT.format(
        function="_" + program.replace("-", "_"),
        program=program,
        commands=_quote(parsers),
        values=_cases({**_values(parsers.values()), **values}),
        options=_cases({name: options_of(parser) for name, parser in parsers.items()}),
        second=_cases({name: _second(parser) for name, parser in parsers.items()}),
    )
    return (ZSH if options.shell == "zsh" else "") + script


def _values(parsers: Iterable[argparse.ArgumentParser]) -> dict[str, list[str]]:
    """Option -> its choices in any command."""
    found: dict[str, list[str]] = {}
    every = [parser for one in parsers for parser in (one, *commands_of(one).values())]
    for action in (action for parser in every for action in parser._actions):
        for option in action.option_strings if action.choices else ():
            known = found.setdefault(option, [])
            known.extend(str(choice) for choice in action.choices or () if str(choice) not in known)
    return found


def _second(parser: argparse.ArgumentParser) -> list[str]:
    """The words that may follow a command: its own commands, or the choices of its first word."""
    first = next((action for action in parser._actions if not action.option_strings), None)
    return [str(choice) for choice in first.choices or ()] if first else []


def _cases(words: Mapping[str, Iterable[str]]) -> str:
    return "\n".join(f"    {name}) words={_quote(found)} ;;" for name, found in words.items())


def _quote(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))
