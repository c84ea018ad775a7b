"""The identity of a run: the configuration and data that its numbers depend on (row 13).

Values that differ from the defaults decide. A key that one side does not know, because its version is older
or newer, counts as its default, so a new key at its default changes nothing.
"""

import json
import types
from collections.abc import Mapping
from typing import Any, NamedTuple, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from cooper_rl.checkpoints.manifest import CheckpointManifest
from cooper_rl.config.root import Config
from cooper_rl.config.section import Section

IS_SET = "{}"
"""Value of an optional section that is not null; its own keys stand beside it."""


class RunIdentity(NamedTuple):
    """Dotted key -> value as JSON."""

    chosen: Mapping[str, str]
    """Keys that differ from their defaults, and the hashes of the inputs (`data.*`)."""
    defaults: Mapping[str, str] = {}
    """The other keys: a later version may have other defaults."""


def split_identity(values: Mapping[str, str], schema: type[Section] = Config) -> RunIdentity:
    """The identity of a run whose configuration and data have these values."""
    values = _with_sections(values, schema)
    defaults = {key: value for key, value in values.items() if is_default(key, value, schema)}
    return RunIdentity({key: values[key] for key in values if key not in defaults}, defaults)


def differences(manifest: CheckpointManifest, here: RunIdentity, schema: type[Section] = Config) -> list[str]:
    """`key: value there, value here` for every key that makes a checkpoint one of another run."""
    there = _with_sections({**manifest.identity, **manifest.defaults}, schema)
    own = _with_sections({**here.chosen, **here.defaults}, schema)
    found: list[str] = []
    for key in sorted({*there, *own}):
        before, now = there.get(key), own.get(key)
        if before == now:
            continue
        is_new_default = before is None and is_default(key, now, schema)
        is_gone_default = now is None and (key in manifest.defaults or is_default(key, before, schema))
        if not is_new_default and not is_gone_default:
            found.append(f"{key}: {before or 'absent'} there, {now or 'absent'} here")
    return found


def is_default(key: str, value: str | None, schema: type[Section] = Config) -> bool:
    """True if a dotted key of the configuration has this value (JSON) where nobody sets it."""
    section, instance = schema, None
    *sections, leaf = key.split(".")
    for part in sections:
        if part not in section.model_fields:
            return False
        default = _default(section, instance, part)
        instance = default if isinstance(default, Section) else None
        below = (
            type(default)
            if isinstance(default, Section)
            else _section_in(section.model_fields[part].annotation)
        )
        if below is None:
            return False
        section = below
    if leaf not in section.model_fields:
        return False
    default = _default(section, instance, leaf)
    if isinstance(default, Section):
        return value == IS_SET
    if default is PydanticUndefined:  # a required key, such as a server's address
        return False
    # Dumped as a run's values are: a path or a tuple is compared as the JSON that it becomes.
    dumped = section.model_construct(**{leaf: default}).model_dump(mode="json", include={leaf})[leaf]
    return value == json.dumps(dumped)


def _default(section: type[Section], instance: Section | None, name: str) -> Any:
    # A section's own default may set other values than its class.
    if instance is not None:
        return getattr(instance, name)
    return section.model_fields[name].get_default(call_default_factory=True)


def _with_sections(values: Mapping[str, str], schema: type[Section]) -> dict[str, str]:
    """The values, and `IS_SET` for every optional section that one of them lies in."""
    found = dict(values)
    for key in values:
        section: type[Section] | None = schema
        parts = key.split(".")
        for depth, part in enumerate(parts[:-1], start=1):
            field = section.model_fields.get(part) if section else None
            if field is None:
                break
            section = _section_in(field.annotation)
            if type(None) in get_args(field.annotation):
                found[".".join(parts[:depth])] = IS_SET
    return found


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that a field holds, be it optional or not."""
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return next((each for each in options if isinstance(each, type) and issubclass(each, Section)), None)
