"""A configuration that notes which of its keys are read."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest

from cooper_rl.config.root import Config
from cooper_rl.config.section import Section, flatten


def join(place: str, name: object) -> str:
    """The dotted key of a name in a section."""
    return f"{place}.{name}" if place else str(name)


def sections_below(value: Any, key: str) -> Iterator[tuple[Section, str]]:
    """Every section in a value of this key, with the key of each: of tables and lists too."""
    if isinstance(value, Section):
        yield value, key
        for name in type(value).model_fields:
            yield from sections_below(vars(value)[name], join(key, name))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from sections_below(each, join(key, name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from sections_below(each, key)


class Noted(dict[str, Any]):
    """A section's dump, which notes what is taken out of it."""

    def __init__(self, values: dict[str, Any], place: str, note: Callable[[str], None]) -> None:
        super().__init__(values)
        self._place = place
        self._note = note

    def __getitem__(self, name: str) -> Any:
        value, key = super().__getitem__(name), join(self._place, name)
        if isinstance(value, dict) and value:
            return Noted(value, key, self._note)
        self._note(key)
        return value

    def items(self) -> Any:
        if not self._place:  # the settings of a run are shown as a whole
            return super().items()
        return {name: self[name] for name in self}.items()


@contextmanager
def noting_reads(*configs: Config) -> Generator[set[str]]:
    """The dotted keys that are read meanwhile in this process: leaves, sections that may be None, and what is
    taken out of a dump. A dump that is looked through as a whole counts for nothing."""
    known = {id(section): (section, key) for each in configs for section, key in sections_below(each, "")}
    found: set[str] = set()

    def read(self: Section, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if id(self) not in known:
            return value
        _, place = known[id(self)]
        field = type(self).model_fields.get(name)
        if field is not None:
            if type(None) in get_args(field.annotation) or not any(sections_below(value, "")):
                found.add(join(place, name))
        elif name == "model_copy":
            return lambda **options: keep(value(**options), place)
        elif name == "model_dump":
            return lambda **options: Noted(value(**options), place, found.add)
        elif name == "model_dump_json":
            found.update(
                join(place, key) for key, _ in flatten(object.__getattribute__(self, "model_dump")())
            )
        return value

    def keep(copy: Section, place: str) -> Section:
        known.update({id(section): (section, key) for section, key in sections_below(copy, place)})
        return copy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Section, "__getattribute__", read, raising=False)
        yield found


def leaves(config: Config) -> set[str]:
    """The dotted keys of all leaves."""
    return {
        join(key, name)
        for section, key in sections_below(config, "")
        for name in type(section).model_fields
        if not any(sections_below(vars(section)[name], ""))
    }
