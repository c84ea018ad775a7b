"""The table of `make mutation`, of the files that mutmut writes."""

import json
import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from benchmarks.mutation import main, read_results, tabulate


def write(folder: Path, module: str, codes: dict[str, int | None]) -> None:
    path = folder / "src" / "cooper_rl" / f"{module.replace('.', '/')}.py.meta"
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {f"cooper_rl.{module}.x_{name}": code for name, code in codes.items()}
    path.write_text(json.dumps({"exit_code_by_key": names}))


def test_the_score_is_of_the_mutants_that_were_run(tmp_path: Path) -> None:
    """Of five that were run two died and one ran out of time: 60 %; of the other folder's one, none."""
    write(tmp_path, "method.losses", {"a": 1, "b": 3, "c": 36, "d": 0, "e": None, "f": 33})
    write(tmp_path, "training.gate", {"a": -11})
    assert tabulate(read_results(tmp_path)).splitlines()[2:] == [
        "| method/ | 5 | 2 | 1 | 1 | 1 | 0 | 60.0% |",
        "| method/losses.py | 5 | 2 | 1 | 1 | 1 | 0 | 60.0% |",
        "| training/ | 1 | 0 | 0 | 0 | 0 | 1 | 0.0% |",
        "| training/gate.py | 1 | 0 | 0 | 0 | 0 | 1 | 0.0% |",
    ]


def test_each_survivor_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "mutants", "method.losses", {"a": 1, "d": 0, "f": 33})
    monkeypatch.chdir(tmp_path)
    assert main(["--read"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "survived: cooper_rl.method.losses.x_d",
        "reached by no test: cooper_rl.method.losses.x_f",
    ]


def test_a_file_that_mutmut_is_writing_is_named(tmp_path: Path) -> None:
    write(tmp_path, "method.losses", {"a": 1})
    path = next(tmp_path.rglob("*.meta"))
    path.write_text(path.read_text()[:9])
    with pytest.raises(SystemExit, match=r"losses\.py\.meta is half written; repeat with --read"):
        read_results(tmp_path)


def test_every_module_is_in_one_part_of_the_nightly_run() -> None:
    """A module that no part names would be mutated by nobody."""
    root = Path(__file__).parents[1]
    jobs = yaml.safe_load((root / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]
    parts = [shlex.split(each) for each in jobs["mutation"]["strategy"]["matrix"]["mutants"]]
    source = root / "src"
    for room in ("method", "training"):
        for path in (source / "cooper_rl" / room).rglob("*.py"):
            name = ".".join(path.relative_to(source).with_suffix("").parts)
            if path.name != "__init__.py":
                named = [
                    part for part in parts if any(fnmatch(f"{name}.x_f__mutmut_1", each) for each in part)
                ]
                assert len(named) == 1, name
