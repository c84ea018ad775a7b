"""The pages name what exists: links between them, and citations of pages from code."""

import ast
import json
import re
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import yaml

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


def test_every_file_of_python_that_a_page_names_is_there() -> None:
    """`method/losses.py` or `method/losses.py: pair_loss`, below any folder; history and decisions are never
    rewritten, and `trl/` is TRL's."""
    known = [f"/{path.relative_to(ROOT)}" for path in tracked("*.py")]
    named = {
        (page.relative_to(ROOT), name)
        for page in PAGES
        if page.name != "history.md" and "decisions" not in page.parts
        for name in re.findall(r"`((?!trl/)[\w./-]+/\w+\.py)(?:`|:)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 100
    assert [each for each in named if not any(path.endswith(f"/{each[1]}") for path in known)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_of_a_page_can_be_read(page: Path) -> None:
    """Python compiles and imports public names only or modules that exist; TOML and JSON parse."""
    text = page.read_text(encoding="utf-8")
    for language, block in re.findall(
        r"^```(python|toml|json)\b.*?\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    ):
        if language == "toml":
            tomllib.loads(block)
        elif language == "json":
            json.loads(block)
        else:
            for node in ast.walk(ast.parse(block)):
                name = getattr(node, "module", None) or ""
                if name.startswith("cooper_rl.adapters"):  # they import other people's trainers
                    assert (ROOT / "src" / name.replace(".", "/")).with_suffix(".py").is_file()
                elif isinstance(node, ast.ImportFrom) and name.startswith("cooper_rl"):
                    module = import_module(name)
                    assert [each.name for each in node.names if not hasattr(module, each.name)] == []


EXPLAINING = [
    page
    for page in PAGES
    if str(page.relative_to(ROOT).parent)
    in ("docs", "docs/how-to", "docs/how-to/trainers", "docs/concepts", "docs/cluster")
    and page.name != "changelog.md"
]


@pytest.mark.parametrize("page", EXPLAINING, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_that_explains_describes_the_present(page: Path) -> None:
    """Dates and commits are for results, laboratory notes and decisions; a release's name may hold a date."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?<!RELEASE\.)\b20\d\d-\d\d-\d\d\b", text) == []
    assert re.findall(r"\bcommits? `?(?=[a-f]*\d)[0-9a-f]{7,40}\b", text) == []


def test_nobody_is_told_to_install_a_name_that_is_not_ours() -> None:
    """Others could take `cooper-rl` on the package index. The extra `dev` names it, for this very package."""
    files = tracked("*.py", "*.md", "*.toml", "*.yaml", "*.txt", "*.in", "*.ipynb", "Makefile", "Dockerfile*")
    found = {
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        if file != Path(__file__)
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"cooper[-_]rl\[|\b(pip|uv) .*install [^#`]*\bcooper-rl\b(?!/)", line)
    }
    assert found == {'pyproject.toml: "cooper-rl[docs,lora,manifests,pipelines,serve,tensorboard,trainjob]",'}


def test_workflows_call_targets_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    workflows = [
        yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (ROOT / ".github").rglob("workflows/*.yml")
    ]
    jobs = [job for workflow in workflows for job in workflow["jobs"].values()]
    commands = [
        command.replace("${{ matrix." + str(name) + " }}", str(value))
        for job in jobs
        for name, values in job.get("strategy", {}).get("matrix", {"": [""]}).items()
        for value in values
        for step in job["steps"]
        if (command := step.get("run"))
    ]
    targets = {command.split()[1] for command in commands if command.split()[0] == "make"}
    assert {"check", "docs", "wheel", "test", "image-cpu", "image-gpu", "test-vllm"} <= targets
    assert targets <= known
    assert all(command.startswith("make ") for command in commands)


def test_one_version_stands_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == version
    released = re.findall(
        r"^## \[(\d[\d.]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert released[0] == version
