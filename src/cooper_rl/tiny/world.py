"""Laptop worlds, one for each domain that has one: problems, an exact judge and an assistant.

The texts that its models learn from are in `texts.py` and `program_texts.py`, which need torch. A domain that
a program registers has no laptop world.
"""

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from cooper_rl.errors import ConfigError
from cooper_rl.negatives.pairs import Assistant
from cooper_rl.schema.data import Problem
from cooper_rl.verdicts.hybrid import JudgeItem, JudgeResult

MODULES = {"mathematics": "story_world", "programs": "program_world"}
"""Domain -> the module of this room that has its `WORLD`."""


class World(NamedTuple):
    """The laptop world of one subject."""

    generate_problems: Callable[..., list[Problem]]
    """(count, seed): with unique questions and ids. `blind_share` too, where `has_blind_kinds`."""
    judge: Callable[[JudgeItem], JudgeResult]
    """Judges by meaning and without error, whatever the format."""
    assistant: Assistant
    """Rewrites a correct solution into a plausible wrong one."""
    has_blind_kinds: bool = False
    """True if a share of the problems can have answers that the rule verifier cannot read."""


def find_world(domain: str, *, blind_share: float = 0.0) -> World:
    """The laptop world of a domain.

    Raises:
        ConfigError: it has none, or no blind kinds of problems and a share of them is asked for.
    """
    if domain not in MODULES:
        raise ConfigError(
            f"problems.domain={domain} has no laptop world, which {' and '.join(MODULES)} have: set "
            "problems.sources in place of problems.num_tiny, models.policy and models.backbone in place of "
            "models.tiny, and server for every judge and assistant"
        )
    world = import_module(f"cooper_rl.tiny.{MODULES[domain]}").WORLD
    if blind_share and not world.has_blind_kinds:
        raise ConfigError(
            f"problems.tiny_blind_share={blind_share:g}: the laptop world of problems.domain={domain} has no "
            "answers that its verifier cannot read; set it to 0"
        )
    return world
