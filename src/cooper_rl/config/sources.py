"""The source of each value of a merged configuration."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from cooper_rl.config.load import read_override, read_preset_layers
from cooper_rl.config.root import Config
from cooper_rl.config.section import flatten


class Sourced(NamedTuple):
    """One value of the configuration."""

    key: str
    """Dotted."""
    value: Any
    source: str
    """`--set`, `preset NAME`, or `default`."""


def find_sources(config: Config, preset: str, overrides: Sequence[str]) -> Iterator[Sourced]:
    """Every leaf of `load(preset, overrides)`, in the order of the configuration's classes."""
    layers = read_preset_layers(preset)
    given = dict(map(read_override, overrides))
    for key, value in flatten(config.model_dump(mode="json")):
        parts = key.split(".")
        heads = {".".join(parts[:length]): parts[length:] for length in range(1, len(parts) + 1)}
        is_held = [_holds(given[head], rest) for head, rest in heads.items() if head in given]
        if is_held:
            # A table takes the place of the preset's: what it does not hold has its default.
            yield Sourced(key, value, "--set" if any(is_held) else "default")
            continue
        named = (name for name, values in layers if _holds(values, parts))
        found = next(named, None)
        yield Sourced(key, value, f"preset {found}" if found else "default")


def _holds(values: Any, parts: Sequence[str]) -> bool:
    """True if a preset names a key, or one of the keys above it as a whole value."""
    found: Any = values
    for part in parts:
        if not isinstance(found, dict):
            return True
        if part not in found:
            return False
        found = cast("dict[str, Any]", found)[part]
    return True
