"""The laptop preset as small as a whole run may be, and the command that runs it."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Every stage does its real work on models and data that are as small as they may be.
TINY = "hidden_size = 32, num_layers = 1, num_heads = 2, num_updates = 10, batch_size = 8"
SMALL = [
    f"models.tiny.policy={{ {TINY} }}",
    f"models.tiny.samplers={{ small = {{ {TINY} }} }}",
    f"models.tiny.backbone={{ {TINY}, num_matching_updates = 10 }}",
    "models.tiny.snapshots={}",
    "problems.num_tiny=60",
    "problems.num_held_out=10",
    "sampling.completions_per_problem=2",
    "sampling.generation.max_new_tokens=16",
    "verify_rm.num_epochs=1",
    "labeling.rule.num_workers=1",
    "labeling.judge.tiny_error_rate=0.3",  # such models are never right, and VerifyRM needs both labels
    "cooper.steps=2",
    "cooper.problems_per_step=4",
    "cooper.group_size=2",
    "cooper.generation.max_new_tokens=16",
    "evaluation.samples_per_problem=1",
    "evaluation.generation.max_new_tokens=16",
]


EXPERIMENT = [
    *(each for each in SMALL if not each.startswith("cooper.steps=")),
    "experiment.steps=2",
    "experiment.evaluate_every=1",
]
"""The same for `cooper-rl experiment`, which has a length of its own."""

ATTACK = [
    "red_team.max_queries=40",
    "red_team.max_gradient_queries=10",
    "red_team.max_type_queries=0",
    "red_team.max_attacked_problems=1",
    "red_team.queries_per_problem=10",
]
"""A red team of seconds, for runs that have one."""


def small_run(output: Path, *more: str) -> list[str]:
    """Arguments of `python -m pipelines` for two iterations of everything."""
    overrides = [word for override in SMALL for word in ("--set", override)]
    command = ["local", "end_to_end", "--preset", "laptop", "--iterations", "2", "--output", str(output)]
    return [*command, *overrides, *more]


def run_pipelines(arguments: Sequence[str], *, timeout_seconds: float) -> str:
    """Run `python -m pipelines` to its good end; returns what it showed."""
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
