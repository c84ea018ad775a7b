"""Shell lines of the documentation, and what each must satisfy to run as it is written."""

import ast
import re
import shlex
import tomllib
from pathlib import Path

from cooper_rl.__main__ import build_parser as build_stage_parser
from cooper_rl.cli.serve import REWARDS, SERVER
from cooper_rl.comparison.arms import arm_overrides
from cooper_rl.config.load import load, load_learn, load_serve
from cooper_rl.stages import check_overrides
from pipelines.__main__ import build_parser as build_pipeline_parser
from pipelines.compile import check_settings
from pipelines.options import read_parameters
from pipelines.profile import load_profile

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^ *```(?:bash|sh|console)\b[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
OURS = re.compile(
    r"(make|pytest|cooper-rl|python -m [a-z]\w*(\.\w+)*|python \w+/\w+\.py) (?!STAGE|X\b|\.\.\.)\S"
    r"|python -m (benchmarks|manifests|cooper_rl)\.[\w.]+$"
)
"""Commands that are checked; placeholders in capitals are skipped."""
FOLDERS = ("benchmarks", "components", "docs", "examples", "images", "manifests", "pipelines", "src", "tests")


def blocks_of(text: str) -> list[str]:
    """The shell blocks of a page as a shell would read them, without prompts and shown output."""
    found = []
    for block in BLOCK.findall(text):
        lines = block.splitlines()
        typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found.append("\n".join(typed or lines) + "\n")
    return found


def lines_of(text: str) -> list[str]:
    """The lines of the shell blocks, joined where one ends in a backslash, without comments alone."""
    lines = [line.strip() for block in blocks_of(text) for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def commands_of(text: str) -> list[str]:
    """Every command of ours in shell blocks and between backticks, by the one name that `check` knows."""
    inline = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = [*lines_of(text), *(" ".join(each.split()).removeprefix("$ ") for each in inline)]
    return [line for each in lines if OURS.match(line := plain(each))]


def plain(line: str) -> str:
    """Without variables set before it, a launcher around it, or the folder of its program."""
    line = re.sub(r"^(?:[A-Z_]+=\S+ +)+", "", line)
    line = re.sub(r'^eval "\$\((.*?)\)".*', r"\1", line)
    line = re.sub(r"^torchrun (?:--\S+ +)*-m cooper_rl\b", "cooper-rl", line)
    line = re.sub(r"^(?:[\w.]+/bin/)?cooper-rl-pipelines\b", "python -m pipelines", line)
    return re.sub(r"^python -m cooper_rl(?= )", "cooper-rl", line)


def check(command: str) -> None:
    """Parse a command as its program would; raise AssertionError for what that program would refuse."""
    words = shlex.split(command, comments=True)
    words = words[: words.index(">")] if ">" in words else words
    if words[0] == "make":
        check_make(command, words[1:])
    elif words[0] == "pytest":
        check_pytest(words[1:])
    elif words[0] == "cooper-rl":
        check_stage(command, words[1:])
    elif words[:3] == ["python", "-m", "pipelines"]:
        check_pipelines(command, words[3:])
    elif words[1:3] == ["-m", "benchmarks.stage_seconds"]:  # it hands its arguments on
        check_pipelines(command, ["local", *words[3:]])
    else:
        check_program(command, words[2] if words[1] == "-m" else words[1], words[2:])


def check_make(command: str, words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words:
        name, _, value = word.partition("=")
        pattern = rf"^{name} \?=" if "=" in word else rf"^{re.escape(word)}:"
        assert re.search(pattern, makefile, flags=re.MULTILINE), f"{command!r}: make knows no {word!r}"
        if name == "ARGS" and words[0] == "test":
            check_pytest(shlex.split(value))
        elif name == "ARGS" and words[0] == "torture":
            check_program(command, "tests.faults.torture", shlex.split(value))
        elif name == "ARGS":
            raise AssertionError(f"{command!r}: nothing here checks arguments of this target")


def check_pytest(words: list[str]) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    markers = {each.partition(":")[0] for each in settings["ini_options"]["markers"]}
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m":
            assert word in markers, f"pytest has no marker {word!r}"
        elif word.startswith("tests"):
            assert (ROOT / word).exists(), f"{word} is not there"


def check_stage(command: str, words: list[str]) -> None:
    try:
        options = build_stage_parser().parse_args(words)
    except SystemExit as end:
        if end.code != 0:  # --help and --version end with 0
            raise AssertionError(f"{command!r} does not parse") from end
        return
    if options.command == SERVER:
        load_serve(options.overrides)
    elif options.command == REWARDS:
        load_learn(options.overrides)
    elif "overrides" in options:
        if not options.preset.endswith(".toml") or (ROOT / options.preset).is_file():
            load(options.preset, options.overrides)
        if "stage" in options:
            check_overrides(options.stage, options.overrides)
        for arms in (options.arms, options.ablate) if "arms" in options else ():
            for arm in arms.split(",") if arms not in ("", "all") else ():
                arm_overrides(arm)


def check_pipelines(command: str, words: list[str]) -> None:
    try:
        options = build_pipeline_parser().parse_args(words)
    except SystemExit as end:
        if end.code != 0:
            raise AssertionError(f"{command!r} does not parse") from end
        return
    if "overrides" not in options:
        return
    profile = load_profile(shipped(options.profile)) if "profile" in options else None
    preset = options.preset or (profile and profile.preset) or ""
    if not preset.endswith(".toml") or (ROOT / preset).is_file():
        load(preset, options.overrides)
    if profile and options.command == "submit":
        parameters = read_parameters(options.parameters)
        check_settings(options.pipeline, preset, options.overrides, parameters, profile=profile)


def shipped(profile: str) -> str:
    """The reader's own profile is a copy of `cluster`."""
    return "cluster" if profile.endswith(".toml") and not (ROOT / profile).is_file() else profile


def check_program(command: str, name: str, words: list[str]) -> None:
    """A script or module of the repository, and every option of it, among the strings of its source."""
    stem = name.removesuffix(".py").replace(".", "/")
    places = [ROOT / f"{folder}{stem}{end}" for folder in ("", "src/") for end in (".py", "/__main__.py")]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        assert name.partition(".")[0] not in (*FOLDERS, "cooper_rl"), f"{command!r}: there is no {name}"
        return  # somebody else's, such as venv
    known = strings_of(path)
    for word in words:
        option = word.partition("=")[0]
        assert not option.startswith("--") or option in known, f"{command!r}: {name} has no {option}"


def strings_of(path: Path) -> set[str]:
    """Strings of a program, and of other benchmarks that it imports, which may bring its options."""
    found: set[str] = set()
    waiting, seen = [path], {path}
    while waiting:
        for node in ast.walk(ast.parse(waiting.pop().read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks."):
                imported = ROOT / f"{(node.module or '').replace('.', '/')}.py"
                if imported not in seen and imported.is_file():
                    seen.add(imported)
                    waiting.append(imported)
    return found
