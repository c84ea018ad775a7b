"""Kinds of paths in a stage's signature, such as `report: Annotated[Path, OutputFile("Where to write ...")]`.

They decide what the command line checks before a stage starts, and what a component hands on.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Input:
    """A file or folder that the stage reads."""

    text: str
    """Shown by `--help`."""


@dataclass(frozen=True)
class Inputs:
    """Files that the stage reads, in an order that counts."""

    text: str
    """Shown by `--help`."""


@dataclass(frozen=True)
class OutputFile:
    """A file that the stage writes."""

    text: str
    """Shown by `--help`."""
    beside: str = ""
    """Ends the name of a second file, after this one's, which the stage may write unasked."""


@dataclass(frozen=True)
class OutputFolder:
    """A folder that the stage writes."""

    text: str
    """Shown by `--help`."""


PathKind = Input | Inputs | OutputFile | OutputFolder
