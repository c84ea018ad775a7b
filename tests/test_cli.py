"""The command line: options as the stage declares them, help at once, errors in one message."""

import ast
import inspect
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from cooper_rl.__main__ import build_parser, main
from cooper_rl.cli.options import path_with_name
from cooper_rl.cli.stages import format_report
from cooper_rl.config.load import load, preset_names
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError
from cooper_rl.method.metrics import binary_scores
from cooper_rl.schema.reports import BinaryScores, CollectReport, EvaluateVerifyRMReport, Interval, Report
from cooper_rl.stages import STAGES, check_overrides, read_signature
from tests.bash_completion import complete_in_bash

STAGES_FOLDER = Path(__file__).parent.parent / "src" / "cooper_rl" / "stages"


@pytest.mark.parametrize("stage", STAGES)
def test_a_signature_read_from_source_is_the_one_that_python_sees(stage: str) -> None:
    run = import_module(f"cooper_rl.stages.{stage}").run
    hints = get_type_hints(run, include_extras=True)
    of_source = {parameter.name: parameter for parameter in read_signature(stage).parameters}
    of_python = dict(list(inspect.signature(run).parameters.items())[1:])
    assert list(of_source) == list(of_python)
    for name, parameter in of_python.items():
        kind, text = get_args(hints[name])
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert of_source[name].kind == text
        assert of_source[name].is_required == (parameter.default is inspect.Parameter.empty)
        expected = list[Path] if of_source[name].is_list else Path
        assert kind == (expected if of_source[name].is_required else expected | None)
    assert issubclass(hints["return"], Report)
    assert hints["config"] in (Config, Config | None)


@pytest.mark.parametrize("stage", STAGES)
def test_help_lists_every_configuration_key_that_the_stage_reads(stage: str) -> None:
    module = ast.parse((STAGES_FOLDER / f"{stage}.py").read_text(encoding="utf-8"))
    chains = {ast.unparse(node) for node in ast.walk(module) if isinstance(node, ast.Attribute)}
    keys = {chain.removeprefix("config.") for chain in chains if chain.startswith("config.")}
    for key in sorted(keys):
        is_part_of_longer = any(other.startswith(f"{key}.") for other in keys)
        is_of_whole_config = key.partition(".")[0] in Config.model_fields
        if is_of_whole_config and not is_part_of_longer:
            # Or a part of it: tests/stages/every_stage/test_keys_read.py holds which.
            check_overrides(stage, [f"{key}=null"])


def test_help_of_a_stage_shows_its_files_and_its_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        build_parser().parse_args(["train-cooper", "--help"])
    shown = capsys.readouterr().out
    assert "--checkpoint PATH" in shown
    assert "  cooper.steps = 20\n      Steps of one iteration." in shown
    assert (
        "  cooper.pairs.assistant.server.api_key_env = null\n      Name of the environment variable" in shown
    )


def test_help_imports_no_stage_and_no_torch() -> None:
    code = (
        "import sys\n"
        "from cooper_rl.__main__ import main\n"
        "try:\n    main(['train-cooper', '--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'kfp', 'numpy', 'cooper_rl.stages.train_cooper'}\n"
        "found = sorted(heavy & set(sys.modules))\n"
        "sys.exit(f'imports {found}' if found else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_name_with_underscores_is_no_sub_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train_cooper"])
    assert "unknown command 'train_cooper'; did you mean 'train-cooper'?" in capsys.readouterr().err


def test_an_unknown_override_is_one_message_and_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(collect(tmp_path, "--set", "problems.num_tyni=5")) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("cooper-rl collect-problems: preset 'laptop' with its overrides")
    assert "did you mean 'num_tiny'?" in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("stage", "override", "message"),
    [
        (
            "collect-problems",
            "cooper.steps=2",
            "does not read cooper.steps (read by train-cooper); leave it",
        ),
        (
            "label-completions",
            "problems.num_tiny=3",
            "(read by collect-problems); leave it out",
        ),
        (
            "train-verify-rm",
            "experiment.steps=3",
            "does not read experiment.steps; leave it out, or change",
        ),
        (
            "train-verify-rm",
            "verify_rm.max_canary_problems=3",
            "does not read verify_rm.max_canary_problems (read by evaluate-verify-rm); leave it out, or "
            "change seed or a key of verify_rm, problems, labeling, storage, packed_forward that `cooper-rl "
            "train-verify-rm --help` shows",
        ),
    ],
)
def test_a_key_that_the_stage_does_not_read_is_refused(stage: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_overrides(stage.replace("-", "_"), ["seed=1", override])


def test_the_whole_of_what_a_stage_reads_a_part_of_may_be_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_overrides(
        "label_completions", ["problems={ num_tiny = 3, num_held_out = 1 }", "labeling.judge=null"]
    )
    check_overrides("check_settings", ["cooper.steps=2"])
    assert main(collect(tmp_path, "--set", "cooper.steps=2")) == 2
    assert "collect-problems does not read cooper.steps" in capsys.readouterr().err


def test_a_missing_file_is_one_message_and_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = collect(tmp_path, "--set", "problems.num_tiny=0", "--set", 'problems.sources=["gone.jsonl"]')
    assert main(arguments) == 2
    assert "gone.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("stage", STAGES)
def test_the_help_of_what_a_stage_writes_says_so(stage: str) -> None:
    parameters = {parameter.name: parameter for parameter in read_signature(stage).parameters}
    assert parameters["report"].is_output
    beside_the_report = {"rejected", "picture"}  # where nobody says where
    assert all(
        parameter.is_required or name in beside_the_report
        for name, parameter in parameters.items()
        if parameter.is_output
    )


def test_an_output_that_may_be_left_out_is_not_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"verify-rm": "verify_rm", "examples": "gone.jsonl", "report": "report.json"}
    arguments = [word for name, file in names.items() for word in (f"--{name}", str(tmp_path / file))]
    assert main(["evaluate-verify-rm", "--preset", "laptop", *arguments]) == 2
    assert "gone.jsonl" in capsys.readouterr().err
    arguments += ["--rejected", str(tmp_path / "report.json")]
    assert main(["evaluate-verify-rm", "--preset", "laptop", *arguments]) == 2
    assert "--report and --rejected are both" in capsys.readouterr().err


def test_a_file_in_the_place_of_one_that_a_stage_writes_unasked_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As is one that was set aside, mended in place and given back with the same --report."""
    names = {each: tmp_path / each for each in ("labels", "train", "validation", "test", "report")}
    for own, beside in (("report.rejected.jsonl", "--report"), ("labels.journal", "--labels")):
        (tmp_path / own).write_text("precious")
        paths = names | {"problems": tmp_path / own, "completions": tmp_path / "completions.jsonl"}
        arguments = [text for name, path in paths.items() for text in (f"--{name}", str(path))]
        assert main(["label-completions", "--preset", "laptop", *arguments]) == 2
        shown = capsys.readouterr().err
        assert f"{own}: the stage writes a file of this name beside {beside}; choose another path" in shown
        assert (tmp_path / own).read_text() == "precious"


def test_an_output_in_the_place_of_another_file_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "problems.jsonl").write_text("precious")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "problems.jsonl")
    paths = {
        "models": tmp_path,
        "problems": tmp_path / "problems.jsonl",
        "completions": tmp_path / "link.jsonl",
        "report": tmp_path / "report.json",
    }
    arguments = [text for name, path in paths.items() for text in (f"--{name}", str(path))]
    assert main(["sample-completions", "--preset", "laptop", *arguments]) == 2
    assert "--completions and --problems are both" in capsys.readouterr().err
    assert (tmp_path / "problems.jsonl").read_text() == "precious"


def test_a_folder_in_the_place_of_an_output_is_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").mkdir()
    assert main(collect(tmp_path)) == 2
    assert "report.json: cannot be written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("place", [".", ".."])
def test_a_report_in_the_place_of_a_folder_without_a_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*collect(tmp_path), "--report", place]) == 2
    named = tmp_path if place == "." else tmp_path.parent
    assert f"{named}: cannot be written (what has this name is no regular file)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_root_folder_is_no_place_for_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*collect(tmp_path), "--report", "/"])
    assert "argument --report: / has no name; give a file or folder in it" in capsys.readouterr().err


def test_a_path_without_a_name_gets_the_one_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that writes `--verify-rm .` keeps the state of its training beside that folder."""
    (tmp_path / "verify_rm").mkdir()
    monkeypatch.chdir(tmp_path / "verify_rm")
    assert path_with_name(".") == tmp_path / "verify_rm"
    assert path_with_name("..") == tmp_path
    assert [str(path_with_name(text)) for text in ("a/b", "../a", "-")] == ["a/b", "../a", "-"]


def test_a_stage_prints_its_numbers_and_where_its_report_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = collect(tmp_path, "--set", "problems.num_tiny=20", "--set", "problems.num_held_out=5")
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert shown == (
        "CollectReport\n"
        "  num_problems  15\n"
        "  num_held_out  5\n"
        "  num_rejected  0\n"
        f"report: {tmp_path / 'report.json'}\n"
    )
    assert (tmp_path / "report.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan --preset laptop --processes 0", "--processes: 0 is too few; give a whole number above 0"),
        ("plan --preset laptop --gpu-gib nan", "--gpu-gib: nan is no size; give a number above 0"),
        ("experiment --preset laptop --output x --workers -3", "--workers: -3 is too few"),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments.split())
    assert message in capsys.readouterr().err


def test_an_experiment_without_an_arm_or_a_folder_ends_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("precious")
    common = ["experiment", "--preset", "laptop", "--output", str(tmp_path / "file")]
    assert main([*common, "--arms", ""]) == 2
    assert "--arms and --ablate name nothing to train; use some of rule, frozen" in capsys.readouterr().err
    assert main(common) == 2
    assert "experiment.json: cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("cooper.steps=2", "this command takes `experiment.steps` instead; set that"),
        ("cooper.seed=2", "this command takes `--seeds` instead; set that"),
        ("cooper.reward.kind=judge", "the arm 'cooper' sets cooper.reward.kind; leave out one of the two"),
        ('cooper.reward={ kind = "judge" }', "the arm 'cooper' sets cooper.reward.kind; leave out one"),
    ],
)
def test_a_setting_that_an_experiment_makes_itself_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    arguments = ["experiment", "--preset", "laptop", "--output", str(tmp_path / "runs"), "--arms", "cooper"]
    assert main([*arguments, "--set", setting]) == 2
    assert f"{setting}: {said}" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_report_without_numbers_prints_its_place() -> None:
    class Silent(Report):
        """Nothing to count."""

    assert format_report(Silent(), path=Path("r.json")) == "Silent\nreport: r.json\n"


def test_numbers_are_aligned() -> None:
    report = CollectReport(num_problems=1, num_held_out=20, num_rejected=0)
    lines = format_report(report, path=Path("r.json")).splitlines()[1:-1]
    assert len({line.rindex("  ") for line in lines}) == 1


def test_an_interval_is_one_row() -> None:
    accuracy = Interval(value=0.65, low=0.348954, high=0.865497, count=5)
    scores = BinaryScores(
        num_examples=20, accuracy=accuracy, majority_accuracy=0.65, precision=None, recall=0.0, auroc=None,
        f1=0.0, ece=0.3,
    )  # fmt: skip
    rows = format_report(scores, path=Path("r.json")).splitlines()
    assert "  accuracy           0.65 [0.349, 0.865], n=5" in rows
    assert [row.split()[0] for row in rows[1:-1]] == [
        "num_examples", "accuracy", "majority_accuracy", "recall", "f1", "ece",
    ]  # fmt: skip


def test_a_name_from_data_moves_no_cursor_and_widens_no_table() -> None:
    scores = binary_scores([0, 1], [0.2, 0.8])
    names = ["\x1b[2J\x1b]0;title\x07", "two\nlines", "\u202egnp", "x" * 5000, "中文"]
    report = EvaluateVerifyRMReport(
        overall=scores, by_source=dict.fromkeys(names, scores), confusion={}, roc=[]
    )
    table = format_report(report, path=Path("r.json"))
    lines = table.splitlines()
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) < 140
    for shown in (
        "\ufffd[2J\ufffd]0;title\ufffd",
        "two\ufffdlines",
        "\ufffdgnp",
        f"{'x' * 30}…{'x' * 36}",
        "中文",
    ):
        assert f"  by_source/{shown}/f1 " in table


def test_control_c_exits_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cooper_rl", *prepare(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert re.match(r"\d\d:\d\d:\d\d ", process.stderr.readline())  # it works, and says so
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors


def collect(folder: Path, *more: str) -> list[str]:
    names = ("problems", "held-out", "rejected", "report")
    paths = [part for name in names for part in (f"--{name}", str(folder / f"{name.replace('-', '_')}.json"))]
    return ["collect-problems", "--preset", "laptop", *paths, *more]


def prepare(folder: Path) -> list[str]:
    work = ["--preset", "laptop", "--set", "models.tiny.policy.num_updates=1000000"]
    return ["prepare-models", *work, "--models", str(folder / "models"), "--report", str(folder / "r.json")]


def test_an_unknown_command_names_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["train-coper", "--preset", "laptop"])
    assert "unknown command 'train-coper'; did you mean 'train-cooper'?" in capsys.readouterr().err


def test_every_preset_is_listed_with_what_it_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == preset_names()
    assert all(len(line.split()) > 4 and line.endswith(".") for line in lines)


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_that_was_written_out_is_the_same_preset(
    preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["presets", preset]) == 0
    copy = tmp_path / "mine.toml"
    copy.write_text(capsys.readouterr().out, encoding="utf-8")
    assert load(str(copy)) == load(preset)


@pytest.mark.parametrize("preset", preset_names())
def test_the_configuration_that_is_shown_builds_itself(
    preset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show-config", "--preset", preset, "--set", "cooper.steps=7"]) == 0
    rows = [line.rpartition("  # ") for line in capsys.readouterr().out.splitlines()]
    values = [text.strip() for text, _, source in rows if source != "default"]
    expected = load(preset, ["cooper.steps=7"])
    for value in values:
        key, _, text = value.partition(" = ")
        assert load(preset, ["cooper.steps=7", f"{key}={text}"]) == expected, value
    assert ("cooper.steps = 7", "--set") in [(text.strip(), source) for text, _, source in rows]


def test_each_value_names_the_preset_that_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show-config", "--preset", "laptop_blind", "--set", "cooper.judge=null"]) == 0
    rows = [line.rpartition("  # ") for line in capsys.readouterr().out.splitlines()]
    sources = {text.partition(" = ")[0]: source for text, _, source in rows}
    assert sources["models.tiny.backbone.num_layers"] == "preset laptop_blind"
    assert sources["problems.num_tiny"] == "preset laptop"
    assert sources["cooper.judge"] == "--set"
    assert sources["instruction"] == "default"


def test_a_table_takes_the_place_of_the_presets_and_the_rest_of_it_is_the_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = "cooper.generation={temperature=0.5}"
    later = "cooper.generation.batch_size=9"
    assert main(["show-config", "--preset", "laptop", "--set", table, "--set", later]) == 0
    rows = [line.rpartition("  # ") for line in capsys.readouterr().out.splitlines()]
    shown = {text.strip(): source for text, _, source in rows if text.startswith("cooper.generation.")}
    assert shown["cooper.generation.temperature = 0.5"] == "--set"
    assert shown["cooper.generation.batch_size = 9"] == "--set"
    assert shown["cooper.generation.max_new_tokens = 512"] == "default"


def test_a_list_of_tables_is_shown_as_it_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    judges = 'labeling.other_judges=[{server={base_url="http://j/v1", model="m"}}]'
    assert main(["show-config", "--preset", "laptop", "--set", judges]) == 0
    rows = [line.rpartition("  # ")[0].strip() for line in capsys.readouterr().out.splitlines()]
    (shown,) = (row for row in rows if row.startswith("labeling.other_judges = "))
    key, _, text = shown.partition(" = ")
    assert load("laptop", [f"{key}={text}"]) == load("laptop", [judges])


def test_who_reads_only_the_beginning_sees_no_error() -> None:
    shown = subprocess.run(
        f"{sys.executable} -m cooper_rl show-config --preset laptop | true",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stderr == ""


def test_an_unknown_option_names_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the options that are missing are asked for."""
    with pytest.raises(SystemExit, match="2"):
        main(["train-cooper", "--preset=laptop", "--probelms=x"])
    assert "train-cooper has no option '--probelms'; did you mean '--problems'?" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["presets", "--zzz"])
    assert "presets has no option '--zzz'; use one of --help" in capsys.readouterr().err


def test_an_unknown_preset_names_the_one_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show-config", "--preset", "labtop"]) == 2
    assert "unknown preset 'labtop'; did you mean 'laptop'? It is one of" in capsys.readouterr().err


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_shows_the_configuration_that_it_reads_without_its_files(
    stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [stage.replace("_", "-"), "--preset", "laptop", "--set", "seed=7", "--show-config"]
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["seed", "=", "7", "#", "--set"]
    read = ("seed", *STAGES[stage])
    assert all(any(f"{line.split()[0]}.".startswith(f"{key}.") for key in read) for line in shown)


def test_the_configuration_of_a_stage_refuses_a_key_that_it_does_not_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["report", "--preset", "laptop", "--show-config"]
    assert main(words) == 0
    words = ["train-verify-rm", "--preset", "laptop", "--set", "cooper.steps=2", "--show-config"]
    assert main(words) == 2
    assert "train-verify-rm does not read cooper.steps" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--preset", "laptop"], ["--preset=laptop"]])
def test_help_shows_the_values_of_the_preset_that_is_given(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["train-cooper", *words, "--help"])
    shown = capsys.readouterr().out
    assert "shown with the value of the preset laptop" in shown
    assert "\ncooper:\n  cooper." in shown
    assert f"\n  cooper.steps = {load('laptop').cooper.steps}\n" in shown
    assert "\ncooper.policy:\n  cooper.policy.lr = " in shown
    with pytest.raises(SystemExit, match="0"):
        main(["train-cooper", "--preset", "nothing", "--help"])
    assert "where a preset says nothing" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["train-"], ["train-verify-rm", "train-cooper"]),
        (["train-cooper", "--pro"], ["--problems"]),
        (["train-cooper", "--preset", "sing"], ["single_gpu"]),
        (["train-cooper", "mine"], []),
        (["completion", "z"], ["zsh"]),
    ],
)
def test_bash_completes_commands_options_and_presets(
    typed: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    assert complete_in_bash(capsys.readouterr().out, "cooper-rl", typed) == expected


def test_zsh_takes_the_same_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit && bashcompinit\n_cooper_rl() {")
