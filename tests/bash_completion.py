"""Words that bash offers with a program's own completion script."""

import subprocess
from collections.abc import Sequence


def complete_in_bash(script: str, program: str, typed: Sequence[str]) -> list[str]:
    """The words offered for the last of those that were typed; an empty one is a place after a blank."""
    words = " ".join([program, *(word or "''" for word in typed)])
    function = "_" + program.replace("-", "_")
    asked = f'{script}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed)}; {function}; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()
