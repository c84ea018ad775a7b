"""Docstrings and pages cite rows of the walk, and say words of the glossary; both pages define them."""

import re
from pathlib import Path

import pytest

from cooper_rl.run import chain
from cooper_rl.stages import STAGES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
WALK = DOCS / "concepts" / "walk.md"
GLOSSARY = DOCS / "concepts" / "glossary.md"
CITED = re.compile(
    r"\brows? (?P<rows>\d+(?:(?:-| to | and |, and |, )\d+)*)(?![\d.]*\d)(?! of \d)(?=[\s,.):;]|$)"
)


def cited_rows(text: str) -> list[int]:
    """Every row that a text names: alone, in lists and in ranges, also where a line breaks between them."""
    found: list[int] = []
    for match in CITED.finditer(re.sub(r"\s+", " ", text)):
        ends = re.sub(r" to ", "-", match["rows"])
        for part in re.split(r", and |, | and ", ends):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    return found


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("Rewards (row 7).", [7]),
        ("(rows 7 and 8)", [7, 8]),
        ("rows 9-12, as sums", [9, 10, 11, 12]),
        ("phases of a step (rows 6 to\n12 of the walk).", [6, 7, 8, 9, 10, 11, 12]),
        ("checks (rows 3, 7 and 11)", [3, 7, 11]),
        ("rows 1-5, 11 and 14 of the walk", [1, 2, 3, 4, 5, 11, 14]),
        ("rows 3, 4, and 5", [3, 4, 5]),
        ("row 7, and the rest", [7]),
        ("row 3 of 5", []),
        ("row {index}: no text", []),
    ],
)
def test_lists_and_ranges_of_rows_are_read(text: str, rows: list[int]) -> None:
    assert cited_rows(text) == rows


def test_every_row_that_a_docstring_or_a_page_cites_is_defined() -> None:
    defined = {
        int(number) for number in re.findall(r"^\| (\d+) \|", WALK.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert defined == set(range(1, 15))
    pages = [page for folder in ("concepts", "decisions") for page in (DOCS / folder).glob("*.md")]
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "pipelines").rglob("*.py")]
    cited = {
        (path.name, row)
        for path in [*sources, *pages, ROOT / "CONTRIBUTING.md"]
        for row in cited_rows(path.read_text(encoding="utf-8"))
    }
    assert len(cited) > 150
    assert {each for each in cited if each[1] not in defined} == set()
    assert {row for _, row in cited} == defined, "a row that nothing cites is no form of the data"


def test_every_module_that_the_walk_names_exists() -> None:
    names = re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py)?)`", WALK.read_text(encoding="utf-8"))
    assert len(names) >= 12
    assert [name for name in names if not (ROOT / "src/cooper_rl" / name).exists()] == []


def test_every_word_of_the_glossary_is_said_in_code_and_in_the_documentation() -> None:
    """A word that only the glossary knows has been replaced by another one somewhere."""
    words = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY.read_text(encoding="utf-8"))
    assert len(words) > 40
    assert len(set(words)) == len(words), "one meaning each"
    code = said(path for path in (ROOT / "src").rglob("*.py"))
    pages = said(page for page in DOCS.rglob("*.md") if page != GLOSSARY)
    assert [word for word in words if not says(code, word)] == []
    assert [word for word in words if not says(pages, word)] == []


def said(paths) -> str:
    texts = (path.read_text(encoding="utf-8") for path in paths)
    return re.sub(r"[\s`_*]+", " ", " ".join(texts)).casefold()


def says(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word.casefold())}(?:s|es)?\b", text) is not None


def test_the_picture_of_the_pipeline_shows_the_chain_in_its_order() -> None:
    """The check of the settings and the red team, which a profile asks for, are left out of it."""
    drawn = re.findall(r">([a-z_]+)</text>", (DOCS / "images" / "pipeline.svg").read_text(encoding="utf-8"))
    steps = [*chain.whole(1), chain.promote(chain.Sources(), 1)]
    assert [name for name in drawn if name in STAGES] == [
        step.stage for step in steps if step.stage != "check_settings"
    ]
    named = [name for name in drawn if "_" in name]
    assert set(named) <= set(STAGES), "a name with an underscore is a stage's"
