"""Programs are run where they can only compute, and compared with values that they never see."""

import json
import os
import re
import resource
import selectors
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cooper_rl.config.data import RuleConfig
from cooper_rl.errors import CooperError
from cooper_rl.verdicts import program_worker
from cooper_rl.verdicts.pool import receive_reply
from cooper_rl.verdicts.programs import MAX_CHARS, ProgramVerifier, contradicts, find_program, parse_tests
from cooper_rl.verdicts.verifier import Unkept
from cooper_rl.verdicts.worker import LOST, receive_message, send_message
from tests.verdicts.killing import holds_program, killing
from tests.waiting import wait_until, within

TESTS = "f(a=1, b=2) == 5\nf(a=0, b=3) == 6"


@pytest.fixture(scope="module")
def verifier():
    with ProgramVerifier(RuleConfig(num_workers=2, timeout_seconds=1)) as opened:
        yield opened


def verdict_of(verifier: ProgramVerifier, completion: str, tests: str = TESTS) -> str:
    (check,) = verifier.verify([(tests, completion)])
    return check.verdict


@pytest.mark.parametrize(
    "completion",
    [
        "return a + 2 * b",
        "Twice b is added to a:\n    return a + b + b",
        "def f(a, b):\n    return sum([a, b, b])",
        "Here it is.\n```python\nimport math\n\ndef f(a, b):\n    return a + math.prod([2, b])\n```\nDone.",
        "```python\nreturn 0\n```\nOr rather:\n```python\nreturn a + 2 * b\n```",
        "```python\nK = 2\ndef f(a, b):\n    return a + K * b\n```",
        "``` python3.11 \r\ndef f(a, b):\r\n    return a + 2 * b\r\n```\r\n",
        "~~~\ndef f(a, b):\n    return a + 2 * b\n~~~",
    ],
)
def test_a_program_that_passes_every_test_is_correct(verifier, completion: str) -> None:
    assert verdict_of(verifier, completion) == "correct"


@pytest.mark.parametrize(
    "completion",
    [
        "return a + b",
        "return 5",  # passes the first test alone
        "return a + 2.0 * b",  # another type
        "return a +",
        "return undefined",
        "def g(a, b):\n    return a + 2 * b",
        "return type('Same', (int,), {'__eq__': lambda self, other: True})()",
        "import os\nos._exit(0)",
        "import sys\nsys.exit(0)",
        "def f(a, b):\n    return f(a, b)",
        "def f(a, b):\n    return [0] * 10**10",
    ],
)
def test_a_program_that_fails_a_test_is_incorrect(verifier, completion: str) -> None:
    assert verdict_of(verifier, completion) == "incorrect"


@pytest.mark.parametrize("completion", ["", "I do not know.", "return 1" + " " * MAX_CHARS])
def test_what_is_no_program_gets_no_verdict(verifier, completion: str) -> None:
    assert verdict_of(verifier, completion) == "unparsable"


@pytest.mark.parametrize("completion", ["import math", "class X: pass", "def unrelated():\n    return None"])
def test_a_function_of_python_does_not_pass_for_the_programs_own(verifier, completion: str) -> None:
    assert verdict_of(verifier, completion, "max(3, 9) == 9\nmax(1, -2) == 1") == "incorrect"
    assert verdict_of(verifier, "def max(a, b):\n    return a if a > b else b", "max(3, 9) == 9") == "correct"


def test_equal_values_are_equal_in_any_order_and_with_any_sign_of_zero(verifier) -> None:
    counts = "def f(s):\n    return {each: s.count(each) for each in s}"
    assert verdict_of(verifier, counts, "f(s='ba') == {'a': 1, 'b': 1}") == "correct"
    assert verdict_of(verifier, "return -x", "f(x=0.0) == 0.0") == "correct"
    assert not contradicts("f(x=1) == {1: 2, 3: 4}", "f(x=1) == {3: 4, 1: 2}")


def test_no_file_of_the_current_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of data may hold a string.py; a command of the shell does not look there either."""
    (tmp_path / "string.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path not in ("", str(tmp_path))])
    with ProgramVerifier(RuleConfig(num_workers=1, timeout_seconds=1)) as opened:
        assert verdict_of(opened, "return a + 2 * b") == "correct"
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("limit", ["AS", "CPU"])
def test_a_lower_limit_of_the_system_holds_and_a_refused_one_is_named(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Without CAP_SYS_RESOURCE no limit can be raised, and macOS refuses RLIMIT_AS."""
    kind = getattr(resource, f"RLIMIT_{limit}")
    refuse = resource.setrlimit

    def setrlimit(which: int, limits: tuple[int, int]) -> None:
        if which == kind:
            raise ValueError("not allowed to raise maximum limit")
        refuse(which, limits)

    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    read_end, write_end = os.pipe()
    if (child := os.fork()) == 0:
        program_worker.run_shut_in("", [], write_end, 1.0)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    assert json.loads(os.read(read_end, 1000)) == ["unsafe", "not allowed to raise maximum limit"]
    os.close(read_end)


def test_true_is_not_one(verifier) -> None:
    assert verdict_of(verifier, "return a == a", "f(a=1) == 1") == "incorrect"
    assert verdict_of(verifier, "return a == a", "f(a=1) == True") == "correct"


@pytest.mark.parametrize(
    "reach",
    [
        "open({path!r}).read()",
        "open({path!r}, 'w').write('x')",
        "__import__('os').listdir('/')",
        "__import__('os').fork()",
        "__import__('os').kill(__import__('os').getppid(), 9)",
        "__import__('os').execv('/bin/true', ['true'])",
        "__import__('sys').modules['socket'].socket()",
        "__import__('sys').modules['resource'].setrlimit(0, (9999, 9999))",
    ],
)
def test_a_program_reaches_no_file_no_network_and_no_process(verifier, tmp_path: Path, reach: str) -> None:
    """It would pass if the call went through, and passes where the call is refused instead."""
    path = tmp_path / "file"
    path.write_text("untouched")
    reached = reach.format(path=str(path))
    went_through = f"def f(a):\n    {reached}\n    return 1"
    refused = f"def f(a):\n    try:\n        {reached}\n    except (OSError, ValueError):\n        return 1"
    assert verdict_of(verifier, went_through, "f(a=1) == 1") == "incorrect"
    assert verdict_of(verifier, refused, "f(a=1) == 1") == "correct"
    assert path.read_text() == "untouched"


def test_a_program_that_writes_results_itself_still_has_to_know_them(verifier) -> None:
    forged = (
        "import os\n"
        "for number in range(64):\n"
        "    try:\n"
        '        os.write(number, b\'["results", [["value", ["int", "{0}"]], ["value", ["int", "6"]]]]\')\n'
        "    except OSError:\n"
        "        pass\n"
        "os._exit(0)"
    )
    assert verdict_of(verifier, forged.replace("{0}", "4")) == "incorrect"
    for text in ('["unsafe", "stop the run"]', "[" * 5000, '["results", 1]', "not json"):
        written = (
            f"import os\nfor number in range(64):\n    try:\n        os.write(number, {text.encode()!r})\n"
        )
        written += "    except OSError:\n        pass\nos._exit(0)"
        assert verdict_of(verifier, written) == "incorrect"
    assert verdict_of(verifier, "return a + 2 * b") == "correct", "the next program is not harmed"


def test_a_program_that_does_not_end_or_writes_without_end_is_killed(verifier) -> None:
    endless = "def f(a, b):\n    while True:\n        pass"
    flood = (
        "import os\ndef f(a, b):\n    while True:\n        for number in range(64):\n            try:\n"
        "                os.write(number, b'x' * 10000)\n            except OSError:\n                pass"
    )
    found = verifier.verify([(TESTS, endless), (TESTS, flood), (TESTS, "return a + 2 * b")])
    assert [check.verdict for check in found] == ["incorrect", "incorrect", "correct"]
    assert "CPU time" in found[0].reason


def test_a_program_that_closes_its_pipe_and_sleeps_is_killed() -> None:
    """It takes no CPU time, so that no limit of its own ends it; the next program is not harmed."""
    sleeper = (
        "import collections\n"
        "collections._sys.modules['os'].closerange(0, 64)\n"
        "lock = collections._sys.modules['_thread'].allocate_lock()\n"
        "lock.acquire()\nlock.acquire()"
    )
    with ProgramVerifier(RuleConfig(num_workers=1, timeout_seconds=1)) as verifier:
        found = verifier.verify([(TESTS, sleeper), (TESTS, "return a + 2 * b")])
        assert [check.verdict for check in found] == ["incorrect", "correct"]
        assert verifier.pool is not None
        nursery = psutil.Process(verifier.pool.nursery.pid)
        wait_until(lambda: not nursery.children(recursive=True))


@pytest.mark.parametrize("wait", ["lock.acquire()", "lock.acquire(timeout=5)"])
def test_a_program_cannot_sleep(verifier, wait: str) -> None:
    """It takes no CPU time, so that only the clock ended it, at twelve times the limit."""
    sleeper = f"import collections\nlock = collections._sys.modules['_thread'].allocate_lock()\n{wait}\n"
    uncontended = verifier.verify([("f(a=1) == 1", sleeper + "def f(a):\n    return a")])
    started = time.monotonic()
    (check,) = verifier.verify([("f(a=1) == 1", sleeper + f"def f(a):\n    {wait}\n    return a")])
    assert time.monotonic() - started < 3
    assert (check.verdict, uncontended[0].verdict) == ("incorrect", "correct")


def test_a_program_that_was_killed_from_outside_is_run_again() -> None:
    with ProgramVerifier(RuleConfig(num_workers=1, timeout_seconds=9)) as verifier:
        verifier.verify([(TESTS, "return a + b")])
        with killing(verifier, times=1) as killed:
            slow = "def f(a, b):\n    for number in range(3 * 10**7):\n        pass\n    return a + 2 * b"
            assert verdict_of(verifier, slow) == "correct"
    assert len(killed) == 1


def test_a_program_that_gets_no_cpu_time_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine stood still: after a twentieth of a second, the program has not used its second."""
    monkeypatch.setattr(program_worker, "WALL_TO_CPU_SECONDS", 0.05)
    word, why = program_worker.run_calls("while True:\n    pass", ["f(1)"], limit_seconds=1)
    assert word == LOST
    assert re.fullmatch(r"its process got 0\.\d s of CPU time in 0\.05 s", why)


def test_a_program_cannot_say_that_it_was_killed(verifier) -> None:
    """Nor be killed for it: one that ends at its limits, or goes on behind a closed pipe, is incorrect."""
    lost = 'import os\nfor number in range(64):\n    try:\n        os.write(number, b\'["lost", "x"]\')\n'
    lost += "    except OSError:\n        pass\nos._exit(0)"
    endless = "import os\nos.closerange(0, 64)\nwhile True:\n    pass"
    full = "def f(a, b):\n    kept = []\n    while True:\n        kept.append('x' * 10**6)"
    assert {verdict_of(verifier, program) for program in (lost, endless, full)} == {"incorrect"}


def test_a_program_finds_no_other_completions_program_in_its_memory() -> None:
    """It searches the heap, native code and all, for a right program that its worker ran before."""
    right = "def f(a, b):\n" + "    # Twice b is added to a.\n" * 30 + "    return a + (2 * b)"
    thief = (
        "import collections, gc, re\n"
        "types = collections._sys.modules['ctypes']\n"
        "libc = types.CDLL(None)\n"
        "parts = {(id(each) >> 18) + more for each in gc.get_objects() for more in range(-1, 8)}\n"
        "pages = [page for part in sorted(parts) for page in range(part << 18, (part + 1) << 18, 4096)]\n"
        "size = types.c_size_t(4096)\n"
        "there = [page for page in pages if libc.madvise(types.c_void_p(page), size, 0) == 0]\n"
        "memory = b''.join(types.string_at(page, 4096) for page in there)\n"
        "found = re.findall(rb'retur[n] a . .SOUGHT . b.', memory)\n"
        "exec('def f(a, b):\\n    ' + (found[0].decode() if found else 'return 0'))"
    )
    own = thief.replace("SOUGHT", "3") + "\n# return a + (3 * b)"
    with ProgramVerifier(RuleConfig(num_workers=1)) as verifier:
        found = verifier.verify(
            [(TESTS, right), (TESTS, thief.replace("SOUGHT", "2")), ("f(a=1, b=2) == 7", own)]
        )
    assert [check.verdict for check in found] == ["correct", "incorrect", "correct"], "the last finds its own"


def test_a_reason_that_a_program_wrote_can_be_kept_and_shown(verifier) -> None:
    """Half a surrogate pair has no UTF-8, and a terminal would obey the rest."""
    for text in ('["ended", "{0}"]', '["results", [["error", "{0}"], ["error", "{0}"]]]'):
        content = text.replace("{0}", r"\ud800\u001b[2J\u202e" + "x" * 1000).encode()
        written = (
            f"import os\nfor number in range(64):\n    try:\n        os.write(number, {content!r})\n"
            "    except OSError:\n        pass\nos._exit(0)"
        )
        (check,) = verifier.verify([(TESTS, written)])
        assert check.verdict == "incorrect"
        assert "\N{REPLACEMENT CHARACTER}[2J" in check.reason
        assert check.reason.isprintable()
        assert len(check.reason) < 300


def test_verdicts_come_in_order_from_several_threads_and_leave_no_process() -> None:
    before = _workers()  # the fixture's
    with ProgramVerifier(RuleConfig(num_workers=2)) as verifier:
        items = [(TESTS, f"return a + 2 * b + {number % 2}") for number in range(8)]
        found: list[list[str]] = []

        def ask() -> None:
            found.append([check.verdict for check in verifier.verify(items)])

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [["correct", "incorrect"] * 4] * 2
        # The process of a request ends when its reply was sent.
        wait_until(lambda: len(_workers() - before) == 1)
        workers = _workers() - before
    wait_until(lambda: not any(worker.is_running() and worker.status() != "zombie" for worker in workers))
    with pytest.raises(CooperError, match="after it was closed; ask inside its `with`"):
        verifier.verify(items)


def _workers() -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # the process of a request, which has just ended
            if "cooper_rl.verdicts.program_worker" in child.cmdline():
                found.add(child)
    return found


SLOW = "def f(a, b):\n    for number in range(3 * 10**7):\n        pass\n    return a + 2 * b"


def test_a_request_whose_process_was_killed_is_asked_again_and_others_do_not_notice() -> None:
    with ProgramVerifier(RuleConfig(num_workers=2, timeout_seconds=9)) as verifier:
        verifier.verify([(TESTS, "return a + b")])
        with killing(verifier, times=1, is_meant=holds_program) as killed:
            found = verifier.verify([(TESTS, SLOW), (TESTS, f"{SLOW} + 1"), (TESTS, "return a + 2 * b")])
        assert len(killed) == 1
        assert [check.verdict for check in found] == ["correct", "incorrect", "correct"]
        assert verifier.pool is not None
        nursery = psutil.Process(verifier.pool.nursery.pid)
        wait_until(lambda: not nursery.children(recursive=True))


def test_a_request_whose_process_was_killed_twice_is_an_abstention_that_nobody_keeps() -> None:
    with ProgramVerifier(RuleConfig(num_workers=1, timeout_seconds=9)) as verifier:
        verifier.verify([(TESTS, "return a + b")])
        with killing(verifier, times=2, is_meant=holds_program):
            (lost,) = verifier.verify([(TESTS, SLOW)])
        assert (lost.verdict, lost.reason) == ("unparsable", "no verdict: its process ended (status 9)")
        assert isinstance(lost, Unkept)
        # The next ones get their own replies.
        items = [(TESTS, f"return a + 2 * b + {number % 2}") for number in range(6)]
        assert [check.verdict for check in verifier.verify(items)] == ["correct", "incorrect"] * 3


def test_a_request_that_was_not_read_to_its_end_leaves_nothing_to_the_next() -> None:
    """Killed in the midst of reading: the rest of the request must not be taken for the next one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_message(ours, ["x" * 100_000, []])
        theirs.recv(5)
        program_worker.discard_request(theirs)
        send_message(ours, ["next", []])
        assert receive_message(theirs) == ["next", []]


def test_a_process_that_was_killed_when_it_had_replied_takes_nothing_from_the_next_request() -> None:
    """Its loss is told with the number of its request, and the request behind it stays to be read."""
    ours, theirs = socket.socketpair()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write_end, b"r")
        send_message(theirs, ["results", []])
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(write_end)
    run = program_worker.Run(pid, theirs, number=7)
    with ours, theirs, selectors.PollSelector() as selector:
        send_message(ours, ["next", []])
        selector.register(read_end, selectors.EVENT_READ, run)
        with within(20):
            program_worker.follow(selector, read_end, run)
            program_worker.follow(selector, read_end, run)
            assert receive_message(ours) == ["results", []]
            assert receive_message(ours) == [LOST, "its process ended (status 9)", 7]
            assert receive_message(theirs) == ["next", []]
        (key,) = selector.get_map().values()
        assert (key.fileobj, key.data) == (theirs, 8)


def test_a_loss_of_an_earlier_request_is_no_reply() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            for reply in ([LOST, "why", 1], ["results", [1]], [LOST, "why", 2], [LOST, "why", 3]):
                send_message(theirs, reply)
        assert receive_reply(ours, number=2) == ["results", [1]]
        assert receive_reply(ours, number=3) == [LOST, "why"]
        assert receive_reply(ours, number=4) is None


def test_a_nursery_that_was_killed_is_noticed_at_once() -> None:
    """No process of a request holds its sockets open, whose program would run for two minutes."""
    with ProgramVerifier(RuleConfig(num_workers=2, timeout_seconds=60)) as verifier:
        assert verdict_of(verifier, "return a + 2 * b") == "correct"
        assert verifier.pool is not None
        nursery = psutil.Process(verifier.pool.nursery.pid)
        threading.Timer(0.5, nursery.kill).start()
        started = time.monotonic()
        with pytest.raises(CooperError, match=r"a rule verifier worker is gone|processes ended"):
            verifier.verify([(TESTS, "def f(a, b):\n    while True:\n        pass")] * 2)
        assert time.monotonic() - started < 30


def test_a_forked_child_has_workers_of_its_own(verifier) -> None:
    assert verdict_of(verifier, "return a + 2 * b") == "correct"
    pid = os.fork()
    if pid == 0:
        with ProgramVerifier(RuleConfig(num_workers=1)) as own:
            os._exit(0 if verdict_of(own, "return 5") == "incorrect" else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "it holds no test; write a line such as"),
        ("f(1)", "'f\\(1\\)' is no test of plain values"),
        ("f(1) == g(2)", "no test of plain values"),
        ("f(open('x')) == 1", "no test of plain values"),
        ("f(1) == 1 == 1", "no test of plain values"),
        ("f(1) == {1}", "no test of plain values"),
        ("f(a=1, a=2) == 3", "no test of plain values"),
        ("f(1) == {[1]: 2}", "no test of plain values"),
        ("f({[1]: 2}) == 1", "no test of plain values"),
        ("f(1) ==", "no test of plain values"),
        ("f(1) == 2\nf(1) == 3", "'f\\(1\\)' has two values; no program passes both tests"),
        (f"f(1) == {'x' * 40_000!r}", "its values take over 32768 characters"),
        ("\n".join(f"f({n}) == 1" for n in range(101)), "it holds 101 tests, and at most 100 are run"),
    ],
)
def test_a_reference_answer_that_is_no_list_of_tests_is_refused(reference: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_tests(reference)


def test_tests_contradict_each_other_where_one_call_should_give_two_values() -> None:
    assert contradicts(TESTS, "f(a=1, b=2) == 6")
    assert contradicts(TESTS, "f(a = 1, b=2)  == 5.0"), "another type"
    assert not contradicts(TESTS, "f(a=1, b=2) == 5")
    assert not contradicts(TESTS, "f(a=9, b=9) == 5"), "one program may pass both"
    assert not contradicts(TESTS, "no tests")


def test_line_ends_that_python_does_not_know_are_a_part_of_texts(verifier: ProgramVerifier) -> None:
    tests = "f('a\u2028b\x85') == 'a\u2028b\x85'\r\nf('') == '\u2028'"
    program = "def f(a):\r\n    return a or '\u2028'"
    assert len(parse_tests(tests)) == 2
    assert verifier.verify([(tests, program)])[0].verdict == "correct"


def test_the_last_fenced_block_is_what_a_completion_commits_to() -> None:
    (test, *_) = parse_tests(TESTS)
    assert find_program("```\nreturn 1\n```\n```\nreturn 2\n```", test) == "def f(a, b):\n    return 2"
    assert find_program("text", test) is None
