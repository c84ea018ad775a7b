"""Models named by the hub, with a stand-in for it on this machine: what is refused at once."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.models.small_models import save_small
from tests.stand_ins.serving import serving

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import contextlib, io, json, sys
from huggingface_hub import snapshot_download
from cooper_rl.__main__ import main

for case in json.loads(sys.argv[1]):
    if case["is_cached"]:
        snapshot_download(case["model"])
    shown = io.StringIO()
    values = [f"models.{role}={json.dumps(case.get(role, case['model']))}" for role in ("policy", "backbone")]
    words = [word for value in ("models.tiny=null", *values) for word in ("--set", value)]
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(io.StringIO()):
        status = main(["prepare-models", "--preset", "laptop", *words, "--models", case["models"],
                       "--report", case["models"] + ".json"])
    print(json.dumps([status, shown.getvalue()]))
"""


class Hub:
    """Serves the folders below `root` as the hub serves models; each is `me/NAME`."""

    def __init__(self, root: Path) -> None:
        outer = self
        self.root = root

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self, has_body=True)

            def do_HEAD(self) -> None:
                outer.answer(self, has_body=False)

            def log_message(self, format: str, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler, *, has_body: bool) -> None:
        path = request.path.partition("?")[0]
        for name, status, code in (("gated", 403, "GatedRepo"), ("absent", 404, "RepoNotFound")):
            if f"me/{name}" in path:
                request.send_response(status)
                request.send_header("x-error-code", code)
                request.send_header("content-length", "0")
                request.end_headers()
                return
        content = self._find(path)
        request.send_response(404 if content is None else 200)
        if content is None:
            request.send_header("x-error-code", "EntryNotFound")
        request.send_header("x-repo-commit", "0" * 40)
        request.send_header("etag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
        request.send_header("content-length", str(len(content or b"")))
        request.end_headers()
        if has_body:
            request.wfile.write(content or b"")

    def _find(self, path: str) -> bytes | None:
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"] and parts[4:5] in ([], ["revision"]):
            folder = self.root / parts[3]
            files = [{"rfilename": file.name} for file in sorted(folder.iterdir())]
            return json.dumps({"id": f"me/{parts[3]}", "sha": "0" * 40, "siblings": files}).encode()
        if parts[:2] == ["api", "models"] and parts[4:5] == ["tree"]:
            files = [
                {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": file.name}
                for file in sorted((self.root / parts[3]).iterdir())
            ]
            return json.dumps(files if len(parts) == 6 else []).encode()
        if len(parts) == 5 and parts[2] == "resolve":
            file = self.root / parts[1] / parts[4]
            return file.read_bytes() if file.is_file() else None
        return None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small("qwen2", tmp_path_factory.mktemp("hub") / "whole")


@pytest.fixture(scope="module")
def hub(whole: Path) -> Iterator[Hub]:
    """Models whole, pickled, bare and torn (a file of its index is missing)."""
    root = whole.parent
    for name in ("pickled", "bare", "torn"):
        shutil.copytree(whole, root / name)
        (root / name / "model.safetensors").unlink()
    (root / "pickled" / "pytorch_model.bin").write_bytes(b"a pickle")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (root / "torn" / "model.safetensors.index.json").write_text(json.dumps(index))
    shutil.copy(whole / "model.safetensors", root / "torn" / "model-00001-of-00002.safetensors")
    hub = Hub(root)
    with serving(hub.server):
        yield hub


def prepare(url: str, home: Path, *cases: Mapping[str, object], **more: str) -> list[tuple[int, str]]:
    """Status and error of `prepare-models` for each case, in one process whose hub is at this address."""
    given = [
        {"is_cached": False, "models": str(home / f"models{place}"), **case}
        for place, case in enumerate(cases)
    ]
    variables = {"HF_ENDPOINT": url, "HF_HOME": str(home / "cache"), "HF_HUB_DISABLE_XET": "1"}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(given)],
        cwd=ROOT, env=kept | variables | more, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_weights_behind_a_hub_name_are_looked_at_and_not_fetched(
    hub: Hub, whole: Path, tmp_path: Path
) -> None:
    good, pickled, bare, torn = prepare(
        hub.url,
        tmp_path,
        {"model": "me/whole"},
        *({"model": f"me/{name}", "backbone": str(whole)} for name in ("pickled", "bare", "torn")),
    )
    assert good[0] == 0, good[1]
    assert [status for status, _ in (pickled, bare, torn)] == [2, 2, 2]
    assert "models.policy: me/pickled: its weights are pickled (pytorch_model.bin)" in pickled[1]
    assert "models.policy: me/bare: no weights on the hub, neither model.safetensors nor" in bare[1]
    assert "models.policy: me/torn: model-00002-of-00002.safetensors is missing on the hub" in torn[1]
    assert list((tmp_path / "cache").rglob("config.json"))
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_model_that_the_hub_does_not_give_is_refused_with_the_real_reason(
    hub: Hub, whole: Path, tmp_path: Path
) -> None:
    """The libraries say of both that the connection failed, or that they are no model's name."""
    gated, absent = prepare(
        hub.url, tmp_path, *({"model": f"me/{name}", "backbone": str(whole)} for name in ("gated", "absent"))
    )
    assert [gated[0], absent[0]] == [2, 2]
    assert "models.policy: me/gated: its owner lets in only who accepted its conditions; accept" in gated[1]
    assert "give your token (HF_TOKEN, or hf auth login), or give a folder" in gated[1]
    assert "models.policy: me/absent: the hub has no such repository, or shows it to nobody" in absent[1]
    assert "check owner/name, or give a token that may read it" in absent[1]


def test_a_proxy_between_this_machine_and_the_hub_is_named(tmp_path: Path) -> None:
    proxy = {"HTTP_PROXY": "http://user:pa55word@127.0.0.1:9", "NO_PROXY": "", "no_proxy": ""}
    [(status, said)] = prepare("http://hub.example", tmp_path, {"model": "me/whole"}, **proxy)
    assert status == 2
    assert "models.policy: me/whole: " in said
    assert "the proxy http://***@127.0.0.1:9 of HTTP_PROXY: if hub.example needs none, name it in NO" in said


@pytest.mark.slow
@pytest.mark.parametrize("how", ["unreachable", "forbidden"])
def test_without_the_hub_the_cache_will_do_where_it_has_the_weights(
    hub: Hub, whole: Path, tmp_path: Path, how: str
) -> None:
    """A hub that cannot be asked is an error only of a model that has to come from there, and asked once."""
    shutil.copytree(whole, hub.root / "fetched", dirs_exist_ok=True)
    first = prepare(hub.url, tmp_path, {"model": "me/fetched", "is_cached": True}, {"model": "me/whole"})
    assert [status for status, _ in first] == [0, 0], first
    more = {"HF_HUB_OFFLINE": "1"} if how == "forbidden" else {}
    visits: list[object] = []

    class Door(BaseHTTPRequestHandler):
        def handle(self) -> None:
            visits.append(self.client_address)  # and no answer

    with serving(HTTPServer(("127.0.0.1", 0), Door)) as url:
        cached, away = prepare(url, tmp_path, {"model": "me/fetched"}, {"model": "me/whole"}, **more)
    assert len(visits) == (0 if how == "forbidden" else 1)
    assert cached[0] == 0, cached[1]
    assert away[0] == 2
    why = "HF_HUB_OFFLINE=1 forbids to ask the hub" if how == "forbidden" else "the hub cannot be asked ("
    assert f"models.policy: me/whole: {why}" in away[1]
    assert (
        "has no weights of it; fetch it where the hub can be reached (hf download), or give a fold" in away[1]
    )
