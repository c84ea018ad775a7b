"""Measures of a Python repository: how big its rooms are, what one must know, what it says of why.

    python -m benchmarks.house [FOLDER] [--package src/cooper_rl]

Prints a Markdown table. docs/decisions/0012-types-where-keys-were.md has it for this repository before and
after its rooms. A measure is no goal: it shows where to look.
"""

import argparse
import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.prose import LONG, measure

PRAGMAS = ("noqa", "fmt:", "pyright:", "type:", "ruff:", "pragma:", "!")
"""A comment that begins so speaks to a tool."""
START = "training.step"
"""The module that reads as the method; what is reached from it must be known to read it."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures of a repository's house.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path())
    parser.add_argument("--package", type=Path, default=Path("src/cooper_rl"))
    options = parser.parse_args()
    package = options.folder / options.package
    modules = {name_of(path, package): path for path in sorted(package.rglob("*.py"))}
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules.items()}
    rows = {
        **measure_rooms(package),
        **measure_functions(list(trees.values())),
        **measure_imports(trees, package.name),
        **measure_comments(list(modules.values())),
        **measure_docs(options.folder),
    }
    sys.stdout.write("| measure | value |\n|---|---|\n")
    sys.stdout.writelines(f"| {name} | {value} |\n" for name, value in rows.items())


def name_of(path: Path, package: Path) -> str:
    """Dotted name without the package's own."""
    return ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")


def measure_rooms(package: Path) -> dict[str, str]:
    """Modules of a folder, without those below it."""
    sizes = {
        folder.relative_to(package): sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        for folder in (package, *package.rglob("*/"))
        if (folder / "__init__.py").is_file()
    }
    largest = max(sizes, key=lambda folder: sizes[folder])
    return {
        "modules": f"{sum(sizes.values()):,}",
        "rooms (folders)": str(len(sizes)),
        "modules of the largest room": f"{sizes[largest]} ({largest})",
    }


def measure_functions(trees: Sequence[ast.Module]) -> dict[str, str]:
    """Lines from `def` to the last one, docstring included."""
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {"function lines, median / p90 / max": spread(lengths)}


def measure_imports(trees: dict[str, ast.Module], package: str) -> dict[str, str]:
    """Own modules that a module imports, wherever in it."""
    imported = {name: set(own_imports(tree, package, trees)) for name, tree in trees.items()}
    counts = [len(names) for name, names in imported.items() if trees[name].body]
    rows = {"own modules that a module imports, median / p90 / max": spread(counts)}
    if START in imported:
        reached, sizes = {START}, []
        for _ in range(3):
            reached |= {found for name in reached for found in imported[name]}
            sizes.append(str(len(reached) - 1))
        rows[f"modules reached from {START} at depth 1, 2, 3"] = ", ".join(sizes)
    return rows


def own_imports(tree: ast.Module, package: str, known: dict[str, ast.Module]) -> Iterator[str]:
    """Names of the package's modules, without the package's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package:
            base = (node.module or "").partition(".")[2]
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix(".")
                yield inner if inner in known else base
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.partition(".")[2] for alias in node.names if alias.name.startswith(f"{package}.")
            )


def measure_comments(paths: Sequence[Path]) -> dict[str, str]:
    """Comments to people, and lines that are neither blank nor comment nor docstring."""
    num_comments = num_code = 0
    for path in paths:
        text = path.read_text(encoding="utf-8")
        quoted = docstring_lines(ast.parse(text))
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                num_comments += not token.string.lstrip("# ").startswith(PRAGMAS)
            elif token.string.strip() and token.type != tokenize.ENDMARKER:
                code |= set(range(token.start[0], token.end[0] + 1))
        num_code += len(code - quoted)
    return {
        "lines of code": f"{num_code:,}",
        "comments per 100 lines of code": f"{100 * num_comments / num_code:.1f}",
    }


def docstring_lines(tree: ast.Module) -> set[int]:
    """Lines of strings that stand alone: docstrings, of fields too."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def measure_docs(folder: Path) -> dict[str, str]:
    """Measures of all pages of the documentation; `benchmarks.prose` reads the sentences."""
    pages = sorted((folder / "docs").rglob("*.md"))
    if not pages:
        return {}
    texts = [
        re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M) for page in pages
    ]
    found = measure(*pages)
    num_headings = sum(len(re.findall(r"^#+ ", text, re.MULTILINE)) for text in texts)
    return {
        "pages of docs": str(len(pages)),
        "words of a sentence in docs, mean": f"{found.mean:.1f}",
        f"sentences of over {LONG} words in docs": f"{100 * found.long_share:.0f} %",
        "words per heading in docs": f"{sum(len(text.split()) for text in texts) / num_headings:.0f}",
        "images in docs": str(sum(text.count("![") for text in texts)),
    }


def spread(values: Sequence[int]) -> str:
    """Median, ninth decile and largest value."""
    return f"{statistics.median(values):g} / {sorted(values)[int(0.9 * len(values))]} / {max(values)}"


if __name__ == "__main__":
    main()
