"""The documentation's site: it loads nothing from elsewhere, and is searched from a disk without a server."""

import os
import re
import shlex
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report.browser import browser, needs_browser

pytest.importorskip("material", reason="the extra `docs` is not installed")

ROOT = Path(__file__).parent.parent
LOADED = {
    "script": "src", "img": "src", "iframe": "src", "source": "srcset", "object": "data", "embed": "src",
    "video": "src", "audio": "src",
}  # fmt: skip
"""Elements and the attribute whose address a browser loads without being asked; links are apart."""
NOT_LOADED = {"canonical", "next", "prev"}
"""Values of `rel` that only point."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """As `make docs` builds it, strictly, in another folder."""
    folder = tmp_path_factory.mktemp("site")
    done = build("--site-dir", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def build(*options: str) -> subprocess.CompletedProcess[str]:
    """The command of `make docs`, with more options at its end."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\tNO_MKDOCS_2_WARNING=1 \$\(BIN\)/python (.*)", makefile, re.MULTILINE)
    words = shlex.split(command, comments=True)
    return subprocess.run(
        [sys.executable, *words, *options], cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[whole](index.md)", ""),
        ("[broken](nowhere.md)", "nowhere.md"),
        ("[broken](index.md#nowhere)", "nowhere"),
        ("[broken](/index.md)", "absolute link"),
        ("[broken][cooper_rl.nowhere]", "cooper_rl.nowhere"),
        ("::: cooper_rl.nowhere", "cooper_rl.nowhere"),
    ],
)
def test_a_broken_link_fails_the_build(tmp_path: Path, text: str, complaint: str) -> None:
    """A site of one page, with the command of `make docs` and every setting of `mkdocs.yml`."""
    done = build_small(tmp_path, {"index.md": text})
    assert done.returncode == (1 if complaint else 0), done.stderr
    assert complaint in done.stderr


def test_a_page_outside_the_navigation_fails_the_build(tmp_path: Path) -> None:
    done = build_small(tmp_path, {"index.md": "Home.", "lost.md": "Nobody gets here."})
    assert done.returncode == 1
    assert "lost.md" in done.stderr


def build_small(folder: Path, pages: dict[str, str]) -> subprocess.CompletedProcess[str]:
    (folder / "docs").mkdir()
    for name, text in pages.items():
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    settings = f"INHERIT: {ROOT}/mkdocs.yml\nhooks: []\nnav: [index.md]\n"
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")
    return build("--config-file", str(folder / "mkdocs.yml"))


class Addresses(HTMLParser):
    """Everything that a browser loads with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") not in NOT_LOADED:
            self.found.append(values.get("href") or "")
        elif tag in LOADED:
            self.found.append(values.get(LOADED[tag]) or "")


def addresses(page: str) -> list[str]:
    parser = Addresses()
    parser.feed(page)
    return parser.found


def is_foreign(address: str) -> bool:
    return re.match(r"(https?:)?//", address.strip(), re.IGNORECASE) is not None


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    loaded = {page: addresses(page.read_text(encoding="utf-8")) for page in pages}
    assert all(len(each) >= 4 for each in loaded.values()), "style, icon and scripts at least"
    assert {(page.name, each) for page in pages for each in loaded[page] if is_foreign(each)} == set()
    assert [each for page in pages for each in re.findall(r'class="mermaid"', page.read_text())] == [], (
        "the theme loads mermaid from unpkg.com for such a block"
    )


def test_no_item_of_a_list_is_lost_in_a_paragraph(site: Path) -> None:
    """Python-Markdown reads an item that follows an indented paragraph without a blank line as its text."""
    pages = {page: page.read_text(encoding="utf-8") for page in sorted(site.rglob("*.html"))}
    lost = re.compile(r"\n *(?:\d+\.|[-*]) <strong>[^<]*")
    assert [(page.name, each) for page, text in pages.items() for each in lost.findall(text)] == []


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = sorted(site.rglob("*.css"))
    assert styles
    text = "\n".join(path.read_text(encoding="utf-8") for path in styles)
    named = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text)
    assert [each for pair in named for each in pair if is_foreign(each)] == []


def test_a_foreign_script_style_or_font_would_be_found() -> None:
    page = (
        '<link rel="stylesheet" href="//fonts.example/a.css"><script src="https://cdn.example/b.js"></script>'
    )
    assert [is_foreign(each) for each in addresses(page)] == [True, True]
    assert addresses('<a href="https://example.org">a link is followed by a reader</a>') == []


@needs_browser
@pytest.mark.parametrize("page", ["index.html", "concepts/cooper.html"])
def test_the_site_is_searched_from_a_disk(site: Path, tmp_path: Path, page: str) -> None:
    """A word that is typed finds the tutorial over `file://`, and the browser complains of nothing."""
    with browser(tmp_path / "profile") as tab:
        tab.open((site / page).as_uri(), width=1280)
        tab.value("document.querySelector('#__search').click()")
        tab.value("document.querySelector('[data-md-component=search-query]').focus()")
        tab.call("Input.insertText", text="tutorial")
        for kind in ("keyDown", "keyUp"):
            tab.call("Input.dispatchKeyEvent", type=kind, key=" ", code="Space", windowsVirtualKeyCode=32)
        deadline = time.monotonic() + 60
        links: list[str] = []
        while not links and time.monotonic() < deadline:
            time.sleep(0.1)
            links = tab.value("[...document.querySelectorAll('a.md-search-result__link')].map((a) => a.href)")
        assert any(link.startswith((site / "tutorial.html").as_uri()) for link in links)
        assert tab.problems == []
