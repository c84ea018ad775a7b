"""The sub-command `completion`: what a shell needs to complete commands, options and presets.

Made from the parser itself, so that it cannot be behind it. Files are completed where no option fits.
"""

import argparse
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any

from cooper_rl.config.load import preset_names

SCRIPT = """\
_cooper_rl() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    if [ "$COMP_CWORD" = 1 ]; then words={commands}
    elif [ "$before" = --preset ]; then words={presets}
    elif [ "${{word:0:1}}" = - ]; then
        case "${{COMP_WORDS[1]}}" in
{options}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _cooper_rl cooper-rl
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_completion(commands: Any) -> None:
    """Its options."""
    command = commands.add_parser(
        "completion",
        help='Print the completion script of a shell: eval "$(cooper-rl completion bash)" in ~/.bashrc.',
        description="Print the completion script of a shell. Evaluate it in the shell's start file.",
        allow_abbrev=False,
    )
    command.add_argument("shell", choices=("bash", "zsh"))
    command.set_defaults(run=partial(_write, commands))


def options_of(commands: Any) -> dict[str, list[str]]:
    """Sub-command -> its long options."""
    return {
        name: [option for option in parser._option_string_actions if option.startswith("--")]
        for name, parser in commands.choices.items()
    }


def _write(commands: Any, options: argparse.Namespace) -> str:
    known: Mapping[str, list[str]] = options_of(commands)
    cases = (f"        {name}) words={shlex.quote(' '.join(found))} ;;" for name, found in known.items())
    script = SCRIPT.format(
        commands=shlex.quote(" ".join(known)),
        presets=shlex.quote(" ".join(preset_names())),
        options="\n".join(cases),
    )
    return (ZSH if options.shell == "zsh" else "") + script
