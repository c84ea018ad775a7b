"""The picture of docs/results/blind.md is what its data say, and its data are the page's."""

import json
from statistics import fmean

import pytest

from benchmarks.blind_picture import ARMS, draw, sentence
from benchmarks.hack_picture import IMAGES, THEMES, short
from tests.documented_commands import ROOT

FOUND = json.loads((IMAGES / "blind.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "results" / "blind.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", THEMES)
def test_the_picture_in_the_repository_is_drawn_from_the_data_beside_it(theme: str) -> None:
    assert (IMAGES / f"blind-{theme}.svg").read_text(encoding="utf-8") == draw(FOUND, theme)


def test_the_page_shows_the_picture_and_says_it_in_words() -> None:
    assert f'<img alt="{sentence(FOUND)}" src="../images/blind-light.svg">' in PAGE
    assert 'srcset="../images/blind-dark.svg"' in PAGE


@pytest.mark.parametrize("start", FOUND["starts"], ids=lambda start: str(start["auroc"]))
def test_every_number_of_the_picture_stands_on_the_page(start) -> None:
    """The row of the first table, each arm's seeds in their order, its interval, and the commit."""
    table = PAGE.replace("*", "")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    means = [short(start["arms"][name]["mean"], places=3) for name in ARMS]
    (row,) = [row for row in rows if row[-3:] == means]
    assert row[0] == str(start["seed"])
    assert row[1].split(",")[0] in (short(start["auroc"], places=3), short(start["auroc"]))
    assert row[2:4] == [str(start["steps"]), str(len(start["arms"]["rule"]["seeds"]))]
    assert start["commit"] in PAGE
    if start["command"]:
        assert " ".join(start["command"].split()) in " ".join(PAGE.replace("\\\n", " ").split())
    for arm in start["arms"].values():
        assert " ".join(short(seed, places=3) for seed in arm["seeds"]) in table
        assert fmean(arm["seeds"]) == pytest.approx(arm["mean"], abs=0.0015)
        if arm["interval"]:
            assert f"[{', '.join(short(end, places=3) for end in arm['interval'])}]" in table
