"""The red team as a stage: a saved VerifyRM and problems in, texts and a report out, resumable."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cooper_rl.checkpoints.logs import PAIRS
from cooper_rl.checkpoints.registry import open_registry
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.models.verify_rm import save_verify_rm
from cooper_rl.records.files import read_records, read_report, write_records
from cooper_rl.schema.data import PreferencePair, Problem
from cooper_rl.schema.red_team import AttackText, RedTeamReport
from cooper_rl.stages import red_team, train_cooper
from cooper_rl.tiny.problems import generate_problems
from tests.stages.conftest import SMALL, Files
from tests.stages.train_cooper.test_train_cooper import logged

BUDGET = [
    "red_team.max_queries=420",
    "red_team.max_gradient_queries=60",
    "red_team.population=6",
    "red_team.children=6",
    "red_team.probe_problems=2",
    "red_team.max_attacked_problems=3",
    "red_team.queries_per_problem=25",
    "red_team.num_texts=5",
]


@pytest.fixture(scope="module")
def held_out(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("held_out") / "held_out.jsonl"
    write_records(path, generate_problems(18, 3))
    return path


def attack(files: Files, held_out: Path, folder: Path, *overrides: str, **options) -> RedTeamReport:
    return red_team.run(
        load("laptop", [*SMALL, *BUDGET, *overrides]), verify_rm=files.verify_rm, problems=held_out,
        texts=folder / "texts.jsonl", report=folder / "report.json", **options,
    )  # fmt: skip


def without_time(report: RedTeamReport) -> RedTeamReport:
    return report.model_copy(update={"seconds": 0.0})


def test_texts_and_report_are_written_and_agree(files: Files, held_out: Path, tmp_path: Path) -> None:
    result = attack(files, held_out, tmp_path)
    assert read_report(tmp_path / "report.json", RedTeamReport) == result
    texts = read_records(tmp_path / "texts.jsonl", AttackText)
    assert [text for text in texts if text.aim == "universal"] == result.texts
    assert (result.num_search_problems, result.num_unseen_problems) == (6, 12)
    assert result.num_queries <= 420 + 60 + 3 * 25 + 6 * 6 + 12  # each search may end within a round
    assert result.universal == result.texts[0].unseen
    assert set(result.by_method) <= {"seed", "mutation", "gradient"}
    unseen = {problem.id for problem in read_records(held_out, Problem)}
    own = [text for text in texts if text.aim == "per_problem"]
    assert {text.problem_id for text in own} <= unseen
    assert result.per_problem.value == pytest.approx(len(own) / 3)
    assert all(text.unseen_score > 0.5 for text in own)
    assert result.metrics()["universal/value"] == result.universal_rate


def test_a_search_that_was_stopped_goes_on(files: Files, held_out: Path, tmp_path: Path) -> None:
    """Half of the journal, and a line that was being written, give what the whole search gives."""
    whole = attack(files, held_out, tmp_path / "whole")
    (journal,) = (tmp_path / "whole").glob("texts.jsonl.*.journal")
    lines = journal.read_text().splitlines(keepends=True)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / journal.name).write_text("".join(lines[: len(lines) // 2]) + lines[-1][:9])
    again = attack(files, held_out, tmp_path / "half")
    texts = [(tmp_path / name / "texts.jsonl").read_text() for name in ("whole", "half")]
    assert [text.text for text in again.texts] == [text.text for text in whole.texts]
    assert again.num_queries == whole.num_queries
    assert [json.loads(line)["text"] for line in texts[0].splitlines()] == [
        json.loads(line)["text"] for line in texts[1].splitlines()
    ]
    finished = journal.read_bytes()
    assert without_time(attack(files, held_out, tmp_path / "whole")) == without_time(whole)
    assert journal.read_bytes() == finished  # nothing was computed again


def test_another_seed_is_another_search(files: Files, held_out: Path, tmp_path: Path) -> None:
    first = attack(files, held_out, tmp_path, "red_team.max_gradient_queries=0")
    second = attack(files, held_out, tmp_path, "red_team.max_gradient_queries=0", "seed=1")
    assert len(list(tmp_path.glob("texts.jsonl.*.journal"))) == 2
    assert [text.unseen_score for text in first.texts] != [text.unseen_score for text in second.texts]
    assert "gradient" not in first.by_method


def test_a_bound_in_seconds_ends_a_search(files: Files, held_out: Path, tmp_path: Path) -> None:
    result = attack(
        files, held_out, tmp_path, "red_team.max_seconds=1e-9", "red_team.max_gradient_seconds=1e-9"
    )
    assert {text.method for text in result.texts} == {"seed"}
    assert result.by_method["mutation"] == result.by_method["seed"]


def train(files: Files, folder: Path) -> Path:
    train_cooper.run(
        load("laptop", SMALL), models=files.models, verify_rm=files.verify_rm, problems=files.problems,
        checkpoint=folder / "checkpoint", report=folder / "train.json",
    )  # fmt: skip
    return folder / "checkpoint"


def test_the_verify_rm_of_a_checkpoint_is_attacked(sevens: Files, held_out: Path, tmp_path: Path) -> None:
    """The policy says 7, which is right: pairs are made, and VerifyRM is trained."""
    start = attack(sevens, held_out, tmp_path / "start")
    trained = attack(sevens, held_out, tmp_path / "end", checkpoint=train(sevens, tmp_path))
    assert trained.texts[0].unseen_score != start.texts[0].unseen_score
    assert start.target is None
    assert re.fullmatch(r"v-[0-9a-f]{12}", trained.target)


def test_paid_wrong_rollouts_of_a_checkpoint_are_seeds(
    files: Files, held_out: Path, tmp_path: Path, make_verify_rm
) -> None:
    """Both models are random: rollouts are wrong. This VerifyRM pays them, as its opposite does not."""
    opposite = make_verify_rm(0)
    with torch.no_grad():
        opposite.model.score.weight.neg_()
    save_verify_rm(opposite, tmp_path / "opposite")
    paying = replace(files, verify_rm=tmp_path / "opposite")
    found = attack(paying, held_out, tmp_path, checkpoint=train(paying, tmp_path))
    assert "rollout" in found.by_family


def test_co_training_learns_from_the_texts_that_were_found(
    sevens: Files, held_out: Path, tmp_path: Path
) -> None:
    """Every pair's negative is a text of the file, which the run needs and is known by."""
    attack(sevens, held_out, tmp_path)
    settings = ["cooper.pairs.negatives={ assistant = 0, rollout = 0, red_team = 1 }"]
    paths = {"models": sevens.models, "verify_rm": sevens.verify_rm, "problems": sevens.problems}
    folder = {"checkpoint": tmp_path / "checkpoint", "report": tmp_path / "train.json"}
    with pytest.raises(
        ConfigError, match=r"--attacks is missing, .* or set cooper.pairs.negatives.red_team=0"
    ):
        train_cooper.run(load("laptop", [*SMALL, *settings]), **paths, **folder)
    train_cooper.run(load("laptop", [*SMALL, *settings]), **paths, **folder, attacks=tmp_path / "texts.jsonl")
    pairs = logged(tmp_path / "checkpoint", PAIRS, PreferencePair)
    texts = [found.text for found in read_records(tmp_path / "texts.jsonl", AttackText)]
    questions = {pair.question for pair in pairs}
    filled = {text.replace("{question}", question).strip() for text in texts for question in questions}
    assert {pair.source for pair in pairs} == {"red_team"}
    assert {pair.negative for pair in pairs} <= filled


def test_a_text_that_was_found_once_is_tried_on_every_later_verify_rm(
    sevens: Files, held_out: Path, tmp_path: Path
) -> None:
    """The registry keeps what is paid, and a retry adds nothing; a search of the library alone does not."""
    setting = f"registry.uri={tmp_path / 'registry'}"
    first = attack(sevens, held_out, tmp_path / "one", setting)
    assert "known" not in first.by_family
    kept = open_registry(load("laptop", [setting])).attacks()
    assert {row.text for row in kept} == {
        row.text for row in first.texts if row.unseen is not None and row.unseen.value > 0
    }
    assert kept
    later = attack(sevens, held_out, tmp_path / "two", setting)
    assert later.by_family["known"].value == max(row.unseen.value for row in kept)
    assert "known" not in attack(sevens, held_out, tmp_path / "three").by_family


def test_too_few_problems_and_bad_settings_are_named(files: Files, tmp_path: Path) -> None:
    write_records(tmp_path / "two.jsonl", generate_problems(2, 0))
    with pytest.raises(DataError, match="needs problems with 3 different questions or more, not 2"):
        attack(files, tmp_path / "two.jsonl", tmp_path)
    twice = [problem.model_copy(update={"id": "one"}) for problem in generate_problems(4, 0)]
    write_records(tmp_path / "twice.jsonl", twice)
    with pytest.raises(DataError, match=r"twice.jsonl:2: duplicate id 'one', first seen in row 1"):
        attack(files, tmp_path / "twice.jsonl", tmp_path)
    with pytest.raises(DataError, match=re.escape("gone.jsonl: no such file")):
        attack(files, tmp_path / "gone.jsonl", tmp_path)
    with pytest.raises(ConfigError, match=r"red_team\.population: .*greater than or equal to 2"):
        load("laptop", ["red_team.population=1"])
