"""Commands in the documentation exist: targets of make, sub-commands, their options, their keys."""

import re
import shlex
from pathlib import Path

import pytest

from cooper_rl.__main__ import build_parser as build_stage_parser
from cooper_rl.cli.serve import REWARDS, SERVER
from cooper_rl.config.load import load, load_learn, load_serve
from pipelines.__main__ import build_parser as build_pipeline_parser
from pipelines.compile import check_settings
from pipelines.options import NAMES, read_parameters
from pipelines.profile import load_profile

ROOT = Path(__file__).parent.parent
HISTORY = ROOT / "docs" / "lab" / "history.md"
"""Names commands of older versions."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {HISTORY})]


def commands_of(text: str) -> list[str]:
    """Every command of ours in shell blocks and between backticks; placeholders in capitals are skipped."""
    blocks = re.findall(r"```(?:bash|sh|console)\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [
        " ".join(inline.split())
        for inline in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    ]
    found = [line.strip().removeprefix("$ ") for line in lines]
    ours = re.compile(r"(make|cooper-rl|python -m (cooper_rl|pipelines)) (?!STAGE|X\b|\.\.\.)\S")
    return [line for line in found if ours.match(line)]


def shipped(profile: str) -> str:
    """The reader's own profile is a copy of `cluster`."""
    return "cluster" if profile.endswith(".toml") and not (ROOT / profile).is_file() else profile


def check(command: str) -> None:
    """Parse a command as its program would; raise AssertionError for what that program would refuse."""
    words = shlex.split(command, comments=True)
    words = words[: words.index(">")] if ">" in words else words
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for word in words[1:]:
            pattern = rf"^{word.partition('=')[0]} \?=" if "=" in word else rf"^{re.escape(word)}:"
            assert re.search(pattern, makefile, flags=re.MULTILINE), f"{command!r}: make knows no {word!r}"
        return
    is_pipeline = words[:3] == ["python", "-m", "pipelines"]
    arguments = words[1:] if words[0] == "cooper-rl" else words[3:]
    try:
        options = (build_pipeline_parser() if is_pipeline else build_stage_parser()).parse_args(arguments)
    except SystemExit as end:
        if end.code != 0:  # --help and --version end with 0
            raise AssertionError(f"{command!r} does not parse") from end
        return
    if getattr(options, "command", None) == SERVER:
        load_serve(options.overrides)
        return
    if getattr(options, "command", None) == REWARDS:
        load_learn(options.overrides)
        return
    if "overrides" in options:
        profile = load_profile(shipped(options.profile)) if "profile" in options else None
        preset = options.preset or (profile and profile.preset) or ""
        if not preset.endswith(".toml") or (ROOT / preset).is_file():
            load(preset, options.overrides)
        if profile and options.command == "submit":
            parameters = read_parameters(options.parameters)
            check_settings(options.pipeline, preset, [*profile.overrides, *options.overrides], parameters)


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
        "python -m pipelines local --presets laptop",
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str) -> None:
    assert commands_of(f"```bash\n{command}\n```") == [command]
    with pytest.raises(AssertionError):
        check(command)


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/usage.md"])
def test_a_table_of_the_pipelines_has_all_of_them(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| `end_to_end` .*\n(?:\|.*\n)*", text, re.MULTILINE)
    assert tuple(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == NAMES
    assert {path.stem for path in (ROOT / "pipelines" / "graphs").glob("*.py")} - {"__init__"} == set(NAMES)
