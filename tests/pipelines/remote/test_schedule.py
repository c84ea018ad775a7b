"""`schedule` with the real kfp.Client against a server that speaks KFP's REST API."""

import re

import pytest

from pipelines.__main__ import main
from pipelines.remote import schedule as remote_schedule
from tests.stand_ins.kfp_api import Fault, KfpApi, time_of

NIGHTLY = ["--cron", "0 0 2 * * *"]


def schedule(api: KfpApi, action: str, *more: str) -> int:
    return main(["schedule", action, *more, "--host", api.url])


def test_a_schedule_is_made_once_and_said_in_words(api: KfpApi, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert schedule(api, "apply", "end_to_end", *NIGHTLY, "--max-concurrency", "2") == 0
    (run,) = api.recurring.values()
    assert run["trigger"] == {"cron_schedule": {"cron": "0 0 2 * * *"}}
    assert (run["max_concurrency"], run["no_catchup"], run["mode"]) == ("2", True, "ENABLE")
    assert "run_key" not in run["runtime_config"]["parameters"]
    shown = capsys.readouterr().out
    assert "end-to-end: created\n" in shown
    assert "end-to-end: unchanged\n" in shown
    assert re.search(r"At 02:00 \(UTC\)\n  next: \w{3} \d{4}-\d\d-\d\d 02:00:00, \w{3} ", shown)
    assert api.count("POST", "/recurringruns") == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (["--cron", "0 0 3 * * *"], "time changed"),
        ([*NIGHTLY, "--profile", "local", "--preset", "paper"], "pipeline changed"),
        ([*NIGHTLY, "--set", "seed=1"], "parameters changed"),
        ([*NIGHTLY, "--max-concurrency", "3"], "concurrency changed"),
        ([*NIGHTLY, "--experiment", "nights"], "experiment changed"),
    ],
)
def test_a_schedule_is_made_again_when_something_changed(
    api: KfpApi, capsys: pytest.CaptureFixture[str], change: list[str], reason: str
) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (before,) = api.recurring
    assert schedule(api, "apply", "verify_rm", *change) == 0
    (after,) = api.recurring
    assert before != after
    assert f"verify-rm: created again ({reason}" in capsys.readouterr().out


@pytest.mark.parametrize("status", [500, 404], ids=["no object", "an object with another UID"])
def test_a_schedule_whose_object_the_cluster_lost_is_made_again(
    api: KfpApi, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """As after a restore of Kubeflow's database on another cluster: it is listed, and starts no run."""
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (before,) = api.recurring
    api.lost[before] = status
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (after,) = api.recurring
    assert before != after
    assert "verify-rm: created again (the cluster has lost it)\n" in capsys.readouterr().out


def test_a_schedule_whose_object_the_cluster_lost_can_be_deleted(api: KfpApi) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    api.lost = dict.fromkeys(api.recurring, 500)
    assert schedule(api, "delete", "verify-rm") == 0
    assert api.recurring == {}


def test_another_failure_of_the_server_is_no_lost_schedule(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (made,) = api.recurring
    api.faults = [Fault("POST", f"/recurringruns/{made}:enable", 500)]
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 2
    assert "cannot resume schedule 'verify-rm': the server failed (500)" in capsys.readouterr().err
    assert list(api.recurring) == [made]


def test_a_schedule_that_cannot_be_made_again_stays_as_it_was(api: KfpApi) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    before = dict(api.recurring)
    api.faults = [Fault("POST", "/recurringruns", 500)]
    assert schedule(api, "apply", "verify_rm", "--cron", "0 0 3 * * *") == 2
    assert api.recurring == before


def test_a_schedule_can_be_paused_resumed_listed_and_deleted(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    assert schedule(api, "pause", "verify-rm") == 0
    assert [run["mode"] for run in api.recurring.values()] == ["DISABLE"]
    assert schedule(api, "list") == 0
    assert "verify-rm: paused, version version-" in capsys.readouterr().out
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    assert [run["mode"] for run in api.recurring.values()] == ["ENABLE"]
    assert "verify-rm: resumed" in capsys.readouterr().out
    assert schedule(api, "delete", "verify-rm") == 0
    assert schedule(api, "list") == 0
    assert "no schedules" in capsys.readouterr().out


def test_a_schedule_waits_for_its_run_before_it_is_deleted(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a real server the run's workflow belongs to the schedule, and would end with it."""
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (first,) = api.recurring
    api.runs["run-7"] = {"run_id": "run-7", "recurring_run_id": first, "state": "RUNNING"}
    assert schedule(api, "delete", "verify-rm") == 2
    assert (
        "its run run-7 is in progress and would end with it; the schedule is paused"
        in capsys.readouterr().err
    )
    assert [run["mode"] for run in api.recurring.values()] == ["DISABLE"]
    changed = ("apply", "verify_rm", *NIGHTLY, "--set", "seed=3")
    assert schedule(api, *changed) == 2
    assert len(api.recurring) == 2
    api.runs["run-7"]["state"] = "SUCCEEDED"
    assert schedule(api, *changed) == 0
    assert first not in api.recurring
    assert len(api.recurring) == 1


def test_a_run_in_progress_is_found_behind_however_many_newer_ones(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training of days in an experiment that others use too."""
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (made,) = api.recurring
    for number in range(250):
        api.runs[f"other-{number}"] = {"run_id": f"other-{number}", "state": "SUCCEEDED"}
    api.runs["long"] = {"run_id": "long", "recurring_run_id": made, "state": "RUNNING"}
    assert schedule(api, "delete", "verify-rm") == 2
    assert "its run long is in progress" in capsys.readouterr().err
    assert list(api.recurring) == [made]


@pytest.mark.parametrize("state", ["RUNNING", "SUCCEEDED"])
def test_a_schedule_whose_experiment_was_deleted_can_be_deleted_too(
    api: KfpApi, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    """A real server for many users lists no runs of it, and keeps the runs."""
    api.namespace = "team"
    mine = ("--namespace", "team")
    assert schedule(api, "apply", "verify_rm", *NIGHTLY, *mine) == 0
    (made,) = api.recurring
    api.runs["run-7"] = {"run_id": "run-7", "recurring_run_id": made, "state": state}
    api.experiments.clear()
    code = schedule(api, "delete", "verify-rm", *mine)
    assert (code, list(api.recurring)) == ((2, [made]) if state == "RUNNING" else (0, []))
    assert ("its run run-7 is in progress" in capsys.readouterr().err) == (state == "RUNNING")


def test_a_schedule_with_an_interval_is_listed_as_what_it_is(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the dashboard makes them."""
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (run,) = api.recurring.values()
    run["trigger"] = {"periodic_schedule": {"interval_second": "3600"}}
    capsys.readouterr()
    assert schedule(api, "list") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  every 3600 s"]


def test_a_schedule_on_a_later_page_is_found(api: KfpApi) -> None:
    api.page_size = 1
    for name in ("one", "two", "three"):
        assert schedule(api, "apply", "verify_rm", *NIGHTLY, "--name", name) == 0
    assert schedule(api, "delete", "three") == 0
    assert [run["display_name"] for run in api.recurring.values()] == ["one", "two"]


def test_several_schedules_of_one_name_become_one(api: KfpApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (run,) = api.recurring.values()
    api.recurring["copy"] = run | {"recurring_run_id": "copy"}
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    assert list(api.recurring) == [run["recurring_run_id"]]
    assert "verify-rm: unchanged\nverify-rm: 1 more of this name deleted\n" in capsys.readouterr().out


@pytest.mark.parametrize("number", [0, 99], ids=["theirs is older", "theirs is newer"])
@pytest.mark.parametrize("cron", ["0 0 2 * * *", "0 0 5 * * *"], ids=["the same", "another"])
def test_of_two_people_who_apply_a_schedule_at_once_one_schedule_is_left(
    api: KfpApi, capsys: pytest.CaptureFixture[str], cron: str, number: int
) -> None:
    """Each has looked before the other one made theirs."""

    def make_theirs() -> None:
        ((mine, run),) = api.recurring.items()
        trigger = {"cron_schedule": {"cron": cron}}
        theirs = {"recurring_run_id": "theirs", "trigger": trigger, "created_at": time_of(number)}
        api.recurring |= {"theirs": run | theirs}
        made.append(mine)

    def somebody_makes_theirs() -> None:
        api.meanwhile.append(("GET", "/recurringruns", make_theirs))

    made: list[str] = []
    api.meanwhile.append(("POST", "/recurringruns", somebody_makes_theirs))
    code = schedule(api, "apply", "verify_rm", *NIGHTLY)
    said = capsys.readouterr()
    assert list(api.recurring) == (["theirs"] if number == 99 else made)
    assert code == (2 if number == 99 and cron != NIGHTLY[1] else 0)
    if number == 0:
        assert "verify-rm: created\n" in said.out
    elif code == 0:
        assert "verify-rm: somebody else made the same one at the same time, which stays\n" in said.out
    else:
        assert (
            "somebody else made another schedule 'verify-rm' at the same time, and the newer one" in said.err
        )
        assert "which is theirs (time changed); give the command again to replace it" in said.err
        api.num_made = number
        assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
        assert [run["trigger"] for run in api.recurring.values()] == [{"cron_schedule": {"cron": NIGHTLY[1]}}]


def test_a_schedule_that_was_applied_in_the_same_second_is_replaced(
    api: KfpApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the ids decide which one counts as newer: here that of the old one."""
    monkeypatch.setattr(remote_schedule, "TICK_SECONDS", 0.0)
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (before,) = api.recurring
    made, api.num_made = api.num_made, 99
    assert before > "recurringruns-100"
    api.clock = lambda number: made if number == 100 else number
    assert schedule(api, "apply", "verify_rm", "--cron", "0 0 3 * * *") == 0
    assert [run["trigger"] for run in api.recurring.values()] == [{"cron_schedule": {"cron": "0 0 3 * * *"}}]
    assert "verify-rm: created again (time changed)" in capsys.readouterr().out
    assert api.count("POST", "/recurringruns") == 3
    assert before not in api.recurring


def test_a_clock_that_was_set_back_is_named(
    api: KfpApi, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_schedule, "TICK_SECONDS", 0.0)
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (before,) = api.recurring
    api.clock = lambda number: -3600
    assert schedule(api, "apply", "verify_rm", "--cron", "0 0 3 * * *") == 2
    assert "clock, which may have been set back, the old one is newer" in capsys.readouterr().err
    assert list(api.recurring) == [before]


def test_a_schedule_that_somebody_deletes_as_it_is_made_is_an_error(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    delete_all = ("GET", "/recurringruns", api.recurring.clear)
    api.meanwhile.append(("POST", "/recurringruns", lambda: api.meanwhile.append(delete_all)))
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 2
    assert "somebody deleted schedule 'verify-rm' as it was made" in capsys.readouterr().err


@pytest.mark.parametrize("number", [0, 99])
def test_what_others_wrote_does_not_steer_the_terminal(
    api: KfpApi, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (run,) = api.recurring.values()
    run["display_name"] = "night\x1b]0;owned\x07\nly: active\u202e"
    run["trigger"] = [
        {"cron_schedule": {"cron": "\x1b[2J"}},
        {"periodic_schedule": {"interval_second": "\x1b"}},
    ][number % 2]
    capsys.readouterr()
    assert schedule(api, "list") == 0
    assert schedule(api, "delete", "gone") == 2
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert all(line.isprintable() for line in text.splitlines())
        assert "night\ufffd]0;owned\ufffd ly: active\ufffd" in text


@pytest.mark.parametrize(
    "fault",
    [Fault("POST", "/recurringruns", 500, is_late=True), Fault("DELETE", "/recurringruns/", 403)],
    ids=["answer to the new one lost", "old one not deleted"],
)
def test_a_schedule_that_was_made_again_and_half_failed_is_not_made_a_third_time(
    api: KfpApi, capsys: pytest.CaptureFixture[str], fault: Fault
) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    api.faults = [fault]
    changed = ["apply", "verify_rm", "--cron", "0 0 3 * * *"]
    assert schedule(api, *changed) == 2
    _, made = api.recurring
    if fault.method == "DELETE":
        assert (
            "cannot delete the old schedule 'verify-rm', which stays beside the right one: 403"
            in capsys.readouterr().err
        )
    assert schedule(api, *changed) == 0
    assert list(api.recurring) == [made]


def test_a_schedule_stays_where_the_new_one_was_not_made(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    before = dict(api.recurring)
    api.faults = [Fault("POST", "/recurringruns", 200, body="{}")]
    assert schedule(api, "apply", "verify_rm", "--cron", "0 0 3 * * *") == 2
    assert "answers as no KFP API server does, without recurring_run_id" in capsys.readouterr().err
    assert api.recurring == before


@pytest.mark.parametrize(
    "arguments", [["delete", "verify-rm"], ["apply", "verify_rm", "--cron", "0 0 3 * * *"]]
)
def test_a_schedule_that_somebody_else_deleted_meanwhile_is_no_error(
    api: KfpApi, arguments: list[str]
) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (before,) = api.recurring
    api.recurring["copy"] = api.recurring[before] | {"recurring_run_id": "copy"}
    api.faults = [Fault("DELETE", "/recurringruns/", 404, is_late=True)]
    assert schedule(api, *arguments) == 0
    assert api.faults[0].times == 0
    assert not {before, "copy"} & set(api.recurring)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["delete", "nightly"], "no schedule 'nightly'; there are: none"),
        (["apply", "verify_rm", "--cron", "0 2 * * *"], "has five fields"),
        (["apply", "verify_rm", *NIGHTLY, "--max-concurrency", "11"], "--max-concurrency 11: choose 1 to 10"),
        (
            ["apply", "end_to_end", *NIGHTLY, "--param", "run_key=nightly"],
            "--param run_key: every run of a schedule would go on with the checkpoints of the first",
        ),
        (
            ["apply", "end_to_end", *NIGHTLY, "--set", 'storage={ run_key = "nightly" }'],
            'storage={ run_key = "nightly" }: every run of a schedule would go on with the checkpoints',
        ),
        (
            ["apply", "end_to_end", *NIGHTLY, "--set", "storage.run_key=nightly"],
            "storage.run_key=nightly: every run of a schedule would go on with the checkpoints of the first",
        ),
        (
            ["apply", "end_to_end", *NIGHTLY, "--preset", "labtop"],
            "unknown preset 'labtop'; did you mean 'laptop'?",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(
    api: KfpApi, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert schedule(api, *arguments) == 2
    assert message in capsys.readouterr().err
    assert api.recurring == {}


def test_a_server_that_gives_the_same_page_again_is_not_asked_for_ever(
    api: KfpApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.faults = [
        Fault("GET", "/recurringruns", 200, times=99, body='{"recurringRuns": [], "next_page_token": "7"}')
    ]
    assert schedule(api, "list") == 2
    assert "cannot list schedules: gives the same page again; check --host" in capsys.readouterr().err


def test_a_schedule_with_an_odd_number_is_made_again(api: KfpApi) -> None:
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    (run,) = api.recurring.values()
    run["max_concurrency"] = "many"
    assert schedule(api, "apply", "verify_rm", *NIGHTLY) == 0
    assert [run["max_concurrency"] for run in api.recurring.values()] == ["1"]


def test_a_page_to_log_in_is_no_success(api: KfpApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.faults = [Fault("GET", "/recurringruns", 200, kind="text/html; charset=utf-8")]
    assert schedule(api, "list") == 2
    assert "answers with a web page, perhaps to log in; check --host" in capsys.readouterr().err
