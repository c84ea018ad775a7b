"""Arms and ablations: each is a configuration of its own that differs from the others as it says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.comparison.arms import ABLATIONS, ARMS, arm_overrides, parse_names, parse_seeds
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError
from cooper_rl.report.page import settings


@pytest.mark.parametrize("name", [*ARMS, *ABLATIONS])
def test_an_arm_changes_the_training_and_nothing_else(name: str) -> None:
    """Models, data, labels, VerifyRM's training and evaluation stay those of the preset."""
    plain, own = load("laptop"), load("laptop", arm_overrides(name))
    changed = {key for key, value in settings(own) if (key, value) not in settings(plain)}
    assert all(key.startswith("cooper.") for key in changed)
    assert own.cooper.policy.lr == plain.cooper.policy.lr
    assert own.cooper.generation == plain.cooper.generation
    assert own.cooper.steps == plain.cooper.steps


def test_no_two_arms_are_the_same() -> None:
    configs = [load("laptop", arm_overrides(name)).cooper for name in [*ARMS, *ABLATIONS]]
    assert all(first != second for place, first in enumerate(configs) for second in configs[:place])


def test_an_unknown_arm_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown arm 'coper'; use some of rule, frozen"):
        arm_overrides("coper")


def test_names_are_taken_once_and_in_their_order() -> None:
    assert parse_names("b, a,b", allowed=["a", "b"], option="--arms") == ["b", "a"]
    assert parse_names("all", allowed=["a", "b"], option="--arms") == ["a", "b"]
    assert parse_names("", allowed=["a"], option="--ablate") == []
    with pytest.raises(ConfigError, match="--arms: unknown name 'c'; use all, or some of a, b"):
        parse_names("c", allowed=["a", "b"], option="--arms")


def test_seeds_are_whole_numbers() -> None:
    assert parse_seeds("0,2, 2") == [0, 2]
    with pytest.raises(ConfigError, match="--seeds '0,x': give whole numbers"):
        parse_seeds("0,x")


LAPTOPS_OWN = {
    *("steps", "problems_per_step", "group_size", "generation", "checkpoint_every", "policy.lr", "reward.lr"),
    "pairs.assistant",
}
"""What the laptop has smaller than the paper, and who answers there."""


def test_the_paper_arm_is_the_preset_paper_apart_from_sizes_and_who_answers() -> None:
    """Key by key: every other leaf of section `cooper`."""
    arm, paper = (
        load(preset, overrides).cooper.model_dump()
        for preset, overrides in (("laptop", arm_overrides("paper")), ("paper", ()))
    )
    own, published = dict(_leaves(arm)), dict(_leaves(paper))
    assert own == published
    assert own["judge"] is published["judge"] is None


def _leaves(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if prefix + key in LAPTOPS_OWN:
            continue
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


INDEX = Path(__file__).parents[2] / "docs" / "concepts" / "paper_index.md"


def _section(title: str) -> str:
    """The text of a section of the paper index."""
    return INDEX.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


def _published() -> dict[str, str]:
    """Key -> the paper's value, from the table of the paper index."""
    rows = re.findall(r"^\| \**`(cooper\.[\w.]+)`\** \| `(.+?)` \|", _section(PAPER_TABLE), re.MULTILINE)
    assert len(rows) == len(dict(rows)) > 25
    return dict(rows)


PAPER_TABLE = "The arm `paper`, key by key"


@pytest.mark.parametrize(("preset", "overrides"), [("laptop", arm_overrides("paper")), ("paper", ())])
def test_the_paper_arm_has_what_the_paper_index_says_key_by_key(preset: str, overrides: list[str]) -> None:
    own = dict(settings(load(preset, overrides)))
    published = _published()
    assert {key: own[key] for key in published} == published


def test_the_paper_index_names_every_key_that_the_paper_arm_sets() -> None:
    arm, cooper = (dict(settings(load("laptop", arm_overrides(name)))) for name in ("paper", "cooper"))
    changed = {key for key in arm if arm[key] != cooper.get(key)}
    bold = set(re.findall(r"^\| \*\*`([\w.]+)`\*\* \|", _section(PAPER_TABLE), re.MULTILINE))
    assert changed == bold
    assert len(bold) == len(ABLATIONS["paper"]) == 7


def test_every_departure_that_a_key_can_undo_is_undone_by_the_paper_arm() -> None:
    """`evaluate_every` says when the judge looks at held-out problems, which is the experiment's to set."""
    named = set(re.findall(r"`(cooper\.[\w.]+)`", _section("Departures"))) - {"cooper.evaluate_every"}
    published = _published()
    assert {
        key for key in named if not any(row == key or row.startswith(f"{key}.") for row in published)
    } == set()
