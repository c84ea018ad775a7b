"""Every overlay, rendered once for all tests of this folder."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from manifests.check.resources import Resource, render

MANIFESTS = Path(__file__).parent.parent.parent / "manifests"


@cache
def _render(name: str) -> list[Resource]:
    return render(MANIFESTS / "overlays" / name)


@pytest.fixture(scope="session")
def rendered() -> Callable[[str], list[Resource]]:
    """Objects of an overlay by its name; not to be changed."""
    return _render
