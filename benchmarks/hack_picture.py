"""README's picture: a frozen VerifyRM beside Cooper, from an experiment of this repository.

    python -m cooper_rl experiment --preset laptop_plain --arms frozen,cooper --seeds 0 --output runs/hack
    python -m benchmarks.hack_picture --experiment runs/hack

Writes `docs/images/hack.json` (the curves, the command, and what the frozen run's policy writes at the end)
and from it `hack-light.svg` and `hack-dark.svg`. Without `--experiment` it draws the JSON that is there.
"""

import argparse
import json
import subprocess
from html import escape
from pathlib import Path
from typing import Any

from cooper_rl.checkpoints.logs import METRICS, ROLLOUTS
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.experiment.jobs import ARM, START, outputs
from cooper_rl.records.files import read_records, read_report
from cooper_rl.schema.data import RolloutSample
from cooper_rl.schema.reports import EvalReport
from cooper_rl.schema.stages import Output

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COMMAND = (
    "python -m cooper_rl experiment --preset laptop_plain --arms frozen,cooper --seeds 0 --output runs/hack"
)
TITLES = {"frozen": "Frozen reward model", "cooper": "Cooper: the reward model learns too"}
THEMES = {
    "light": {
        "ground": "#ffffff",
        "ink": "#1f2328",
        "soft": "#57606a",
        "grid": "#d0d7de",
        "reward": "#bc4c00",
        "accuracy": "#0969da",
    },
    "dark": {
        "ground": "#0d1117",
        "ink": "#e6edf3",
        "soft": "#9da7b1",
        "grid": "#3d444d",
        "reward": "#ffa657",
        "accuracy": "#58a6ff",
    },
}
WIDTH, HEIGHT, TOP, PANEL, LEFT, GAP = 880, 338, 62, 205, 44, 60
PANEL_WIDTH = (WIDTH - LEFT - GAP - 70) / 2
MARGIN = 8
"""Ground above the first line of text."""
MAX_TEXT_CHARS = 110


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--experiment", type=Path, help="folder of the experiment")
    parser.add_argument("--commit", help="commit that the experiment ran on; absent: the one checked out")
    parser.add_argument("--output", type=Path, default=IMAGES, help="folder of JSON and pictures")
    options = parser.parse_args()
    data = options.output / "hack.json"
    if options.experiment:
        data.write_text(
            json.dumps(read(options.experiment, options.commit), indent=1) + "\n", encoding="utf-8"
        )
    found = json.loads(data.read_text(encoding="utf-8"))
    for theme in THEMES:
        (options.output / f"hack-{theme}.svg").write_text(draw(found, theme), encoding="utf-8")


def read(experiment: Path, commit: str | None) -> dict[str, Any]:
    """Both arms' evaluations as far as both have come, and the wrong completion that frozen pays most for."""
    start = read_report(
        outputs(START, experiment / "start")[Output("evaluate_policy_0", "report")], EvalReport
    )
    assert start.judge_accuracy is not None
    found = {arm: _read_arm(experiment, arm) for arm in TITLES}
    last = min(int(rows[-1]["step"]) for rows, _ in found.values())
    arms: dict[str, Any] = {}
    for arm, (rows, _) in found.items():
        until = [row for row in rows if row["step"] <= last]
        arms[arm] = {
            "steps": [0, *(int(row["step"]) for row in until)],
            "accuracy": [start.judge_accuracy.value, *(row["eval/judge_accuracy"] for row in until)],
            "reward": [start.verify_rm_reward.value, *(row["eval/verify_rm_reward"] for row in until)],
        }
    wrong = [each for each in found["frozen"][1] if each.rule != "correct" and each.step <= last]
    paid = max(wrong, key=lambda sample: (sample.step, sample.reward))
    arms["frozen"]["paid_most"] = paid.model_dump(
        include={"step", "reward", "reference_answer", "completion"}
    )
    return {
        "command": COMMAND,
        "commit": commit or _commit(),
        "held_out_problems": start.num_problems,
        "completions_per_problem": start.samples_per_problem,
        "arms": arms,
    }


def _read_arm(experiment: Path, arm: str) -> tuple[list[dict[str, float]], list[RolloutSample]]:
    """The metrics of the steps that were evaluated, and the rollouts that were kept."""
    checkpoint = outputs(ARM, experiment / arm / "seed-0")[Output("train_cooper_1", "checkpoint")]
    logs = (METRICS, ROLLOUTS)
    with open_checkpoint(checkpoint, StorageConfig(), starting_with=(), logs=logs) as found:
        texts = [path.read_text(encoding="utf-8") for path in found.log[METRICS]]
        rollouts = [row for path in found.log[ROLLOUTS] for row in read_records(path, RolloutSample)]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    return [row for row in rows if "eval/judge_accuracy" in row], rollouts


def _commit() -> str:
    git = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, check=True, capture_output=True, text=True, cwd=IMAGES).stdout.strip()


def sentence(found: dict[str, Any]) -> str:
    """The picture in words; README and the experiment's page have it."""
    frozen, cooper = found["arms"]["frozen"], found["arms"]["cooper"]
    return (
        f"In {frozen['steps'][-1]} steps from the same start the frozen VerifyRM's reward rises from "
        f"{short(frozen['reward'][0])} to {short(frozen['reward'][-1])} while accuracy falls from "
        f"{short(frozen['accuracy'][0])} to {short(frozen['accuracy'][-1])}. With Cooper accuracy rises to "
        f"{short(cooper['accuracy'][-1])} and the reward to {short(cooper['reward'][-1])}."
    )


def draw(found: dict[str, Any], theme: str) -> str:
    """One SVG with a panel for each arm."""
    colors = THEMES[theme]
    arms = found["arms"]
    title = sentence(found)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-MARGIN} {WIDTH} {HEIGHT + MARGIN}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>',
        f"<style>text{{font:13px system-ui,sans-serif;fill:{colors['ink']}}}"
        f".s{{fill:{colors['soft']};font-size:12px}}"
        ".b{font-weight:600;font-size:14px}.e{font-weight:600}.m{font-family:ui-monospace,monospace;font-size:11.5px}"
        "polyline{fill:none;stroke-width:2.4;stroke-linejoin:round}"
        f"line{{stroke:{colors['grid']};stroke-width:1}}</style>",
        ground(colors),
        _key(colors),
    ]
    for place, (arm, each) in enumerate(arms.items()):
        parts += _panel(arm, each, LEFT + place * (PANEL_WIDTH + GAP), colors)
    paid = arms["frozen"]["paid_most"]
    text = " ".join(paid["completion"].split())
    shown = text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + " ..."
    parts.append(
        f'<text class="s" x="{LEFT}" y="{HEIGHT - 30}">The frozen reward model pays {paid["reward"]:.2f} for '
        f"this at step {paid['step']} (the answer is {escape(paid['reference_answer'])}):</text>"
        f'<text class="m" x="{LEFT}" y="{HEIGHT - 13}">{escape(shown)}</text></svg>'
    )
    return "\n".join(parts) + "\n"


def ground(colors: dict[str, str]) -> str:
    """Behind the whole picture, so that it can be read on a page of either theme."""
    return f'<rect y="{-MARGIN}" width="100%" height="100%" rx="8" fill="{colors["ground"]}"/>'


def _key(colors: dict[str, str]) -> str:
    return (
        f'<line x1="{LEFT}" x2="{LEFT + 26}" y1="14" y2="14" style="stroke:{colors["reward"]};'
        f'stroke-width:2.4;stroke-dasharray:6 3"/><text x="{LEFT + 34}" y="18">VerifyRM reward</text>'
        f'<line x1="{LEFT + 190}" x2="{LEFT + 216}" y1="14" y2="14" style="stroke:{colors["accuracy"]};'
        f'stroke-width:2.4"/><text x="{LEFT + 224}" y="18">accuracy on held-out problems</text>'
    )


def _panel(arm: str, each: dict[str, Any], left: float, colors: dict[str, str]) -> list[str]:
    last = each["steps"][-1]

    def across(step: float) -> float:
        return left + PANEL_WIDTH * step / last

    def down(value: float) -> float:
        return TOP + PANEL * (1 - value)

    parts = [f'<text class="b" x="{left:.0f}" y="{TOP - 14}">{TITLES[arm]}</text>']
    for value in (0, 0.5, 1):
        height = down(value)
        parts.append(
            f'<line x1="{left:.1f}" x2="{left + PANEL_WIDTH:.1f}" y1="{height:.1f}" y2="{height:.1f}"/>'
            f'<text class="s" x="{left - 8:.1f}" y="{height + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    for step in (0, last):
        anchor = "end" if step else "start"
        parts.append(
            f'<text class="s" x="{across(step):.1f}" y="{TOP + PANEL + 16}" text-anchor="{anchor}">'
            f"step {step}</text>"
        )
    ends = {name: each[name][-1] for name in ("reward", "accuracy")}
    crowded = abs(ends["reward"] - ends["accuracy"]) < 0.07
    for name, dash in (("reward", "6 3"), ("accuracy", "")):
        points = " ".join(
            f"{across(step):.1f},{down(value):.1f}"
            for step, value in zip(each["steps"], each[name], strict=True)
        )
        style = f"stroke:{colors[name]}" + (f";stroke-dasharray:{dash}" if dash else "")
        parts.append(f'<polyline points="{points}" style="{style}"/>')
        shift = 4.0
        if crowded:
            shift += -9 if ends[name] == max(ends.values()) else 9
        parts.append(
            f'<text class="e" x="{left + PANEL_WIDTH + 6:.1f}" y="{down(ends[name]) + shift:.1f}" '
            f'style="fill:{colors[name]}">{short(ends[name])}</text>'
        )
    return parts


def short(value: float, *, places: int = 2) -> str:
    """A share without its leading zero."""
    return f"{value:.{places}f}".removeprefix("0")


if __name__ == "__main__":
    main()
