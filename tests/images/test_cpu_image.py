"""The image for the CPU, run as it runs on a cluster: read-only, without network, not as root.

Needs a Docker engine that holds it (`make wheelhouse-cpu image-cpu`); skips where there is none.
"""

import time
from collections.abc import Callable, Generator
from importlib.metadata import version
from pathlib import Path

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

from components.images import CPU_IMAGE
from cooper_rl.models.verify_rm import VerifyRM, save_verify_rm
from tests.small_run import run_pipelines, small_run

pytestmark = pytest.mark.slow

RESTRICTED = {
    "read_only": True,
    "tmpfs": {"/tmp": "exec,mode=1777"},
    "network_mode": "none",
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}


@pytest.fixture(scope="module")
def engine() -> Generator[docker.DockerClient]:
    try:
        client = docker.from_env()
        client.images.get(CPU_IMAGE)
        client.images.get(f"{CPU_IMAGE}-serve")
    except ImageNotFound as error:
        pytest.skip(f"the Docker engine holds no {CPU_IMAGE}: make wheelhouse-cpu image-cpu ({error})")
    except DockerException as error:
        pytest.skip(f"no Docker engine answers: {error}")
    yield client
    client.close()


def test_the_image_says_what_it_is(engine: docker.DockerClient) -> None:
    config = engine.images.get(CPU_IMAGE).attrs["Config"]
    assert config["User"] == "1000:1000"
    assert config["Entrypoint"] is None
    assert config["Labels"]["org.opencontainers.image.version"] == version("cooper-rl")
    assert config["Labels"]["org.opencontainers.image.title"] == "cooper-rl-cpu"


@pytest.mark.parametrize("user", ["1000:1000", "12345:0"])
def test_the_command_line_answers_for_any_user_on_a_read_only_root(
    engine: docker.DockerClient, user: str
) -> None:
    shown = engine.containers.run(CPU_IMAGE, ["cooper-rl", "--help"], user=user, remove=True, **RESTRICTED)
    assert b"train-cooper" in shown


def test_the_image_holds_no_build_tools(engine: docker.DockerClient) -> None:
    tools = "gcc g++ cc c++ clang ld make cmake git nvcc"
    script = f"for tool in {tools}; do command -v $tool; done; true"
    assert engine.containers.run(CPU_IMAGE, ["sh", "-c", script], remove=True, **RESTRICTED) == b""


def test_a_server_gets_healthy_and_scores(
    engine: docker.DockerClient, tmp_path: Path, make_verify_rm: Callable[[int], VerifyRM]
) -> None:
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    mount = docker.types.Mount("/verify_rm", str(tmp_path / "verify_rm"), type="bind", read_only=True)
    command = ["--verify-rm", "/verify_rm", "--set", 'unprotected=["token", "tls"]']
    server = engine.containers.run(f"{CPU_IMAGE}-serve", command, detach=True, mounts=[mount], **RESTRICTED)
    try:
        deadline = time.monotonic() + 300
        while server.attrs["State"].get("Health", {}).get("Status") != "healthy":
            assert server.status in {"created", "running"}, server.logs().decode()
            assert time.monotonic() < deadline, server.logs().decode()
            time.sleep(1)
            server.reload()
        ask = (
            "import json; from urllib.request import Request, urlopen;"
            "item = {'question': '1+1?', 'reference_answer': '2', 'completion': '2'};"
            "request = Request('http://127.0.0.1:8080/v1/score', json.dumps({'items': [item]}).encode(),"
            " {'Content-Type': 'application/json'}); print(urlopen(request).read().decode())"
        )
        status, shown = server.exec_run(["python3", "-c", ask])
        assert status == 0, shown
        assert b'"model":"verify_rm"' in shown
        server.stop(timeout=30)
        assert server.wait()["StatusCode"] == 0
    finally:
        server.remove(force=True)


@pytest.mark.usefixtures("engine")
def test_the_laptop_pipeline_runs_in_containers(tmp_path: Path) -> None:
    output = tmp_path / "run"
    output.mkdir()
    shown = run_pipelines(small_run(output, "--runner", "docker"), timeout_seconds=1800)
    assert shown.count("  done in ") == 14
    assert (output / "report.html").is_file()
    assert f"Found image '{CPU_IMAGE}'" in (output / "log.txt").read_text(encoding="utf-8")
