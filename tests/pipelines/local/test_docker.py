"""A local run in containers: what is refused before it starts, and what a container is given.

The run itself needs an engine and an image: `tests/images/test_cpu_image.py`.
"""

import json
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.images import CPU_IMAGE
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError
from pipelines.__main__ import main
from pipelines.compile import compile_pipeline
from pipelines.local.docker import container_options, find_image
from pipelines.local.worker import RUN_VARIABLE, adapt
from pipelines.profile import Profile
from tests.stand_ins.serving import serving


class EngineWithOneImage(BaseHTTPRequestHandler):
    """As much of the Docker Engine's HTTP API as finding an image takes."""

    def do_GET(self) -> None:
        path = self.path.partition("/images/")[2]
        if self.path.endswith("/_ping"):
            self._answer(200, "OK")
        elif self.path.endswith("/version"):
            self._answer(200, json.dumps({"ApiVersion": "1.44", "MinAPIVersion": "1.24"}))
        elif path == "held:1/json":
            self._answer(200, json.dumps({"Id": "sha256:1234"}))
        else:
            self._answer(404, json.dumps({"message": f"No such image: {path}"}))

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    with serving(HTTPServer(("127.0.0.1", 0), EngineWithOneImage)) as url:
        monkeypatch.setenv("DOCKER_HOST", url.replace("http", "tcp"))
        yield


def test_an_image_is_refused_where_stages_run_as_processes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "--image", "mine:1"]) == 2
    assert "--image mine:1: stages run in an image only with --runner docker" in capsys.readouterr().err


def test_a_run_in_containers_without_an_engine_says_so_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert main(["local", "--runner", "docker", "--output", str(tmp_path / "run")]) == 2
    assert "--runner docker: no Docker engine answers (" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("engine")
def test_an_image_that_the_engine_does_not_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="--image gone:1: the Docker engine does not hold it"):
        find_image("gone:1")


@pytest.mark.usefixtures("engine")
def test_an_image_is_known_by_its_id() -> None:
    assert find_image("held:1") == "sha256:1234"


def test_a_container_may_write_nothing_but_the_runs_folder_and_tmp(tmp_path: Path) -> None:
    data = tmp_path / "problems.jsonl"
    options = container_options("run", load("laptop"), root=tmp_path, files=[data])
    owner = tmp_path.stat()
    assert options["user"] == f"{owner.st_uid}:{owner.st_gid}"
    assert options["read_only"]
    assert set(options["tmpfs"]) == {"/tmp"}
    assert options["cap_drop"] == ["ALL"]
    assert options["security_opt"] == ["no-new-privileges"]
    assert options["mounts"] == [{"Target": str(data), "Source": str(data), "Type": "bind", "ReadOnly": True}]


def test_a_container_gets_the_keys_that_the_configuration_names_and_no_other_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUDGE_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "SOMETHING_ELSE"):
        monkeypatch.setenv(name, name.lower())
    for name in ("AWS_ACCESS_KEY_ID", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    server = '{ base_url = "http://judge/v1", model = "m", api_key_env = "JUDGE_KEY" }'
    config = load("laptop", [f"labeling.judge={{ server = {server} }}"])
    options = container_options("run", config, root=tmp_path, files=[])
    assert options["environment"] == {
        "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
        "AWS_SESSION_TOKEN": "aws_session_token",
        "JUDGE_KEY": "judge_key",
    }


@pytest.mark.parametrize("name", ["end_to_end", "verify_rm", "cooper"])
def test_every_stage_runs_in_the_image_that_was_asked_for(tmp_path: Path, name: str) -> None:
    path = compile_pipeline(name, tmp_path, profile=Profile(), iterations=1)
    before = path.read_text(encoding="utf-8")
    expected = yaml.safe_load(adapt(before, image=None, run="mine"))
    after = yaml.safe_load(adapt(before, image="mine:1", run="mine"))
    assert _take_images(after) == {"mine:1"}
    assert CPU_IMAGE in _take_images(expected)
    assert after == expected


def test_every_task_but_the_last_is_kept_and_an_uncached_one_for_its_run_alone(tmp_path: Path) -> None:
    path = compile_pipeline("retrain", tmp_path, profile=Profile(), iterations=1)
    adapted = yaml.safe_load(adapt(path.read_text(encoding="utf-8"), image=None, run="monday"))
    dags = [component["dag"]["tasks"] for component in adapted["components"].values() if "dag" in component]
    kept = {name for tasks in dags for name, task in tasks.items() if task.get("cachingOptions")}
    assert {"prepare-models", "take-champion", "train-cooper", "evaluate-verify-rm", "promote"} <= kept
    (last,) = [task for name, task in adapted["root"]["dag"]["tasks"].items() if name == "summarise-run"]
    assert not last["cachingOptions"]
    named = {
        name.removeprefix("exec-")
        for name, executor in adapted["deploymentSpec"]["executors"].items()
        if {"name": RUN_VARIABLE, "value": "monday"} in executor["container"].get("env", [])
    }
    assert {"take-champion", "train-cooper", "promote", "collect-problems"} <= named
    assert not {"prepare-models", "label-completions", "summarise-run"} & named


def _take_images(pipeline: dict[str, Any]) -> set[str]:
    executors = pipeline["deploymentSpec"]["executors"].values()
    return {executor["container"].pop("image") for executor in executors if "container" in executor}
