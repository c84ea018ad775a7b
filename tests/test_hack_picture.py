"""README's picture is what its data say."""

import json

import pytest

from benchmarks.hack_picture import IMAGES, THEMES, draw, sentence

ROOT = IMAGES.parents[1]


@pytest.mark.parametrize("theme", THEMES)
def test_the_picture_in_the_repository_is_drawn_from_the_data_beside_it(theme: str) -> None:
    found = json.loads((IMAGES / "hack.json").read_text(encoding="utf-8"))
    assert (IMAGES / f"hack-{theme}.svg").read_text(encoding="utf-8") == draw(found, theme)


def test_the_data_name_their_command_and_commit() -> None:
    found = json.loads((IMAGES / "hack.json").read_text(encoding="utf-8"))
    assert found["command"].startswith("python -m cooper_rl experiment --preset laptop")
    assert len(found["commit"]) >= 7
    for arm in ("frozen", "cooper"):
        each = found["arms"][arm]
        assert each["steps"][0] == 0
        assert len(each["steps"]) == len(each["accuracy"]) == len(each["reward"])


@pytest.mark.parametrize("page", ["README.md", "docs/results/experiment.md"])
def test_a_page_says_what_the_picture_shows(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    found = json.loads((IMAGES / "hack.json").read_text(encoding="utf-8"))
    assert sentence(found) in text
    assert found["commit"] in text
