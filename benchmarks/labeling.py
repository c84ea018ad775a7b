"""Rule verifier against math-verify alone, on real labelled completions.

    python -m benchmarks.labeling                 # all tables; throughput alone takes about five minutes
    python -m benchmarks.labeling --only accuracy

Writes Markdown to the standard output; `docs/lab/labeling.md` holds a run of it with machine and date.
"""

import argparse
import logging
import math
import os
import platform
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import math_verify

from benchmarks._labelled import FILES, STATES, Case, Half, find_data, read_cases, read_odyssey
from benchmarks.family_pairs import family_names, read_family
from cooper_rl.config.data import AnswerPolicy, RuleConfig
from cooper_rl.verdicts.answers.verify import AnswerItem
from cooper_rl.verdicts.rule import RuleVerifier

logger = logging.getLogger(__name__)

MIXED_ROWS_PER_FILE = 250
"""Rows of each file in the throughput set, evenly spread."""
HOSTILE = "nasty_pairs"
HOSTILE_CPU_SECONDS = 10.0
"""Of the plain loop on one hostile row, twice its own limit: it has no end on some."""


class Counts(NamedTuple):
    """A verifier against the labels of one file; everything but `correct` counts as not accepted."""

    true_positive: int
    false_positive: int
    false_negative: int
    unparsable: int
    rejected_correct: int
    """Completions called incorrect that are labelled correct."""
    rejected: int

    def line(self) -> str:
        """Precision, recall and F1 with 95 % intervals, as table cells."""
        accepted = self.true_positive + self.false_positive
        positive = self.true_positive + self.false_negative
        precision = self.true_positive / accepted if accepted else math.nan
        recall = self.true_positive / positive if positive else math.nan
        f1 = 2 * self.true_positive / (accepted + positive) if accepted + positive else math.nan
        return (
            f"{precision:.3f} {_wilson(self.true_positive, accepted)} | {recall:.3f} "
            f"{_wilson(self.true_positive, positive)} | {f1:.3f} | {self.rejected_correct}/{self.rejected} "
            f"{_wilson(self.rejected_correct, self.rejected)} | {self.unparsable}"
        )


def main() -> int:
    """Run the tables asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["accuracy", "families", "hostile", "throughput"])
    parser.add_argument("--half", choices=["tune", "report", "fresh"], help="Of the questions")
    parser.add_argument("--rows", type=int, default=MIXED_ROWS_PER_FILE, help="Of each file, for throughput")
    parser.add_argument("--rounds", type=int, default=3, help="Of throughput, the best of which counts")
    parser.add_argument("--files", nargs="+", choices=FILES, default=FILES, help="Of the table of accuracy")
    parser.add_argument("--odyssey", type=Path, help="A checkout of odyssey-math; then its table alone")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    if options.odyssey is not None:
        write_odyssey(options.odyssey)
        return 0
    data = find_data()
    if data is None:
        sys.stderr.write("no real data: put it at ../shared/data or name it in COOPER_REAL_DATA\n")
        return 1
    sys.stdout.write(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, ")
    sys.stdout.write(f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d', time.gmtime())}\n\n")
    tables: dict[str, Callable[[Path], None]] = {
        "accuracy": lambda folder: write_accuracy(folder, options.files, half=options.half),
        "families": lambda _: write_families(half=options.half),
        "hostile": write_hostile,
        "throughput": lambda folder: write_throughput(folder, options.rows, options.rounds),
    }
    for name, write in tables.items():
        if options.only in {None, name}:
            write(data)
    return 0


def write_accuracy(data: Path, files: Sequence[str], *, half: Half | None) -> None:
    """Precision, recall and F1 of every verifier on every file, and how many rejected rows are correct."""
    sys.stdout.write(
        "| file | rows | verifier | precision | recall | F1 | wrongly rejected | unparsable "
        "| only the rule, only this one right |\n|-|-|-|-|-|-|-|-|-|\n"
    )
    verifiers: dict[str, Callable[[Sequence[Case]], list[str]]] = {
        "math-verify": lambda cases: [_math_verify(case, is_latex=False) for case in cases],
        "math-verify, reference as LaTeX": lambda cases: [
            _math_verify(case, is_latex=True) for case in cases
        ],
        "rule": lambda cases: ask_rule(cases, AnswerPolicy()),
    }
    for name in files:
        cases = read_cases(data, name, half=half)
        found = {verifier: ask(cases) for verifier, ask in verifiers.items()}
        for verifier, verdicts in found.items():
            counts = count(cases, verdicts)
            compared = "" if verifier == "rule" else _compare(cases, found["rule"], verdicts)
            sys.stdout.write(f"| {name} | {len(cases)} | {verifier} | {counts.line()} | {compared} |\n")
        sys.stdout.flush()


def write_odyssey(folder: Path) -> None:
    """Both verifiers on answers of language models, graded by GPT-4.

    math-verify gets each answer as text and as LaTeX, and accepts it if it accepts one of them. It knows
    nothing of a question's choices.
    """
    sys.stdout.write(
        "| answers | rows | verifier | precision | recall | F1 | wrongly rejected | unparsable |\n"
    )
    sys.stdout.write("|-|-|-|-|-|-|-|-|\n")
    for name, cases in read_odyssey(folder).items():
        verdicts = {
            "math-verify": [_either_form(case) for case in cases],
            "rule": ask_rule(cases, AnswerPolicy()),
        }
        for verifier, found in verdicts.items():
            sys.stdout.write(f"| {name} | {len(cases)} | {verifier} | {count(cases, found).line()} |\n")


def _either_form(case: Case) -> str:
    forms = (case.completion, f"{STATES}${case.completion.removeprefix(STATES)}$")
    found = [_math_verify(case._replace(completion=form), is_latex=True) for form in forms]
    return "correct" if "correct" in found else "incorrect"


def _compare(cases: Sequence[Case], ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Rows that only the rule accepts or leaves rightly, and rows that only the other verifier does."""
    right = [
        ((mine == "correct") == case.is_correct, (other == "correct") == case.is_correct)
        for case, mine, other in zip(cases, ours, theirs, strict=True)
    ]
    return f"{right.count((True, False))}, {right.count((False, True))}"


def ask_rule(cases: Sequence[Case], policy: AnswerPolicy) -> list[str]:
    """The rule verifier's verdicts."""
    with RuleVerifier(RuleConfig(policy=policy)) as verifier:
        return [check.verdict for check in verifier.verify(_items(cases))]


def count(cases: Sequence[Case], verdicts: Sequence[str]) -> Counts:
    """Count accepted and missed completions against the labels."""
    pairs = [(case.is_correct, verdict == "correct") for case, verdict in zip(cases, verdicts, strict=True)]
    return Counts(
        pairs.count((True, True)),
        pairs.count((False, True)),
        pairs.count((True, False)),
        sum(verdict == "unparsable" for verdict in verdicts),
        sum(case.is_correct and v == "incorrect" for case, v in zip(cases, verdicts, strict=True)),
        sum(verdict == "incorrect" for verdict in verdicts),
    )


def write_families(*, half: Half | None) -> None:
    """Right, abstained and wrong verdicts on the pairs of each family of notation."""
    sys.stdout.write("\n| family | pairs | right | abstained | wrong |\n|-|-|-|-|-|\n")
    with RuleVerifier() as verifier:
        for family in family_names():
            pairs = read_family(family, half=half)
            checks = verifier.verify([pair.item for pair in pairs])
            rates = Counter(pair.rate(check.verdict) for pair, check in zip(pairs, checks, strict=True))
            cells = " | ".join(str(rates[name]) for name in ("right", "abstained", "wrong"))
            sys.stdout.write(f"| {family} | {len(pairs)} | {cells} |\n")


def write_hostile(data: Path) -> None:
    """Every nasty pair alone: the verdict, and the longest time that one took."""
    cases = read_cases(data, "nasty_pairs")
    wrong: list[str] = []
    slowest = (0.0, "")
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        verifier.verify([("x+1", r"\boxed{1+x}")])
        for case in cases:
            started = time.monotonic()
            (check,) = verifier.verify([(case.reference_answer, case.completion)])
            slowest = max(slowest, (time.monotonic() - started, case.id))
            if (check.verdict == "correct") != case.is_correct:
                wrong.append(f"{case.id}{' (policy-dependent)' if case.is_policy_dependent else ''}")
    sys.stdout.write(f"\n{len(cases)} nasty pairs: other than labelled: {', '.join(wrong) or 'none'}; ")
    sys.stdout.write(f"slowest {slowest[1]} {slowest[0]:.2f} s (limit 5 s of CPU time)\n")


class Cost(NamedTuple):
    """What one pass over the mixed set took, worker processes included."""

    wall_seconds: float
    cpu_seconds: float


def write_throughput(data: Path, rows_per_file: int, num_rounds: int) -> None:
    """Rows per second on rows that nothing was mended by, hostile ones included; each verifier cold."""
    plain = [
        case
        for name in FILES
        if name != HOSTILE
        for case in _spread(read_cases(data, name, half="report"), rows_per_file)
    ]
    hostile = read_cases(data, HOSTILE, half="report")
    sys.stdout.write("\n| rows | | rows/s | against the loop | CPU s | against the loop |\n|-|-|-|-|-|-|\n")
    for own_hostile in (hostile, []):
        _write_set(plain, own_hostile, num_rounds)
    sys.stdout.write(f"\nload average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores\n")


def _write_set(plain: list[Case], hostile: list[Case], num_rounds: int) -> None:
    num_rows = len(plain) + len(hostile)
    contestants: dict[str, Callable[[], None]] = {
        "math-verify loop, 1 thread": lambda: _loop(plain, hostile),
        "rule verifier, 1 worker": lambda: _verify([*plain, *hostile], 1),
        "rule verifier, 2 workers": lambda: _verify([*plain, *hostile], 2),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in contestants}
    for _ in range(num_rounds):
        for name, run in contestants.items():
            costs[name].append(_measure(run))
    loop = _best(costs["math-verify loop, 1 thread"])
    for name, measured in costs.items():
        best = _best(measured)
        sys.stdout.write(f"| {num_rows}, {len(hostile)} hostile | {name} ")
        sys.stdout.write(f"| {num_rows / best.wall_seconds:.0f} ")
        sys.stdout.write(f"| {loop.wall_seconds / best.wall_seconds:.2f}x ")
        sys.stdout.write(f"| {best.cpu_seconds:.1f} | {loop.cpu_seconds / best.cpu_seconds:.2f}x |\n")


def _spread(cases: list[Case], count: int) -> list[Case]:
    step = max(1, len(cases) // count)
    return cases[::step][:count]


def _measure(run: Callable[[], None]) -> Cost:
    started, cpu = time.monotonic(), _cpu_seconds()
    run()
    return Cost(time.monotonic() - started, _cpu_seconds() - cpu)


def _best(costs: Sequence[Cost]) -> Cost:
    return Cost(min(cost.wall_seconds for cost in costs), min(cost.cpu_seconds for cost in costs))


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _loop(plain: Sequence[Case], hostile: Sequence[Case]) -> None:
    for case in plain:
        _math_verify(case, is_latex=False)
    killed = [case.id for case in hostile if not _ends(case)]
    sys.stderr.write(f"killed, or the loop would not have ended: {', '.join(killed) or 'none'}\n")


def _ends(case: Case) -> bool:
    """True if math-verify ends by itself; in a fork, which a timer of the kernel kills."""
    child = os.fork()
    if not child:
        signal.setitimer(signal.ITIMER_PROF, HOSTILE_CPU_SECONDS)
        try:
            _math_verify(case, is_latex=False)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _verify(cases: Sequence[Case], num_workers: int) -> None:
    with RuleVerifier(RuleConfig(num_workers=num_workers)) as verifier:
        verifier.verify(_items(cases))


def _math_verify(case: Case, *, is_latex: bool) -> str:
    """math-verify 0.9 as its README calls it; its second form parses the reference answer as LaTeX."""
    reference = case.reference_answer
    if is_latex and "$" not in reference and "boxed" not in reference:
        reference = f"${reference}$"
    gold, answer = math_verify.parse(reference), math_verify.parse(case.completion)
    return "correct" if math_verify.verify(gold, answer) else "incorrect"


def _items(cases: Sequence[Case]) -> list[AnswerItem]:
    return [
        AnswerItem(case.reference_answer, case.completion, case.question, case.finish_reason)
        for case in cases
    ]


def _wilson(successes: int, total: int) -> str:
    """95 % interval of a share."""
    if total == 0:
        return ""
    z, share = 1.96, successes / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return f"[{max(0.0, centre - reach):.3f}, {min(1.0, centre + reach):.3f}]"


if __name__ == "__main__":
    sys.exit(main())
