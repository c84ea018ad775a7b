"""The configuration keys that `--help` lists, with their defaults and docstrings."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cooper_rl.config.load import load, section_of
from cooper_rl.config.root import Config
from cooper_rl.config.serve import HttpConfig
from cooper_rl.config.sources import find_sources
from cooper_rl.errors import ConfigError


class Key(NamedTuple):
    """One leaf of the configuration."""

    name: str
    """Dotted."""
    default: Any
    text: str
    """Its docstring."""

    @property
    def has_default(self) -> bool:
        """False: a preset must set it."""
        return self.default is not PydanticUndefined


def describe_sections(sections: Sequence[str], preset: str | None = None) -> str:
    """Every key of these sections and keys of the configuration, and `seed`, in groups by section."""
    held, whose = _values(preset)
    lines = [f"configuration (--set KEY=VALUE; shown with the value {whose}):"]
    group = ""
    for key in (key for section in ("seed", *sections) for key in keys_of(section)):
        own = key.name.rpartition(".")[0]
        if own != group:
            lines.append(f"\n{own or 'of the whole run'}:")
            group = own
        value = f" = {show(key.default)}" if key.has_default else ""
        lines.append(f"  {key.name}{held.get(key.name, value)}")
        lines += [f"      {line.strip()}" for line in key.text.splitlines()]
    return "\n".join(lines)


def _values(preset: str | None) -> tuple[dict[str, str], str]:
    """Key -> how its value in a preset is shown, and whose values they are."""
    if preset is not None:
        with suppress(ConfigError):  # which the stage itself tells of
            found = find_sources(load(preset), preset, ())
            return {key: f" = {show(value)}" for key, value, _ in found}, f"of the preset {preset}"
    return {}, "that holds where a preset says nothing"


def describe_server(kind: type[HttpConfig]) -> str:
    """Every key of a server's configuration."""
    lines = ["configuration (--set KEY=VALUE):"]
    for key in keys_of_server(kind):
        lines.append(f"  {key.name} = {show(key.default)}\n      {' '.join(key.text.split())}")
    return "\n".join(lines)


def keys_of(section: str) -> Iterator[Key]:
    """Every leaf of a section or key of the configuration."""
    return _walk(section, _find_field(section))


def keys_of_server(kind: type[HttpConfig]) -> Iterator[Key]:
    """Every key of a server's configuration."""
    for name, field in kind.model_fields.items():
        yield from _walk(name, field)


def _find_field(dotted: str) -> FieldInfo:
    section: type[BaseModel] = Config
    *outer, last = dotted.split(".")
    for part in outer:
        section = section_of(section.model_fields[part].annotation) or section
    return section.model_fields[last]


def _walk(key: str, field: FieldInfo) -> Iterator[Key]:
    """Every leaf below a field."""
    section = section_of(field.annotation)
    if section is None:
        yield Key(key, field.default, field.description or "")
        return
    if not isinstance(field.default, BaseModel) and field.default is not PydanticUndefined:
        yield Key(key, field.default, field.description or "")
    inner = f"{key}.NAME" if getattr(field.annotation, "__origin__", None) is dict else key
    for name, child in section.model_fields.items():
        yield from _walk(f"{inner}.{name}", child)


def show(value: Any) -> str:
    """A value as `--set` takes it."""
    if value is None:
        return "null"
    return value if isinstance(value, str) else _inline(value)


def _inline(value: Any) -> str:
    """A value as TOML writes it within a line."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        entries = [f"{json.dumps(key)} = {_inline(each)}" for key, each in table.items() if each is not None]
        return f"{{ {', '.join(entries)} }}" if entries else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, cast('Sequence[Any]', value)))}]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
