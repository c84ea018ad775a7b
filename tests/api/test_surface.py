"""The public API: which names there are, what importing them costs, and that their examples are true."""

import doctest
import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module

import pytest

import cooper_rl
from cooper_rl import save_verify_rm
from tests.stand_ins.serving import serving

SURFACE = {
    "AnswerCheck",
    "AnswerPolicy",
    "CooperConfig",
    "CooperError",
    "CooperReward",
    "Labelled",
    "LabelingConfig",
    "PreferencePair",
    "RewardClient",
    "RuleConfig",
    "RuleVerifier",
    "VerifyExample",
    "VerifyItem",
    "VerifyRM",
    "VerifyRMConfig",
    "label",
    "load_verify_rm",
    "save_verify_rm",
    "train_verify_rm",
    "verify",
    "verify_many",
}
HEAVY = "{'torch', 'transformers', 'numpy', 'sympy', 'pyarrow', 'httpx', 'pydantic', 'datasets'}"


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_surface_is_the_pinned_one_and_every_name_can_be_imported() -> None:
    assert set(cooper_rl.__all__) == SURFACE
    assert dir(cooper_rl) == sorted(SURFACE)
    for name in SURFACE:
        found = getattr(cooper_rl, name)
        assert found.__doc__, name
        assert found.__module__.startswith("cooper_rl."), name


def test_importing_the_package_loads_no_library() -> None:
    assert run(f"import sys, cooper_rl; print(sorted({HEAVY} & set(sys.modules)))") == "[]\n"


def test_verdicts_load_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from cooper_rl import label, verify\n"
        "verify('1', '#### 1'); label([('q', '1', '#### 2')])\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert run(code) == "[]\n"


def test_importing_takes_under_three_tenths_of_a_second() -> None:
    """CPU time, which does not depend on what else the machine does; the interpreter's own is taken off."""
    code = "import time; start = time.process_time(); import cooper_rl; print(time.process_time() - start)"
    assert min(float(run(code)) for _ in range(3)) < 0.3


def test_an_unknown_name_is_told_with_those_that_are_public() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'verfy'; public are AnswerCheck, .*verify_many"):
        _ = cooper_rl.verfy  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "name",
    [
        "",
        *(f".api.{name}" for name in ("verify", "labels", "models", "reward")),
        *(".models.verify_rm", ".schema.data", ".verdicts.rule"),
    ],
)
def test_the_examples_in_docstrings_are_true(name: str, make_verify_rm, tmp_path, monkeypatch) -> None:
    """They run in a folder with a VerifyRM."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(import_module(f"cooper_rl{name}"))
    assert found.failed == 0
    assert found.attempted >= 1


@pytest.mark.parametrize("name", ["RewardClient", "RuleVerifier", "VerifyExample", "VerifyItem", "VerifyRM"])
def test_every_class_that_is_called_has_an_example(name: str) -> None:
    assert ">>> " in (getattr(cooper_rl, name).__doc__ or "")


@pytest.mark.parametrize(
    "name", ["label", "load_verify_rm", "save_verify_rm", "train_verify_rm", "verify", "verify_many"]
)
def test_every_function_has_an_example_and_tells_its_errors(name: str) -> None:
    text = getattr(cooper_rl, name).__doc__ or ""
    assert ">>> " in text
    assert "Raises:" in text


def test_the_example_of_the_client_is_true() -> None:
    """Against a stand-in for the server, which may listen on any port."""

    class Rewards(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps(
                {"rewards": [0.5 for _ in asked["items"]], "request_id": asked["request_id"]}
            ).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Rewards)
    text = (cooper_rl.RewardClient.__doc__ or "").replace(":8080", f":{server.server_port}")
    names = {"RewardClient": cooper_rl.RewardClient}
    test = doctest.DocTestParser().get_doctest(text, names, "RewardClient", None, None)
    with serving(server):
        found = doctest.DocTestRunner().run(test, clear_globs=False)
    assert (found.failed, found.attempted) == (0, 2)
    assert test.globs["rewards"] == [0.5, 0.5]
