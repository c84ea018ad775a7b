"""The laptop pipeline for real: compiled, run through kfp.local, resumed, failed, interrupted."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from cooper_rl.records.files import read_records
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.schema.reports import EvalReport
from pipelines.__main__ import main
from pipelines.compile import OF_ARTIFACTS, compile_pipeline, read_compiled
from pipelines.local.folder import IN_USE, TOKEN, Holder, run_folders
from pipelines.local.redacted import redactor
from pipelines.options import NAMES
from pipelines.profile import load_profile
from tests.small_run import ROOT, run_pipelines, small_run
from tests.waiting import wait_until

ENDLESS = ["--set", "models.tiny.policy.num_updates=1000000"]


@pytest.mark.parametrize("name", ["log.txt", "report.html", "summary.md", "end_to_end.yaml"])
def test_a_folder_with_files_of_others_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / name).write_text("mine")
    assert main(["local", "--output", str(tmp_path)]) == 2
    assert f"{tmp_path / name}: would be overwritten, and no run has used" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished run, and what it showed."""
    output = tmp_path_factory.mktemp("run")
    return output, run_pipelines(small_run(output), timeout_seconds=600)


def test_the_run_shows_every_stage_and_ends_with_its_headline(finished: tuple[Path, str]) -> None:
    _, shown = finished
    stages = re.findall(r"^\[ *(\d+)/14\] (\S+)  done in \d+:\d\d$", shown, flags=re.MULTILINE)
    assert sorted(int(number) for number, _ in stages) == list(range(1, 15))
    assert [name for _, name in stages[-2:]] == ["report", "summarise-run"]
    assert re.search(
        r"^Done in .* held-out problems, step 0 -> 4, with 95 % intervals:$", shown, re.MULTILINE
    )
    for name in ("accuracy", "VerifyRM reward"):
        assert re.search(rf"^  {name} +\d\.\d+ \[.*\] -> \d\.\d+ \[.*\]$", shown, re.MULTILINE), name
    assert re.search(r"^  worst attack +\w+: accepted on \d\.\d+ \[.*\], n=\d+$", shown, re.MULTILINE)


def test_the_run_leaves_a_report_and_ordinary_model_folders(finished: tuple[Path, str]) -> None:
    output, shown = finished
    assert "<html" in (output / "report.html").read_text(encoding="utf-8")
    assert (output / "summary.md").read_text(encoding="utf-8").startswith("#")
    files = dict(line.split() for line in shown.splitlines()[-5:])
    assert list(files) == ["page", "summary", "policy", "VerifyRM", "metrics"]
    assert ROOT / files["page"] == output / "report.html"
    assert AutoModelForCausalLM.from_pretrained(ROOT / files["policy"]).config.model_type == "qwen2"
    verify_rm = AutoModelForSequenceClassification.from_pretrained(ROOT / files["VerifyRM"])
    assert verify_rm.config.num_labels == 1
    folder, _, pieces = files["metrics"].partition("*")
    rows = [json.loads(row) for path in sorted((ROOT / folder).glob(f"*{pieces}")) for row in path.open()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]


def test_the_second_iteration_goes_on_where_the_first_ended(finished: tuple[Path, str]) -> None:
    output, _ = finished
    run = run_folders(output, "end-to-end")[-1]
    evaluations = read_records(run / "evaluate-policy-3" / "evaluations", EvalReport)
    assert [evaluation.step for evaluation in evaluations] == [0, 2, 4]
    pieces = sorted((run / "train-cooper-2" / "checkpoint" / "logs").glob("*/metrics.jsonl"))
    assert [row.step for row in read_metrics(*pieces)] == [1, 2, 3, 4]


def test_the_same_command_again_runs_nothing_but_the_summary(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    output, before = finished
    assert main(small_run(output)) == 0
    shown = capsys.readouterr().out
    assert "has finished; its stages are kept\n" in shown
    assert len(re.findall(r"\] (\S+)  kept from an earlier start", shown)) == 13
    assert re.findall(r"\] (\S+)  done in", shown) == ["summarise-run"]
    assert "13 stages kept from an earlier start" in shown
    assert shown.splitlines()[-8:] == before.splitlines()[-8:]
    assert len(run_folders(output, "end-to-end")) == 1


@pytest.mark.slow
def test_a_run_killed_in_its_second_iteration_runs_no_finished_stage_again_and_ends_the_same(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    """The killed start had finished one of the two steps, or both where the signal was late; kfp orders tasks
    that do not need each other anew."""
    command = small_run(tmp_path, "--set", "cooper.checkpoint_every=1")
    process = start(command)
    wait_until(lambda: list(tmp_path.glob("end-to-end-*/train-cooper-2/checkpoint/LATEST")), seconds=900)
    token = _token(tmp_path)
    process.kill()
    said, _ = process.communicate()
    wait_until(lambda: not _members(token))

    shown = run_pipelines(command, timeout_seconds=900)
    assert "did not finish; it goes on where it ended\n" in shown
    before, after = (re.findall(r"\] (\S+)  done in", text) for text in (said, shown))
    assert set(before) >= {"train-cooper", "evaluate-verify-rm"}
    assert set(after) >= {"train-cooper-2", "evaluate-policy-3", "report", "summarise-run"}
    assert not set(before) & set(after)
    assert set(re.findall(r"\] (\S+)  kept from an earlier start", shown)) == set(before)
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert "continue from step-000003" in log or "step-000004: finished already" in log

    (killed,) = run_folders(tmp_path, "end-to-end")
    whole = run_folders(finished[0], "end-to-end")[0]
    for file in ("policy/model.safetensors", "verify_rm/model.safetensors", "run_state.json"):
        one, other = (_newest_checkpoint(run / "train-cooper-2" / "checkpoint") for run in (killed, whole))
        assert (one / file).read_bytes() == (other / file).read_bytes(), file
    completions = [(run / "evaluate-policy-3" / "completions").read_bytes() for run in (killed, whole)]
    assert completions[0] == completions[1]


def _newest_checkpoint(folder: Path) -> Path:
    """Where a killed run had begun a checkpoint, the next start's has a name of its own."""
    return folder / (folder / "LATEST").read_text(encoding="utf-8").strip()


def test_a_failing_stage_is_one_message_and_keeps_what_was_finished(
    finished: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    output, _ = finished
    gone = output / "gone.jsonl"
    assert main(small_run(output, "--set", f'problems.sources=["{gone}"]')) == 1
    shown = capsys.readouterr().out
    assert f"error: collect-problems: {gone}: no such file" in shown
    assert "Traceback" not in shown
    assert "run the same command to go on from there" in shown
    assert (output / "summary.md").read_text(encoding="utf-8").startswith("# Run failed")
    assert "Traceback" in (output / "log.txt").read_text(encoding="utf-8")
    assert (output / "report.html").is_file()


@pytest.mark.slow
def test_no_password_or_signature_of_a_source_is_left_by_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In no file and not on the screen, though kfp prints every task's input."""
    output = tmp_path / "run"
    source = "http://me:pa55word@127.0.0.1:9/problems.jsonl?sig=SECRET1"
    assert main(small_run(output, "--set", f'problems.sources=["{source}"]')) == 1
    captured = capsys.readouterr()
    shown = captured.out + captured.err
    assert "collect-problems: http://***@127.0.0.1:9/problems.jsonl?***: " in shown
    assert "http://***@127.0.0.1:9/problems.jsonl?***" in (output / "log.txt").read_text(encoding="utf-8")
    files = [path for path in output.rglob("*") if path.is_file()]
    for secret in ("pa55word", "SECRET1"):
        assert secret not in shown
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("override", "address"),
    [
        ("problems.sources=['http://me:a b@host/x?k=v']", "http://me:a b@host/x?k=v"),
        ('problems.sources=["http://h/1?sig=one","http://h/2?sig=two"]', "http://h/2?sig=two"),
        ("cooper.judge.server.base_url=http://me:you r@host/v1", "http://me:you r@host/v1"),
    ],
)  # fmt: skip
def test_addresses_of_the_arguments_are_hidden_whole(override: str, address: str) -> None:
    hide = redactor({"preset": "laptop", "overrides": [override]})
    line = hide(f"input: {json.dumps({'overrides': [override]})} and {address!r}\n")
    assert line.startswith("input: ")
    for secret in ("me:", "a b", "r@", "k=v", "one", "two"):
        assert secret not in line


def test_a_wrong_key_is_found_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["local", "--set", "cooper.stepz=2", "--output", str(tmp_path / "run")]) == 2
    assert "cooper.stepz: unknown key; did you mean 'steps'?" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["cooper", "--param", "verify_rm=gone", "--param", "examples=pyproject.toml"],
            "--param verify_rm=gone: no such file or folder on this machine",
        ),
        (
            ["cooper", "--param", "verify_rm=src", "--param", "examples="],
            "--param examples=: no such file or folder on this machine",
        ),
        (["--param", "run_key=a", "--param", "run_key=b"], "--param run_key is given as 'a' and as 'b'"),
        (["--profile", "x" * 5000], "is not readable as TOML: [Errno 36] File name too long"),
        (["--preset", "x" * 5000 + ".toml"], "cannot be read as UTF-8 text: [Errno 36] File name too long"),
        (["--set", "seed=caf\udce9"], "--set 'seed=caf\\udce9': is not UTF-8, which every text of a"),
    ],
)  # fmt: skip
def test_a_slip_is_one_message_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["local", *words, "--output", str(tmp_path / "run")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_parameters_of_artifacts_are_those_that_the_pipelines_import(tmp_path: Path) -> None:
    for name in NAMES:
        path = compile_pipeline(name, tmp_path, profile=load_profile("local"), iterations=1)
        imported = set(re.findall(r"componentInputParameter: pipelinechannel--(\w+)\n", path.read_text()))
        known = read_compiled(path)["root"]["inputDefinitions"]["parameters"].keys()
        assert known & imported - {"preset", "overrides", "run_key"} == known & OF_ARTIFACTS, name


@pytest.mark.parametrize(
    ("name", "said"), [("x" * 300, "cannot be written: File name too long"), ("caf\udce9", "is not UTF-8")]
)
def test_a_name_that_no_folder_of_a_run_can_have_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert main(["local", "--output", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_a_folder_whose_name_is_not_utf_8_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "caf\udce9").mkdir()
    monkeypatch.chdir(tmp_path / "caf\udce9")
    assert main(["local", "--output", "run"]) == 2
    assert "caf\\udce9/run': is not UTF-8" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("text", ["mine", '{"pid": 1}'])
def test_a_file_of_others_with_the_name_of_the_lock_is_never_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / IN_USE).write_text(text)
    assert main(["local", "--output", str(tmp_path)]) == 2
    assert f"{IN_USE}: no run wrote this file, which a run would overwrite" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {IN_USE: text}


@pytest.mark.parametrize("name", ["log.txt", "report.html", "summary.md", "end_to_end.yaml"])
def test_a_folder_in_the_place_of_a_file_of_a_run_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / IN_USE).touch()
    (tmp_path / name).mkdir()
    assert main(["local", "--output", str(tmp_path)]) == 2
    assert f"{tmp_path / name}: is a folder, and a run writes a file here" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {IN_USE, name}


def test_less_than_one_task_at_once_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "--tasks-at-once", "0", "--output", str(tmp_path / "run")]) == 2
    assert "--tasks-at-once 0: give 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("run_key", ["nightly-[[ScheduledTime]]", "{{$.pipeline_job_uuid}}"])
def test_a_run_key_that_nobody_filled_in_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run_key: str
) -> None:
    assert main(["local", "--param", f"run_key={run_key}", "--output", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert f"storage.run_key={run_key!r} holds a placeholder that Kubeflow did not fill in" in shown
    assert "leave run_key out, and each run is named by its own id" in shown
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_a_run_leaves_no_process_behind_however_it_ends(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """SIGHUP is a closed terminal."""
    output = tmp_path / "run"
    process = start(small_run(output, *ENDLESS))
    wait_until(lambda: _stages(output, "prepare_models"))
    token = _token(output)
    assert len(_members(token)) >= 3  # the worker, the fork server and the stage
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == status, errors
    assert "Traceback" not in errors
    wait_until(lambda: not _members(token))


@pytest.mark.slow
def test_a_second_start_in_one_folder_is_refused_and_the_first_is_not_harmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    process = start(small_run(output, *ENDLESS))
    try:
        wait_until(lambda: _stages(output, "prepare_models"))
        assert main(small_run(output)) == 2
        who = f"{output}: process {process.pid} on {socket.gethostname()}"
        assert f"{who} runs a pipeline in this folder; wait for it" in capsys.readouterr().err
        assert len(_members(_token(output))) >= 3
        assert len(run_folders(output, "end-to-end")) == 1
    finally:
        process.terminate()
        process.communicate()


def test_a_folder_of_a_run_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(small_run(tmp_path / "file")) == 2
    assert "file: cannot be written: File exists; free space or give" in capsys.readouterr().err


@pytest.mark.slow
def test_a_disk_without_room_is_one_message_and_hides_none_of_a_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "run"
    command = small_run(output, "--set", 'problems.sources=["gone.jsonl"]')
    assert main(command) == 1
    (output / "log.txt").unlink()
    (output / "log.txt").symlink_to("/dev/full")
    assert main(command) == 2
    shown = capsys.readouterr().err
    assert f"error: {output}/log.txt: cannot be written ([Errno 28] No space left on device)" in shown
    assert "finished stages are kept" in shown

    (output / "log.txt").unlink()
    (output / "summary.md").unlink()
    (output / "summary.md").symlink_to("/dev/full")
    assert main(command) == 2
    captured = capsys.readouterr()
    assert "error: collect-problems: gone.jsonl: no such file" in captured.out
    assert f"error: {output}/summary.md: cannot be written (No space left on device)" in captured.err


def test_a_run_whose_lines_nobody_reads_any_more_ends_and_blames_no_disk(tmp_path: Path) -> None:
    """As behind `| head -1`, whose reader is gone after the first line."""
    process = start(small_run(tmp_path / "run", *ENDLESS))
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 141
    assert process.stderr.read() == ""


@pytest.mark.slow
def test_a_stage_that_outlived_its_run_is_ended_by_the_next_start_which_says_so(tmp_path: Path) -> None:
    """Starter and worker are killed at once, so that neither can end the stage."""
    output = tmp_path / "run"
    process = start(small_run(output, *ENDLESS))
    wait_until(lambda: _stages(output, "prepare_models"))
    token = _token(output)
    (worker,) = [pid for pid in _members(token) if "pipelines.local.worker" in psutil.Process(pid).cmdline()]
    os.kill(worker, signal.SIGSTOP)
    process.kill()
    process.communicate()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: worker not in _members(token))
    (stage,) = _stages(output, "prepare_models")

    again = start(small_run(output, *ENDLESS))
    wait_until(lambda: not _members(token))
    wait_until(lambda: _stages(output, "prepare_models"))
    again.terminate()
    shown, _ = again.communicate()
    assert re.search(rf"ended .*process {stage}\b.*: left by process {process.pid}, which was killed", shown)
    assert "did not finish; it goes on where it ended" in shown

    other = start(small_run(output, *ENDLESS, "--set", "seed=1"))
    wait_until(lambda: len(run_folders(output, "end-to-end")) == 2)
    wait_until(lambda: _stages(output, "prepare_models"))
    other.terminate()
    shown, _ = other.communicate()
    assert re.search(
        r"a new run: the one of .* did not finish, and had other settings, source files or code", shown
    )


@pytest.mark.slow
def test_a_stage_that_is_killed_is_named_and_the_log_is_shown(tmp_path: Path) -> None:
    """The kernel does the same to a process that takes too much memory."""
    process = start(small_run(tmp_path / "run", *ENDLESS))
    wait_until(lambda: _stages(tmp_path / "run", "prepare_models"))
    for pid in _stages(tmp_path / "run", "prepare_models"):
        os.kill(pid, signal.SIGKILL)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: prepare-models: the process was killed without a message" in shown
    assert "log.txt" in shown


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipelines", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _token(output: Path) -> str:
    return Holder.model_validate_json((output / IN_USE).read_bytes()).token


def _members(token: str) -> list[int]:
    """Living processes of a local run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(TOKEN) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _stages(output: Path, name: str) -> list[int]:
    """Living processes of a stage of the run in a folder; its name is the process's."""
    found = []
    with contextlib.suppress(OSError, ValueError):  # not started yet
        for pid in _members(_token(output)):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == name:
                    found.append(pid)
    return found
