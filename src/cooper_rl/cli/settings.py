"""The configuration keys that `--help` lists, with their defaults and docstrings."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cooper_rl.config.load import section_of
from cooper_rl.config.root import Config
from cooper_rl.config.serve import HttpConfig


def describe_sections(sections: Sequence[str]) -> str:
    """Every key of these sections and keys of the configuration, and `seed`."""
    lines = ["configuration (--set KEY=VALUE; shown with the value that holds where a preset says nothing):"]
    for section in ("seed", *sections):
        for key, default, text in _walk(section, _find_field(section)):
            shown = "" if default is PydanticUndefined else f" = {_show(default)}"
            lines.append(f"  {key}{shown}")
            lines += [f"      {line.strip()}" for line in (text or "").splitlines()]
    return "\n".join(lines)


def describe_server(kind: type[HttpConfig]) -> str:
    """Every key of a server's configuration."""
    lines = ["configuration (--set KEY=VALUE):"]
    for name, field in kind.model_fields.items():
        for key, default, text in _walk(name, field):
            lines.append(f"  {key} = {_show(default)}\n      {' '.join((text or '').split())}")
    return "\n".join(lines)


def _find_field(dotted: str) -> FieldInfo:
    section: type[BaseModel] = Config
    *outer, last = dotted.split(".")
    for part in outer:
        section = section_of(section.model_fields[part].annotation) or section
    return section.model_fields[last]


def _walk(key: str, field: FieldInfo) -> Iterator[tuple[str, Any, str | None]]:
    """Every leaf below a field as (dotted key, default, docstring)."""
    section = section_of(field.annotation)
    if section is None:
        yield key, field.default, field.description
        return
    if not isinstance(field.default, BaseModel) and field.default is not PydanticUndefined:
        yield key, field.default, field.description
    inner = f"{key}.NAME" if getattr(field.annotation, "__origin__", None) is dict else key
    for name, child in section.model_fields.items():
        yield from _walk(f"{inner}.{name}", child)


def _show(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))  # pyright: ignore[reportUnknownArgumentType] a default of the configuration
    return str(value)
