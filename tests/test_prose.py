"""Sentences stay short: under 18 words on average, under 10 % of them above 30 words."""

import ast
import re
from pathlib import Path

import pytest

from benchmarks.prose import ROOT, measure, pages, sentences

PAGES = [page for page in pages() if "decisions" not in page.parts]
"""Decisions are never rewritten."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_made_of_short_sentences(page: Path) -> None:
    found = measure(page)
    assert found.mean < 18
    assert found.long_share < 0.1


def test_sentences_are_counted_without_code_tables_and_headings() -> None:
    text = "# A title\n\nOne `a b c` two. Three\nfour!\n\n| a |\n\n```bash\nmake\n```\n- five six\n- seven"
    assert sentences(text) == ["One CODE two.", "Three four!", "five six", "seven"]


MODULES = [
    path
    for folder in ("src", "pipelines", "components", "manifests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


FRAGMENT = re.compile(r"(Of|What|That|Whether|Which|Who|Whoever|Whatever|Where|How|Likewise)\b")
"""Beginnings of a relative clause, or of half a sentence. Docstrings of attributes are not read: beside a
name, half a sentence is enough (`value: float` "Of the last step.")."""


def test_a_module_says_what_it_is_and_names_the_place_of_what_it_leaves_out() -> None:
    """No docstring of a module begins with a relative clause, and none lists what it is not."""
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in MODULES}
    assert len(texts) > 250
    docstrings = {path: ast.get_docstring(ast.parse(text)) or "" for path, text in texts.items()}
    assert [path for path, said in docstrings.items() if FRAGMENT.match(said)] == []
    assert [path for path, text in texts.items() if re.search(r"Deliberately\s+left\s+out", text)] == []


def test_a_function_or_a_class_says_what_it_is() -> None:
    """A noun phrase, a verb, or `True if`, and no relative clause."""
    said = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": ast.get_docstring(node) or ""
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assert sum(map(bool, said.values())) > 2000
    assert [place for place, text in said.items() if FRAGMENT.match(text)] == []
