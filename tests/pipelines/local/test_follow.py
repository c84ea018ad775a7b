"""What a person sees of a run, from lines as kfp.local prints them behind the names of their tasks."""

import io
import re

import pytest

from pipelines.local import follow as module
from pipelines.local.follow import Follower
from pipelines.local.lines import NamedLines, lines_named

EXECUTOR = "[KFP Executor 2026-11-21 03:18:41,637 INFO]: "


class Terminal(io.StringIO):
    """A screen that can move its cursor."""

    def isatty(self) -> bool:
        return True


def follow(lines: str, *, num_tasks: int = 12, screen: io.StringIO | None = None) -> Follower:
    follower = Follower(num_tasks, io.StringIO() if screen is None else screen)
    for line in io.StringIO(lines):
        follower.read(line)
    return follower


def of(task: str, lines: str) -> str:
    """Lines behind the name of their task, as the worker writes them: kfp.local's own begin with the time."""
    screen = io.StringIO()
    log, output = NamedLines(screen, is_log=True), NamedLines(screen)
    with lines_named(task):
        for line in lines.splitlines(keepends=True):
            (log if re.match(r"\d\d:\d\d:\d\d - ", line) else output).write(line)
    return screen.getvalue()


def test_a_stage_shows_its_place_its_progress_and_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES_IN_A_FILE", 0.0)
    screen = io.StringIO()
    follow(
        of(
            "train-cooper-2",
            "03:18:41 - INFO - Executing task \x1b[96m'train-cooper-2'\x1b[0m\n"
            "03:18:41 - INFO - Streamed logs:\n\n"
            f"{EXECUTOR}Looking for component `train_cooper` in --component_module_path `/tmp/x.py`\n"
            f"{EXECUTOR}train_cooper 12/20 reward=0.61 eta 0:18\n"
            f"{EXECUTOR}train_cooper rollouts 3/3 eta 0:00\n"
            f"{EXECUTOR}rule_verifier 8/8 eta 0:00\n"
            f"{EXECUTOR}step=3 phase=policy_update loss=0.412\n"
            "03:18:42 - INFO - Task \x1b[96m'train-cooper-2'\x1b[0m finished "
            "with status \x1b[92mSUCCESS\x1b[0m\n",
        ),
        screen=screen,
    )
    assert screen.getvalue().splitlines() == [
        "[ 1/12] train-cooper-2  12/20 reward=0.61 eta 0:18",
        "[ 1/12] train-cooper-2  rollouts 3/3 eta 0:00",
        "[ 1/12] train-cooper-2  rule_verifier 8/8 eta 0:00",
        "[ 1/12] train-cooper-2  done in 0:00",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "03:18:42 - INFO - Task 'report' finished with status SUCCESS",
        "03:18:42 - ERROR - Task 'report' finished with status FAILURE",
        "03:18:41 - INFO - Executing task 'train-cooper'",
        "03:18:41 - INFO - Task report cache hit (key=0011aabbccdd); skipping execution.",
        "train-cooper > 03:18:41 - INFO - Executing task 'train-cooper'",
        "report > 03:18:41 - INFO - Task 'report' finished with status SUCCESS",
    ],
)
def test_a_text_that_a_stage_prints_starts_and_ends_no_stage(text: str) -> None:
    """A completion or the name of a file may be any text, and a stage that is killed leaves half a line."""
    screen, shown = io.StringIO(), io.StringIO()
    log, output = NamedLines(screen, is_log=True), NamedLines(screen)
    with lines_named("report"):
        log.write("03:18:41 - INFO - Executing task 'report'\n")
        output.write(f"{text}\n{EXECUTOR}{text}\n{text}")
        log.write("03:18:42 - INFO - Task 'report' finished with status SUCCESS\n")
    follower = follow(screen.getvalue(), screen=shown)
    assert shown.getvalue() == "[ 1/12] report  done in 0:00\n"
    assert (follower.num_started, follower.num_cached, follower.failed_task) == (1, 0, None)


def test_no_control_character_of_a_stage_reaches_the_terminal() -> None:
    screen = Terminal()
    follower = follow(
        of(
            "report",
            "03:18:41 - INFO - Executing task 'report'\n"
            "[KFP Executor 2026-11-21 03:18:41,637 WARNING]: a\x1b]0;title\x07\x1b[2Jb\x9b1Ac\u202ed\n"
            "Traceback (most recent call last):\n"
            '  File "/x.py", line 1, in report\n'
            "ValueError: e\x1b[2J\tf\n"
            "03:18:42 - ERROR - Task 'report' finished with status FAILURE\n",
        ),
        num_tasks=1,
        screen=screen,
    )
    assert "report  warning: a\ufffd]0;title\ufffd\ufffd[2Jb\ufffd1Ac\ufffdd\n" in screen.getvalue()
    assert follower.error == "ValueError: e\ufffd[2J      f"


def test_a_file_gets_a_line_of_progress_now_and_then() -> None:
    screen = io.StringIO()
    steps = "".join(f"{EXECUTOR}report {step}/9 eta 0:0{9 - step}\n" for step in range(10))
    follow(of("report", f"03:18:41 - INFO - Executing task 'report'\n{steps}"), screen=screen)
    assert screen.getvalue() == "[ 1/12] report  0/9 eta 0:09\n"


def test_a_terminal_keeps_one_line_of_progress_for_each_stage() -> None:
    screen = Terminal()
    follow(
        of(
            "report",
            "03:18:41 - INFO - Executing task 'report'\n"
            f"{EXECUTOR}report 1/2 eta 0:01\n"
            "03:18:42 - INFO - Task 'report' finished with status SUCCESS\n",
        ),
        num_tasks=1,
        screen=screen,
    )
    assert screen.getvalue() == (
        "[1/1] report  ...\r\x1b[J[1/1] report  1/2 eta 0:01\r\x1b[J[1/1] report  done in 0:00\n"
    )


def test_stages_that_run_at_once_each_have_a_line_below_those_that_are_done() -> None:
    """Two lines of progress are taken off a terminal by going up one line and erasing what is below."""
    screen = Terminal()
    follow(
        of("train-cooper", "03:18:41 - INFO - Executing task 'train-cooper'\n")
        + of("train-cooper-2", "03:18:41 - INFO - Executing task 'train-cooper-2'\n")
        + of("train-cooper", f"{EXECUTOR}train_cooper 1/60 eta 1:10\n")
        + of("train-cooper-2", "03:18:42 - INFO - Task 'train-cooper-2' finished with status SUCCESS\n"),
        num_tasks=2,
        screen=screen,
    )
    assert screen.getvalue() == (
        "[1/2] train-cooper  ..."
        "\r\x1b[J[1/2] train-cooper  ...\n[2/2] train-cooper-2  ..."
        "\x1b[1A\r\x1b[J[1/2] train-cooper  1/60 eta 1:10\n[2/2] train-cooper-2  ..."
        "\x1b[1A\r\x1b[J[2/2] train-cooper-2  done in 0:00\n[1/2] train-cooper  1/60 eta 1:10"
    )


def test_a_stage_that_kfp_took_from_its_cache_is_counted() -> None:
    screen = io.StringIO()
    follower = follow(
        of(
            "collect-problems",
            "03:18:41 - INFO - Task collect-problems cache hit (key=0011aabbccdd); skipping execution.\n",
        ),
        screen=screen,
    )
    assert screen.getvalue() == "[ 1/12] collect-problems  kept from an earlier start\n"
    assert follower.num_cached == 1


def test_of_many_warnings_the_first_three_are_shown() -> None:
    screen = io.StringIO()
    rows = (f"[KFP Executor 2026-11-21 03:18:41,637 WARNING]: set aside: row {row}\n" for row in range(9))
    follow(
        of("collect-problems", "03:18:41 - INFO - Executing task 'collect-problems'\n" + "".join(rows)),
        screen=screen,
    )
    assert screen.getvalue().splitlines() == [
        "[ 1/12] collect-problems  warning: set aside: row 0",
        "[ 1/12] collect-problems  warning: set aside: row 1",
        "[ 1/12] collect-problems  warning: set aside: row 2",
        "[ 1/12] collect-problems  more warnings: see the log",
    ]


def test_our_own_warnings_are_shown() -> None:
    screen = io.StringIO()
    follow(
        of(
            "report",
            "03:18:41 - INFO - Executing task 'report'\n"
            "/src/cooper_rl/stages/report.py:10: CooperWarning: reward rises, accuracy does not\n",
        ),
        screen=screen,
    )
    assert screen.getvalue() == "[ 1/12] report  warning: reward rises, accuracy does not\n"


def test_a_failure_keeps_our_message_and_nothing_of_the_traceback_or_of_a_stage_beside_it() -> None:
    follower = follow(
        of("label-completions", "03:18:41 - INFO - Executing task 'label-completions'\n")
        + of("red-team", "03:18:41 - INFO - Executing task 'red-team'\n")
        + of(
            "label-completions",
            "Traceback (most recent call last):\n"
            '  File "/x.py", line 1, in label_completions\n'
            "    raise ValueError\n"
            "ValueError: inner\n"
            "\n"
            "The above exception was the direct cause of the following exception:\n"
            "\n"
            "Traceback (most recent call last):\n"
            '  File "/y.py", line 2, in run\n'
            "cooper_rl.errors.ConfigError: preset 'laptop' is not a valid configuration:\n",
        )
        + of("red-team", "a line of another stage\n")
        + of(
            "label-completions",
            "  cooper.stepz: unknown key; did you mean 'steps'?\n"
            "\n"
            "03:18:42 - ERROR - Task 'label-completions' finished with status FAILURE\n",
        )
        + "Traceback (most recent call last):\n"
        "RuntimeError: Pipeline 'end-to-end' finished with status FAILURE.\n"
    )
    assert follower.failed_task == "label-completions"
    assert follower.error == (
        "preset 'laptop' is not a valid configuration:\n  cooper.stepz: unknown key; did you mean 'steps'?"
    )


def test_an_unexpected_error_keeps_the_name_of_its_class() -> None:
    follower = follow(
        of(
            "report",
            "03:18:41 - INFO - Executing task 'report'\n"
            "Traceback (most recent call last):\n"
            '  File "/x.py", line 1, in report\n'
            "KeyError: 'loss'\n"
            "03:18:42 - ERROR - Task 'report' finished with status FAILURE\n",
        )
    )
    assert follower.error == "KeyError: 'loss'"


def test_a_traceback_in_colours_is_read_too() -> None:
    """As Python 3.13 writes it where `FORCE_COLOR` is set."""
    follower = follow(
        "Traceback (most recent call last):\n"
        '  File \x1b[35m"<string>"\x1b[0m, line \x1b[35m1\x1b[0m, in \x1b[35m<module>\x1b[0m\n'
        "\x1b[1;35mcooper_rl.errors.ConfigError\x1b[0m: \x1b[35mno such preset\x1b[0m\n"
    )
    assert follower.error == "no such preset"


def test_an_error_outside_a_stage_is_kept_too() -> None:
    follower = follow(
        "Traceback (most recent call last):\n"
        '  File "/worker.py", line 1, in <module>\n'
        "FileNotFoundError: no such pipeline\n"
    )
    assert follower.failed_task is None
    assert follower.error == "FileNotFoundError: no such pipeline"
