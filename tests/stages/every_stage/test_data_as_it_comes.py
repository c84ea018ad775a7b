"""Every format into every stage that reads rows; one file from labels to evaluation; outputs by suffix."""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cooper_rl.__main__ import main
from cooper_rl.errors import DataError
from cooper_rl.records.files import check_output, read_records, write_records
from cooper_rl.records.standard_input import standard_input
from cooper_rl.schema.data import Completion, Problem, RejectedRow, VerifyExample
from cooper_rl.stages import STAGES, read_signature

ROWS = [
    {"question": f"What is {n} + {n}?", "reference_answer": str(2 * n), "completion": f"#### {2 * n + wrong}"}
    for n in range(12)
    for wrong in (0, 1)
]
RULE = ["--preset", "laptop", "--set", "labeling.judge=null", "--set", "labeling.rule.num_workers=1"]


def as_bytes(kind: str, rows: list[dict]) -> bytes:
    if kind == ".parquet":
        table = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), table)
        return table.getvalue()
    if kind in (".csv", ".tsv"):
        comma = "," if kind == ".csv" else "\t"
        return "\n".join(
            comma.join(map(str, each)) for each in [list(rows[0]), *map(dict.values, rows)]
        ).encode()
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False))


def label(path: Path | str, out: Path) -> int:
    outputs = [f"--{name}={out / name}.jsonl" for name in ("labels", "train", "validation", "test", "report")]
    return main(["label-completions", *RULE, f"--problems={path}", f"--completions={path}", *outputs])


@pytest.mark.parametrize(
    "kind", [".jsonl", ".parquet", ".csv", ".tsv", "stdin .jsonl", "stdin .parquet", "stdin .csv"]
)
def test_one_file_of_any_format_is_labelled(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = as_bytes(kind.removeprefix("stdin "), ROWS)
    if kind.startswith("stdin"):
        pipe(monkeypatch, content)
        path = "-"
    else:
        path = tmp_path / f"rows{kind}"
        path.write_bytes(content)
    assert label(path, tmp_path) == 0
    splits = [
        read_records(tmp_path / f"{name}.jsonl", VerifyExample) for name in ("train", "validation", "test")
    ]
    examples = sorted((row.question, row.completion, row.label) for rows in splits for row in rows)
    expected = [(row["question"], row["completion"], int(place % 2 == 0)) for place, row in enumerate(ROWS)]
    assert examples == sorted(expected)


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_one_labelled_file_trains_and_evaluates_in_one_command_each(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows{kind}"
    path.write_bytes(as_bytes(kind, [row | {"label": 1 - place % 2} for place, row in enumerate(ROWS)]))
    small = ["--set", "verify_rm.num_epochs=1", "--set", "verify_rm.scratch.vocab_size=300"]
    small += ["--set", "verify_rm.answer_spans=[]", "--set", "verify_rm.scratch.num_matching_examples=0"]
    model = tmp_path / "verify_rm"
    assert main(["train-verify-rm", "--preset", "laptop", *small, f"--train={path}", f"--validation={path}",
                 f"--verify-rm={model}", f"--report={tmp_path / 'train.json'}"]) == 0  # fmt: skip
    report = json.loads((tmp_path / "train.json").read_text())
    assert report["num_examples"] + report["validation"]["num_examples"] == len(ROWS)
    assert main(["evaluate-verify-rm", "--preset", "laptop", f"--verify-rm={model}", f"--examples={path}",
                 f"--report={tmp_path / 'evaluate.json'}"]) == 0  # fmt: skip
    assert json.loads((tmp_path / "evaluate.json").read_text())["overall"]["num_examples"] == len(ROWS)


def test_one_file_of_two_questions_cannot_validate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(as_bytes(".jsonl", [row | {"label": 1} for row in ROWS[:4]]))
    assert main(["train-verify-rm", "--preset", "laptop", f"--train={path}", f"--validation={path}",
                 f"--verify-rm={tmp_path / 'rm'}", f"--report={tmp_path / 'train.json'}"]) == 2  # fmt: skip
    said = capsys.readouterr().err
    assert "rows.jsonl: 2 different questions cannot fill" in said
    assert "give a file of its own as --validation" in said


VERL = [
    {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"What is {n} + 1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
        "extra_info": {"split": "train", "index": n},
    }
    for n in range(4)
]
TRL = [{"prompt": [{"role": "user", "content": f"What is {n} + 1?"}], "answer": str(n + 1)} for n in range(4)]
TABLE = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(4)]


@pytest.mark.parametrize(
    ("kind", "rows", "source"),
    [
        (".parquet", VERL, "openai/gsm8k"),
        (".jsonl", VERL, "openai/gsm8k"),
        (".parquet", TRL, "rows.parquet"),
        (".csv", TABLE, "rows.csv"),
        (".tsv", TABLE, "rows.tsv"),
        ("stdin .csv", TABLE, "stdin"),
        ("stdin .jsonl", TRL, "stdin"),
    ],
)
def test_problems_are_collected_from_any_format(
    kind: str, rows: list[dict], source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = as_bytes(kind.removeprefix("stdin "), rows)
    path = "-" if kind.startswith("stdin") else str(tmp_path / f"rows{kind}")
    if path == "-":
        pipe(monkeypatch, content)
    else:
        Path(path).write_bytes(content)
    outputs = [
        f"--{name.replace('_', '-')}={tmp_path / name}"
        for name in ("problems", "held_out", "rejected", "report")
    ]
    values = ["problems.num_tiny=0", "problems.num_held_out=1", f'problems.sources=["{path}"]']
    settings = [word for value in values for word in ("--set", value)]
    assert main(["collect-problems", "--preset", "laptop", *settings, *outputs]) == 0
    found = [row for name in ("problems", "held_out") for row in read_records(tmp_path / name, Problem)]
    assert sorted((row.question, row.reference_answer, row.source) for row in found) == [
        (f"What is {n} + 1?", str(n + 1), source) for n in range(4)
    ]


RECORDS = {
    "problems": Problem(id="a", source="s", question="q", reference_answer="1"),
    "completions": Completion(id="a", problem_id="a", model="m", text="t", finish_reason="stop"),
    "examples": VerifyExample(question="q", reference_answer="1", completion="c", label=1),
    "rejected": RejectedRow(file="f", row=1, reason="r", content="c"),
}


@pytest.mark.parametrize("suffix", [".jsonl", ".json", "", ".parquet", ".PARQUET", ".data", ".csv", ".TSV"])
@pytest.mark.parametrize("kind", RECORDS)
def test_what_is_written_is_read_whatever_its_suffix_or_refused_before(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"rows{suffix}"
    if suffix.lower() in (".csv", ".tsv"):
        with pytest.raises(DataError, match=r"tables are read and not written; name it \.jsonl or \.parquet"):
            write_records(path, [RECORDS[kind]])
        assert list(tmp_path.iterdir()) == []
    else:
        write_records(path, [RECORDS[kind]])
        assert read_records(path, type(RECORDS[kind])) == [RECORDS[kind]]


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_starts_work_that_it_would_write_into_a_table(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The inputs do not exist: the output is refused before they are looked for."""
    files = [each for each in read_signature(stage).parameters if each.is_output and not each.is_folder]
    for wrong in files:
        paths = {each.name: tmp_path / each.name for each in read_signature(stage).parameters}
        paths[wrong.name] = tmp_path / "rows.csv"
        options = [f"--{name.replace('_', '-')}={path}" for name, path in paths.items()]
        assert main([stage.replace("_", "-"), "--preset", "laptop", *options]) == 2
        assert "rows.csv: tables are read and not written" in capsys.readouterr().err
    assert files


def test_standard_output_is_no_place_for_rows() -> None:
    with pytest.raises(DataError, match="-: standard output is no place for a file that the next stage"):
        check_output(Path("-"))


def test_a_terminal_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    with (
        pytest.raises(DataError, match="-: nothing is piped into standard input; give a file"),
        standard_input(),
    ):
        pass
