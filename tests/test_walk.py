"""Docstrings cite rows of the walk; the page defines them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
WALK = ROOT / "docs" / "concepts" / "walk.md"
CITED = re.compile(r"\brows? (\d+)(?: (?:to|and) (\d+))?(?=[ ,.):]|$)(?! of \d)", re.MULTILINE)


def test_every_row_that_a_docstring_cites_is_defined() -> None:
    defined = {
        int(number) for number in re.findall(r"^\| (\d+) \|", WALK.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert defined == set(range(1, 15))
    cited = {
        (path.name, int(number))
        for path in (ROOT / "src").rglob("*.py")
        for match in CITED.finditer(path.read_text(encoding="utf-8"))
        for number in match.groups()
        if number is not None
    }
    assert len(cited) > 40
    assert {row for row in cited if row[1] not in defined} == set()


def test_every_module_that_the_walk_names_exists() -> None:
    names = re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`", WALK.read_text(encoding="utf-8"))
    assert len(names) >= 12
    assert [name for name in names if not (ROOT / "src/cooper_rl" / name).exists()] == []
