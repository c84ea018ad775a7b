"""Read a configuration: a preset as TOML, then overrides as `dotted.key=value`.

Precedence: field defaults < preset < overrides. The same text works in the CLI (`--set`) and in a
pipeline's `overrides` parameter. Unknown keys are refused; nothing is read from the environment.
"""

import difflib
import json
import tomllib
import types
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError

from cooper_rl.addresses import redact_all
from cooper_rl.config.root import Config
from cooper_rl.config.section import flatten
from cooper_rl.config.serve import HttpConfig, LearnConfig, ServeConfig
from cooper_rl.errors import ConfigError

Server = TypeVar("Server", bound=HttpConfig)


def load(preset: str, overrides: Sequence[str] = ()) -> Config:
    """Build the configuration from a preset's name (or a .toml path) and `dotted.key=value` overrides.

    A value is TOML (`0.1`, `true`, `["a", "b"]`); text that is no TOML value is taken as a string.
    `key=null` turns off what the preset or the default has, and takes an entry out of a table. A preset that
    says `extends = "paper"` holds what differs from it.

    Raises:
        ConfigError: naming the preset, key or value, the place, and what is allowed.
    """
    values = _read_preset(preset)
    for override in overrides:
        _apply(values, override, Config)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, preset)) from error


def changed(config: Config, overrides: Sequence[str]) -> Config:
    """A configuration with changes, each as `load` takes them.

    Raises:
        ConfigError: as of `load`.
    """
    values = config.model_dump()
    for override in overrides:
        _apply(values, override, Config)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, None)) from error


def load_serve(overrides: Sequence[str] = ()) -> ServeConfig:
    """The scoring server's configuration from `key=value` overrides of its defaults.

    Raises:
        ConfigError: naming the key or value, and what is allowed.
    """
    return _load_server(ServeConfig, overrides, "serve-verify-rm")


def load_learn(overrides: Sequence[str] = ()) -> LearnConfig:
    """The same for the server of rewards that learn."""
    return _load_server(LearnConfig, overrides, "serve --learn")


def _load_server(kind: type[Server], overrides: Sequence[str], name: str) -> Server:
    values: dict[str, Any] = {}
    for override in overrides:
        _apply(values, override, kind)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, name, kind)) from error


def preset_names() -> list[str]:
    """Names of the presets that ship with the package."""
    folder = resources.files("cooper_rl") / "presets"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def read_preset_text(preset: str) -> str:
    """The text of a preset, by its name or the path of a .toml file.

    Raises:
        ConfigError: there is none of this name, or the file cannot be read.
    """
    if preset.endswith(".toml"):
        return _read_text(preset)
    if preset in preset_names():
        return (resources.files("cooper_rl") / "presets" / f"{preset}.toml").read_text(encoding="utf-8")
    close = difflib.get_close_matches(preset, preset_names(), n=1)
    hint = f"did you mean {close[0]!r}? It is" if close else "use"
    raise ConfigError(
        f"unknown preset {preset!r}; {hint} one of {preset_names()} or a path that ends in .toml"
    )


def read_preset_layers(preset: str) -> list[tuple[str, dict[str, Any]]]:
    """A preset's own values, then those of the preset that it extends, and so on, each with its name.

    Raises:
        ConfigError: one cannot be read, or is not TOML.
    """
    try:
        values = tomllib.loads(read_preset_text(preset))
    except (ValueError, RecursionError) as error:  # also integers and nesting beyond Python's limits
        raise ConfigError(f"preset {preset!r} is not TOML: {error}") from error
    if "extends" not in values:
        return [(preset, values)]
    base = values.pop("extends")
    if base not in preset_names():
        raise ConfigError(f"preset {preset!r} extends {base!r}, which is none of {preset_names()}")
    return [(preset, values), *read_preset_layers(base)]


def _read_preset(preset: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for _, values in reversed(read_preset_layers(preset)):
        merged = _merge(merged, values)
    return merged


def _merge(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Sections are merged; any other value takes the place of the base's."""
    merged = dict(base)
    for key, value in values.items():
        own = merged.get(key)
        if isinstance(own, dict) and isinstance(value, dict):
            value = _merge(cast("dict[str, Any]", own), cast("dict[str, Any]", value))
        merged[key] = value
    return merged


def _read_text(preset: str) -> str:
    try:
        if Path(preset).is_file():
            return Path(preset).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"preset {preset!r} cannot be read as UTF-8 text: {error}") from error
    raise ConfigError(
        f"preset {preset!r}: no such file; give a path to a .toml file or one of {preset_names()}"
    )


def _apply(values: dict[str, Any], override: str, root: type[BaseModel]) -> None:
    key, separator, text = override.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise ConfigError(f"override {override!r} is not dotted.key=value, e.g. cooper.steps=2")
    section = values
    for part in parts[:-1]:
        if section.get(part) is None:
            section[part] = {}
        child: Any = section[part]
        if not isinstance(child, dict):
            raise ConfigError(f"override {override!r}: {part!r} is a value, not a section")
        section = cast("dict[str, Any]", child)
    if text.strip() != "null":
        section[parts[-1]] = parse_value(text)
    elif _is_entry(parts, root):
        section.pop(parts[-1], None)
    else:
        section[parts[-1]] = None


def _is_entry(parts: Sequence[str], root: type[BaseModel]) -> bool:
    """True if a key names an entry of a table such as `launch.environment`, which may be taken out."""
    section = root
    for part in parts[:-1]:
        field = section.model_fields.get(part)
        if field is None or get_origin(field.annotation) is dict:
            return field is not None
        section = section_of(field.annotation) or section
    return False


def key_of(override: str) -> str:
    """The dotted key that an override names."""
    return override.partition("=")[0].strip()


def read_override(override: str) -> tuple[str, Any]:
    """The dotted key of an override, and its value."""
    return key_of(override), parse_value(override.partition("=")[2])


def settings_of(override: str) -> dict[str, Any]:
    """Every dotted key that an override sets, and its value: those in a table one by one."""
    return dict(flatten(dict([read_override(override)])))


def parse_value(text: str) -> Any:
    """A value as an override writes it: TOML, or else the text itself."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # also integers and nesting beyond Python's limits
        return text
    return found["value"] if len(found) == 1 else text


def _explain(error: ValidationError, preset: str | None, root: type[BaseModel] = Config) -> str:
    name = "with these changes it" if preset is None else f"preset {preset!r} with its overrides"
    lines = (f"  {fault}" for fault in describe_faults(error, root))
    return "\n".join([f"{name} is not a valid configuration:", *lines])


def describe_faults(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """One line for each key of a section that cannot be used, and what is allowed."""
    lines: list[str] = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(whole)"
        if item["type"] == "extra_forbidden":
            known = _known_keys(item["loc"][:-1], root)
            close = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
            lines.append(f"{key}: unknown key; {hint}")
        else:
            found = redact_all(json.dumps(item["input"], default=str))
            # A whole section is not shown: an address in it may hold a password.
            is_shown = len(found) < 80 and not isinstance(item["input"], dict)
            hint = ', write a list: ["a", "b"]' if item["type"] in {"tuple_type", "list_type"} else ""
            if item["type"] == "string_type":
                table = key.rpartition(".")[0]
                hint = (
                    f', write names that hold dots as a table: {table}={{"a.b"="c"}}'
                    if isinstance(item["input"], dict)
                    else f""", write it in quotes: {key}='"{item["input"]}"'"""
                )
            lines.append(f"{key}: {item['msg']}{hint}" + (f" (found {found})" if is_shown else ""))
    return lines


def _known_keys(location: tuple[int | str, ...], root: type[BaseModel]) -> list[str]:
    section = root
    for part in location:
        field = section.model_fields.get(str(part))
        if field is None:
            return []
        section = section_of(field.annotation) or section
    return sorted(section.model_fields)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field of this type holds, perhaps in a table; None: it holds a value."""
    kinds = [annotation, *get_args(annotation)]
    return next(
        (
            kind
            for kind in kinds
            if isinstance(kind, type)
            and not isinstance(kind, types.GenericAlias)
            and issubclass(kind, BaseModel)
        ),
        None,
    )
