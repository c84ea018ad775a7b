"""Sentences stay short: under 18 words on average, under 10 % of them above 30 words."""

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
