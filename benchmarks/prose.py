"""Lengths of the documentation's sentences: words a sentence, and the share above 30 words.

    python -m benchmarks.prose             # every page, the longest mean first
    python -m benchmarks.prose README.md   # its sentences above 30 words

Code blocks, tables and headings are left out. Text between backticks is one word.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LONG = 30


class Prose(NamedTuple):
    """Sentences of one page or of several."""

    lengths: list[int]

    @property
    def mean(self) -> float:
        """Words a sentence."""
        return sum(self.lengths) / max(len(self.lengths), 1)

    @property
    def long_share(self) -> float:
        """Share of sentences above `LONG` words."""
        return sum(length > LONG for length in self.lengths) / max(len(self.lengths), 1)


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown text; list items and paragraphs end one."""
    text = re.sub(r"```.*?```|<!--.*?-->|<[^>\n]*>", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    lines = ["" if re.match(r"\s*(#|\||:::|---|!!!)", line) else line for line in text.splitlines()]
    blocks = re.split(r"\n\s*\n|\n\s*(?=(?:[-*]|\d+\.) )", "\n".join(lines))
    found: list[str] = []
    for block in blocks:
        plain = re.sub(r"^\s*(?:[-*]|\d+\.) ", "", " ".join(block.split())).replace("*", "")
        found += [part for part in re.split(r"(?<=[.!?])[\")]?\s+(?=[A-Z\"(\d])", plain) if part]
    return found


def measure(*pages: Path) -> Prose:
    """The sentences of these pages together."""
    found = [part for page in pages for part in sentences(page.read_text(encoding="utf-8"))]
    return Prose([words for part in found if (words := num_words(part)) > 1])


def num_words(sentence: str) -> int:
    """Tokens with a letter; numbers and signs between them do not count."""
    return sum(bool(re.search(r"[^\W\d_]", word)) for word in sentence.split())


def pages() -> list[Path]:
    """README, the guide for contributors, and every page of the site but the history."""
    site = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "history.md"]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *site]


def main() -> None:
    """Print the table, or the long sentences of the pages that are named."""
    if sys.argv[1:]:
        for name in sys.argv[1:]:
            for sentence in sentences(Path(name).read_text(encoding="utf-8")):
                if num_words(sentence) > LONG:
                    sys.stdout.write(f"{num_words(sentence)}  {sentence}\n")
        return
    rows = sorted(((measure(page), page) for page in pages()), key=lambda row: -row[0].mean)
    sys.stdout.write("| page | sentences | words a sentence | above 30 words |\n|---|---|---|---|\n")
    for found, page in [*rows, (measure(*pages()), None)]:
        name = page.relative_to(ROOT) if page else "all"
        sys.stdout.write(
            f"| {name} | {len(found.lengths)} | {found.mean:.1f} | {100 * found.long_share:.0f} % |\n"
        )


if __name__ == "__main__":
    main()
