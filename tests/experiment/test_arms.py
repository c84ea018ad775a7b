"""Arms and ablations: each is a configuration of its own that differs from the others as it says."""

from collections.abc import Iterator
from typing import Any

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError
from cooper_rl.experiment.arms import ABLATIONS, ARMS, arm_overrides, parse_names, parse_seeds
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
