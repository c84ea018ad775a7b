"""Shell lines of the documentation parse: programs, sub-commands, options, keys, targets, paths.

README's block "Stages and pipelines" also runs as it is written, in a slow test.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cooper_rl.cli.settings import keys_of
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError
from pipelines.options import NAMES
from tests.documented_commands import FOLDERS, ROOT, blocks_of, check, commands_of, lines_of, plain
from tests.stand_ins.kfp_api import KfpApi, run_kfp_api

HISTORY = ROOT / "docs" / "lab" / "history.md"
"""Names commands of older versions."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {HISTORY})]
OTHERS = frozenset(
    {
        "cosign", "curl", "docker", "git", "kubectl", "mc", "openssl", "pip", "python", "python3",
        "skopeo", "syft", ".", "cd", "export", "done", "find", "for", "head", "mkdir", "printf", "rm",
    }
)  # fmt: skip
"""Programs of others, and words of the shell."""


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, id=f"{page.relative_to(ROOT)}: {command[:60]}")
        for page in PAGES
        for command in dict.fromkeys(commands_of(page.read_text(encoding="utf-8")))
    ],
)
def test_a_command_in_the_documentation_exists(command: str) -> None:
    check(command)


def test_the_readme_shows_the_two_commands() -> None:
    commands = commands_of((ROOT / "README.md").read_text(encoding="utf-8"))
    assert {"make demo", "make test"} <= {re.sub(r"\s*#.*", "", command) for command in commands}


@pytest.mark.parametrize(
    "command",
    [
        "make dmeo",
        "make demo TORCH=x",
        "cooper-rl train_cooper --help",
        "cooper-rl collect-problems --preset laptop --problem p.jsonl",
        "cooper-rl report --preset laptop --set cooper.generation.stepz=3 --page p",
        "cooper-rl sample-completions --preset laptop --set cooper.steps=3 --models m --problems p "
        "--completions c --report r",
        "cooper-rl experiment --preset laptop --arms frozzen --output o",
        "python -m pipelines local --presets laptop",
        "python -m pipelines local end_to_end --preset laptop --set cooper.stepz=3",
        "python -m benchmarks.labelling --only accuracy",
        "python -m benchmarks.red_team --verify-rms v",
        "python -m manifests.checks site",
        "make test ARGS='tests/methods'",
        "make torture ARGS='--kill 3'",
        "pytest -m slo tests",
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    assert commands_of(f"```bash\n{command}\n```") == [command]
    with pytest.raises((AssertionError, ConfigError)):
        check(command)


def test_a_launcher_and_variables_before_a_command_are_no_part_of_it() -> None:
    assert plain("OMP_NUM_THREADS=1 python -m benchmarks.x --a") == "python -m benchmarks.x --a"
    assert plain("torchrun --standalone --nproc-per-node=8 -m cooper_rl plan --a") == "cooper-rl plan --a"
    assert plain("v2/bin/cooper-rl-pipelines compile") == "python -m pipelines compile"
    assert plain('eval "$(cooper-rl completion bash)"   # or zsh') == "cooper-rl completion bash"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_shell_reads_every_block_of_a_page(page: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    for block in blocks_of(page.read_text(encoding="utf-8")):
        done = subprocess.run([bash, "-n"], input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0, block + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_line_of_a_block_is_checked_or_begins_with_a_program_of_others(page: Path) -> None:
    """The body of a function that a block defines is the shell's."""
    text = page.read_text(encoding="utf-8")
    functions = re.findall(r"^(\w+)\(\) \{", text, re.MULTILINE)
    within = re.sub(r"^\w+\(\) \{.*?^\}\n", "", text, flags=re.DOTALL | re.MULTILINE)
    known = OTHERS | set(functions)
    checked = set(commands_of(text))
    unknown = [
        line
        for line in map(plain, lines_of(within))
        if line not in checked and line.split()[0].rpartition("/bin/")[2] not in known and not is_set(line)
    ]
    assert unknown == []


def test_the_readme_is_short_and_its_badges_are_true() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") < 150
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python = project["requires-python"].removeprefix(">=")
    badges = re.findall(r"!\[([^]]*)\]\(https://img\.shields\.io/badge/([^)]*)\)", text)
    assert badges == [
        (f"Licence: {project['license']}", f"licence-{project['license'].replace('-', '--')}-blue"),
        (f"Python: {python} or later", f"python-{python}%20or%20later-blue"),
    ]
    assert text.count("img.shields.io") == len(badges)


@pytest.mark.slow
def test_the_readmes_stages_and_pipelines_run_in_their_order(tmp_path: Path) -> None:
    """Minutes. The folder stands for a clone after `make demo`, and a stand-in for `https://kfp.example`."""
    for name in ("components", "pipelines", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "token").write_text("a-token", encoding="utf-8")
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Stages and pipelines\n")[2]
    bash = shutil.which("bash")
    assert bash is not None
    api = KfpApi(token="a-token", script=[{"state": "RUNNING"}, {"state": "SUCCEEDED"}])
    with run_kfp_api(api):
        block = blocks_of(section)[0].replace("https://kfp.example", api.url)
        assert api.url in block
        done = subprocess.run(
            [bash, "-euo", "pipefail", "-c", block], cwd=tmp_path, check=False,
            env=without_servers() | {"PYTHONPATH": str(tmp_path / "src"), "HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=3000,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    runs, compiled = tmp_path / "runs", tmp_path / "build" / "pipelines"
    assert len((runs / "held_out.jsonl").read_text(encoding="utf-8").splitlines()) == 200
    assert "Cooper run: 10 steps of co-training" in (runs / "mine" / "report.html").read_text(
        encoding="utf-8"
    )
    assert {path.stem for path in compiled.glob("*.yaml")} == set(NAMES)
    assert [run["state"] for run in api.runs.values()] == ["SUCCEEDED"]
    (schedule,) = api.recurring.values()
    assert schedule["trigger"]["cron_schedule"]["cron"] == "0 0 2 * * *"
    assert len(api.versions) == 2


def without_servers() -> dict[str, str]:
    """The environment without a KFP of the machine's own."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("KF_", "KFP_"))}


def is_set(line: str) -> bool:
    return re.match(r"[A-Za-z_]+=(?:\S+|\$\([^()]+\))$", line) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_the_repository_in_a_block_or_between_backticks_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    words = [word for line in lines_of(text) for word in line.split()]
    words += re.findall(r"`([^`\s]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    path = re.compile(rf"({'|'.join(FOLDERS)})/[\w./-]*\w/?")
    assert [each for each in words if path.fullmatch(each) and not (ROOT / each).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_configuration_key_between_backticks_exists(page: Path) -> None:
    """A key, a section of keys, or an entry of a table; a name with a suffix of a file is none."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    written = {each.partition("=")[0] for each in re.findall(r"`([^`\s]+)`", text)}
    sections = "|".join(Config.model_fields)
    named = {each for each in written if re.fullmatch(rf"({sections})(\.[a-z_0-9]+)+", each)}
    keys = {key.name for section in Config.model_fields for key in keys_of(section)}
    missing = {
        each
        for each in named
        if not any(f"{key}.".startswith(f"{each}.") or each.startswith(f"{key}.") for key in keys)
    }
    assert {each for each in missing if not each.endswith((".py", ".json"))} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_extra_that_a_page_installs_exists(page: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    asked = re.findall(r"pip install [^`\n]*(?:\.|\.whl)\[([\w,]+)\]", page.read_text(encoding="utf-8"))
    assert [name for each in asked for name in each.split(",") if name not in extras] == []


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/usage.md"])
def test_a_table_of_the_pipelines_has_all_of_them(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| `end_to_end` .*\n(?:\|.*\n)*", text, re.MULTILINE)
    assert tuple(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == NAMES
    assert {path.stem for path in (ROOT / "pipelines" / "graphs").glob("*.py")} - {"__init__"} == set(NAMES)
