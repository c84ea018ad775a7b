"""The verifier of programs (rows 3 and 11): a program is correct if every test gives its expected value.

A reference answer is a list of tests, one a line: `f(a=1, b=2) == 5`. Programs run in processes that can only
compute (`verdicts/program_worker.py`) and never learn the expected values, which are compared here, by type
and value. Callable from any thread. A test is one call.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from cooper_rl.config.data import RuleConfig
from cooper_rl.errors import CooperError
from cooper_rl.machine.parsing import parse_python
from cooper_rl.schema.data import Verdict
from cooper_rl.schema.texts import printable
from cooper_rl.verdicts.pool import PooledVerifier
from cooper_rl.verdicts.program_worker import MAX_RESULT_BYTES, encode
from cooper_rl.verdicts.verifier import AnswerItem, Unkept
from cooper_rl.verdicts.worker import LOST

MAX_CHARS = 20_000
"""Longer completions are not run: the verdict is an abstention."""
MAX_TESTS = 100
MAX_EXPECTED_CHARS = MAX_RESULT_BYTES // 2
"""Size of all values that are expected: a program that writes more than twice as much is killed."""
_MAX_REMEMBERED_CHARS = 2000
"""Longer reference answers are parsed anew each time, so that what is remembered stays small."""
_FENCE = re.compile(r"(?:```|~~~)[^\n`~]{0,40}\n(.*?)(?:```|~~~)", re.DOTALL)


class ProgramTest(NamedTuple):
    """One call, and what it should give."""

    call: str
    function: str
    parameters: tuple[str, ...]
    """Names of the arguments that the call names."""
    expected: Any


class ProgramCheck(NamedTuple):
    """The result for one completion."""

    verdict: Verdict
    reason: str


class LostCheck(ProgramCheck, Unkept):
    """In place of a verdict whose program was killed from outside."""


class ProgramRun(NamedTuple):
    """The program and tests that are run for one completion."""

    program: str
    tests: tuple[ProgramTest, ...]


def parse_tests(reference_answer: str) -> tuple[ProgramTest, ...]:
    """The tests of a reference answer.

    Raises:
        ValueError: there is none, or a line is not `name(values) == value`; says which and why.
    """
    is_short = len(reference_answer) <= _MAX_REMEMBERED_CHARS
    return (_recall_tests if is_short else _parse_lines)(reference_answer)


def _parse_lines(reference_answer: str) -> tuple[ProgramTest, ...]:
    lines = [line.strip() for line in _lines(reference_answer) if line.strip()]
    if not lines:
        raise ValueError("it holds no test; write a line such as f(a=1, b=2) == 5")
    if len(lines) > MAX_TESTS:
        raise ValueError(f"it holds {len(lines)} tests, and at most {MAX_TESTS} are run; leave some out")
    tests = tuple(_parse_test(line) for line in lines)
    expected: dict[str, Any] = {}
    for test in tests:
        value = encode(test.expected)
        if expected.setdefault(test.call, value) != value:
            raise ValueError(f"{test.call[:100]!r} has two values; no program passes both tests")
    if len(json.dumps(list(expected.values()))) > MAX_EXPECTED_CHARS:
        raise ValueError(f"its values take over {MAX_EXPECTED_CHARS} characters; leave long ones out")
    return tests


# VerifyRM's input asks for the same tests once for each completion that is put to them.
_recall_tests = lru_cache(maxsize=2048)(_parse_lines)


def contradicts(reference_answer: str, other: str) -> bool:
    """True if no program can pass the tests of both: one call is expected to give two values."""
    try:
        expected = {test.call: encode(test.expected) for test in parse_tests(reference_answer)}
        return any(
            test.call in expected and expected[test.call] != encode(test.expected)
            for test in parse_tests(other)
        )
    except ValueError:
        return False


def find_program(completion: str, test: ProgramTest) -> str | None:
    """The source that a completion commits to; None where it holds none.

    That is its last fenced block, whole where it defines or imports something, else everything from the first
    `def` or `import` on, else its last line that begins with `return`, as the body of a function with the
    test's parameters.
    """
    completion = "\n".join(_lines(completion))
    fenced = _FENCE.findall(completion)
    text = fenced[-1] if fenced else completion
    lines = _lines(text.strip())
    starts = [
        place for place, line in enumerate(lines) if line.startswith(("def ", "import ", "from ", "class "))
    ]
    if starts:  # a fenced block is code from its first line on: constants, decorators
        return "\n".join(lines if fenced else lines[starts[0] :])
    returned = [line.strip() for line in lines if line.strip().startswith("return ")]
    if not returned:
        return None
    return f"def {test.function}({', '.join(test.parameters)}):\n    {returned[-1]}"


def _lines(text: str) -> list[str]:
    """The lines as Python reads them: other line ends, such as U+2028, may stand in the text of a program."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def find_run(reference_answer: str, completion: str) -> ProgramRun | ProgramCheck:
    """The run of a completion's program, or the check of a completion for which nothing is run.

    VerifyRM reads the same program (`domains/programs.py: cut_completion`).
    """
    try:
        tests = parse_tests(reference_answer)
    except ValueError as error:
        return ProgramCheck("unparsable", f"the reference answer cannot be used: {error}")
    if len(completion) > MAX_CHARS:
        return ProgramCheck("unparsable", f"the completion is longer than {MAX_CHARS} characters")
    program = find_program(completion, tests[0])
    if program is None:
        return ProgramCheck("unparsable", "the completion holds no program")
    return ProgramRun(program, tests)


class ProgramVerifier(PooledVerifier):
    """Runs completions against tests."""

    def __init__(self, config: RuleConfig | None = None, *, num_processes: int = 1) -> None:
        """`num_processes`: that verify at the same time and share the cores."""
        super().__init__(
            "cooper_rl.verdicts.program_worker", config or RuleConfig(), num_processes=num_processes
        )

    def verify(self, items: Sequence[AnswerItem | tuple[str, str]]) -> list[ProgramCheck]:
        """One check per item, in order; a pair is a reference answer and a completion.

        Raises:
            CooperError: the verifier is closed, its workers cannot be started, or this system cannot shut a
                program in.
        """
        self._check_open()
        keys = [(item[0], item[1]) for item in items]
        found = {key: find_run(*key) for key in keys}
        checks = {key: check for key, check in found.items() if isinstance(check, ProgramCheck)}
        runs = {key: run for key, run in found.items() if isinstance(run, ProgramRun)}
        questions = [[run.program, [test.call for test in run.tests]] for run in runs.values()]
        for (key, run), reply in zip(runs.items(), self._ask(questions), strict=True):
            checks[key] = _judge(run.tests, reply)
        return [checks[key] for key in keys]


def _parse_test(line: str) -> ProgramTest:
    try:
        match parse_python(line, mode="eval").body:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id=name)) as call, ops=[ast.Eq()], comparators=[value]
            ) if _names_each_once(call):
                for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                    ast.literal_eval(argument)
                expected = ast.literal_eval(value)
                encode(expected)
                parameters = tuple(keyword.arg for keyword in call.keywords if keyword.arg is not None)
                # Spelled one way: `contradicts` compares calls as texts.
                return ProgramTest(ast.unparse(call), name, parameters, expected)
            case _:
                pass
    # TypeError: a list as a key, or in a set.
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise ValueError(f"{line[:100]!r} is no test of plain values; write a line such as f(a=1, b=2) == 5")


def _names_each_once(call: ast.Call) -> bool:
    """False for a call with a name twice, which Python refuses whatever the function is."""
    return len({keyword.arg for keyword in call.keywords}) == len(call.keywords)


def _judge(tests: Sequence[ProgramTest], reply: Any) -> ProgramCheck:
    match reply:
        case ["results", results]:
            failure = next(_failures(tests, results), None)
            if failure is None:
                return ProgramCheck("correct", f"passes {len(tests)} tests")
            return ProgramCheck("incorrect", failure)
        case ["unsafe", why]:
            raise CooperError(
                f"programs cannot be shut in here, so none is run: {why}; verify them on a Linux system "
                "whose kernel allows seccomp filters"
            )
        case [str(word), why] if word == LOST:
            return LostCheck("unparsable", f"no verdict: {why}")
        case [_, why]:
            return ProgramCheck("incorrect", f"the program gave no results: {_shown(why)}")
        case _:
            return ProgramCheck("incorrect", "the program gave no results")


def _failures(tests: Sequence[ProgramTest], results: Sequence[Any]) -> Iterator[str]:
    # Whatever stands in the results is the program's word: it is compared, and never evaluated.
    for test, result in zip(tests, results, strict=True):
        if result == ["value", encode(test.expected)]:
            continue
        match result:
            case ["error", str(why)]:
                yield _shown(why)
            case _:
                yield f"{test.call} gives another value"


def _shown(why: object) -> str:
    """Text that a program may have written itself, without characters that files or terminals refuse."""
    return printable(str(why)[:200])
