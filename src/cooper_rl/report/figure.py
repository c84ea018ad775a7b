"""One figure, drawn twice from one description: as SVG for everyone, and as numbers for the page's script.

Figures are small (one column of a phone). Their text may hold a folder's name, in which nothing is taken for
a formula or for markup. No two lines of a figure differ by colour alone: each has a dash and a marker of its
own, areas have hatches. The colours are Okabe and Ito's, which people who confuse red and green can tell
apart; `page.css` has their values for light and dark.
"""

import io
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

Color = Literal["blue", "orange", "green", "purple", "grey", "faint"]
Dash = Literal["solid", "dashed", "dotted", "dashdot"]
Kind = Literal["line", "bar", "area"]

COLORS: tuple[Color, ...] = ("blue", "orange", "green", "purple", "grey")
MARKERS = ("o", "s", "D", "^", "v", "P", "X")
HATCHES = ("", "//", "--", "\\\\", "xx")
"""Hatches of areas, in the order in which they are stacked."""
_DASHES: dict[Dash, str] = {"solid": "-", "dashed": "--", "dotted": ":", "dashdot": "-."}
_SIZE_INCHES = (4.4, 2.6)
"""One column of the page, where text of 8.5 points is neither small on a phone nor large on a desk."""
_MARKERS_PER_LINE = 7

# Colours that stand for a CSS variable until the SVG is written.
_PLACEHOLDERS = {name: f"#0a0b{n:02x}" for n, name in enumerate(("ink", "card", "faint", *COLORS))}


class Line(NamedTuple):
    """Numbers that belong together; an area is stacked on those before it."""

    label: str
    """Shown once where several lines have it, which then look alike: runs of one arm."""
    color: Color
    xs: Sequence[float]
    ys: Sequence[float]
    dash: Dash = "solid"
    marker: str = ""
    kind: Kind = "line"
    low: Sequence[float] = ()
    """Ends of the intervals; empty: none are known."""
    high: Sequence[float] = ()
    raw: Sequence[float] = ()
    """The values that `ys` was smoothed from, drawn thin."""


class Plot(NamedTuple):
    """The contents of a figure."""

    title: str
    caption: str
    lines: Sequence[Line]
    x_label: str = "step"
    y_label: str = ""
    limits: tuple[float, float] | None = None
    floor: float | None = None
    """Lower end of the axis, where `limits` has none."""
    ticks: Sequence[tuple[float, str]] = ()
    """Ticks of the x axis; empty: numbers."""


class Figure(NamedTuple):
    """A plot for a page, drawn where the page asks for it."""

    plot: Plot

    @property
    def title(self) -> str:
        return self.plot.title

    @property
    def caption(self) -> str:
        return self.plot.caption

    @property
    def svg(self) -> str:
        """The same plot gives the same text."""
        svg = _save(self.plot, _PLACEHOLDERS, format="svg", transparent=True, metadata={"Date": None})
        return _inline(svg.decode())

    @property
    def data(self) -> str:
        """JSON for `page.js`: the plot's numbers, to four digits, and places on its x axis to six."""
        return _numbers(self.plot)


def draw_png(plot: Plot) -> bytes:
    """A picture to share, in the colours of the light page, with the title in it."""
    colors = palette(is_dark=False)
    return _save(plot, colors, title=plot.title, format="png", dpi=220, metadata={"Software": None})


@cache
def palette(*, is_dark: bool) -> dict[str, str]:
    """Name of a colour -> its value on the page."""
    style = (resources.files("cooper_rl") / "report" / "page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", blocks[1 if is_dark else 0]))


def _numbers(plot: Plot) -> str:
    def short(values: Sequence[float]) -> list[float]:
        return [float(f"{value:.4g}") for value in values]

    lines = [
        {
            "label": line.label, "color": line.color, "dash": line.dash, "marker": line.marker,
            "kind": line.kind, "x": [float(f"{x:.6g}") for x in line.xs], "y": short(line.ys),
            "low": short(line.low), "high": short(line.high), "raw": short(line.raw),
        }
        for line in plot.lines
    ]  # fmt: skip
    data = {
        "title": plot.title, "x_label": plot.x_label, "y_label": plot.y_label, "limits": plot.limits,
        "floor": plot.floor, "ticks": list(plot.ticks), "lines": lines,
    }  # fmt: skip
    return json.dumps(data, separators=(",", ":"))


def _save(plot: Plot, colors: dict[str, str], *, title: str = "", **options: Any) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    ink, faint = colors["ink"], colors["faint"]
    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": plot.title, "font.size": 8.5, "text.color": ink,
        "text.parse_math": False,
        "axes.labelcolor": ink, "axes.edgecolor": faint, "xtick.color": faint, "ytick.color": faint,
        "xtick.labelcolor": ink, "ytick.labelcolor": ink, "axes.spines.top": False,
        "axes.spines.right": False, "legend.frameon": False, "legend.fontsize": 8, "hatch.linewidth": 0.6,
    }  # fmt: skip
    content = io.BytesIO()
    with mpl.rc_context(style):
        canvas = Canvas(figsize=_SIZE_INCHES, layout="constrained")
        axes: Any = canvas.add_subplot()
        axes.grid(axis="y", color=faint, alpha=0.35, linewidth=0.6)
        _draw_lines(axes, plot.lines, colors)
        _set_axes(axes, plot)
        if title:
            axes.set_title(title, loc="left", fontweight="bold")
        columns = 2 if len({line.label for line in plot.lines}) in (2, 4) else 3
        canvas.legend(loc="outside upper left", ncols=columns, handlelength=2.6, columnspacing=1.2)
        canvas.savefig(content, **options)
    return content.getvalue()


def _set_axes(axes: Any, plot: Plot) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    if plot.limits is not None:
        axes.set_ylim(*plot.limits)
    elif plot.floor is not None:
        axes.set_ylim(bottom=plot.floor)
    if plot.ticks:
        axes.set_xticks([place for place, _ in plot.ticks], [text for _, text in plot.ticks])
        axes.set_xlim(plot.ticks[0][0] - 0.4, plot.ticks[-1][0] + 0.4)
    elif plot.x_label == "step":
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _draw_lines(axes: Any, lines: Sequence[Line], colors: dict[str, str]) -> None:
    areas = [line for line in lines if line.kind == "area"]
    if areas:
        _stack(axes, areas, colors)
    known: set[str] = set()
    for line in lines:
        # A legend leaves out what begins with an underscore, so a space without width stands before it.
        shown = f"\u200b{line.label}" if line.label.startswith("_") else line.label
        color, label = colors[line.color], None if line.label in known else shown
        known.add(line.label)
        if line.kind == "bar":
            width = 0.9 / max(len(line.xs), 1)
            axes.bar(line.xs, line.ys, width=width, color=color, alpha=0.35, label=label)
        elif line.kind == "line":
            _draw_line(axes, line, color, label)


def _draw_line(axes: Any, line: Line, color: str, label: str | None) -> None:
    if line.raw:
        axes.plot(line.xs, line.raw, linewidth=0.7, alpha=0.4, color=color)
    if line.low:
        # A value that was rounded past its own bound must not give a negative length.
        errors = [
            [max(0.0, value - end) for value, end in zip(line.ys, line.low, strict=True)],
            [max(0.0, end - value) for value, end in zip(line.ys, line.high, strict=True)],
        ]
        axes.errorbar(line.xs, line.ys, yerr=errors, fmt="none", ecolor=color, elinewidth=1.2, capsize=2.5)
    axes.plot(
        line.xs, line.ys, color=color, linewidth=1.6, linestyle=_DASHES[line.dash], label=label,
        # A line needs two points to be seen.
        marker=line.marker or ("o" if len(line.xs) < 2 else None), markersize=4,
        markevery=max(1, len(line.xs) // _MARKERS_PER_LINE),
    )  # fmt: skip


def _stack(axes: Any, areas: Sequence[Line], colors: dict[str, str]) -> None:
    xs, heights = list(areas[0].xs), [list(line.ys) for line in areas]
    if len(xs) == 1:  # an area needs a width
        xs, heights = [xs[0] - 0.4, xs[0] + 0.4], [values * 2 for values in heights]
    drawn = axes.stackplot(
        xs, heights, colors=[colors[line.color] for line in areas], labels=[line.label for line in areas],
        alpha=0.75, linewidth=0,
    )  # fmt: skip
    for area, hatch in zip(drawn, HATCHES, strict=False):
        area.set_hatch(hatch)
        area.set_edgecolor(colors["card"])


def _inline(svg: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # every figure has the same group names
    svg = re.sub(r'\swidth="[^"]*pt"|\sheight="[^"]*pt"', "", svg, count=2)
    svg = re.sub(r"\n\s*", "\n", svg)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)  # a hundredth of a point is seen by nobody
    for name, color in _PLACEHOLDERS.items():
        svg = svg.replace(color, f"var(--{name})")
    return svg.strip()
