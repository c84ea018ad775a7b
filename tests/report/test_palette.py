"""Lines and areas can be told apart by people who see colours differently, and by those who see none.

Simulation: Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB. Difference: CIEDE2000 (Sharma, Wu
and Dalal 2005), checked against pairs of their table 1. Below 2 nobody sees a difference; 10 is seen at once.
"""

import json
import math
from itertools import combinations

import numpy as np
import pytest

from cooper_rl.comparison.page import STYLES
from cooper_rl.report.figure import COLORS, HATCHES, Figure, palette
from cooper_rl.report.plots import Arm, headline_plot, training_figures
from tests.stages.run_files import make_evaluation, make_metrics

SIGHTS = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(color: str) -> np.ndarray:
    values = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def to_lab(rgb: np.ndarray) -> tuple[float, float, float]:
    relative = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16) / 116)
    return float(116 * y - 16), float(500 * (x - y)), float(200 * (y - z))


def difference(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """CIEDE2000."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    chroma = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    grey = 0.5 * (1 - math.sqrt(chroma**7 / (chroma**7 + 25**7)))
    a1, a2 = a1 * (1 + grey), a2 * (1 + grey)
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    light, c = (l1 + l2) / 2, (c1 + c2) / 2
    h = (h1 + h2) / 2 if abs(h1 - h2) <= 180 else ((h1 + h2 + 360) / 2) % 360
    waves = ((0.17, 1, 30), (-0.24, 2, 0), (-0.32, 3, -6), (0.2, 4, 63))
    t = 1 - sum(size * math.cos(math.radians(times * h - shift)) for size, times, shift in waves)
    s_l = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    s_c, s_h = 1 + 0.045 * c, 1 + 0.015 * c * t
    turning = -math.sin(math.radians(60 * math.exp(-(((h - 275) / 25) ** 2))))
    turning *= 2 * math.sqrt(c**7 / (c**7 + 25**7))
    parts = ((l2 - l1) / s_l, (c2 - c1) / s_c, hue / s_h)
    return math.sqrt(sum(part**2 for part in parts) + turning * parts[1] * parts[2])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((50.0, 2.5, 0.0), (58.0, 24.0, 15.0), 19.4535),
        ((90.8027, -2.0831, 1.4410), (91.1528, -1.6435, 0.0447), 1.4441),
    ],
)
def test_the_measure_gives_the_published_differences(one, other, expected) -> None:
    assert difference(one, other) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("sight", SIGHTS)
def test_no_two_colours_of_the_palette_look_alike(sight: str, is_dark: bool) -> None:
    """Measured: light 12.2 and dark 14.0 for protanopia, 15.9 and 15.7 for deuteranopia, 12.4 and 10.9 for
    tritanopia. The palette before had .4 (dark blue and purple, protanopia)."""
    colors = palette(is_dark=is_dark)
    seen = {name: to_lab(SIGHTS[sight] @ linear(colors[name])) for name in COLORS}
    closest = min(difference(seen[one], seen[other]) for one, other in combinations(COLORS, 2))
    assert closest > (12 if sight != "tritanopia" else 10)


@pytest.mark.parametrize("is_dark", [False, True])
def test_every_line_stands_out_from_its_card(is_dark: bool) -> None:
    """3:1 is what WCAG 2.2 asks of graphics."""
    colors = palette(is_dark=is_dark)
    luminance = {name: float(TO_XYZ[1] @ linear(color)) for name, color in colors.items()}
    for name in COLORS:
        low, high = sorted((luminance[name], luminance["card"]))
        assert (high + 0.05) / (low + 0.05) > 3, name


def test_no_line_or_area_differs_from_another_by_its_colour_alone() -> None:
    points = [make_evaluation(0, 0.4, 0.5), make_evaluation(40, 0.5, 0.6)]
    arms = [Arm("", make_metrics(40), points), Arm("frozen", make_metrics(40), points)]
    drawn = [Figure(headline_plot(points)), *training_figures(arms)]
    for figure in drawn:
        lines = [line for line in json.loads(figure.data)["lines"] if line["kind"] == "line"]
        looks = [(line["dash"], line["marker"]) for line in lines]
        assert len(set(looks)) == len(looks), figure.title
    phases = next(figure for figure in drawn if figure.title.startswith("Seconds"))
    assert len(set(HATCHES)) == len(json.loads(phases.data)["lines"]) == 5
    assert phases.svg.count("<pattern") == 4
    assert len({style[1:] for style in STYLES.values()}) == len(STYLES)
