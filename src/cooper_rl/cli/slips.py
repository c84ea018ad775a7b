"""Slips on the command line: an unknown command or option is answered with the name that it may stand for.

argparse alone lists every command, and says of an option only that it is unknown.
"""

import argparse
import difflib
from collections.abc import Iterable, Mapping, Sequence


def check_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End the program at an unknown command or option.

    Args:
        parser: Of the whole program; commands may have commands of their own.
        words: Those after the program's name.
    """
    inner, name = parser, ""
    rest = list(words)
    while (commands := commands_of(inner)) and rest and not rest[0].startswith("-"):
        word = rest.pop(0)
        if word not in commands:
            parser.error(f"unknown command {f'{name} {word}'.strip()!r}; {_hint(word, commands)}")
        inner, name = commands[word], f"{name} {word}".strip()
    known = options_of(inner)
    for word in rest if name else ():
        option = word.partition("=")[0]
        if option.startswith("--") and option != "--" and option not in known:
            parser.error(f"{name} has no option {option!r}; {_hint(option, known)}")


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Its sub-commands by name; empty where it has none."""
    # The choices of sub-commands are a table of parsers; those of an option are a sequence.
    tables = (action.choices for action in parser._actions if isinstance(action.choices, Mapping))
    return next(tables, {})


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Its long options, and those of its own commands."""
    found = [option for option in parser._option_string_actions if option.startswith("--")]
    for command in commands_of(parser).values():
        found += [option for option in options_of(command) if option not in found]
    return found


def _hint(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"
