import asyncio
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cooper_rl.config.data import RuleConfig
from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.errors import CooperError
from cooper_rl.verdicts import rule
from cooper_rl.verdicts.answers.verify import verify_answer
from cooper_rl.verdicts.pool import fit_workers
from cooper_rl.verdicts.rule import RuleVerifier
from cooper_rl.verdicts.worker import MAX_MEMORY_BYTES
from tests.verdicts.killing import killing

ALGEBRA = [
    ("x+1", r"\boxed{1+x}"),
    ("x+1", r"\boxed{x-1}"),
    (r"2\sqrt{2}", r"\boxed{\sqrt{8}}"),
    ("(r+5)^2", r"\boxed{(r+5)(r+5)}"),
    (r"\log 2", r"\boxed{\ln 3}"),
]
OTHER_ALGEBRA = [("y^2", r"\boxed{y\cdot y}"), ("y^2", r"\boxed{2y}")]
PLAIN = [("4", "A: 4"), ("4", "A: 5"), ("4", "The answer is four.")]
BOMB = ("1", r"\boxed{\prod_{n=1}^{9999} (x+n)}")
OTHER_BOMB = ("1", r"\boxed{((x+1)^{999})^{999}}")


@pytest.fixture(scope="module")
def verifier() -> Iterator[RuleVerifier]:
    """Two workers with a limit of one second of CPU time, shared: starting them costs more than the tests."""
    with RuleVerifier(RuleConfig(num_workers=2, timeout_seconds=1)) as verifier:
        yield verifier


def test_verdicts_come_in_order_and_are_those_of_verify_answer(verifier: RuleVerifier) -> None:
    items = [*ALGEBRA, *PLAIN] * 3
    assert verifier.verify(items) == [verify_answer(*item) for item in items]


def test_an_item_over_its_limit_is_unparsable_and_the_next_ones_are_not_harmed(
    verifier: RuleVerifier,
) -> None:
    checks = verifier.verify([BOMB, *ALGEBRA, OTHER_BOMB, *OTHER_ALGEBRA])
    assert [check.verdict for check in checks] == [
        *("unparsable", "correct", "incorrect", "correct", "correct", "incorrect", "unparsable"),
        *("correct", "incorrect"),
    ]
    assert checks[0] == checks[6] == ("unparsable", "no verdict within 1 s")


def test_a_system_that_refuses_the_memory_limit_gets_verdicts_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """macOS: every comparison came back `unparsable`. The workers' interpreter imports this module first."""
    (tmp_path / "sitecustomize.py").write_text(
        "import resource\n"
        "def refuse(kind, limits):\n"
        "    raise ValueError('current limit exceeds maximum limit')\n"
        "resource.setrlimit = refuse\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with RuleVerifier(RuleConfig(num_workers=2, timeout_seconds=1)) as verifier:
        checks = verifier.verify([*ALGEBRA, BOMB, *OTHER_ALGEBRA])
    assert [check.verdict for check in checks] == [
        *("correct", "incorrect", "correct", "correct", "incorrect", "unparsable", "correct", "incorrect")
    ]
    told = capfd.readouterr().err
    assert told.count("rule verifier: memory is not limited to 512 MiB a worker, since this system") == 1
    refusal = f"({sys.platform}) refuses that (current limit exceeds maximum limit)"
    assert f"{refusal}; the time limit of each" in told


def test_processes_that_verify_at_the_same_time_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight on a node of 128 cores would start 1,024 workers, each with a thread that waits for it."""
    monkeypatch.setattr("cooper_rl.verdicts.pool.usable_cores", lambda: 9)
    with RuleVerifier(RuleConfig(), num_processes=4) as verifier:
        verifier.verify(ALGEBRA)
        assert verifier.pool is not None
        assert len(verifier.pool.channels) == 2
    assert RuleVerifier(RuleConfig(), num_processes=16).num_workers == 1


@pytest.mark.parametrize(
    ("wanted", "gib", "expected"), [(4, 16, 4), (64, 16, 16), (2, 1.9, 1), (4, 2.1, 2), (1, 0.25, 1)]
)
def test_the_limits_of_all_workers_fit_together_into_half_of_the_memory(
    wanted: int, gib: float, expected: int
) -> None:
    """512 MiB each: 16 GiB hold 32 of them, and half of that 16."""
    assert fit_workers(wanted, memory=int(gib * 2**30)) == expected


def test_workers_that_do_not_fit_into_the_pod_are_not_started_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cooper_rl.verdicts.pool.usable_memory", lambda: 4 << 30)
    with RuleVerifier(RuleConfig(num_workers=6), num_processes=2) as verifier:
        verifier.verify(ALGEBRA)
        assert verifier.pool is not None
        assert len(verifier.pool.channels) == 2
    assert caplog.messages == [
        "2 verifier workers instead of 6: their limits of 512 MiB each fit 2 times into half of the 2048 MiB "
        "that this process may use"
    ]


def test_equal_comparisons_are_made_once(verifier: RuleVerifier) -> None:
    first = verifier.verify([BOMB] * 50)
    started = time.monotonic()
    assert verifier.verify([BOMB] * 50) == first
    # A second comparison would use up its second of CPU time.
    assert time.monotonic() - started < 1
    assert {check.verdict for check in first} == {"unparsable"}


def test_it_is_callable_from_many_threads_at_once(verifier: RuleVerifier) -> None:
    results: dict[int, list[str]] = {}

    def ask(number: int) -> None:
        items = [(f"x+{number}", rf"\boxed{{{number}+x}}"), (f"x+{number}", r"\boxed{x}")]
        results[number] = [check.verdict for check in verifier.verify(items)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {number: ["correct", "incorrect"] for number in range(1, 9)}


def test_it_is_callable_from_an_event_loop_without_blocking_it(verifier: RuleVerifier) -> None:
    async def ask() -> tuple[list[str], int]:
        ticks = 0
        waiting = asyncio.ensure_future(verifier.verify_async([("2", BOMB[1]), *ALGEBRA[:1]]))
        while not waiting.done():
            await asyncio.sleep(0.02)
            ticks += 1
        return [check.verdict for check in await waiting], ticks

    verdicts, ticks = asyncio.run(ask())
    assert verdicts == ["unparsable", "correct"]
    assert ticks >= 5


def test_plain_answers_start_no_process() -> None:
    with RuleVerifier(RuleConfig()) as idle:
        before = threading.active_count()
        idle.verify(PLAIN)
        assert threading.active_count() == before


def test_a_closed_verifier_refuses_to_work() -> None:
    verifier = RuleVerifier(RuleConfig())
    verifier.close()
    with pytest.raises(CooperError, match="asked for a verdict after it was closed; ask inside its `with`"):
        verifier.verify(PLAIN)


def test_workers_that_cannot_be_started_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with RuleVerifier(RuleConfig(num_workers=1)) as broken, pytest.raises(CooperError, match="rule verifier"):
        broken.verify(ALGEBRA)


def test_more_workers_than_the_system_has_room_for_are_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two open files for each: on a node of many cores more than 256, which is macOS's limit."""
    monkeypatch.setattr("cooper_rl.verdicts.pool.usable_memory", lambda: 1 << 50)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = psutil.Process().num_fds()
    with RuleVerifier(RuleConfig(num_workers=100)) as verifier:
        resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + 100, limits[1]))
        try:
            with pytest.raises(
                CooperError,
                match=r"verifier's 100 worker processes cannot be started \(.*Too many open files\); set "
                r"labeling\.rule\.num_workers to fewer",
            ):
                verifier.verify(ALGEBRA)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert psutil.Process().num_fds() == num_open


def test_a_worker_that_is_killed_while_it_waits_answers_no_question() -> None:
    """As the kernel kills when memory is short; each reply would then be the next question's."""
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        assert verifier.verify([("x+1", r"\boxed{1+x}")])[0].verdict == "correct"
        assert verifier.pool is not None
        (worker,) = psutil.Process(verifier.pool.nursery.pid).children()
        worker.kill()
        worker.wait()
        pairs = [("x+2", r"\boxed{2+x}"), ("x+3", r"\boxed{x+4}"), ("x+5", r"\boxed{5+x}")]
        verdicts = [check.verdict for pair in pairs for check in verifier.verify([pair])]
    assert verdicts == ["correct", "incorrect", "correct"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGALRM])
def test_a_comparison_whose_worker_was_killed_from_outside_is_made_again(number: int) -> None:
    """The kernel kills when memory is short; the reason was `the comparison ended its process (status 9)`.
    The clock's signal ends a comparison that a machine gave no CPU time."""
    with RuleVerifier(RuleConfig(num_workers=1, timeout_seconds=1)) as verifier:
        verifier.verify(ALGEBRA[:1])
        with killing(verifier, times=1, number=number) as killed:
            checks = verifier.verify([BOMB, *OTHER_ALGEBRA])
    assert len(killed) == 1
    assert checks[0] == ("unparsable", "no verdict within 1 s")
    assert [check.verdict for check in checks[1:]] == ["correct", "incorrect"]


def test_a_comparison_whose_worker_is_killed_every_time_ends_and_is_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with RuleVerifier(RuleConfig(num_workers=1, timeout_seconds=1)) as verifier:
        verifier.verify(ALGEBRA[:1])
        with killing(verifier, times=9) as killed:
            assert verifier.verify([BOMB]) == [
                ("unparsable", "no verdict: its process was killed by SIGKILL")
            ]
        assert len(killed) == 2
        assert caplog.messages == [
            "a verdict is lost: its process was killed by SIGKILL; it is asked for again",
            "a verdict is lost twice: its process was killed by SIGKILL; an abstention, not kept, takes its "
            "place",
        ]
        assert verifier.verify([BOMB]) == [("unparsable", "no verdict within 1 s")]


def test_a_text_that_crashes_its_process_is_judged_once() -> None:
    with RuleVerifier(RuleConfig(num_workers=1, timeout_seconds=1)) as verifier:
        verifier.verify(ALGEBRA[:1])
        with killing(verifier, times=9, number=signal.SIGSEGV) as killed:
            checks = verifier.verify([BOMB] * 2)
    assert len(killed) == 1
    assert checks == [("unparsable", "the comparison ended its process (status 11)")] * 2


def test_a_late_reply_answers_no_other_question() -> None:
    with RuleVerifier(RuleConfig(num_workers=1)) as late:
        late.verify(ALGEBRA[:1])
        assert late.pool is not None
        (channel,) = late.pool.channels
        channel.settimeout(0)
        with pytest.raises(CooperError, match="a rule verifier worker is gone"):
            late.verify(ALGEBRA[1:2])
        channel.settimeout(30)
        with pytest.raises(CooperError, match=r"a rule verifier worker is gone|processes ended"):
            late.verify(OTHER_ALGEBRA[:1])


IN_A_GROUP = """
import os, signal
from cooper_rl.verdicts.rule import RuleVerifier
from cooper_rl.config.data import RuleConfig

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
with RuleVerifier(RuleConfig(num_workers=2)) as verifier:
    verifier.verify([("x+1", r"\\boxed{1+x}")])
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(0, number)
    checks = verifier.verify([("y^2", r"\\boxed{y\\cdot y}"), ("y^2", r"\\boxed{2y}")])
    print([check.verdict for check in checks])
"""


def test_a_signal_to_the_whole_group_ends_no_worker() -> None:
    """A terminal's Ctrl-C, a supervisor's SIGTERM: the step can yet be finished."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_GROUP], capture_output=True, text=True, timeout=60, start_new_session=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "['correct', 'incorrect']\n", "")


def test_workers_get_no_key_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment as the kernel shows it, of the nursery and of every worker that it forked."""
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "JUDGE_API_KEY", "HF_TOKEN", "ANYTHING"):
        monkeypatch.setenv(name, "hunter2-Zq")
    with RuleVerifier(RuleConfig(num_workers=2)) as verifier:
        verifier.verify([(r"$\frac{1}{3}$", r"\boxed{\frac{x}{3x}}")])
        assert verifier.pool is not None
        nursery = psutil.Process(verifier.pool.nursery.pid)
        processes = [nursery, *nursery.children()]
        assert len(processes) == 3
        for process in processes:
            found = process.environ()
            assert "hunter2-Zq" not in found.values()
            assert found["PYTHONHASHSEED"] == "0"


def test_bombs_at_once_take_no_more_than_their_workers_limit() -> None:
    """Each of these took 3.2 GB at a limit of 4 GiB: together more than a pod has."""
    code = f"""
import resource
from cooper_rl.config.data import RuleConfig
from cooper_rl.verdicts.rule import RuleVerifier
bombs = [("1", text) for text in ({BOMB[1]!r}, {OTHER_BOMB[1]!r}, r"\\boxed{{(x+1)^{{4999}}}}")]
with RuleVerifier(RuleConfig(num_workers=3, timeout_seconds=1)) as verifier:
    print(*(check.verdict for check in verifier.verify(bombs)))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    verdicts, max_kib = done.stdout.splitlines()
    assert verdicts.split() == ["unparsable"] * 3
    assert int(max_kib) * 1024 <= MAX_MEMORY_BYTES


def test_a_changed_line_of_the_verifier_gives_its_verdicts_another_name(tmp_path: Path) -> None:
    folder = Path(rule.__file__).parent
    shutil.copytree(folder / "answers", tmp_path / "answers", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(folder / "worker.py", tmp_path)
    assert rule.hash_code(tmp_path) == rule.fingerprint()
    assert rule.fingerprint() in MATHEMATICS.name_verdicts(RuleConfig())
    with (tmp_path / "answers" / "stated" / "doubt.py").open("a") as changed:
        changed.write("# \n")
    assert rule.hash_code(tmp_path) != rule.fingerprint()
