"""The provenance of a page's numbers: machine, command, commit, preset and duration.

Rows say what is not known: a task of a cluster knows no command line, an installed package no commit.
"""

import math
import platform
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from cooper_rl.config.load import load, preset_names
from cooper_rl.machine.command import known_command
from cooper_rl.machine.cores import usable_cores
from cooper_rl.machine.processor import processor_name
from cooper_rl.report.page import settings
from cooper_rl.schema.step_metrics import StepMetrics

_GPUS = Path("/proc/driver/nvidia/gpus")
_MAX_CHANGES = 40
_GIT_SECONDS = 5


def describe(
    shown: Sequence[tuple[str, str]],
    *,
    command: str | None = None,
    metrics: Sequence[StepMetrics] = (),
) -> list[tuple[str, str]]:
    """Rows of a table: what, and its value.

    Args:
        shown: The run's settings, as pages show them.
        command: That started it; None: the one that this process inherited.
        metrics: Of its steps, whose seconds are added up.
    """
    name, changes = closest_preset(shown)
    rows = [
        ("command", command or known_command() or "not known to this task, which a pipeline started"),
        ("preset", " ".join([name, *(f"--set {shlex.quote(change)}" for change in changes)])),
        ("commit", _commit()),
        ("machine of this page", _machine()),
    ]
    if metrics:
        total = sum(each for row in metrics for each in row.seconds.values() if math.isfinite(each))
        rows.append(("duration of co-training", f"{say_duration(total)} over {len(metrics)} steps"))
    return rows


def closest_preset(shown: Sequence[tuple[str, str]]) -> tuple[str, list[str]]:
    """The preset of the package with the fewest differences from these settings, and the differences as
    `--set` takes them."""
    found = {name: _differences(dict(settings(load(name))), dict(shown)) for name in preset_names()}
    name = min(found, key=lambda each: len(found[each]))
    changes = found[name]
    more = [f"... and {len(changes) - _MAX_CHANGES} more"] if len(changes) > _MAX_CHANGES else []
    return name, [*changes[:_MAX_CHANGES], *more]


def _differences(preset: Mapping[str, str], own: Mapping[str, str]) -> list[str]:
    changed = [f"{key}={value}" for key, value in own.items() if preset.get(key) != value]
    # A table that is gone is one value in the place of many.
    absent = [key for key in preset if key not in own]
    return changed + [f"{key}=null" for key in absent if not any(key.startswith(f"{k}.") for k in own)]


def _commit() -> str:
    """The commit of the checkout that the package was imported from; the version where it was installed."""
    package = Path(__file__).parents[1]
    git = ["git", "-C", str(package)]
    with suppress(OSError, subprocess.SubprocessError):
        for arguments in (
            ["ls-files", "--error-unmatch", "__init__.py"],
            ["rev-parse", "--short=12", "HEAD"],
        ):
            said = subprocess.run(
                [*git, *arguments], capture_output=True, text=True, check=True, timeout=_GIT_SECONDS
            ).stdout.strip()
        is_changed = subprocess.run(
            [*git, "diff", "--quiet", "HEAD"], capture_output=True, timeout=_GIT_SECONDS, check=False
        ).returncode
        return f"{said}, with changes that are not committed" if is_changed else said
    return f"not known: installed as version {metadata.version('cooper-rl')}"


def _machine() -> str:
    gpus = [
        line.split(":", 1)[1].strip()
        for path in sorted(_GPUS.glob("*/information"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("Model:")
    ]
    cores = usable_cores()
    parts = [processor_name(), f"{cores} core{'s' if cores > 1 else ''}", *(gpus or ["no NVIDIA GPU"])]
    return ", ".join([*parts, f"{platform.system()} {platform.release()}"])


def say_duration(seconds: float) -> str:
    """`3 min 4 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
