"""Base of every section of the configuration."""

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused, a docstring under each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Leaves of dumped sections as (dotted key, value); a table without entries is one."""
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        pairs += flatten(table, f"{prefix}{key}.") if table else [(prefix + key, value)]
    return pairs
