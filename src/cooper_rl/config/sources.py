"""The source of each value of a merged configuration."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from cooper_rl.config.load import parse_value, read_preset_layers
from cooper_rl.config.root import Config


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
    given = {key.strip(): parse_value(text) for key, _, text in (each.partition("=") for each in overrides)}
    for key, value in _leaves(config.model_dump(mode="json")):
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


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(cast("dict[str, Any]", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


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
