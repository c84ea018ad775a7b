"""No password and no signature of an address reaches a log, an error, the terminal or a file.

Every setting that takes an address gets one that opens something; stages and commands then fail and succeed.
`tests/test_addresses.py` has how one address is shown, `tests/faults/test_stopping.py` the keys of stores.
"""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.__main__ import main
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError, CooperError
from cooper_rl.experiment.run import claim_folder
from cooper_rl.machine.command import COMMAND
from cooper_rl.records.files import read_records, write_records
from cooper_rl.run.identity import evaluation_conditions, fit_identity, run_identity
from cooper_rl.schema.data import Completion, Problem
from cooper_rl.stages import summarise_run
from pipelines.__main__ import main as pipelines_main
from tests.stages.conftest import Files
from tests.stages.train_cooper.test_train_cooper import train
from tests.stand_ins.chat import Reply, ScriptedServer
from tests.stand_ins.kfp_api import KfpApi, run_kfp_api

SECRET = "hunter2-Zq"
FORMS = {
    "password": "{scheme}me:{secret}@{rest}",
    "user": "{scheme}{secret}@{rest}",
    "query": "{scheme}{rest}?X-Amz-Signature={secret}",
    "fragment": "{scheme}{rest}#access_token={secret}",
    "odd password": "{scheme}me:a' \\\" {secret}@b@{rest}",
}
DEAD = "127.0.0.1:9/v1"
SERVER = '{{ base_url = "{address}", model = "m", max_attempts = 1, timeout_seconds = 1 }}'
SETTINGS: dict[str, tuple[str, ...]] = {
    "storage.uri": ("storage.uri={address}", "storage.run_key=r"),
    "storage.uri on s3": ("storage.uri={s3}", "storage.run_key=r", "storage.endpoint=http://127.0.0.1:9"),
    "storage.endpoint": ("storage.uri=s3://b/p", "storage.run_key=r", "storage.endpoint={address}"),
    "registry.uri": ("registry.uri={address}",),
    "registry.mlflow": ("registry.mlflow={address}",),
    "tracker.uri": ('tracker={{ kind = "mlflow", uri = "{address}" }}',),
    "problems.sources": ('problems.sources=["{address}"]',),
    "models.policy": ("models.tiny=null", 'models.policy="{address}"', 'models.backbone="{address}"'),
    "labeling.judge": ("labeling.judge={judge}",),
    "labeling.other_judges": ("labeling.other_judges=[{judge}]",),
    "evaluation.judge": ("evaluation.judge={judge}",),
    "cooper.judge": ("cooper.judge={judge}",),
    "cooper.pairs.assistant": ("cooper.pairs.assistant={judge}",),
    "launch.environment": ('launch.environment={{ HTTPS_PROXY = "{address}" }}',),
}
"""Name -> overrides; a judge is a chat server at the address."""


def address_of(form: str, rest: str = DEAD, scheme: str = "http://") -> str:
    return FORMS[form].format(scheme=scheme, rest=rest, secret=SECRET)


def overrides_of(setting: str, form: str) -> list[str]:
    address = address_of(form)
    judge = "{ server = " + SERVER.format(address=address) + " }"
    s3 = address_of(form, "bucket/prefix", "s3://")
    return [text.format(address=address, judge=judge, s3=s3) for text in SETTINGS[setting]]


@dataclass
class Watched:
    """Whatever a test's commands showed, logged and wrote."""

    folder: Path
    read_terminal: Callable[[], Any]
    log: pytest.LogCaptureFixture
    shown: str = ""

    def run(self, *words: str, by: Callable[[list[str]], int] = main) -> int:
        """A command; argparse's own errors end it with 2."""
        try:
            return by(list(words))
        except SystemExit as ended:
            return int(ended.code or 0)

    def hear(self, *said: object) -> None:
        self.shown += "".join(map(str, said))

    def check(self) -> None:
        """Nothing holds the secret."""
        out, err = self.read_terminal()
        for name, text in {"stdout": out, "stderr": err, "log": self.log.text, "said": self.shown}.items():
            assert SECRET not in text, f"{name}: {excerpt(text)}"
        for path in self.folder.rglob("*"):
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), path
        assert not list(self.folder.rglob(f"*{SECRET}*"))


def excerpt(text: str) -> str:
    place = text.index(SECRET)
    return text[max(0, place - 300) : place + 100]


@pytest.fixture
def watched(tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Watched:
    caplog.set_level(logging.INFO)
    return Watched(tmp_path, capsys.readouterr, caplog)


def options(overrides: list[str]) -> list[str]:
    return ["--preset", "laptop", *(word for override in overrides for word in ("--set", override))]


CASES = [
    pytest.param(setting, form, id=f"{setting}-{form}")
    for setting in SETTINGS
    for form in FORMS
    if not (setting == "storage.uri on s3" and form in {"query", "fragment"})  # parts of an object's name
]


@pytest.mark.parametrize(("setting", "form"), CASES)
def test_no_setting_shows_what_its_address_opens(watched: Watched, setting: str, form: str) -> None:
    """Commands that read the whole configuration; most fail, and say why."""
    overrides = options(overrides_of(setting, form))
    report = str(watched.folder / "report")
    commands = {name: ["--report", report] for name in ("check-settings", "train-verify-rm")}
    commands["train-verify-rm"] += ["--train", report, "--validation", report, "--verify-rm", report + "-rm"]
    commands |= {"show-config": [], "plan": [], "evaluate-policy": ["--show-config"]}
    for command, paths in commands.items():
        watched.run(command, *overrides, *paths)
    # Values of another kind, unknown keys and what is no setting: errors show what was found.
    for override in overrides_of(setting, form):
        key, _, value = override.partition("=")
        for wrong in (f"{key}.x={value}", f"seed={value}", f"unknown={value}", value, f"{key} {value}"):
            assert watched.run("check-settings", *options([wrong]), *commands["check-settings"]) == 2
    watched.check()


@pytest.mark.parametrize(("setting", "form"), CASES)
def test_what_is_written_of_a_configuration_holds_nothing_that_opens_an_address(
    watched: Watched, files: Files, setting: str, form: str
) -> None:
    """The summary of a run, an experiment's claim, identities and conditions."""
    loaded = summarise_run.load_if_valid("laptop", overrides_of(setting, form))
    status = watched.folder / "status"
    status.write_text(json.dumps({"state": "FAILED", "run": "run-1", "message": "failed"}))
    summary, report = watched.folder / "summary.md", watched.folder / "report"
    summarise_run.run(loaded.config, status=status, summary=summary, report=report)
    watched.hear(loaded.problem)
    if loaded.config is not None:
        with_experiment(watched, loaded.config)
        watched.hear(evaluation_conditions(loaded.config))
        watched.hear(fit_identity(loaded.config, models=files.models, files={}))
        identity = run_identity(
            loaded.config, models=files.models, verify_rm=files.verify_rm, files={}, start=None
        )
        watched.hear(identity)
    watched.check()


def with_experiment(watched: Watched, config: Config) -> None:
    """The folder of an experiment is claimed, and claimed again by another one."""
    claim_folder(watched.folder, config)
    claim_folder(watched.folder, config)
    other = config.model_copy(update={"seed": 99, "storage": load("laptop").storage})
    with pytest.raises(CooperError) as found:
        claim_folder(watched.folder, other)
    watched.hear(found.value)


class Judge:
    """A chat server that calls every solution correct, or never answers; reached with a password."""

    def __init__(self) -> None:
        self.server = ScriptedServer(self._answer)
        self.is_gone = False

    def address(self, form: str) -> str:
        return address_of(form, self.server.url.removeprefix("http://"))

    def _answer(self, number: int, body: dict[str, Any]) -> Reply:
        if self.is_gone:
            return 500, {}, "gone"
        nonce = re.search(r"<solution-([0-9a-f]{16})>", body["messages"][1]["content"])
        content = f"VERDICT-{nonce[1] if nonce else ''}: CORRECT"
        return 200, {}, json.dumps({"choices": [{"message": {"content": content}}]})


@pytest.fixture
def judge() -> Iterator[Judge]:
    started = Judge()
    yield started
    started.server.close()


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("form", ["password", "user", "odd password"])
def test_labels_journals_and_reports_hold_no_judges_password(
    watched: Watched, files: Files, judge: Judge, form: str, is_gone: bool
) -> None:
    judge.is_gone = is_gone
    completions = watched.folder / "completions"
    rows = [
        Completion(id=f"{each.id}-{text}", problem_id=each.id, model="m", text=text, finish_reason="stop")
        for each in read_records(files.problems, Problem)
        for text in ("It is so.", "#### 1")
    ]
    write_records(completions, rows)
    server = SERVER.format(address=judge.address(form))
    outputs = [
        word
        for name in ("labels", "train", "validation", "test", "report")
        for word in (f"--{name}", str(watched.folder / name))
    ]
    status = watched.run(
        "label-completions",
        *options(["labeling.judge=null", f"labeling.judge.server={server}", "labeling.third_vote=null"]),
        "--problems", str(files.problems), "--completions", str(completions), *outputs,
    )  # fmt: skip
    watched.hear(watched.read_terminal())
    assert judge.server.bodies, watched.shown
    assert status == (2 if is_gone else 0), watched.shown
    assert judge.server.headers[0]["authorization"].startswith("Basic ")
    watched.check()


@pytest.mark.parametrize("is_gone", [False, True])
def test_co_training_leaves_no_password_of_its_servers(
    watched: Watched, files: Files, judge: Judge, is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints, metrics, the live file, the tracker's warning and the report; the reward is the judge."""
    monkeypatch.setenv(COMMAND, "cooper-rl train-cooper")
    judge.is_gone = is_gone
    server = SERVER.format(address=judge.address("password"))
    overrides = ["cooper.reward.kind=judge", "cooper.judge=null", f"cooper.judge.server={server}"]
    overrides += [f"labeling.judge={{ server = {server} }}"]
    if find_spec("mlflow") is not None:
        overrides += [f'tracker={{ kind = "mlflow", uri = "{address_of("password")}" }}']
    try:
        train(files, watched.folder / "checkpoint", *overrides)
    except CooperError as error:
        assert is_gone
        watched.hear(error)
    assert judge.server.bodies
    watched.check()


TASK = """
import logging, sys
from pathlib import Path
logging.basicConfig(level=logging.INFO)  # as KFP's executor does
from cooper_rl.cluster.task import task
from cooper_rl.errors import {error}
with task("laptop", [{override!r}], termination_log=Path(sys.argv[1])) as config:
    logging.getLogger("httpx").info("HTTP Request: POST %s", {address!r})
    try:
        raise OSError({address!r})
    except OSError as error:
        raise {error}({address!r} + " is gone") from error
"""


@pytest.mark.parametrize("error", ["ConfigError", "ServerError", "Exception as RuntimeError"])
@pytest.mark.parametrize("form", FORMS)
def test_a_task_on_a_cluster_logs_and_ends_without_a_password(
    watched: Watched, form: str, error: str
) -> None:
    """Its log and its termination message are kept by Kubernetes and shown by Kubeflow."""
    name = error.split()[-1]
    code = TASK.format(
        error=name, override=f'problems.sources=["{address_of(form)}"]', address=address_of(form)
    )
    if name == "RuntimeError":
        code = code.replace("from cooper_rl.errors import RuntimeError\n", "")
    message = watched.folder / "termination-log"
    message.touch()
    ended = subprocess.run(
        [sys.executable, "-c", code, str(message)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "is gone" in ended.stderr
    assert "HTTP Request: POST http" in ended.stderr
    assert message.read_text()
    watched.hear(ended.stdout, ended.stderr)
    watched.check()


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KfpApi]:
    home = tmp_path_factory.mktemp("home")  # kfp reads and writes ~/.config/kfp
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("kfp.Client._LOCAL_KFP_CONTEXT", str(home / "context.json"))
    with run_kfp_api(KfpApi()) as running:
        yield running


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["--set", "--param", "profile", "schedule", "compile"])
def test_no_command_of_pipelines_sends_or_compiles_a_password(
    watched: Watched, api: KfpApi, tmp_path_factory: pytest.TempPathFactory, way: str, form: str
) -> None:
    """Kubeflow keeps parameters and compiled pipelines, and shows them to all who see the runs."""
    override = f'problems.sources=["{address_of(form)}"]'
    profile = tmp_path_factory.mktemp("profile") / "site.toml"
    profile.write_text(f'preset = "laptop"\noverrides = [{json.dumps(override)}]\n')
    submit = ["submit", "end_to_end", "--host", api.url, "--preset", "laptop"]
    words = {
        "--set": [*submit, "--set", override],
        "--param": [*submit, "--param", f"run_key={address_of(form)}"],
        "profile": [*submit, "--profile", str(profile)],
        "schedule": ["schedule", "apply", "--cron", "0 0 2 * * *", "--host", api.url, "--set", override],
        "compile": ["compile", "--profile", str(profile), "--output", str(watched.folder / "out")],
    }[way]
    assert watched.run(*words, by=pipelines_main) == 2
    watched.hear(api.runs, api.versions, api.pipelines)
    out, err = watched.read_terminal()
    assert "a password or a signature" in err or "run_key" in err
    watched.hear(out, err)
    watched.check()


@pytest.mark.parametrize("form", ["password", "user", "query", "fragment"])
def test_words_that_no_command_knows_are_shown_without_a_password(watched: Watched, form: str) -> None:
    words = ["--preset", "laptop", "--report", "r", address_of(form), f"--endpoint={address_of(form)}"]
    assert watched.run("check-settings", *words) == 2
    assert watched.run(address_of(form)) == 2
    assert watched.run("submit", *words[4:], by=pipelines_main) == 2
    watched.check()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("setting", ["cooper.judge", "launch.environment", "tracker.uri", "problems.sources"])
def test_a_job_on_other_nodes_gets_no_password_in_its_arguments(setting: str, form: str) -> None:
    """They stand in the TrainJob, which who may see jobs may read; `check-settings` says so, in seconds."""
    job = ["launch.kind=trainjob", "launch.image=i:1", "launch.storage_secret=s"]
    stored = ["storage.uri=s3://b/p", "storage.endpoint=http://127.0.0.1:9", "storage.run_key=r"]
    with pytest.raises(ConfigError, match=r"holds a password or a signature, and a TrainJob's") as found:
        load("laptop", [*job, *stored, *overrides_of(setting, form)])
    assert SECRET not in str(found.value)
    assert load("laptop", [*job, *stored]).launch.image == "i:1"
