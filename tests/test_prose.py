"""Sentences stay short: under 18 words on average, under 10 % of them above 30 words."""

from pathlib import Path

import pytest

from benchmarks.prose import ROOT, measure, pages, sentences

NOT_REWRITTEN = {"docs/cluster/operations.md"}
"""Pages that are still too dense; decisions are never rewritten."""
PAGES = [page for page in pages() if "decisions" not in page.parts]


def test_the_documentation_is_made_of_short_sentences() -> None:
    found = measure(*PAGES)
    assert found.mean < 18
    assert found.long_share < 0.1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_made_of_short_sentences(page: Path) -> None:
    found = measure(page)
    is_short = found.mean < 18 and found.long_share < 0.1
    assert is_short == (str(page.relative_to(ROOT)) not in NOT_REWRITTEN), found


def test_sentences_are_counted_without_code_tables_and_headings() -> None:
    text = "# A title\n\nOne `a b c` two. Three\nfour!\n\n| a |\n\n```bash\nmake\n```\n- five six\n- seven"
    assert sentences(text) == ["One CODE two.", "Three four!", "five six", "seven"]
