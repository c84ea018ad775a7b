"""Savings and cost of a cascade: calls, tokens and wrong labels beside asking the judge always.

    python -m benchmarks.label_cost                    # about ten minutes on two cores
    python -m benchmarks.label_cost --only rate-limit

The judge is a stand-in on a socket that knows the labels of the rows and errs at a given rate, by a hash of
the texts. The stage `label-completions` asks it. Tokens are estimated from the characters on both sides. The
estimated error is that of the report; the true one is counted against the labels of the rows.
"""

import argparse
import json
import logging
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks._labelled import FILES, Case, find_data, read_cases
from cooper_rl.config.data import ServerConfig
from cooper_rl.config.load import load
from cooper_rl.randomness import derive_seed
from cooper_rl.records.files import read_records, write_records
from cooper_rl.schema.data import Completion, Label, Problem
from cooper_rl.schema.reports import Interval, LabelReport
from cooper_rl.servers.judge import ChatJudge
from cooper_rl.stages import label_completions
from cooper_rl.verdicts.hybrid import JudgeItem
from tests.stand_ins.chat import RateLimit, Reply, ScriptedServer

USED = tuple(name for name in FILES if name != "nasty_pairs")
AUDIT_SHARES = (0.0, 0.02, 0.05, 0.1)
REASONING = (
    "The solution commits to a final answer. Compared with the reference answer it means the same or not. "
    * 3
)
RULE_ALONE = ("labeling.judge=null", "labeling.rule.policy.number_words=true")


class Setting(NamedTuple):
    """Judges of known error, and when they are asked."""

    error: float
    third_error: float | None
    audit_share: float | None
    """None: always."""

    def overrides(self, urls: Mapping[float, str]) -> list[str]:
        """Of the laptop's preset."""
        found = [*RULE_ALONE[1:], f"labeling.judge={_judge(urls[self.error], 'judge')}"]
        if self.third_error is not None:
            found.append(f"labeling.third_vote={{ judge = {_judge(urls[self.third_error], 'third')} }}")
        if self.audit_share is not None:
            found += [
                "labeling.judge_asked=where_rule_abstains",
                f"labeling.audit_fraction={self.audit_share}",
            ]
        return found


def main() -> int:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["labels", "types", "rate-limit"])
    parser.add_argument("--files", nargs="+", choices=FILES, default=USED)
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    sys.stdout.write(f"{time.strftime('%Y-%m-%d', time.gmtime())}, commit {commit.stdout.strip()}\n\n")
    if options.only != "rate-limit":
        data = find_data()
        if data is None:
            sys.stderr.write("no real data: put it at ../shared/data or name it in COOPER_REAL_DATA\n")
            return 1
        cases = [case for name in options.files for case in read_cases(data, name)]
        if options.only != "types":
            write_labels(cases)
        if options.only != "labels":
            write_types(cases)
    if options.only in (None, "rate-limit"):
        write_rate_limit()
    return 0


def write_labels(cases: Sequence[Case]) -> None:
    """One table for each pair of judges."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        gold = write_inputs(cases, folder)
        label(folder, list(RULE_ALONE))
        shutil.copy(folder / "labels.jsonl.journal", folder / "rule.journal")
        for error, third_error in ((0.02, None), (0.05, None), (0.05, 0.05)):
            second = (
                "" if third_error is None else f", second judge of the third vote errs on {third_error:.0%}"
            )
            sys.stdout.write(f"judge errs on {error:.0%}{second}\n\n{HEAD}\n")
            for audit_share in (None, *AUDIT_SHARES):
                sys.stdout.write(f"{measure(folder, gold, Setting(error, third_error, audit_share))}\n")
                sys.stdout.flush()
            sys.stdout.write("\n")


def write_types(cases: Sequence[Case]) -> None:
    """The loss of labels by kind of answer, with a judge that never errs and is asked always."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(cases, folder)
        with _judges(folder, {0.0}) as urls:
            agreement = label(folder, Setting(0.0, None, None).overrides(urls)).agreement
    assert agreement is not None
    sys.stdout.write(
        "| reference answer | completions | correct | dropped of them | kappa of rule and judge |\n"
    )
    sys.stdout.write("|-|-|-|-|-|\n")
    for kind, found in {"all": agreement.overall, **agreement.by_answer_type}.items():
        share = "-" if found.correct_dropped_share is None else f"{100 * found.correct_dropped_share:.1f} %"
        kappa = "-" if found.rule_and_judge.kappa is None else f"{found.rule_and_judge.kappa:.3f}"
        sys.stdout.write(
            f"| {kind} | {found.num_completions:,} | {found.num_correct:,} | {found.num_correct_dropped} "
            f"({share}) | {kappa} |\n"
        )
    sys.stdout.write("\n")


HEAD = (
    "| judge asked | calls | prompt tokens | answer tokens | labelled | wrong labels | correct dropped | "
    "wrong of those unchecked | estimated |\n|-|-|-|-|-|-|-|-|-|"
)


def write_inputs(cases: Sequence[Case], folder: Path) -> dict[str, bool]:
    """Write problems.jsonl and completions.jsonl; returns completion id -> is correct."""
    problems: dict[tuple[str, str], Problem] = {}
    completions: list[Completion] = []
    gold: dict[str, bool] = {}
    for case in cases:
        question = case.question or f"What is {case.reference_answer}?"
        if not case.completion or case.id in gold:
            continue
        key = (question, case.reference_answer)
        if key not in problems:
            problems[key] = Problem(
                id=f"p{len(problems)}",
                source="labelled",
                question=question,
                reference_answer=case.reference_answer,
            )
        completions.append(
            Completion(
                id=case.id, problem_id=problems[key].id, model="m", text=case.completion, finish_reason="stop"
            )
        )
        gold[case.id] = case.is_correct
    write_records(folder / "problems.jsonl", problems.values())
    write_records(folder / "completions.jsonl", completions)
    texts = {problem.id: key for key, problem in problems.items()}
    truth = [[*texts[row.problem_id], row.text, gold[row.id]] for row in completions]
    (folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
    return gold


def measure(folder: Path, gold: Mapping[str, bool], setting: Setting) -> str:
    """One row; the rule's verdicts are known already."""
    shutil.copy(folder / "rule.journal", folder / "labels.jsonl.journal")
    with _judges(folder, {setting.error, setting.third_error or 0.0}) as urls:
        report = label(folder, setting.overrides(urls))
    return row_of(setting, report, read_records(folder / "labels.jsonl", Label), gold)


def row_of(setting: Setting, report: LabelReport, labels: Sequence[Label], gold: Mapping[str, bool]) -> str:
    """A row of the table in Markdown."""
    usages = [usage for usage in (report.judge_usage, report.third_judge_usage) if usage is not None]
    wrong = [
        row for row in labels if row.is_correct is not None and row.is_correct != gold[row.completion_id]
    ]
    dropped = sum(row.is_correct is None and gold[row.completion_id] for row in labels)
    asked = "always" if setting.audit_share is None else f"cascade, audit {setting.audit_share:g}"
    unchecked = [row for row in wrong if row.reason == "rule_alone"]
    audit = report.audit
    cells = [
        asked,
        f"{sum(usage.num_requests - usage.num_retries for usage in usages):,}",
        f"{sum(usage.prompt_tokens for usage in usages):,}",
        f"{sum(usage.completion_tokens for usage in usages):,}",
        f"{report.num_labelled:,}",
        f"{len(wrong)}",
        f"{dropped}",
        "-" if setting.audit_share is None else f"{len(unchecked)}",
        _show(audit.num_wrong if audit else None),
    ]
    return f"| {' | '.join(cells)} |"


class StandInJudge:
    """Says what the rows' labels say, but the opposite for a share of the texts."""

    def __init__(self, truth: Mapping[tuple[str, ...], bool], error: float) -> None:
        self._truth, self._error = truth, error

    def __call__(self, number: int, body: dict[str, Any]) -> Reply:
        prompt = body["messages"][1]["content"]
        nonce = re.search(r"<problem-([0-9a-f]{16})>", prompt)
        assert nonce is not None
        key = tuple(_between(prompt, tag, nonce[1]) for tag in ("problem", "reference-answer", "solution"))
        errs = derive_seed(body["model"], *key) / 2**63 < self._error
        word = "CORRECT" if self._truth[key] != errs else "INCORRECT"
        text = f"{REASONING}\nVERDICT-{nonce[1]}: {word}"
        return 200, {}, json.dumps({"choices": [{"message": {"content": text}}]})


def label(folder: Path, overrides: Sequence[str]) -> LabelReport:
    """The stage on the rows of a folder."""
    paths = {
        name: folder / f"{name}.jsonl"
        for name in ("problems", "completions", "labels", "train", "validation", "test")
    }
    return label_completions.run(load("laptop", [*overrides]), **paths, report=folder / "report.json")


def write_rate_limit() -> None:
    """Verdicts that are given up while a server refuses most of the requests for their rate."""
    items = [
        JudgeItem(f"What is 1 + {number}?", str(1 + number), f"#### {1 + number}") for number in range(600)
    ]
    truth = {tuple(item): True for item in items}
    sys.stdout.write(
        "| server | texts | given up | refused for the rate | requests | seconds |\n|-|-|-|-|-|-|\n"
    )
    for rate, burst, headers in ((20, 20, {"retry-after": "1"}), (100, 10, {"retry-after-ms": "100"})):
        limit = RateLimit(StandInJudge(truth, 0.0), per_second=rate, burst=burst, headers=headers)
        server = ScriptedServer(limit)
        judge = ChatJudge(ServerConfig(base_url=server.url, model="m"))
        started = time.monotonic()
        results = judge.judge(items)
        seconds = time.monotonic() - started
        server.close()
        given_up = sum(result.failure is not None for result in results)
        said = ", ".join(f"{name}: {value}" for name, value in headers.items())
        sys.stdout.write(
            f"| {rate} a second, {burst} at once, {said} | {len(items)} | {given_up} | {limit.num_refused} | "
            f"{judge.usage.num_requests} | {seconds:.0f} |\n"
        )


@contextmanager
def _judges(folder: Path, errors: set[float]) -> Iterator[dict[float, str]]:
    """Rate of errors -> address of a stand-in that has it, while the block runs."""
    rows = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    truth = {tuple(row[:3]): row[3] for row in rows}
    servers = {error: ScriptedServer(StandInJudge(truth, error)) for error in errors}
    try:
        yield {error: server.url for error, server in servers.items()}
    finally:
        for server in servers.values():
            server.close()


def _judge(url: str, model: str) -> str:
    return f'{{ server = {{ base_url = "{url}", model = "{model}", max_concurrency = 16 }} }}'


def _between(prompt: str, tag: str, nonce: str) -> str:
    return prompt.split(f"<{tag}-{nonce}>\n", 1)[1].split(f"\n</{tag}-{nonce}>", 1)[0]


def _show(found: Interval | None) -> str:
    return "-" if found is None else f"{found.value:.0f} [{found.low:.0f}, {found.high:.0f}]"


if __name__ == "__main__":
    raise SystemExit(main())
