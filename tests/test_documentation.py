"""The pages name what exists: links between them, and citations of pages from code."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def tracked(*patterns: str) -> list[Path]:
    found = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [ROOT / name for name in found.stdout.splitlines() if (ROOT / name).is_file()]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8")))
    paths = [link.partition("#")[0] for link in links if not re.match(r"\w+:", link)]
    assert [path for path in paths if path and not (page.parent / path).exists()] == []


def test_every_page_that_a_file_cites_exists() -> None:
    """In comments, docstrings, manifests and pages; the changelog tells of older layouts."""
    files = tracked("*.py", "*.md", "*.toml", "*.yaml", "Makefile")
    cited = {
        (file.relative_to(ROOT), name)
        for file in files
        if file.name != "CHANGELOG.md"
        for name in re.findall(r"\bdocs/[\w./-]+\.md\b", file.read_text(encoding="utf-8"))
    }
    assert len(cited) > 20
    assert {(file, name) for file, name in cited if not (ROOT / name).is_file()} == set()
