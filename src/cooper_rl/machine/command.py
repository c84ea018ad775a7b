"""The command line that a person typed, for the pages that say how they came about.

It is kept in the environment, which the processes of a pipeline on this machine inherit.
"""

import os
import sys

from cooper_rl.addresses import redact_command

COMMAND = "COOPER_RL_COMMAND"


def remember_command(program: str) -> None:
    """Keep the command line of this process for the pages that it and its children write."""
    os.environ[COMMAND] = f"{program} {redact_command(sys.argv[1:])}"


def known_command() -> str | None:
    """None in a task of a cluster, and in a program of someone else's."""
    return os.environ.get(COMMAND)
