"""Every benchmark starts: nothing else runs most of them between two releases."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
MODULES = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_is_imported_and_says_how_it_is_started(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    if not name.startswith("_") and "__main__" in (FOLDER / f"{name}.py").read_text(encoding="utf-8"):
        assert f"python -m benchmarks.{name}" in (module.__doc__ or "")
