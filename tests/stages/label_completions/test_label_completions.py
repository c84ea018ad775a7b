import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from cooper_rl.config.data import LabelingConfig
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.errors import ConfigError, DataError, ServerError
from cooper_rl.records.files import read_records, write_records
from cooper_rl.schema.data import Completion, JudgeVote, Label, Problem, RejectedRow, VerifyExample
from cooper_rl.schema.reports import JudgeUsage, LabelReport
from cooper_rl.stages import label_completions
from cooper_rl.verdicts.hybrid import JudgeItem, JudgeResult
from cooper_rl.verdicts.journal import Journal, KeptVerdict
from cooper_rl.verdicts.votes import Electorate, collect_votes
from tests.full_disk import no_file_beyond
from tests.stand_ins.chat import Reply, ScriptedServer

NUM_PROBLEMS = 30


def rule_only(*overrides: str) -> Config:
    return load("laptop", ["labeling.judge=null", "labeling.rule.num_workers=1", *overrides])


def write_inputs(folder: Path, texts: list[str], *, source: str = "test") -> None:
    """Thirty problems `1 + i`, each answered by every text with `{answer}` and `{wrong}` filled in."""
    problems = [
        Problem(id=f"p{i}", source=source, question=f"What is 1 + {i}?", reference_answer=str(1 + i))
        for i in range(NUM_PROBLEMS)
    ]
    completions = [
        Completion(
            id=f"p{i}-{j}",
            problem_id=f"p{i}",
            model="sampler",
            text=text.format(answer=1 + i, wrong=2 + i),
            finish_reason="stop",
        )
        for i in range(NUM_PROBLEMS)
        for j, text in enumerate(texts)
    ]
    write_records(folder / "problems.jsonl", problems)
    write_records(folder / "completions.jsonl", completions)


def label(folder: Path, config: Config, **frozen: Path) -> LabelReport:
    return label_completions.run(
        config,
        problems=folder / "problems.jsonl",
        completions=folder / "completions.jsonl",
        labels=folder / "labels.jsonl",
        train=folder / "train.jsonl",
        validation=folder / "validation.jsonl",
        test=folder / "test.jsonl",
        report=folder / "report.json",
        **frozen,
    )


def test_without_a_judge_the_rule_decides_and_what_it_cannot_read_is_dropped(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is plenty."])
    report = label(tmp_path, rule_only())
    assert (report.num_labelled, report.num_correct, report.num_dropped) == (60, 30, 30)
    assert list(report.decisions.items()) == [("rule_abstains", 30), ("rule_alone", 60)]
    audit = read_records(tmp_path / "labels.jsonl", Label)
    assert [row.is_correct for row in audit[:3]] == [True, False, None]
    assert audit[2].rule == "unparsable"
    assert "plenty" in audit[2].rule_reason


def test_no_question_is_in_two_splits_and_the_splits_are_the_same_every_time(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"])
    label(tmp_path, rule_only())
    first = {name: (tmp_path / f"{name}.jsonl").read_text() for name in ("train", "validation", "test")}
    questions = {
        name: {row.question for row in read_records(tmp_path / f"{name}.jsonl", VerifyExample)}
        for name in first
    }
    assert questions["train"].isdisjoint(questions["validation"] | questions["test"])
    assert questions["validation"].isdisjoint(questions["test"])
    assert {name: len(found) for name, found in questions.items()} == {
        "train": 24,
        "validation": 3,
        "test": 3,
    }
    label(tmp_path, rule_only())
    assert first == {name: (tmp_path / f"{name}.jsonl").read_text() for name in first}


def damage(path: Path, edits: dict[int, str | dict[str, str]]) -> None:
    """Replace lines, counted from 1, by text, or change fields of the row that stands there."""
    lines = path.read_text().splitlines()
    for number, edit in edits.items():
        old = json.loads(lines[number - 1])
        lines[number - 1] = edit if isinstance(edit, str) else json.dumps(old | edit)
    path.write_text("\n".join(lines) + "\n")


def test_bad_rows_are_set_aside_with_file_row_and_reason_and_the_rest_goes_on(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"])
    damage(tmp_path / "problems.jsonl", {3: {"id": "p0"}, 4: {"reference_answer": "\\frac{"}})
    edits: dict[int, str | dict[str, str]] = {
        6: "{not json",
        7: {"problem_id": "elsewhere"},
        9: {"id": "p7-0"},
    }
    damage(tmp_path / "completions.jsonl", edits)
    report = label(tmp_path, rule_only())
    assert (report.num_completions, report.num_correct, report.num_rejected) == (25, 25, 7)
    rejected = read_records(tmp_path / "report.json.rejected.jsonl", RejectedRow)
    assert [(Path(row.file).stem, row.row) for row in rejected] == [
        ("problems", 3), ("problems", 4),
        ("completions", 3), ("completions", 4), ("completions", 6), ("completions", 7), ("completions", 9),
    ]  # fmt: skip
    reasons = "\n".join(row.reason for row in rejected)
    assert "problems.jsonl:3: duplicate id 'p0', first seen in row 1; make ids unique" in reasons
    assert "field 'reference_answer': reference answer" in reasons
    assert "completions.jsonl:4: field 'problem_id': no usable problem 'p3'" in reasons
    assert "completions.jsonl:6: not JSON" in reasons
    assert "completions.jsonl:7: field 'problem_id': no usable problem 'elsewhere'" in reasons
    assert "completions.jsonl:9: duplicate id 'p7-0', first seen in row 8" in reasons


def test_a_run_without_bad_rows_leaves_no_rejected_file_of_an_earlier_one(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"])
    (tmp_path / "report.json.rejected.jsonl").write_text("old")
    assert label(tmp_path, rule_only()).num_rejected == 0
    assert not (tmp_path / "report.json.rejected.jsonl").exists()


def test_completions_of_which_none_can_be_used_are_refused_with_the_first_reason(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"])
    edits: dict[int, str | dict[str, str]] = {n: {"problem_id": "x"} for n in range(1, NUM_PROBLEMS + 1)}
    damage(tmp_path / "completions.jsonl", edits)
    message = (
        r"no usable Completion row; the first of 30 bad rows: "
        r".*completions.jsonl:1: .*no usable problem 'x' in"
    )
    with pytest.raises(DataError, match=message):
        label(tmp_path, rule_only())


def test_too_few_labelled_questions_are_refused_with_what_became_of_the_rows(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["I do not know."])
    with pytest.raises(
        DataError, match=r"0 of 30 completions were labelled .*'rule_abstains': 30.*at least 3"
    ):
        label(tmp_path, rule_only())


def test_labelling_imports_neither_torch_nor_kfp() -> None:
    code = (
        "import sys; import cooper_rl.stages.label_completions, cooper_rl.servers.chat;"
        "print([name for name in ('torch', 'transformers', 'kfp', 'math_verify') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


JUDGE_SERVER = """
import json, os, re, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        user = body["messages"][1]["content"]
        nonce = re.search(r"<solution-([0-9a-f]+)>", user)[1]
        reference = re.search(rf"<reference-answer-{nonce}>\\n(.*)\\n<", user)[1]
        solution = re.search(rf"<solution-{nonce}>\\n(.*)\\n<", user)[1]
        with open(sys.argv[1], "a") as log:
            log.write(user.split(">", 1)[1].split("<")[0].strip() + solution + "\\n")
        word = "CORRECT" if re.findall(r"[0-9]+", solution)[-1:] == [reference] else "INCORRECT"
        text = json.dumps({"choices": [{"message": {"content": f"VERDICT-{nonce}: {word}"}}]})
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def judge_server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A chat server in its own process, and the file where it writes down every question it was asked."""
    log = tmp_path / "asked.log"
    with subprocess.Popen(
        [sys.executable, "-c", JUDGE_SERVER, str(log)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1", log
        process.kill()


def test_a_run_that_is_killed_goes_on_without_asking_the_judge_twice(
    tmp_path: Path, judge_server: tuple[str, Path]
) -> None:
    url, log = judge_server
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "So it is {answer}"])
    overrides = [
        "labeling.rule.num_workers=1",
        f'labeling.judge={{server={{base_url="{url}", model="judge-1", max_concurrency=1}}}}',
    ]
    code = (
        "import os, sys; from pathlib import Path\n"
        "from tests.stages.label_completions.test_label_completions import label\n"
        "from cooper_rl.config.load import load\n"
        "from cooper_rl.verdicts.journal import Journal\n"
        "keep, left = Journal.keep, [int(sys.argv[2])]\n"
        "def keep_then_die(self, *verdict):\n"
        "    keep(self, *verdict)\n"
        "    left[0] -= 1\n"
        "    if left[0] == 0: os.kill(os.getpid(), 9)\n"
        "Journal.keep = keep_then_die\n"
        "label(Path(sys.argv[1]), load('laptop', sys.argv[3:]))\n"
    )
    # 90 rule verdicts come first; then each run dies at another place among the 90 judge verdicts.
    for deadline in (95, 30, 1, 20):
        killed = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path), str(deadline), *overrides], check=False
        )
        assert killed.returncode == -9
        assert not (tmp_path / "labels.jsonl").exists()
    report = label(tmp_path, load("laptop", overrides))
    assert report.judge_usage is not None
    assert report.num_known_verdicts == 56
    assert report.judge_usage.num_requests == 34
    # A kill can only lose requests that are on their way; while a verdict is kept there is none.
    asked = log.read_text().splitlines()
    assert len(asked) == len(set(asked)) == 90
    assert (report.num_labelled, report.num_correct) == (90, 60)
    assert report.decisions == {"both_agree": 90}


def test_a_second_run_with_one_journal_is_refused_and_the_first_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "labels.journal"
    with Journal(path) as journal:
        journal.keep("a", "correct", "first")
        with path.open("a") as file:  # as between two writes of one line
            file.write('["b", "corr')
        with pytest.raises(ConfigError, match=r"labels\.journal: another process works here; wait until"):
            Journal(path).__enter__()
    assert path.read_text().endswith('["b", "corr')


def test_a_journal_with_a_torn_last_line_loses_that_verdict_only(tmp_path: Path) -> None:
    path = tmp_path / "labels.journal"
    with Journal(path) as journal:
        journal.keep("a", "correct", "first")
        journal.keep("b", "incorrect", "second")
    path.write_bytes(path.read_bytes()[:-5])
    with Journal(path) as journal:
        assert journal.recall("a") == KeptVerdict("correct", "first")
        assert journal.recall("b") is None
        journal.keep("b", "unparsable", "again")
    with Journal(path) as journal:
        assert journal.recall("b") == KeptVerdict("unparsable", "again")


def test_a_damaged_line_of_a_journal_loses_that_verdict_only(tmp_path: Path) -> None:
    path = tmp_path / "labels.journal"
    path.write_text('5\n[["a"], "correct", "r"]\n["b", "correct", "r"]\n')
    with Journal(path) as journal:
        assert journal.recall("b") == KeptVerdict("correct", "r")


def test_a_full_disk_under_a_journal_is_named(tmp_path: Path) -> None:
    refusal = pytest.raises(DataError, match=r"a verdict cannot be written .*too large")
    with Journal(tmp_path / "labels.journal") as journal, no_file_beyond(0), refusal:
        journal.keep("a", "correct", "first")


def test_a_journal_that_cannot_be_opened_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "labels.journal").mkdir()
    with pytest.raises(DataError, match=r"labels.journal: the journal of verdicts cannot be opened"):
        Journal(tmp_path / "labels.journal").__enter__()


def test_verdicts_are_kept_inside_the_journals_block_only(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the journal is not open"):
        Journal(tmp_path / "labels.journal").keep("a", "correct", "")


def test_where_rule_and_judge_differ_the_third_vote_decides_and_is_in_the_audit(tmp_path: Path) -> None:
    """All verdicts of the laptop's judge are flipped, so it differs from the rule wherever that has one."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is plenty."], source="tiny")
    flipped = ["labeling.rule.num_workers=1", "labeling.judge={tiny_error_rate=1.0}"]
    assert label(tmp_path, load("laptop", flipped)).decisions["rule_and_judge_disagree"] == 60
    report = label(tmp_path, load("laptop", [*flipped, "labeling.third_vote.judge.tiny_error_rate=0"]))
    assert report.decisions["rule_and_judge_disagree_third_vote_decides"] == 60
    audit = read_records(tmp_path / "labels.jsonl", Label)
    assert len(audit) == 90
    assert [(row.rule, row.judge, row.third, row.third_voter) for row in audit[:3]] == [
        ("correct", "incorrect", "correct", "tiny(error_rate=0)"),
        ("incorrect", "correct", "incorrect", "tiny(error_rate=0)"),
        ("unparsable", "correct", None, None),
    ]
    assert [row.is_correct for row in audit[:2]] == [True, False]
    assert [row.third_reason for row in audit[:3]] == [
        "states 1, reference answer 1", "states 2, reference answer 1", None,
    ]  # fmt: skip


def test_a_second_judge_breaks_the_tie(tmp_path: Path, judge_server: tuple[str, Path]) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"], source="tiny")
    server = f'{{base_url="{judge_server[0]}", model="judge-2"}}'
    config = load(
        "laptop",
        [
            "labeling.rule.num_workers=1",
            "labeling.judge={tiny_error_rate=1.0}",
            f"labeling.third_vote={{judge={{server={server}}}}}",
        ],
    )
    report = label(tmp_path, config)
    assert (report.num_labelled, report.num_correct) == (60, 30)
    assert (report.judge_model, report.judge_usage) == ("tiny(error_rate=1)", None)
    assert report.third_judge_usage is not None
    usage = report.third_judge_usage
    assert usage.num_requests - usage.num_retries == 60
    assert read_records(tmp_path / "labels.jsonl", Label)[0].third_voter == "judge-2"


def say_correct(number: int, body: dict[str, Any]) -> Reply:
    text = f"It is.\nVERDICT-{read_nonce(body)}: CORRECT"
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return 200, {}, json.dumps({"choices": [{"message": {"content": text}}], "usage": usage})


def read_nonce(body: dict[str, Any]) -> str:
    found = re.search(r"<solution-([0-9a-f]{16})>", body["messages"][1]["content"])
    assert found is not None
    return found[1]


def test_a_label_says_why_the_second_judge_gave_no_verdict(tmp_path: Path) -> None:
    """It refuses the two requests about one problem."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"], source="tiny")

    def script(number: int, body: dict[str, Any]) -> Reply:
        if "What is 1 + 0?" in body["messages"][1]["content"]:
            return 400, {}, "too long"
        return say_correct(number, body)

    server = ScriptedServer(script)
    second = f'{{judge={{server={{base_url="{server.url}", model="m"}}}}}}'
    label(tmp_path, load("laptop", ["labeling.judge={tiny_error_rate=1.0}", f"labeling.third_vote={second}"]))
    server.close()
    rows = read_records(tmp_path / "labels.jsonl", Label)
    assert [row.third_failure for row in rows[:3]] == ["refused", "refused", None]
    assert rows[0].third_reason == "no answer: HTTP 400: 'too long'"
    assert rows[0].is_correct is None
    assert rows[2].third == "correct"
    assert rows[2].third_reason is not None
    assert rows[2].third_reason.startswith("It is.")


@pytest.fixture
def agreeing_server() -> Iterator[ScriptedServer]:
    """Calls everything correct, for 110 tokens each."""
    server = ScriptedServer(say_correct)
    yield server
    server.close()


def test_what_judges_take_is_estimated_before_anything_is_asked(
    tmp_path: Path, agreeing_server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """60 decisive rows and 30 that the rule does not read: the second judge may be asked about the 60."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is plenty."])
    prices = "price_per_million_prompt_tokens=10000, price_per_million_completion_tokens=10000"
    server = f'base_url="{agreeing_server.url}", {prices}, max_requests=80'
    overrides = [
        "labeling.rule.num_workers=1",
        f'labeling.judge={{server={{model="m1", {server}}}}}',
        f'labeling.third_vote={{judge={{server={{model="m2", base_url="{agreeing_server.url}"}}}}}}',
    ]
    num_asked: list[int] = []
    caplog.handler.addFilter(lambda record: num_asked.append(len(agreeing_server.bodies)) or True)
    with caplog.at_level("INFO", logger="cooper_rl.verdicts.votes"), pytest.raises(ServerError) as stopped:
        label(tmp_path, load("laptop", overrides))
    said = [text for text in caplog.messages if text.startswith("judge m")]
    assert re.fullmatch(
        r"judge m1: 0 .*; about 90 requests, \d+ prompt tokens with the instructions, "
        r"23040 completion tokens, a cost of \d+\.\d\d; "
        r"server\.max_requests=80 ends it after about 89% of them",
        said[0],
    )
    assert said[1].startswith("judge m2: 0 verdicts are known or asked for once; at most 60 requests, ")
    assert num_asked[caplog.messages.index(said[1])] == 0
    assert "server.max_requests=80 is spent" in str(stopped.value)
    report = label(tmp_path, load("laptop", [*overrides, "labeling.judge.server.max_requests=200"]))
    assert report.num_known_verdicts == 80
    assert report.judge_usage is not None
    assert (report.judge_usage.num_requests, report.judge_usage.cost) == (10, pytest.approx(11.0))


def test_of_several_judges_the_majority_counts_and_each_is_in_the_label(tmp_path: Path) -> None:
    """The first judge is always wrong, the two others (almost) never."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is {answer}."], source="tiny")
    others = "labeling.other_judges=[{tiny_error_rate=0.0}, {tiny_error_rate=0.000001}]"
    report = label(tmp_path, load("laptop", ["labeling.judge={tiny_error_rate=1.0}", others]))
    assert report.decisions == {"both_agree": 90}
    assert report.judge_model == "tiny(error_rate=1) + tiny(error_rate=0) + tiny(error_rate=1e-06)"
    row = read_records(tmp_path / "labels.jsonl", Label)[0]
    assert (row.judge, row.judge_reason) == (
        "correct",
        "2 of 3 judges say so: tiny(error_rate=0), tiny(error_rate=1e-06)",
    )
    assert [(vote.voter, vote.verdict) for vote in row.judges] == [
        ("tiny(error_rate=1)", "incorrect"), ("tiny(error_rate=0)", "correct"),
        ("tiny(error_rate=1e-06)", "correct"),
    ]  # fmt: skip
    assert row.judges[0].reason.startswith("flipped by the error rate")
    assert report.agreement is not None
    kappas = {pair: found.kappa for pair, found in report.agreement.pairs.items()}
    assert (kappas["rule~judge"], kappas["judge_2~judge_3"], kappas["judge_1~judge_2"]) == (
        1,
        1,
        pytest.approx(-0.8),
    )
    assert report.agreement.by_answer_type["integer"].correct_dropped_share == 0.0
    assert report.metrics()["agreement/pairs/rule~judge/kappa"] == 1.0


def test_labels_with_and_without_several_judges_are_the_same_in_parquet(tmp_path: Path) -> None:
    plain = {"completion_id": "c", "rule": "correct", "rule_reason": "", "judge": None, "judge_model": None}
    rows = [Label(**plain, is_correct=True, reason="rule_alone")]
    vote = JudgeVote(voter="m", verdict="correct", reason="it is")
    for found in (rows, [*rows, rows[0].model_copy(update={"judges": (vote,), "completion_id": "d"})]):
        write_records(tmp_path / "labels.parquet", found)
        assert read_records(tmp_path / "labels.parquet", Label) == found


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (
            [
                "labeling.judge={server={base_url='http://j/v1', model='m'}}",
                "labeling.other_judges=[{tiny_error_rate=0.0}]",
            ],
            r"labeling.other_judges\[0\]",
        ),
        ([], "labeling.judge"),
        (["labeling.judge=null", "labeling.third_vote.judge.tiny_error_rate=0"], "labeling.third_vote.judge"),
    ],
)
def test_the_laptops_judges_are_refused_for_real_problems(
    tmp_path: Path, overrides: list[str], key: str
) -> None:
    write_inputs(tmp_path, ["#### {answer}"], source="gsm8k")
    with pytest.raises(ConfigError, match=rf"^{key}.tiny_error_rate=.* source 'gsm8k'; set {key}=null"):
        label(tmp_path, load("laptop", overrides))
    assert not (tmp_path / "labels.jsonl").exists()


class SilentJudge:
    """Streams no verdict at all, against the protocol."""

    def announce(self, items: Iterable[JudgeItem], *, is_most: bool = False) -> str:
        return ""

    name = identity = "silent"
    usage = JudgeUsage(
        num_requests=0, num_retries=0, num_failed=0, prompt_tokens=0, completion_tokens=0, seconds=0
    )

    def judge(self, items: Sequence[JudgeItem]) -> list[JudgeResult]:
        return []

    def stream(self, items: Sequence[JudgeItem]) -> Iterator[tuple[int, JudgeResult]]:
        return iter(())


def test_a_judge_that_leaves_out_an_item_is_an_error(tmp_path: Path) -> None:
    items = [JudgeItem("What is 1+1?", "2", "#### 2")]
    with (
        Journal(tmp_path / "journal") as journal,
        pytest.raises(DataError, match=r"was asked for and not given; remove the journal and start again"),
    ):
        ask_all(items, LabelingConfig(), judge=SilentJudge(), third_judge=None, journal=journal)


class UnsteadyJudge:
    """Fails where the completion is in `broken`, agrees otherwise; counts what it is asked."""

    name = "unsteady"

    def __init__(self, *broken: str, failure: Literal["refused", "unreachable"], identity: str = "1") -> None:
        self.identity = identity
        self.asked: list[str] = []
        self._broken = broken
        self._failure: Literal["refused", "unreachable"] = failure

    def judge(self, items: Sequence[JudgeItem]) -> list[JudgeResult]:
        self.asked += [item.completion for item in items]
        return [
            JudgeResult("unparsable", "no answer: ConnectError", self._failure)
            if item.completion in self._broken
            else JudgeResult("correct", "it is")
            for item in items
        ]


ITEMS = [JudgeItem("What is 1+1?", "2", text) for text in ("#### 2", "\\boxed{2}", "It is 2")]


def ask_all(items: Sequence[JudgeItem], config: LabelingConfig, *, finish_reasons=None, **voters):
    """All votes with the rule verifier of mathematics."""
    verifier = MATHEMATICS.open_verifier(config.rule)
    verdict_name = MATHEMATICS.name_verdicts(config.rule)
    electorate = Electorate(config, verifier=verifier, verdict_name=verdict_name, **voters)
    return collect_votes(items, electorate, finish_reasons=finish_reasons)


def ask(journal: Path, judge: UnsteadyJudge) -> list[str | None]:
    with Journal(journal) as kept:
        ballot = ask_all(ITEMS, LabelingConfig(), judge=judge, third_judge=None, journal=kept)
    return [votes.judge.verdict if votes.judge else None for votes in ballot.votes]


def test_a_failed_request_is_no_verdict_and_the_next_run_asks_again(tmp_path: Path) -> None:
    judge = UnsteadyJudge("#### 2", failure="unreachable")
    assert ask(tmp_path / "journal", judge) == ["unparsable", "correct", "correct"]
    second = UnsteadyJudge(failure="unreachable")
    assert ask(tmp_path / "journal", second) == ["correct"] * 3
    assert second.asked == ["#### 2"]
    third = UnsteadyJudge(failure="unreachable")
    assert ask(tmp_path / "journal", third) == ["correct"] * 3
    assert third.asked == []


def test_a_run_in_which_every_request_fails_is_an_error_and_keeps_nothing(tmp_path: Path) -> None:
    texts = [item.completion for item in ITEMS]
    with pytest.raises(ServerError, match=r"judge unsteady: all 3 requests failed, last: no answer: Conn"):
        ask(tmp_path / "journal", UnsteadyJudge(*texts, failure="unreachable"))
    assert ask(tmp_path / "journal", UnsteadyJudge("#### 2", failure="refused"))[0] == "unparsable"
    # What is left over is refused for good: the run goes on; a server that is down still ends it.
    assert ask(tmp_path / "journal", UnsteadyJudge("#### 2", failure="refused"))[0] == "unparsable"
    with pytest.raises(ServerError, match=r"all 1 requests failed"):
        ask(tmp_path / "journal", UnsteadyJudge("#### 2", failure="unreachable"))


def test_another_judge_of_the_same_name_meets_no_kept_verdict(tmp_path: Path) -> None:
    ask(tmp_path / "journal", UnsteadyJudge(failure="refused"))
    other = UnsteadyJudge(failure="refused", identity="2")
    ask(tmp_path / "journal", other)
    assert len(other.asked) == 3


def test_another_seed_of_the_laptops_judge_meets_no_verdict_of_the_first(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}"], source="tiny")
    num_known = [
        label(tmp_path, load("laptop", ["labeling.rule.num_workers=1", seed])).num_known_verdicts
        for seed in ("seed=0", "seed=0", "seed=1")
    ]
    assert num_known == [0, NUM_PROBLEMS, 0]


def test_another_version_of_the_rule_gives_its_verdicts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_kept() -> int:
        with Journal(tmp_path / "journal") as journal:
            ask_all(ITEMS, LabelingConfig(), judge=None, third_judge=None, journal=journal)
        return len((tmp_path / "journal").read_text().splitlines())

    assert [count_kept(), count_kept()] == [3, 3]
    monkeypatch.setattr("cooper_rl.domains.mathematics.version", lambda package: f"{package} of tomorrow")
    assert [count_kept(), count_kept()] == [6, 6]


def test_a_second_judge_is_asked_only_where_rule_and_judge_differ(tmp_path: Path) -> None:
    """The judge calls both correct: the rule agrees once."""
    items = [JudgeItem("What is 1+1?", "2", "#### 2"), JudgeItem("What is 1+1?", "2", "#### 3")]
    judge, second = (UnsteadyJudge(failure="refused", identity=name) for name in ("1", "2"))
    with Journal(tmp_path / "journal") as journal:
        votes = ask_all(items, LabelingConfig(), judge=judge, third_judge=second, journal=journal).votes
    assert [vote.third_voter for vote in votes] == [None, "unsteady"]
    assert second.asked == ["#### 3"]


def test_the_question_and_how_a_completion_ended_count(tmp_path: Path) -> None:
    question = "What is 6 x 7? (A) 40 (B) 42 (C) 44"
    items = [JudgeItem(question, "42", "#### B"), JudgeItem("What is 6 x 7?", "42", "#### B")]
    items += [JudgeItem("What is 6 x 7?", "4", "#### 4")] * 2
    with Journal(tmp_path / "journal") as journal:
        votes = ask_all(
            items,
            LabelingConfig(),
            judge=None,
            third_judge=None,
            journal=journal,
            finish_reasons=["stop", "stop", "stop", "length"],
        ).votes
    assert [vote.rule.verdict for vote in votes] == ["correct", "unparsable", "correct", "unparsable"]


def test_a_cascade_asks_where_the_rule_abstains_and_audits_the_rest(tmp_path: Path) -> None:
    """60 decisive completions and 30 that only the judge reads; the judge errs on a tenth of all."""
    write_inputs(
        tmp_path,
        ["#### {answer}", "#### {wrong}", "It is certainly {answer}, so ten less ten."],
        source="tiny",
    )
    config = load(
        "laptop",
        [
            "labeling.judge_asked=where_rule_abstains",
            "labeling.audit_fraction=0.4",
            "labeling.judge.tiny_error_rate=0.1",
        ],
    )
    report = label(tmp_path, config)
    rows = read_records(tmp_path / "labels.jsonl", Label)
    decisive = [row for row in rows if row.rule != "unparsable"]
    audited = [row for row in decisive if row.judge is not None]
    assert all(row.judge is not None for row in rows if row.rule == "unparsable")
    assert 0.2 < len(audited) / len(decisive) < 0.6
    assert report.audit is not None
    assert report.audit.num_audited == len(audited)
    assert report.audit.num_unchecked == len(decisive) - len(audited)
    differing = sum(row.judge != row.rule for row in audited)
    assert report.audit.differing_share.value == pytest.approx(differing / len(audited))
    unchecked = [row for row in decisive if row.judge is None]
    assert {row.reason for row in unchecked} == {"rule_alone"}
    assert all(row.is_correct is (row.rule == "correct") for row in unchecked)
    assert label(tmp_path, config).audit == report.audit


def test_without_a_cascade_there_is_no_audit(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"], source="tiny")
    report = label(tmp_path, load("laptop"))
    assert report.audit is None
    rows = read_records(tmp_path / "labels.jsonl", Label)
    assert all(row.judge_reason and row.judge_failure is None for row in rows)
