"""A saved VerifyRM folder and a file of examples in, the numbers out."""

import json
import logging
import re

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import DataError, ModelError
from cooper_rl.method.metrics import auroc
from cooper_rl.models.decoys import add_decoys
from cooper_rl.models.verify_rm import save_verify_rm, score_examples
from cooper_rl.records.files import read_report, write_records
from cooper_rl.schema.data import VerifyExample
from cooper_rl.schema.reports import EvaluateVerifyRMReport
from cooper_rl.stages import evaluate_verify_rm

EXAMPLES = [
    VerifyExample(
        question=f"Tom has {n} apples. How many?", reference_answer=str(n),
        completion=f"The answer is {n + k}.", label=1 if k == 0 else 0, source=source,
    )
    for n in range(1, 11) for k, source in ((0, "small"), (1, "large"), (0, None))
]  # fmt: skip


@pytest.fixture(scope="module")
def verify_rm(make_verify_rm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify_rm")
    save_verify_rm(make_verify_rm(0), folder)
    return folder


def test_every_number_is_that_of_the_scores(verify_rm, make_verify_rm, tmp_path):
    write_records(tmp_path / "test.jsonl", EXAMPLES)
    result = evaluate_verify_rm.run(
        load("laptop"), verify_rm=verify_rm, examples=tmp_path / "test.jsonl", report=tmp_path / "report.json"
    )
    scores = score_examples(make_verify_rm(0), EXAMPLES)
    labels = [example.label for example in EXAMPLES]
    hits = sum((score > 0.5) == (label == 1) for score, label in zip(scores, labels, strict=True))
    assert result.overall.accuracy.value == pytest.approx(hits / 30)
    assert result.overall.accuracy.count == 10  # questions, not examples
    assert result.overall.majority_accuracy == pytest.approx(2 / 3)
    assert result.overall.auroc == pytest.approx(auroc(labels, scores), abs=1e-6)
    assert sum(result.confusion.values()) == 30
    assert result.roc[0][:2] == (0.0, 0.0)
    assert {source: found.num_examples for source, found in result.by_source.items()} == {
        "(no source)": 10, "large": 10, "small": 10,
    }  # fmt: skip
    assert result.by_source["small"].auroc is None  # all of them are correct
    assert read_report(tmp_path / "report.json", EvaluateVerifyRMReport) == result


def test_released_columns_are_read_and_bad_rows_set_aside(verify_rm, tmp_path, caplog):
    rows = [example.model_dump(exclude={"source"}) for example in EXAMPLES]
    bad = [{**rows[0], "label": 2}, {**rows[1], "completion": 1}]
    path = tmp_path / "released.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*bad, *rows]))
    with caplog.at_level(logging.WARNING):
        result = evaluate_verify_rm.run(
            load("laptop"), verify_rm=verify_rm, examples=path, report=tmp_path / "report.json"
        )
    assert (result.overall.num_examples, result.num_rejected) == (30, 2)
    assert "released.jsonl:1: field 'label'" in caplog.text


def test_a_missing_file_and_a_missing_model_are_named(verify_rm, tmp_path):
    with pytest.raises(DataError, match=re.escape("absent.jsonl: no such file; check the path")):
        evaluate_verify_rm.run(
            load("laptop"), verify_rm=verify_rm, examples=tmp_path / "absent.jsonl", report=tmp_path / "r"
        )
    write_records(tmp_path / "test.jsonl", EXAMPLES)
    with pytest.raises(ModelError, match="nowhere"):
        evaluate_verify_rm.run(
            load("laptop"),
            verify_rm=tmp_path / "nowhere",
            examples=tmp_path / "test.jsonl",
            report=tmp_path / "r",
        )


def test_the_report_says_how_it_can_be_fooled(verify_rm, tmp_path):
    write_records(tmp_path / "test.jsonl", EXAMPLES)
    result = evaluate_verify_rm.run(
        load("laptop"), verify_rm=verify_rm, examples=tmp_path / "test.jsonl", report=tmp_path / "report.json"
    )
    assert {"empty", "truncated_solution", "several_boxes", "injected_instructions"} <= set(result.canaries)
    rates = [rate.value for rate in result.canaries.values()]
    assert result.canary_false_positive_rate == pytest.approx(sum(rates) / len(rates))
    assert result.canaries["empty"].count == 10
    assert result.wrong_reference is not None
    assert sum(found.count for found in result.reliability) == 30
    assert "auroc" in result.intervals
    assert 0 <= result.shortcut_auroc <= 1


def test_a_shortcut_as_good_as_verify_rm_is_warned_of(verify_rm, tmp_path, caplog):
    """Correct completions end in a newline here, and random weights know nothing."""
    rows = [e.model_copy(update={"completion": e.completion + "\n" * e.label}) for e in EXAMPLES]
    write_records(tmp_path / "test.jsonl", rows)
    evaluate_verify_rm.run(
        load("laptop"), verify_rm=verify_rm, examples=tmp_path / "test.jsonl", report=tmp_path / "report.json"
    )
    assert "a probe that reads neither answer nor reference reaches an AUROC of 1.000" in caplog.text


def test_a_verify_rm_that_knows_little_is_warned_of(verify_rm, make_verify_rm, tmp_path, caplog):
    """Labels that follow the random weights' own scores, then labels that go against them."""
    scores = score_examples(make_verify_rm(0), EXAMPLES)
    for is_right in (True, False):
        order = sorted(range(len(EXAMPLES)), key=lambda place: scores[place], reverse=not is_right)
        rows = [
            EXAMPLES[place].model_copy(update={"label": int(rank >= len(order) // 2)})
            for rank, place in enumerate(order)
        ]
        write_records(tmp_path / "test.jsonl", rows)
        caplog.clear()
        evaluate_verify_rm.run(
            load("laptop"),
            verify_rm=verify_rm,
            examples=tmp_path / "test.jsonl",
            report=tmp_path / "report.json",
        )
        assert ("start with cooper.reward.kind=rule_gated" in caplog.text) is not is_right
        assert ("verify_rm.num_decoys=23" in caplog.text) is not is_right


def test_a_verify_rm_with_decoys_is_not_told_to_have_some(make_verify_rm, tmp_path, caplog):
    model = make_verify_rm(0)
    add_decoys(model.model, ["1", "2", "3"], count=2)
    save_verify_rm(model, tmp_path / "verify_rm")
    scores = score_examples(model, EXAMPLES)
    middle = sorted(scores)[len(scores) // 2]
    rows = [
        example.model_copy(update={"label": int(score < middle)})
        for example, score in zip(EXAMPLES, scores, strict=True)
    ]
    write_records(tmp_path / "test.jsonl", rows)
    evaluate_verify_rm.run(
        load("laptop"), verify_rm=tmp_path / "verify_rm", examples=tmp_path / "test.jsonl",
        report=tmp_path / "report.json",
    )  # fmt: skip
    assert "train it on more labels, or start with cooper.reward.kind=rule_gated" in caplog.text


def test_verify_bench_is_broken_down_by_answer_type(verify_rm, tmp_path):
    rows = [
        {"question": e.question, "answer": e.reference_answer, "completion": e.completion,
         "gold_correct": bool(e.label), "answer_type": ("Numeric Values", "String")[n % 2], "source": "gsm8k"}
        for n, e in enumerate(EXAMPLES)
    ]  # fmt: skip
    path = tmp_path / "verify_bench.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = evaluate_verify_rm.run(
        load("laptop"), verify_rm=verify_rm, examples=path, report=tmp_path / "report.json"
    )
    assert {name: found.num_examples for name, found in result.by_answer_type.items()} == {
        "Numeric Values": 15, "String": 15,
    }  # fmt: skip
    assert list(result.by_source) == ["gsm8k"]
