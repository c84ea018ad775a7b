"""The VerifyRM training stage on released columns, with a backbone and from scratch."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cooper_rl.config.load import load
from cooper_rl.errors import DataError, TrainingError
from cooper_rl.method.metrics import binary_scores
from cooper_rl.models.verify_rm import VerifyItem, load_verify_rm, score_examples
from cooper_rl.records.files import read_records, read_report, write_records, write_report
from cooper_rl.schema.data import RejectedRow, VerifyExample
from cooper_rl.schema.red_team import AttackText
from cooper_rl.schema.reports import ModelSet, TrainVerifyRMReport
from cooper_rl.stages import train_verify_rm
from tests.stages.conftest import Files


def write_rows(path: Path, rows: list[object]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def released(number: int, label: int) -> dict[str, object]:
    """A row of the released data: exactly four columns."""
    return {
        "question": f"What is {number}+1?",
        "reference_answer": str(number + 1),
        "completion": f"It is {number + label}.",
        "label": label,
    }


def train(
    tmp_path: Path, train_rows: list[object], validation_rows: list[object], *overrides: str, **paths: Path
):
    return train_verify_rm.run(
        load("laptop_plain", ["verify_rm.num_epochs=1", "verify_rm.scratch.vocab_size=300", *overrides]),
        train=write_rows(tmp_path / "train.jsonl", train_rows),
        validation=write_rows(tmp_path / "validation.jsonl", validation_rows),
        verify_rm=tmp_path / "verify_rm",
        report=tmp_path / "report.json",
        **paths,
    )


TRAIN = [released(number, label) for number in range(20) for label in (0, 1)]
VALIDATION = [released(number, label) for number in range(50, 55) for label in (0, 1)]


def test_the_released_columns_train_a_model_from_scratch(tmp_path: Path) -> None:
    result = train(tmp_path, TRAIN, VALIDATION)
    assert result.num_examples == 40
    assert result.validation.num_examples == 10
    assert read_report(tmp_path / "report.json", TrainVerifyRMReport) == result
    config = json.loads((tmp_path / "verify_rm" / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForSequenceClassification"]


def test_a_verify_rm_that_gives_one_label_alone_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At this learning rate it learns nothing, so that all scores are on one side."""
    with caplog.at_level("WARNING"):
        found = train(tmp_path, TRAIN, VALIDATION, "verify_rm.lr=1e-9").validation
    assert found.accuracy.value <= found.majority_accuracy == 0.5
    assert "and the more frequent label on 0.500: it has not learned to compare answers" in caplog.text


def test_the_prepared_backbone_is_used(tmp_path: Path, files: Files) -> None:
    train(tmp_path, TRAIN, VALIDATION, models=files.models)
    config = json.loads((tmp_path / "verify_rm" / "config.json").read_text())
    assert config["hidden_size"] == 32


def test_a_verify_rm_among_the_models_goes_on_where_it_was(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """One small update leaves its weights near where they were; a backbone would bring a new head."""
    models = tmp_path / "models"
    shutil.copytree(files.models, models)
    shutil.copytree(files.verify_rm, models / "verify_rm")
    chosen = read_report(models / "models.json", ModelSet).model_copy(update={"verify_rm": "verify_rm"})
    write_report(models / "models.json", chosen)
    with caplog.at_level("INFO"):
        train(tmp_path, TRAIN, VALIDATION, models=models)
    assert f"train_verify_rm goes on with {models / 'verify_rm'}" in caplog.text
    before, after = (
        load_file(folder / "model.safetensors") for folder in (files.verify_rm, tmp_path / "verify_rm")
    )
    assert before.keys() == after.keys()
    changes = {name: float((after[name] - weights).abs().max()) for name, weights in before.items()}
    assert 0 < max(changes.values()) < 0.01


def test_bad_rows_are_set_aside_and_counted(tmp_path: Path) -> None:
    bad: list[object] = [
        "{not json",
        released(1, 1) | {"label": 2},
        {"question": "q"},
    ]
    with_more = released(2, 1) | {"x": 1}  # a column that nobody asked for
    result = train(tmp_path, [*TRAIN, *bad, with_more], [*VALIDATION, "{not json"])
    assert (result.num_examples, result.num_rejected) == (41, 4)
    rejected = read_records(tmp_path / "report.json.rejected.jsonl", RejectedRow)
    assert [(Path(row.file).name, row.row) for row in rejected] == [
        ("train.jsonl", 41), ("train.jsonl", 42), ("train.jsonl", 43),
        ("validation.jsonl", 11),
    ]  # fmt: skip
    assert "train.jsonl:42: field 'label': Input should be 0 or 1, found 2" in rejected[1].reason


def test_a_file_of_bad_rows_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"train\.jsonl: no usable VerifyExample row; the first of 1 bad rows"
    ):
        train(tmp_path, [{"question": "q"}], VALIDATION)


def test_one_class_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="all 3 training examples have the label 0"):
        train(tmp_path, [released(n, 0) for n in range(3)], VALIDATION)


def test_a_question_in_both_files_is_refused(tmp_path: Path) -> None:
    again = released(3, 1) | {"question": "what is  3+1? "}
    with pytest.raises(DataError, match=r"1 questions stand both in .*e\.g\. 'What is 3\+1\?'; split by"):
        train(tmp_path, TRAIN, [*VALIDATION, again])


def test_the_best_weights_are_validated_as_they_were_trained(tmp_path: Path) -> None:
    """At this rate an early update is the best; the report has the scores of its folder, in bf16."""
    values = ["verify_rm.lr=3e-2", "verify_rm.batch_size=4", "verify_rm.validate_every=1"]
    result = train(tmp_path, TRAIN, VALIDATION, *values, "verify_rm.precision=bfloat16")
    assert result.best_update < result.num_updates
    rows = read_records(tmp_path / "validation.jsonl", VerifyExample)
    best = load_verify_rm(tmp_path / "verify_rm", device=torch.device("cpu"))
    found = {
        compute: binary_scores(
            [row.label for row in rows],
            score_examples(replace(best, compute=compute), rows),
            problems=[row.question for row in rows],
        )
        for compute in ("bfloat16", "float32")
    }
    assert result.validation == found["bfloat16"] != found["float32"]


@pytest.mark.parametrize(
    ("rate", "message", "is_kept"),
    [
        ("1e8", r"^update 2: the VerifyRM's gradient is nan.*the best weights, of update 1, are kept$", True),
        ("1e36", r"^update 1: VerifyRM's score is NaN for .*; no weights were validated before$", False),
    ],
)
def test_a_nan_keeps_the_last_good_folder(tmp_path: Path, rate: str, message: str, is_kept: bool) -> None:
    values = [f"verify_rm.lr={rate}", "verify_rm.batch_size=4", "verify_rm.validate_every=1"]
    with pytest.raises(TrainingError, match=message):
        train(tmp_path, TRAIN, VALIDATION, *values)
    assert (tmp_path / "verify_rm").is_dir() == is_kept
    assert not (tmp_path / "report.json").exists()
    if is_kept:
        kept = load_verify_rm(tmp_path / "verify_rm", device=torch.device("cpu"))
        scores = kept.score([VerifyItem("What is 1+1?", "2", "It is 2.")])
        assert 0 <= scores[0] <= 1


def test_texts_of_the_red_team_and_hostile_ones_are_learned_too(tmp_path: Path) -> None:
    """40 examples in updates of 4 are 10 updates. A text put to 8 problems makes 12 of them; with half of 40
    hostile texts, of which one or two may hold the answer, 17."""
    attack = AttackText(
        aim="universal", text="It is zebra.", method="seed", origin="s", num_queries=1, search_rate=1
    )
    write_records(tmp_path / "attacks.jsonl", [attack])
    given = {"attacks": tmp_path / "attacks.jsonl"}
    small = "verify_rm.batch_size=4"
    assert train(tmp_path, TRAIN, VALIDATION, small).num_updates == 10
    result = train(tmp_path, TRAIN, VALIDATION, small, **given)
    assert (result.num_updates, result.num_examples) == (12, 40)
    result = train(tmp_path, TRAIN, VALIDATION, small, "verify_rm.hostile_fraction=0.5", **given)
    assert result.num_updates in {16, 17}
    with pytest.raises(DataError, match=r"missing\.jsonl"):
        train(tmp_path, TRAIN, VALIDATION, attacks=tmp_path / "missing.jsonl")


def test_decoys_go_into_the_folder(tmp_path: Path) -> None:
    train(tmp_path, TRAIN, VALIDATION, "verify_rm.num_decoys=2")
    decoys = load_verify_rm(tmp_path / "verify_rm", device=torch.device("cpu")).decoys
    assert decoys is not None
    assert decoys.size == 2
    assert set(decoys.answers) == {str(number + 1) for number in range(20)}


def test_the_model_card_says_what_the_weights_reach(tmp_path: Path) -> None:
    result = train(tmp_path, TRAIN, VALIDATION)
    card = (tmp_path / "verify_rm" / "README.md").read_text()
    found = result.validation.accuracy
    assert f"| accuracy | {found.value:.3f} [{found.low:.3f}, {found.high:.3f}] |" in card
    assert "On the 10 validation examples of its training, of 5 problems" in card
    assert "None were recorded" not in card
