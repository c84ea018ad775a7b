"""Base of every section of the configuration."""

import json
from collections.abc import Generator, Mapping
from typing import Any, cast, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from cooper_rl.waiting import MAX_SECONDS


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused, a docstring under each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """`evaluate_every=true` would evaluate at every step: pydantic takes `true` for 1."""
        truth = next(_truths(value), None)
        if truth is not None and info.field_name is not None:
            kinds = set(_kinds(cls.model_fields[info.field_name].annotation))
            has_sections = any(isinstance(kind, type) and issubclass(kind, BaseModel) for kind in kinds)
            if bool not in kinds and kinds & {int, float} and not has_sections:
                raise ValueError(f"is a number, and {json.dumps(truth)} is none")
        return value

    @field_validator("*")
    @classmethod
    def _can_be_waited_for(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a time at which threads, sockets and sleep raise an OverflowError, hours after the start."""
        if (info.field_name or "").endswith("_seconds") and value is not None and value > MAX_SECONDS:
            raise ValueError(f"is longer than any wait can be; write at most {MAX_SECONDS} (14 days)")
        return value


def _truths(value: Any) -> Generator[bool]:
    """Every `true` and `false` in a value, which may be lists and tables."""
    if isinstance(value, bool):
        yield value
    elif isinstance(value, Mapping):
        yield from _truths(list(cast("Mapping[str, Any]", value).values()))
    elif isinstance(value, list | tuple):
        for each in cast("list[Any]", value):
            yield from _truths(each)


def _kinds(annotation: Any) -> Generator[Any]:
    """A type and all that stand in it."""
    yield annotation
    for inner in get_args(annotation):
        yield from _kinds(inner)


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Leaves of dumped sections as (dotted key, value); a table without entries is one."""
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        pairs += flatten(table, f"{prefix}{key}.") if table else [(prefix + key, value)]
    return pairs
