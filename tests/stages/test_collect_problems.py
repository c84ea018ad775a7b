"""Files in, two disjoint sets of problems out, and every row that was set aside with its reason."""

import json
import os
import subprocess
import sys
import tracemalloc
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.records.files import read_records, read_report
from cooper_rl.schema.data import Problem, RejectedRow
from cooper_rl.schema.reports import CollectReport
from cooper_rl.stages import collect_problems
from tests.stand_ins.serving import serving


def _write(path: Path, rows: list) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def _collect(folder: Path, *overrides: str, sources: list = (), held_out_sources: list = ()):
    """Run the stage; returns its outputs by name."""
    values = ["problems.num_tiny=0", "problems.num_held_out=0", *overrides]
    for name, paths in (("sources", sources), ("held_out_sources", held_out_sources)):
        if paths:
            values.append(f"problems.{name}={json.dumps([str(path) for path in paths])}")
    out = {name: folder / "out" / name for name in ("problems", "held_out", "rejected", "report")}
    report = collect_problems.run(load("laptop", values), **out)
    assert read_report(out["report"], CollectReport) == report
    rejected = [RejectedRow.model_validate_json(line) for line in out["rejected"].read_text().splitlines()]
    return SimpleNamespace(
        problems=read_records(out["problems"], Problem),
        held_out=read_records(out["held_out"], Problem),
        rejected=rejected,
        report=report,
    )


def _rows(count: int, start: int = 0) -> list[dict]:
    return [
        {"question": f"What is {n} + 1?", "answer": f"Add.\n#### {n + 1}"}
        for n in range(start, start + count)
    ]


def test_problems_get_stable_ids_and_their_source_from_the_file(tmp_path):
    found = _collect(tmp_path, sources=[_write(tmp_path / "train.jsonl", _rows(3))],
                     held_out_sources=[_write(tmp_path / "test.jsonl", _rows(2, start=50))])  # fmt: skip
    assert found.problems[1] == Problem(
        id="train-2", source="train.jsonl", question="What is 1 + 1?", reference_answer="2"
    )
    assert [problem.id for problem in found.held_out] == ["test-1", "test-2"]
    assert (found.report.num_problems, found.report.num_held_out, found.report.num_rejected) == (3, 2, 0)


def test_held_out_problems_are_drawn_with_the_seed_and_none_is_in_both(tmp_path):
    source = _write(tmp_path / "train.jsonl", _rows(100))
    first = _collect(tmp_path, "problems.num_held_out=20", sources=[source])
    again = _collect(tmp_path, "problems.num_held_out=20", sources=[source])
    other = _collect(tmp_path, "problems.num_held_out=20", "seed=1", sources=[source])
    assert (len(first.problems), len(first.held_out)) == (80, 20)
    assert not {p.question for p in first.problems} & {p.question for p in first.held_out}
    assert again.held_out == first.held_out
    assert other.held_out != first.held_out


def test_max_problems_keeps_a_seeded_choice_in_file_order(tmp_path):
    source = _write(tmp_path / "train.jsonl", _rows(100))
    found = _collect(tmp_path, "problems.max_problems=30", "problems.num_held_out=10", sources=[source])
    rows = [int(problem.id.removeprefix("train-")) for problem in found.problems]
    assert (len(found.problems), len(found.held_out)) == (20, 10)
    assert rows == sorted(rows)


def test_a_training_question_that_is_held_out_is_set_aside(tmp_path):
    test = _write(tmp_path / "test.jsonl", _rows(2))
    train = _write(
        tmp_path / "train.jsonl", [{"question": " what is  1 + 1? ", "answer": "x #### 2"}, *_rows(3, 5)]
    )
    found = _collect(tmp_path, sources=[train], held_out_sources=[test])
    assert (len(found.problems), len(found.held_out)) == (3, 2)
    assert found.rejected == [
        RejectedRow(
            file=str(train), row=1, reason=f"duplicate question 'what is 1 + 1?', first seen in {test}:2",
            content='{"question": " what is  1 + 1? ", "answer": "x #### 2"}',
        )
    ]  # fmt: skip


def test_bad_rows_are_set_aside_with_their_reason_and_the_rest_goes_on(tmp_path):
    rows = [
        {"id": "a", "source": "mine", "question": "One?", "reference_answer": "1"},
        '{"question": "Cut off',
        [1, 2],
        {"id": "b", "question": "No answer?"},
        {"id": "c", "question": "", "reference_answer": "2"},
        {"id": "d", "question": "Unparsable?", "reference_answer": "?!"},
        {"id": "a", "question": "Same id?", "reference_answer": "3"},
        {"id": "e", "question": "one?", "reference_answer": "1"},
        {"id": "f", "question": "Two?", "reference_answer": 2.0},
        '{"id": "g", "question": "Half a pair: \\ud83d", "reference_answer": "4"}',
    ]
    test = _write(tmp_path / "test.jsonl", _rows(1))
    found = _collect(tmp_path, sources=[_write(tmp_path / "mine.jsonl", rows)], held_out_sources=[test])
    assert found.problems == [
        Problem(id="a", source="mine", question="One?", reference_answer="1"),
        Problem(id="f", source="mine.jsonl", question="Two?", reference_answer="2"),
    ]
    assert found.report.num_rejected == 8
    reasons = {row.row: row.reason for row in found.rejected}
    assert sorted(reasons) == [2, 3, 4, 5, 6, 7, 8, 10]
    for row, start in {
        2: "not JSON", 3: "the row is a list", 4: "field 'reference_answer' is missing",
        5: "field 'question' is empty", 6: "field 'reference_answer': unparsable reference answer",
        7: "duplicate id 'a', first seen in", 8: "duplicate question 'one?', first seen in",
        10: "not JSON: 'utf-8' codec can't encode",
    }.items():  # fmt: skip
        assert reasons[row].startswith(start)


def test_numeric_ids_and_equal_file_names_do_not_collide(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    first = _write(tmp_path / "a" / "train.jsonl", [{"id": 0, "question": "A?", "answer": "1"}])
    second = _write(tmp_path / "b" / "train.jsonl", [{"id": 0, "question": "B?", "answer": "1"}])
    third = _write(tmp_path / "c" / "train.jsonl", [{"question": "C?", "answer": "1"}])
    test = _write(tmp_path / "test.jsonl", _rows(1))
    found = _collect(tmp_path, sources=[first, second, third], held_out_sources=[test])
    assert [problem.id for problem in found.problems] == ["train-0", "train-2-0", "train-3-1"]


def test_a_stem_that_a_file_has_by_itself_is_given_to_no_other(tmp_path):
    sources = []
    for number, name in enumerate(("x/a", "y/a", "z/a-2")):
        (tmp_path / name).parent.mkdir()
        sources.append(_write(tmp_path / f"{name}.jsonl", [{"question": f"{number}?", "answer": "1"}]))
    test = _write(tmp_path / "test.jsonl", _rows(1))
    found = _collect(tmp_path, sources=sources, held_out_sources=[test])
    assert [problem.id for problem in found.problems] == ["a-1", "a-2-1", "a-2-2-1"]


def test_id_and_source_are_recognised_in_any_case(tmp_path):
    source = _write(
        tmp_path / "a.jsonl", [{"Question": "A?", "Reference_Answer": "1", "ID": "x", "Source": "GSM"}]
    )
    found = _collect(tmp_path, sources=[source], held_out_sources=[_write(tmp_path / "test.jsonl", _rows(1))])
    assert [(problem.id, problem.source) for problem in found.problems] == [("x", "GSM")]


def test_a_source_that_is_an_output_too_stays(tmp_path):
    (tmp_path / "out").mkdir()
    source = _write(tmp_path / "out" / "problems", _rows(3))
    with pytest.raises(DataError, match="problems: is a source and an output"):
        _collect(tmp_path, "problems.num_held_out=1", sources=[source])
    assert len(source.read_text().splitlines()) == 3


def test_parquet_and_explicit_columns_are_read(tmp_path):
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"Aufgabe": ["Wie viele?", "Wo?"], "Zahl": [145.0, 0.5]}), path)
    test = tmp_path / "test.parquet"
    pq.write_table(pa.table({"Aufgabe": ["Wann?"], "Zahl": [1]}), test)
    columns = ("problems.question_column=Aufgabe", "problems.answer_column=Zahl")
    found = _collect(tmp_path, *columns, sources=[path], held_out_sources=[test])
    assert [(p.id, p.reference_answer) for p in found.problems] == [("train-1", "145"), ("train-2", "0.5")]


def test_the_laptop_world_is_generated_beside_files(tmp_path):
    source = _write(tmp_path / "train.jsonl", _rows(2))
    found = _collect(tmp_path, "problems.num_tiny=20", "problems.num_held_out=4", sources=[source])
    assert len(found.problems) + len(found.held_out) == 22
    assert {problem.source for problem in found.problems} <= {"tiny", "train.jsonl"}


def test_a_url_is_read_and_named_in_place_of_the_temporary_file(tmp_path):
    _write(tmp_path / "train.jsonl", [*_rows(2), {"question": "No answer?"}])
    (tmp_path / "broken.parquet").write_bytes(b"no")
    test = _write(tmp_path / "test.jsonl", _rows(1, start=9))
    handler = partial(_QuietHandler, directory=str(tmp_path))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as url:
        found = _collect(tmp_path, sources=[f"{url}/train.jsonl"], held_out_sources=[test])
        with pytest.raises(DataError, match=rf"^{url}/broken.parquet: not a readable Parquet file"):
            _collect(tmp_path, sources=[f"{url}/broken.parquet"], held_out_sources=[test])
    assert [(p.id, p.source) for p in found.problems] == [
        ("train-1", "train.jsonl"),
        ("train-2", "train.jsonl"),
    ]
    assert [row.file for row in found.rejected] == [f"{url}/train.jsonl"]


def test_a_signed_url_may_be_longer_than_a_name_of_a_file(tmp_path):
    _write(tmp_path / "train.jsonl", _rows(2))
    test = _write(tmp_path / "test.jsonl", _rows(1, start=9))
    handler = partial(_QuietHandler, directory=str(tmp_path))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as url:
        signed = f"{url}/train.jsonl?X-Amz-Signature={'0' * 400}"
        found = _collect(tmp_path, sources=[signed], held_out_sources=[test])
    assert [problem.source for problem in found.problems] == ["train.jsonl"] * 2


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


def test_sources_that_cannot_be_used_are_data_errors_with_a_remedy(tmp_path):
    empty = _write(tmp_path / "empty.jsonl", [])
    unknown = _write(tmp_path / "unknown.jsonl", [{"text": "x", "score": 1}])
    lists = _write(tmp_path / "lists.jsonl", [[1], [2]])
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\n")
    bad = _write(tmp_path / "bad.jsonl", [{"question": "q", "answer": None}, {"question": "r", "answer": ""}])
    for source, message in {
        tmp_path / "absent.jsonl": r"absent.jsonl: no such file; check the path",
        "data/train/all": r"problems source 'data/train/all': no such file, and neither .* nor a hub",
        "x" * 300: r"problems source 'x+': no such file, and neither",
        "https://[::1": r"https://\[::1: cannot be downloaded \(.*Invalid",
        pipe: r"pipe: is a pipe or device, whose rows cannot be read twice; save them to a file",
        tmp_path: r"is a folder; name the .jsonl or .parquet files in it",
        empty: r"empty.jsonl: is empty; give a source with at least one problem",
        unknown: r'unknown.jsonl: unknown layout, its first row has \["score", "text"\]; a problem row',
        lists: r"lists.jsonl: unknown layout, its first row has \"a list\"",
        binary: r"binary.jsonl: no readable row; the first: .*binary.jsonl:1: not UTF-8",
        bad: r"bad.jsonl: no usable row among 2; the first: .*bad.jsonl:1: field 'answer' is null",
    }.items():
        with pytest.raises(DataError, match=message):
            _collect(tmp_path, "problems.num_held_out=1", sources=[source])


def test_a_source_without_the_columns_that_were_named_is_an_error(tmp_path):
    mine = _write(tmp_path / "mine.jsonl", [{"task": "How many?", "answer": "5"}])
    other = _write(tmp_path / "other.jsonl", _rows(2))
    message = (
        r"other.jsonl: unknown layout, .*; it lacks problems.question_column=task, which holds for every"
    )
    with pytest.raises(DataError, match=message):
        _collect(tmp_path, "problems.num_held_out=1", "problems.question_column=task", sources=[mine, other])
    with pytest.raises(
        DataError, match=r"name yours with problems\.question_column and problems\.answer_column"
    ):
        _collect(tmp_path, "problems.num_held_out=1", sources=[mine])


def test_too_few_problems_for_the_held_out_ones_is_an_error(tmp_path):
    source = _write(tmp_path / "train.jsonl", [*_rows(3), *_rows(2)])
    with pytest.raises(
        DataError, match=r"num_held_out=3 leaves nothing to train on: 3 usable .* 2 rows set as"
    ):
        _collect(tmp_path, "problems.num_held_out=3", sources=[source])


def test_no_source_at_all_is_refused_before_anything_runs():
    with pytest.raises(ConfigError, match=r"no problems: set problems.sources or problems.num_tiny"):
        load("laptop", ["problems.num_tiny=0"])


def collect_from_hub(
    door: type[BaseHTTPRequestHandler], folder: Path, *program: str, sources: list[str]
) -> subprocess.CompletedProcess[str]:
    """The stage in a process whose hub is this handler."""
    command = [sys.executable, *program, "collect-problems", "--preset", "laptop"]
    command += ["--set", "problems.num_tiny=0", "--set", f"problems.sources={json.dumps(sources)}"]
    for name in ("problems", "held-out", "rejected", "report"):
        command += [f"--{name}", str(folder / name)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    with serving(HTTPServer(("127.0.0.1", 0), door)) as url:
        environment = kept | {"HF_ENDPOINT": url, "HF_HOME": str(folder / "cache")}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("status", [0, 503])
def test_a_hub_that_is_away_is_asked_for_no_data_set(tmp_path: Path, status: int) -> None:
    """Its library would ask six times, and wait for each answer."""
    pytest.importorskip("datasets", reason="needs the extra hub")
    visits: list[str] = []

    class Door(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            visits.append(self.path)
            if status:
                self.send_error(status)

        def log_message(self, format: str, *_: object) -> None:
            pass

    done = collect_from_hub(Door, tmp_path, "-m", "cooper_rl", sources=["owner/name:main:train"])
    assert done.returncode == 2, done.stderr
    assert len(visits) == 1
    assert "what it would give is taken from" in done.stderr
    assert "owner/name:main:train: the hub data set cannot be read" in done.stderr


def test_a_missing_extra_is_named_before_a_file_is_read_or_the_hub_is_asked(tmp_path: Path) -> None:
    """Where its library is not installed; the first source is a file that cannot be used."""
    visits: list[object] = []

    class Door(BaseHTTPRequestHandler):
        def handle(self) -> None:
            visits.append(self.client_address)  # and no answer

    code = (
        "import sys; sys.modules['datasets'] = None\n"
        "from cooper_rl.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    (tmp_path / "bad.jsonl").write_text("[]\n")
    sources = [str(tmp_path / "bad.jsonl"), "owner/name:main:train"]
    done = collect_from_hub(Door, tmp_path, "-c", code, sources=sources)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(
        "cooper-rl collect-problems: owner/name:main:train: reading from the hub needs the extra `hub`: pip"
    )
    assert visits == []


def _real_data() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "data"
    return Path(os.environ.get("COOPER_REAL_DATA", beside)) / "problems"


@pytest.mark.real_data
@pytest.mark.skipif(not _real_data().is_dir(), reason="no public data: set COOPER_REAL_DATA to its folder")
def test_published_problem_sets_are_read_almost_whole(tmp_path):
    """MATH train has 4 rows without an answer; Big-Math 20 whose answer is a bare sign or nothing, 24
    whose answer has a brace or bracket too many or breaks off, and 19 questions that stand in the training
    files of GSM8K and MATH."""
    folder = _real_data()
    found = _collect(
        tmp_path,
        sources=[folder / f"{name}.jsonl" for name in ("gsm8k_train", "math_train", "bigmath_rule_fails")],
        held_out_sources=[
            folder / f"{name}.jsonl" for name in ("gsm8k_test", "math500", "svamp", "olympiadbench")
        ],
    )
    assert len(found.held_out) == 1319 + 500 + 1000 + 675
    assert len(found.problems) == 7473 + 7362 + 4915 - 24
    assert sum("math_train" in row.file for row in found.rejected) == 4
    answers = {problem.id: problem.reference_answer for problem in found.held_out}
    assert (answers["gsm8k_test-0"], answers["svamp-0"], answers["olympiadbench-0"]) == ("18", "145", "2")


def _peak_bytes(folder: Path, source: Path) -> int:
    values = [
        "problems.num_tiny=0",
        "problems.num_held_out=10",
        f"problems.sources={json.dumps([str(source)])}",
    ]
    out = {name: folder / name for name in ("problems", "held_out", "rejected", "report")}
    tracemalloc.start()
    try:
        collect_problems.run(load("laptop", values), **out)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_holds_the_places_of_problems_and_not_their_texts(tmp_path: Path) -> None:
    """1,000 problems, then 7,000: at most 250 bytes for each of the 6,000, bounded caches of answers among
    them. Held with their ids and questions they took 1,470."""
    for name, count in (("few", 1000), ("many", 7000)):
        _write(tmp_path / f"{name}.jsonl", _rows(count))
    _peak_bytes(tmp_path / "few", tmp_path / "few.jsonl")  # what is loaded once and stays
    few = _peak_bytes(tmp_path / "few", tmp_path / "few.jsonl")
    many = _peak_bytes(tmp_path / "many", tmp_path / "many.jsonl")
    assert many - few < 1_500_000
