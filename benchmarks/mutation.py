"""The share of mutants of `method/` and `training/` that their tests kill, by folder (`make mutation`).

mutmut changes one operator, number or argument at a time, in a copy below `mutants/`, and runs the tests that
reach it. Golden files are left out (`[tool.mutmut]` in pyproject.toml): any change shows there, and says
nothing of what is right.

    python -m benchmarks.mutation                                    everything; hours on two cores
    python -m benchmarks.mutation 'cooper_rl.method.losses.*'        some
    python -m benchmarks.mutation --read                             the table of what was run before
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

MUTANTS = Path("mutants")
KILLED, SURVIVED, NOT_REACHED, TIMED_OUT = "killed", "survived", "reached by no test", "timed out"
BY_EXIT_CODE = {
    0: SURVIVED, 1: KILLED, 3: KILLED, 5: NOT_REACHED, 33: NOT_REACHED, 36: TIMED_OUT, -24: TIMED_OUT,
    24: TIMED_OUT, 152: TIMED_OUT, 255: TIMED_OUT,
}  # fmt: skip
"""As mutmut 3.8 writes them; a mutant that makes the test's process crash is `other`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mutmut, unless told not to, and print the table; status 1 where mutmut could not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mutants", nargs="*", metavar="PATTERN", help="names of mutants (default: all)")
    parser.add_argument("--read", action="store_true", help="run nothing, show what was run before")
    options = parser.parse_args(arguments)
    if not options.read:
        cores = str(max(1, len(os.sched_getaffinity(0))))
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", cores, *options.mutants]
        if subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False).returncode:
            return 1
    found = read_results(MUTANTS)
    sys.stdout.write(tabulate(found))
    for name, outcome in sorted(found.items()):
        if outcome in {SURVIVED, NOT_REACHED}:
            sys.stdout.write(f"{outcome}: {name}\n")
    return 0


def read_results(folder: Path) -> dict[str, str]:
    """Mutant -> what became of it; those that were not run are left out."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py.meta")):
        for name, code in _exit_codes(path).items():
            if code is not None:
                found[name] = BY_EXIT_CODE.get(code, "other")
    return found


def _exit_codes(path: Path) -> dict[str, int | None]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    # mutmut rewrites the file in place after every mutant.
    except json.JSONDecodeError:
        sys.exit(
            f"{path} is half written; repeat with --read, or delete it and run again if mutmut was killed"
        )


def tabulate(found: Mapping[str, str]) -> str:
    """A table by folder and by module: mutants that were run, and the share that died or ran out of time."""
    lines = ["| mutants of | run | killed | timed out | survived | reached by no test | other | score |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    by_place: dict[str, list[str]] = {}
    for name, outcome in found.items():
        _, folder, module, *_ = name.split(".")
        by_place.setdefault(f"{folder}/", []).append(outcome)
        by_place.setdefault(f"{folder}/{module}.py", []).append(outcome)
    lines += [_row(place, outcomes) for place, outcomes in sorted(by_place.items())]
    return "\n".join([*lines, ""])


def _row(place: str, outcomes: Iterable[str]) -> str:
    count = Counter(outcomes)
    total = count.total()
    shown = [count[KILLED], count[TIMED_OUT], count[SURVIVED], count[NOT_REACHED]]
    score = (count[KILLED] + count[TIMED_OUT]) / total
    numbers = " | ".join(map(str, [total, *shown, total - sum(shown)]))
    return f"| {place} | {numbers} | {score:.1%} |"


if __name__ == "__main__":
    sys.exit(main())
