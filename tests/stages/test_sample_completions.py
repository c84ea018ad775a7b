import gc
import tracemalloc
from pathlib import Path

import pytest
import torch

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError, TrainingError
from cooper_rl.models.policy import save_policy
from cooper_rl.records.files import read_records, read_report, write_records, write_report
from cooper_rl.schema.data import Completion, Problem
from cooper_rl.schema.reports import ModelSet, SampleReport
from cooper_rl.stages import sample_completions


@pytest.fixture(scope="module")
def models(files, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    policy = str(files.models / "policy")
    write_report(
        folder / "models.json",
        ModelSet(policy=policy, samplers={"policy": policy, "other": policy}, backbone=policy),
    )
    return folder


def sample(models: Path, problems: Path, folder: Path, *overrides: str) -> list[Completion]:
    config = load("laptop", ["sampling.generation.max_new_tokens=8", *overrides])
    out = {"completions": folder / "completions", "report": folder / "report"}
    report = sample_completions.run(config, models=models, problems=problems, **out)
    assert read_report(out["report"], SampleReport) == report
    rows = read_records(out["completions"], Completion)
    assert report.num_completions == len(rows)
    return rows


def test_problems_are_the_outer_order_then_samplers_then_samples(files, models: Path, tmp_path: Path) -> None:
    rows = sample(models, files.problems, tmp_path, "sampling.completions_per_problem=2")
    ids = [problem.id for problem in read_records(files.problems, Problem)]
    expected = [
        f"{ident}/{name}/{number}" for ident in ids for name in ("policy", "other") for number in (0, 1)
    ]
    assert [row.id for row in rows] == expected
    assert {row.model for row in rows} == {"policy", "other"}


def test_the_same_seed_draws_the_same_and_samplers_draw_apart(files, models: Path, tmp_path: Path) -> None:
    first = sample(models, files.problems, tmp_path)
    assert sample(models, files.problems, tmp_path) == first
    assert sample(models, files.problems, tmp_path, "seed=1") != first
    texts = [row.text for row in first]
    assert texts[0::2] != texts[1::2]


def test_a_batch_of_another_size_draws_the_same(files, models: Path, tmp_path: Path) -> None:
    first = sample(models, files.problems, tmp_path)
    again = sample(models, files.problems, tmp_path, "sampling.generation.batch_size=1")
    assert [row.text for row in again] == [row.text for row in first]


def test_cut_completions_and_their_tokens_are_counted(files, models: Path, tmp_path: Path) -> None:
    rows = sample(models, files.problems, tmp_path, "sampling.generation.max_new_tokens=1")
    report = read_report(tmp_path / "report", SampleReport)
    assert report.num_tokens == len(rows)
    assert report.num_cut == sum(row.finish_reason == "length" for row in rows) > 0


def test_max_problems_and_a_samplers_own_temperature_are_heeded(files, models: Path, tmp_path: Path) -> None:
    rows = sample(
        models,
        files.problems,
        tmp_path,
        "sampling.max_problems=3",
        "sampling.completions_per_problem=2",
        "sampling.temperatures={ other = 0 }",
    )
    assert len(rows) == 3 * 2 * 2
    greedy = [row.text for row in rows if row.model == "other"]
    assert greedy[0::2] == greedy[1::2]


def test_completions_that_do_not_fit_into_memory_say_what_to_lower(
    files, models: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        TrainingError,
        match=r"^drawing completions: out of memory \(.*lower generation\.batch_size=\d+ of this stage",
    ):
        sample(models, files.problems, tmp_path, "sampling.generation.max_new_tokens=1000000000000000")


def test_a_temperature_for_an_unknown_sampler_is_refused(files, models: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"sampling\.temperatures\.third: no such sampler .*'other', 'policy'"
    ):
        sample(models, files.problems, tmp_path, "sampling.temperatures={ third = 0.5 }")


def test_duplicate_problem_ids_are_refused(files, models: Path, tmp_path: Path) -> None:
    problem = read_records(files.problems, Problem)[0]
    write_records(tmp_path / "twice.jsonl", [problem, problem])
    with pytest.raises(DataError, match="duplicate id"):
        sample(models, tmp_path / "twice.jsonl", tmp_path)


def test_a_sampler_with_damaged_weights_is_refused(make_policy, files, tmp_path: Path) -> None:
    policy = make_policy(0)
    with torch.no_grad():
        policy.model.lm_head.weight.fill_(torch.nan)
    save_policy(policy, tmp_path / "policy")
    names = ModelSet(policy="policy", samplers={"broken": "policy"}, backbone="policy")
    write_report(tmp_path / "models.json", names)
    with pytest.raises(TrainingError, match="log-probabilities are not finite"):
        sample(tmp_path, files.problems, tmp_path)
    assert not (tmp_path / "completions").exists()


def peak_bytes(models: Path, problems: Path, folder: Path) -> int:
    """Most bytes of Python objects at a time while 128 completions of a token are drawn for each problem."""
    config = load("laptop", ["sampling.generation.max_new_tokens=1", "sampling.completions_per_problem=128"])
    gc.collect()
    tracemalloc.start()
    try:
        sample_completions.run(
            config, models=models, problems=problems, completions=folder / "c", report=folder / "r"
        )
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_completions(files, models: Path, tmp_path: Path) -> None:
    """Two samplers, 512 completions a call: 2,048 completions, then 12,288."""
    problem = read_records(files.problems, Problem)[0]
    for name, count in (("few", 8), ("many", 48)):
        rows = [problem.model_copy(update={"id": f"p{number}"}) for number in range(count)]
        write_records(tmp_path / f"{name}.jsonl", rows)
    peak_bytes(models, tmp_path / "few.jsonl", tmp_path)  # what is loaded once and stays
    few = peak_bytes(models, tmp_path / "few.jsonl", tmp_path)
    many = peak_bytes(models, tmp_path / "many.jsonl", tmp_path)
    assert len(read_records(tmp_path / "c", Completion)) == 12_288
    assert many - few < 1_000_000


def test_a_place_that_cannot_be_written_to_is_refused_before_anything_is_drawn(
    files, models: Path, tmp_path: Path
) -> None:
    (tmp_path / "completions").mkdir()
    with pytest.raises(DataError, match="no regular file"):
        sample(models, files.problems, tmp_path, "sampling.generation.max_new_tokens=1000000000000000")
