"""The picture of docs/results/blind.md: accuracy of three rewards from each start, with seeds and intervals.

    python -m benchmarks.blind_picture

Draws `docs/images/blind-light.svg` and `blind-dark.svg` from `blind.json` beside them, whose numbers are the
page's; each entry names the commit of its runs, and their command where the page has one.
"""

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.hack_picture import IMAGES, MARGIN, THEMES, ground, short

ARMS = {"rule": "rule verifier", "frozen": "VerifyRM, frozen", "cooper": "Cooper"}
COLORS = {"rule": "soft", "frozen": "reward", "cooper": "accuracy"}
WIDTH, LEFT, GAP, PANEL_WIDTH = 720, 124, 34, 262
TOP, TITLE, ROW, BELOW = 26, 42, 30, 44
PANEL_HEIGHT = TITLE + ROW * len(ARMS) + BELOW


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=IMAGES, help="folder of blind.json and the pictures")
    options = parser.parse_args()
    found = json.loads((options.output / "blind.json").read_text(encoding="utf-8"))
    for theme in THEMES:
        (options.output / f"blind-{theme}.svg").write_text(draw(found, theme), encoding="utf-8")


def sentence(found: dict[str, Any]) -> str:
    """The picture in words, for the page and for readers who do not see it."""
    told = []
    for start in found["starts"]:
        ends = ", ".join(f"{name} {short(start['arms'][name]['mean'], places=3)}" for name in ARMS)
        told.append(f"AUROC {short(start['auroc'])}: {ends}")
    return f"Accuracy at the end by VerifyRM's AUROC at the start. {'. '.join(told)}."


def draw(found: dict[str, Any], theme: str) -> str:
    """One SVG, two panels in a row."""
    colors = THEMES[theme]
    title = escape(sentence(found))
    height = TOP + PANEL_HEIGHT * ((len(found["starts"]) + 1) // 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-MARGIN} {WIDTH} {height + MARGIN}" role="img" '
        f'aria-label="{title}"><title>{title}</title>',
        f"<style>text{{font:13px system-ui,sans-serif;fill:{colors['ink']}}}"
        f".s{{fill:{colors['soft']};font-size:12px}}.b{{font-weight:600;font-size:14px}}.e{{font-weight:600}}"
        f"line{{stroke:{colors['grid']};stroke-width:1}}</style>",
        ground(colors),
        '<text class="s" x="8" y="14">Accuracy on held-out problems, 0 to 1. Bars: 95 % intervals. '
        "Small dots: seeds. Dashes: the start.</text>",
    ]
    for place, start in enumerate(found["starts"]):
        left = LEFT + (place % 2) * (PANEL_WIDTH + GAP)
        top = TOP + PANEL_HEIGHT * (place // 2)
        parts += _panel(start, left, top, colors, is_first=place % 2 == 0)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    start: dict[str, Any], left: float, top: float, colors: dict[str, str], *, is_first: bool
) -> list[str]:
    rows = top + TITLE
    bottom = rows + ROW * len(ARMS)
    parts = [
        f'<text class="b" x="{left}" y="{top + 18}">AUROC {short(start["auroc"])}</text>'
        f'<text class="s" x="{left + PANEL_WIDTH}" y="{top + 18}" text-anchor="end">start {start["seed"]}, '
        f"{start['steps']} steps, {len(start['arms']['rule']['seeds'])} seeds</text>"
    ]
    for value in (0, 0.5, 1):
        across = left + PANEL_WIDTH * value
        parts.append(
            f'<line x1="{across:.1f}" x2="{across:.1f}" y1="{rows - 8}" y2="{bottom}"/>'
            f'<text class="s" x="{across:.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>'
        )
    begun = left + PANEL_WIDTH * start["accuracy"]
    parts.append(
        f'<line x1="{begun:.1f}" x2="{begun:.1f}" y1="{rows - 8}" y2="{bottom}" '
        f'style="stroke:{colors["ink"]};stroke-dasharray:3 4"/>'
    )
    for place, name in enumerate(ARMS):
        middle = rows + ROW * (place + 0.5)
        if is_first:
            parts.append(
                f'<text x="{left - 12}" y="{middle + 4:.0f}" text-anchor="end">{escape(ARMS[name])}</text>'
            )
        parts += _row(start["arms"][name], left, middle, colors[COLORS[name]])
    return parts


def _row(arm: dict[str, Any], left: float, middle: float, color: str) -> list[str]:
    """Interval, seeds, mean, and the mean as a number beyond all of them, or before them where it is low."""
    parts = []
    ends = [arm["mean"], *arm["seeds"], *(arm["interval"] or ())]
    if arm["interval"]:
        low, high = (left + PANEL_WIDTH * end for end in arm["interval"])
        parts.append(
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.0f}" y2="{middle:.0f}" '
            f'style="stroke:{color};stroke-width:7;stroke-opacity:.35;stroke-linecap:round"/>'
        )
    parts += [
        f'<circle cx="{left + PANEL_WIDTH * seed:.1f}" cy="{middle - 9:.0f}" r="2" fill="{color}"/>'
        for seed in arm["seeds"]
    ]
    parts.append(
        f'<circle cx="{left + PANEL_WIDTH * arm["mean"]:.1f}" cy="{middle:.0f}" r="5" fill="{color}"/>'
        f'<text class="e" x="{left + PANEL_WIDTH * max(ends) + 12:.1f}" y="{middle + 4:.0f}" '
        f'style="fill:{color}">{short(arm["mean"], places=3)}</text>'
    )
    return parts


if __name__ == "__main__":
    main()
