"""`submit` with the real kfp.Client against a server that speaks KFP's REST API."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipelines.__main__ import main
from tests.stand_ins.kfp_api import Fault, KfpApi


def submit(api: KfpApi, *more: str) -> int:
    return main(["submit", "verify_rm", "--host", api.url, "--every-seconds", "0.01", *more])


def test_a_submitted_run_has_its_version_its_parameters_and_a_link(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(api, "--set", "seed=3", "--experiment", "mine") == 0
    shown = capsys.readouterr().out
    (run,) = api.runs.values()
    (version,) = api.versions.values()
    assert re.fullmatch(r"verify-rm-[0-9a-f]{12}", version["display_name"])
    assert run["pipeline_version_reference"] == {
        "pipeline_id": version["pipeline_id"],
        "pipeline_version_id": version["pipeline_version_id"],
    }
    assert run["runtime_config"]["parameters"] == {"preset": "paper", "overrides": ["seed=3"]}
    assert api.experiments[run["experiment_id"]]["display_name"] == "mine"
    assert f"{api.url}/#/runs/details/{run['run_id']}" in shown
    assert f"version {version['display_name']} (uploaded)" in shown


@pytest.mark.parametrize("place", ["me:pa55word@host/x.jsonl", "host/x.jsonl?sig=pa55word"])
def test_an_address_with_a_password_is_not_sent(
    api: KfpApi, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """Parameters stand in Kubeflow's database, on its pages and in the pods' logs."""
    assert submit(api, "--preset", "laptop", "--set", f'problems.sources=["https://{place}"]') == 2
    said = capsys.readouterr().err
    assert "holds a password or a signature, which Kubeflow keeps and shows" in said
    assert "use s3:// with storage.credentials, a secret's variable" in said
    assert "pa55word" not in said
    assert (api.runs, api.versions) == ({}, {})


def test_the_same_content_is_uploaded_once(api: KfpApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit(api) == submit(api) == 0
    assert (len(api.pipelines), len(api.versions), len(api.experiments), len(api.runs)) == (1, 1, 1, 2)
    assert "(there already)" in capsys.readouterr().out


def test_another_content_is_another_version_of_the_same_pipeline(api: KfpApi) -> None:
    assert submit(api) == submit(api, "--profile", "local", "--preset", "laptop") == 0
    assert (len(api.pipelines), len(api.versions)) == (1, 2)


def test_waiting_shows_the_tasks_and_ends_with_the_run(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.script = [
        look("RUNNING", ("Train VerifyRM", "RUNNING")),
        look("RUNNING", ("Train VerifyRM", "RUNNING")),
        look("SUCCEEDED", ("Train VerifyRM", "SUCCEEDED")),
    ]
    assert submit(api, "--wait") == 0
    lines = [line.split(maxsplit=1)[-1] for line in capsys.readouterr().out.splitlines()[-3:]]
    assert lines == ["Train VerifyRM  running", "Train VerifyRM  succeeded", "succeeded"]


def test_a_failed_run_shows_its_tasks_and_where_their_pods_messages_are(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and ids as KFP 2.17.0 gave them for a real run; it gives no error."""
    failed = look(
        "FAILED",
        ("root-driver(0)", "FAILED"),
        ("executor", "FAILED"),
        ("check-settings", "FAILED"),
        ("end-to-end-lzgz4", "FAILED"),
    )
    failed["run_details"]["task_details"][-1]["child_tasks"] = [{"pod_name": "end-to-end-lzgz4-3718220784"}]
    api.script = [failed]
    assert submit(api, "--wait") == 1
    shown = [line.split(maxsplit=1)[-1] for line in capsys.readouterr().out.splitlines()[-4:]]
    assert shown[:3] == ["check-settings  failed", "end-to-end-lzgz4  failed", "failed"]
    assert "--namespace kubeflow get events" in shown[3]
    assert shown[3].endswith("involvedObject.name=end-to-end-lzgz4")


@pytest.mark.parametrize("state", ["FAILED", "CANCELED"])
def test_a_run_that_does_not_succeed_is_an_exit_status(
    api: KfpApi, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    """kfp's own waiting never ends for a run that was cancelled."""
    api.script = [look(state) | {"error": {"code": 1, "message": "task failed"}}]
    assert submit(api, "--wait") == 1
    assert capsys.readouterr().out.endswith(f"run {state.lower()}: task failed\n")


def test_waiting_survives_a_server_that_fails_for_a_while(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.script = [look("SUCCEEDED")]
    api.faults = [Fault("GET", "/runs/", 503, times=3)]
    assert submit(api, "--wait") == 0
    assert "looking again (3 of 10)" in capsys.readouterr().out


def test_waiting_is_given_up_when_the_server_stays_away(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.faults = [Fault("GET", "/runs/", 503, times=99)]
    assert submit(api, "--wait") == 2
    assert "cannot look at run runs-" in capsys.readouterr().err
    assert api.faults[0].times == 99 - 10


def test_a_server_that_says_nothing_is_asked_once(api: KfpApi) -> None:
    """Four times the time-out would pass otherwise, since urllib3 repeats three times."""
    api.faults = [Fault("GET", "/healthz", 0, times=4)]
    assert submit(api, "--timeout-seconds", "0.3") == 2
    assert api.count("GET", "/healthz") == 1


def test_ctrl_c_while_waiting_says_that_the_run_goes_on(
    api: KfpApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.remote.submit.follow", interrupt)
    assert submit(api, "--wait") == 130
    said = capsys.readouterr()
    assert "/#/runs/details/" in said.out
    assert "interrupted; a run that has started goes on: look at the list of runs" in said.err


def test_a_token_that_expires_while_waiting_is_read_again(api: KfpApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    api.token = "first"
    api.script = [look("RUNNING"), look("SUCCEEDED")]
    api.faults = [Fault("GET", "/runs/", 401)]
    assert submit(api, "--token-file", str(token), "--wait") == 0


def test_a_refusal_while_waiting_without_a_token_is_survived(api: KfpApi) -> None:
    """A proxy that lets users in by other means has lost sight of this one."""
    api.script = [look("SUCCEEDED")]
    api.faults = [Fault("GET", "/runs/", 401)]
    assert submit(api, "--wait") == 0


def test_the_token_is_sent_and_never_shown(
    api: KfpApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    api.token = "very-secret"
    monkeypatch.setenv("KFP_TOKEN", "very-secret")
    assert submit(api) == 0
    monkeypatch.setenv("KFP_TOKEN", "wrong-secret")
    assert submit(api) == 2
    shown = capsys.readouterr()
    assert "secret" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("GET", "/healthz", 401), "cannot connect: 401, the token ($KFP_TOKEN) is not set"),
        (
            Fault("GET", "/healthz", 401, kind="text/plain", body="Jwt is expired"),
            "401, the token ($KFP_TOKEN) is not set: 'Jwt is expired'; get a new token",
        ),
        (
            Fault("GET", "/healthz", 401, kind="text/plain", body="Jwt issuer is not configured"),
            "401, the gateway refuses the cluster's tokens: 'Jwt issuer is not configured'; install",
        ),
        (
            Fault("GET", "/pipelines", 403, message="User 'me' is not authorized"),
            """pipelines: 403, access is denied: "User 'me' is not authorized"; get a new token""",
        ),
        (Fault("GET", "/pipelines", 404), "cannot list pipelines: 404, not found; check --host"),
        (
            Fault("POST", "/pipelines", 409, message="taken"),
            "cannot create pipeline 'verify-rm': 409, it exists",
        ),
        (Fault("POST", "/pipelines/upload_version", 500), "the server failed (500): 'injected'; try again"),
        (Fault("POST", "/runs", 503, message="busy"), "cannot start a run: the server failed (503): 'busy'"),
        (Fault("POST", "/runs", 400, message="bad spec"), "cannot start a run: 400: 'bad spec'"),
        (
            Fault("GET", "/healthz", 302, headers={"Location": "https://log.in/\x1b?state=secret"}),
            "cannot connect: 302, a redirect to https://log.in/\ufffd?***; give the address it leads to as",
        ),
        (
            Fault("POST", "/runs", 301, headers={"Location": "/apis/v2beta1/runs"}),
            "cannot start a run: 301, a redirect to /apis/v2beta1/runs",
        ),
        (
            Fault("GET", "/pipelines", 503, headers={"Retry-After": "3600"}),
            "cannot list pipelines: the server failed (503)",
        ),
        (
            Fault("GET", "/pipelines", 200, body="{", num_missing=9),
            "cannot list pipelines: the connection ended before the whole answer was there; check --host",
        ),
        (
            Fault("GET", "/pipelines", 200, body="no gzip at all", headers={"Content-Encoding": "gzip"}),
            "cannot list pipelines: its answer cannot be decompressed; check --host",
        ),
        (Fault("GET", "/pipelines", 400, body=99999 * "["), "cannot list pipelines: 400: '[[["),
        (
            Fault("GET", "/pipelines", 200, body='{"pipelines": 5}'),
            "cannot list pipelines: kfp cannot use the answer ('int' object is not iterable); check --host",
        ),
        (
            Fault("GET", "/experiments", 200, body='{"experiments": [{}, {}]}'),
            "cannot open experiment 'cooper-rl': kfp cannot use the answer (Multiple experiments is found",
        ),
        (
            Fault("GET", "/experiments", 200, body='{"experiments": [{"created_at": "x"}]}'),
            "cannot open experiment 'cooper-rl': 'Failed to parse `x` as datetime object'; check --host",
        ),
        (
            Fault("POST", "/runs", 200, body="{}"),
            "without run_id; check --host. The run may have started all",
        ),
        (Fault("POST", "/runs", 0), "cannot start a run: no answer in time; check --host"),
        (Fault("GET", "/healthz", 0, times=9), "cannot connect: no answer in time; check --host"),
    ],
)
def test_a_failure_of_the_server_is_one_sentence_with_its_remedy(
    api: KfpApi, capsys: pytest.CaptureFixture[str], fault: Fault, message: str
) -> None:
    api.faults = [fault]
    assert submit(api, "--timeout-seconds", "1") == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_a_run_whose_start_was_not_answered_is_looked_for_before_another(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.faults = [Fault("POST", "/runs", 500, is_late=True)]
    assert submit(api) == 2
    (run,) = api.runs.values()
    said = f"The run may have started all the same: look for '{run['display_name']}' on {api.url}/#/runs"
    assert said in capsys.readouterr().err
    api.faults = [Fault("POST", "/runs", 400)]
    assert submit(api) == 2
    assert "all the same" not in capsys.readouterr().err


def test_somebody_elses_upload_of_the_same_content_is_taken(api: KfpApi) -> None:
    """Two people submit at once: the version is there between our look and our upload."""
    api.faults = [Fault("POST", "/pipelines/upload_version", 409, is_late=True)]
    assert submit(api) == 0
    assert api.faults[0].times == 0
    (run,) = api.runs.values()
    assert [run["pipeline_version_reference"]["pipeline_version_id"]] == list(api.versions)


def test_an_experiment_that_somebody_else_makes_at_the_same_time_is_taken(api: KfpApi) -> None:
    api.faults = [Fault("POST", "/experiments", 409, is_late=True)]
    assert submit(api) == 0
    assert api.faults[0].times == 0
    (run,) = api.runs.values()
    assert [run["experiment_id"]] == list(api.experiments)


def test_an_experiment_that_cannot_be_made_is_an_error(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.faults = [Fault("POST", "/experiments", 409, times=9, message="archived")]
    assert submit(api) == 2
    assert "cannot open experiment 'cooper-rl': 409, it exists already" in capsys.readouterr().err


def test_what_others_wrote_of_a_run_does_not_steer_the_terminal(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names of tasks and messages of errors; and a name of a pod is no command for a shell."""
    failed = look("FAILED", ("Train\x1b[2J", "FAIL\x07ED"))
    failed["error"] = {"code": 1, "message": "no\nrun succeeded\x1b[31m"}
    failed["run_details"]["task_details"][0]["child_tasks"] = [{"pod_name": "a; reboot-1"}]
    api.script = [failed]
    assert submit(api, "--wait") == 1
    shown = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in shown)
    assert shown[-2].endswith("Train\ufffd[2J  fail\ufffded")
    assert shown[-1] == "run failed: no run succeeded\ufffd[31m"


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("http://", "is no address; write https://name or https://name:port"),
        ("http://a b", "is no address"),
        ("http://a\n", "is no address"),
        ("http://[::1", "is no address"),
        ("http://kfp:99999", "is no address"),
        ("http://kfp:port", "is no address"),
        ("https://kfp/#/pipelines", "leave out what begins with #, which is a page of the dashboard"),
        ("https://kfp/pipeline?ns=me", "leave out what begins with ?, which is a page of the dashboard"),
    ],
)
def test_an_address_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], host: str, message: str
) -> None:
    assert main(["submit", "verify_rm", "--host", host]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone.pem", "No such file or directory"),
        (".", "Is a directory"),
        ("junk.pem", "holds no certificates"),
    ],
)
def test_authorities_that_cannot_be_read_are_refused(
    api: KfpApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, message: str
) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    assert submit(api, "--ca-bundle", str(tmp_path / path)) == 2
    assert f"{tmp_path / path}: {message}; give a file of certificates (PEM)" in capsys.readouterr().err
    assert api.requests == []


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x1b[2J", 256 * "x"])
@pytest.mark.parametrize("option", ["--experiment", "--name"])
def test_a_name_that_cannot_be_kept_is_refused_before_anything_is_uploaded(
    api: KfpApi, capsys: pytest.CaptureFixture[str], option: str, name: str
) -> None:
    if option == "--name":
        arguments = ["schedule", "apply", "verify_rm", "--cron", "0 0 2 * * *", "--host", api.url]
        assert main([*arguments, option, name]) == 2
    else:
        assert submit(api, option, name) == 2
    assert f"{option} {name[:100]!r}: is no name; write 1 to 255 characters" in capsys.readouterr().err
    assert api.requests == []


@pytest.mark.parametrize("name", ["é☃", 'it\'s "quoted"', 255 * "x", "[[x]]"])
def test_any_other_name_is_that_of_the_experiment(api: KfpApi, name: str) -> None:
    assert submit(api, "--experiment", name) == submit(api, "--experiment", name) == 0
    (experiment,) = api.experiments.values()
    assert experiment["display_name"] == name


@pytest.mark.parametrize("value", ["a\nb", "é☃", 'it\'s "quoted"', "{{x}}"])
def test_a_setting_reaches_the_run_as_it_was_given(api: KfpApi, value: str) -> None:
    setting = f"models.policy={json.dumps(value)}"
    assert submit(api, "--set", setting) == 0
    (run,) = api.runs.values()
    assert run["runtime_config"]["parameters"]["overrides"] == [setting]


@pytest.mark.parametrize("name", ["My NS", "a_b", 64 * "a"])
def test_a_namespace_that_cannot_be_is_refused(
    api: KfpApi, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert submit(api, "--namespace", name) == 2
    compiling = ["compile", "--pipeline", "verify_rm", "--output", str(tmp_path / "out"), "--manifests"]
    assert main([*compiling, "--namespace", name]) == 2
    said = capsys.readouterr().err
    assert said.count(f"--namespace {name!r}: is no name of a namespace: use at most 63 of a-z, 0-9 and") == 2
    assert api.requests == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["submit", "verify_rm"],
            "no server: give --host, the dashboard's address, or set $KF_PIPELINES_END",
        ),
        (
            ["submit", "verify_rm", "--host", "kfp.example"],
            "--host 'kfp.example': write it with http:// or https://",
        ),
        (
            ["submit", "verify_rm", "--host", "http://127.0.0.1:1"],
            "cannot connect: Connection refused; check --host",
        ),
        (
            ["submit", "verify_rm", "--set", "cooper.stepz=1", "--host", "http://x"],
            "cooper.stepz: unknown key",
        ),
        (
            ["submit", "verify_rm", "--host", "http://x", "--token-file", "/gone"],
            "--token-file /gone: No such file",
        ),
        (
            ["submit", "retrain", "--param", "run_key=a", "--set", "registry.uri=null", "--host", "http://x"],
            "registry.uri is not set",
        ),
    ],
)
def test_an_error_of_use_is_one_sentence(
    api: KfpApi, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_an_empty_token_file_is_refused(
    api: KfpApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("\n")
    assert submit(api, "--token-file", str(tmp_path / "token")) == 2
    assert "is empty; write the bearer token into it" in capsys.readouterr().err


def test_a_token_with_a_line_break_is_refused_and_not_shown(
    api: KfpApi, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KFP_TOKEN", "very\nsecret")
    assert submit(api) == 2
    assert capsys.readouterr().err == "error: $KFP_TOKEN: is no bearer token; write it in one line\n"


@pytest.mark.parametrize("option", ["--timeout-seconds", "--every-seconds"])
@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e300", "86401"])
def test_a_time_is_above_zero_and_no_more_than_a_day(
    api: KfpApi, capsys: pytest.CaptureFixture[str], option: str, seconds: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        submit(api, f"{option}={seconds}")
    assert f"{seconds} is no time; give seconds above 0" in capsys.readouterr().err


def look(state: str, *tasks: tuple[str, str]) -> dict[str, Any]:
    details = [{"display_name": name, "state": task_state} for name, task_state in tasks]
    return {"state": state, "run_details": {"task_details": details}}


@pytest.mark.parametrize("parameter", ["preset=nonsense", "overrides=cooper.steps=2"])
def test_a_parameter_with_an_option_of_its_own_is_refused(
    api: KfpApi, capsys: pytest.CaptureFixture[str], parameter: str
) -> None:
    assert submit(api, "--param", parameter) == 2
    name = parameter.partition("=")[0]
    assert f"--param {name}: give it as --" in capsys.readouterr().err
    assert not api.runs


def test_an_address_with_a_password_is_refused_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["submit", "verify_rm", "--host", "https://me:hunter2@kfp.example"]) == 2
    said = capsys.readouterr().err
    assert "must be an address without user or password" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("GET", "/healthz", "null", "with 'null'; check --host"),
        ("GET", "/pipelines", "<html>log in</html>", "with '<html>log in</html>'; check --host"),
        ("GET", "/pipelines", "[]", r"with '\[\]'; check --host"),
        ("POST", "/pipelines", "{}", "without pipeline_id; check --host"),
        ("POST", "/pipelines/upload_version", "{}", "without pipeline_version_id; check --host"),
        ("POST", "/experiments", "{}", "without experiment_id; check --host"),
        ("POST", "/runs", "{}", "without run_id; check --host"),
    ],
)
def test_an_answer_of_another_server_is_no_success(
    api: KfpApi, capsys: pytest.CaptureFixture[str], method: str, path: str, body: str, message: str
) -> None:
    api.faults = [Fault(method, path, 200, body=body)]
    assert submit(api) == 2
    assert re.search(f"answers as no KFP API server does, {message}", capsys.readouterr().err)
    assert not api.runs


def test_what_the_server_says_does_not_steer_the_terminal(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.faults = [Fault("GET", "/pipelines", 500, message="no\x1b[31m")]
    assert submit(api) == 2
    assert r"the server failed (500): 'no\x1b[31m'; try again" in capsys.readouterr().err
