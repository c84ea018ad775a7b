"""The co-training stage: it continues exactly where it stopped, and says what is wrong with its input."""

import shutil
from pathlib import Path

import pytest
import torch

from cooper_rl.checkpoints.logs import KINDS, METRICS, PAIRS, ROLLOUTS
from cooper_rl.checkpoints.manifest import MANIFEST, WRITER, dump_manifest
from cooper_rl.checkpoints.reading import read_manifest
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.checkpoints.run_state import RUN_STATE
from cooper_rl.checkpoints.state import TrainingState, read_state
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError, ModelError
from cooper_rl.models import precision
from cooper_rl.models.verify_rm import load_verify_rm
from cooper_rl.records.files import R, read_records, write_records
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.run.iteration import summarise
from cooper_rl.schema.data import PreferencePair, Problem, RolloutSample, VerifyExample
from cooper_rl.schema.reports import CooperReport
from cooper_rl.schema.step_metrics import PairMetrics, RolloutMetrics, StepMetrics
from cooper_rl.stages import train_cooper
from cooper_rl.storage.base import content_sha256, files_below
from cooper_rl.storage.local import LocalStore
from tests.stages.conftest import SMALL, Files


def train(files: Files, checkpoint: Path, *overrides: str, **paths: Path) -> CooperReport:
    inputs = {"models": files.models, "verify_rm": files.verify_rm, "problems": files.problems} | paths
    return train_cooper.run(
        load("laptop", [*SMALL, *overrides]),
        **inputs,
        checkpoint=checkpoint,
        report=checkpoint.with_suffix(".json"),
    )


def numbers(checkpoint: Path) -> list[dict[str, float]]:
    """The metrics of every step without the timings."""
    with open_checkpoint(checkpoint, StorageConfig(), logs=(METRICS,)) as found:
        rows = [row.flat() for row in read_metrics(*found.log[METRICS])]
    return [{key: row[key] for key in row if not key.startswith("seconds/")} for row in rows]


@pytest.fixture(scope="module")
def straight(files: Files, tmp_path_factory) -> Path:
    """Four steps in one go."""
    checkpoint = tmp_path_factory.mktemp("straight") / "checkpoint"
    train(files, checkpoint, "cooper.steps=4")
    return checkpoint


def read(checkpoint: Path) -> TrainingState:
    """The newest state in a checkpoint folder."""
    with open_checkpoint(checkpoint, StorageConfig()) as found:
        return read_state(found.folder, step=found.manifest.step, device=torch.device("cpu"))


def logged(checkpoint: Path, file: str, kind: type[R]) -> list[R]:
    """The rows of every step."""
    with open_checkpoint(checkpoint, StorageConfig(), logs=(file,)) as found:
        return [row for path in found.log[file] for row in read_records(path, kind)]


def is_same_state(one: Path, other: Path) -> bool:
    states = [read(path) for path in (one, other)]
    tensors = [
        [*s.policy.model.parameters(), *s.verify_rm.model.parameters(), *s.policy_optimizer.values()]
        for s in states
    ]
    return all(torch.equal(a, b) for a, b in zip(*tensors, strict=True))


def as_an_earlier_version_wrote_it(checkpoint: Path) -> None:
    """The log of all steps in the newest checkpoint's folder, and no state of the run."""
    store = LocalStore(checkpoint)
    name = (checkpoint / "LATEST").read_text().strip()
    step, manifest = checkpoint / name, read_manifest(store, name)
    for kind in KINDS:
        pieces = sorted(checkpoint.glob(f"logs/*/{kind}"))
        (step / kind).write_bytes(b"".join(path.read_bytes() for path in pieces))
    (step / RUN_STATE).unlink()
    shutil.rmtree(checkpoint / "logs")
    kept = [file for file in files_below(step) if file not in {MANIFEST, WRITER}]
    hashes = {file: content_sha256(step / file) for file in kept}
    earlier = manifest.model_copy(update={"sha256": hashes, "log": None}).sealed()
    (step / MANIFEST).write_bytes(dump_manifest(earlier))


def test_a_checkpoint_of_a_version_that_logged_into_it_is_continued_exactly(
    files: Files, straight: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    train(files, checkpoint, "cooper.steps=2")
    as_an_earlier_version_wrote_it(checkpoint)
    assert numbers(checkpoint) == numbers(straight)[:2]
    train(files, checkpoint, "cooper.steps=4")
    assert numbers(checkpoint) == numbers(straight)
    assert is_same_state(checkpoint, straight)
    assert len(list(checkpoint.glob("logs/*/metrics.jsonl"))) == 1


def test_two_iterations_equal_one_of_twice_the_length(files: Files, straight: Path, tmp_path: Path) -> None:
    first = train(files, tmp_path / "one", "cooper.steps=2")
    second = train(files, tmp_path / "two", "cooper.steps=2", start=tmp_path / "one")
    assert (first.first_step, first.last_step) == (1, 2)
    assert (second.first_step, second.last_step) == (3, 4)
    assert numbers(tmp_path / "two") == numbers(straight)
    assert is_same_state(tmp_path / "two", straight)


def test_a_stopped_run_continues_in_its_own_folder(files: Files, straight: Path, tmp_path: Path) -> None:
    train(files, tmp_path / "run", "cooper.steps=2")
    train(files, tmp_path / "run", "cooper.steps=4")
    assert numbers(tmp_path / "run") == numbers(straight)
    assert is_same_state(tmp_path / "run", straight)


@pytest.mark.parametrize(
    ("name", "was"),
    [("threads", "17"), ("math-verify", "0.1"), ("CPU capability", "MMX"), ("processes", "3"),
     ("code of rewards", "0123456789ab"), ("tokenizers", "0.1"), ("processor", "MOS 6502"),
     ("vector instructions", "mmx"), ("variables of MKL, oneDNN and ATen", "MKL_CBWR=COMPATIBLE")],
)  # fmt: skip
def test_a_run_that_continues_with_something_else_that_bears_on_numbers_says_so(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, was: str
) -> None:
    """As if another machine, or another version, had written the checkpoint."""
    checkpoint = tmp_path / "checkpoint"
    train(files, checkpoint, "cooper.steps=1")
    assert not any("continues, " in line for line in caplog.messages)
    now = record(checkpoint, {name: was})[name]
    train(files, checkpoint, "cooper.steps=2")
    assert (
        f"step-000001: continues, but not bit for bit, because {name} is {now} and was {was}"
        in caplog.messages
    )


def record(checkpoint: Path, changes: dict[str, str]) -> dict[str, str]:
    """Change what the first step's manifest records of the machine; returns what it recorded."""
    manifest = read_manifest(LocalStore(checkpoint), "step-000001")
    changed = manifest.model_copy(update={"versions": manifest.versions | changes}).sealed()
    (checkpoint / "step-000001" / MANIFEST).write_bytes(dump_manifest(changed))
    return manifest.versions


def test_a_run_goes_on_in_the_types_that_its_checkpoint_records(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here `auto` means fp32, since the models are small. As if the run had chosen bf16 for VerifyRM."""
    monkeypatch.setattr(precision, "bfloat16_gain", lambda: 1.0)  # on whatever processor the test runs
    checkpoint, other = "precision of VerifyRM", "precision of policy and reference"
    train(files, tmp_path / "run", "cooper.steps=1")
    recorded = record(tmp_path / "run", {checkpoint: "bfloat16"})
    assert (recorded[checkpoint], recorded[other]) == ("float32", "float32")
    train(files, tmp_path / "run", "cooper.steps=2")
    assert not any("continues, " in line for line in caplog.messages)
    now = read_manifest(LocalStore(tmp_path / "run"), "step-000002").versions
    assert (now[checkpoint], now[other]) == ("bfloat16", "float32")


def test_a_finished_run_is_not_trained_again(files: Files, straight: Path) -> None:
    before = (straight / "LATEST").stat().st_mtime_ns
    train(files, straight, "cooper.steps=4")
    assert (straight / "LATEST").stat().st_mtime_ns == before


def test_the_librarys_forward_pass_gives_the_same_numbers(
    files: Files, straight: Path, tmp_path: Path
) -> None:
    train(files, tmp_path / "run", "cooper.steps=2", "packed_forward=false")
    for found, expected in zip(numbers(tmp_path / "run"), numbers(straight)[:2], strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_the_reference_stays_the_starting_policy_in_later_iterations(straight: Path) -> None:
    """KL is zero in the first step, where policy and reference are one, and not after."""
    rows = numbers(straight)
    assert rows[0]["policy/kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[3]["policy/kl"] > 3 * abs(rows[0]["policy/kl"])
    assert rows[3]["policy/kl"] > 1e-6


def test_the_report_is_of_the_iterations_own_steps_and_its_means_of_their_last_tenth() -> None:
    """Steps 11 to 30: twenty, every other one with a pair; the last two are 29 and 30."""
    rows = [
        StepMetrics(
            step=step,
            rollout=RolloutMetrics(verify_rm_reward=step / 100, rule_accuracy=step / 1000),
            pairs=PairMetrics(count=step % 2),
        )
        for step in range(1, 31)
    ]
    report = summarise(rows, first_step=11, seconds=1.0)
    assert (report.first_step, report.last_step) == (11, 30)
    assert (report.num_pairs, report.num_skipped_reward_updates) == (10, 10)
    assert (report.verify_rm_reward, report.rule_accuracy) == pytest.approx((0.295, 0.0295))


def test_another_seed_gives_another_run(files: Files, straight: Path, tmp_path: Path) -> None:
    train(files, tmp_path / "run", "cooper.steps=1", "seed=1")
    assert numbers(tmp_path / "run")[0] != numbers(straight)[0]


def test_a_run_is_not_continued_in_another_domain(files: Files, straight: Path) -> None:
    """What is verified, and how, decides every reward. A run in mathematics is known by nothing more."""
    assert "problems.domain" not in read_manifest(LocalStore(straight), "step-000004").identity
    with pytest.raises(
        ConfigError, match=r'\(problems\.domain: "mathematics" there, "programs" here\); choose another'
    ):
        train(files, straight, "cooper.steps=5", "problems.domain=programs")


def test_a_store_without_a_run_key_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    nowhere = {name: tmp_path / name for name in ("models", "verify_rm", "problems", "checkpoint", "report")}
    with pytest.raises(ConfigError, match=r"storage\.uri needs storage\.run_key"):
        train_cooper.run(load("laptop", [f"storage.uri={tmp_path}"]), **nowhere)


def test_duplicate_problem_ids_are_refused(files: Files, tmp_path: Path) -> None:
    text = files.problems.read_text().splitlines()
    (tmp_path / "double.jsonl").write_text("\n".join([*text, text[2]]))
    with pytest.raises(DataError, match=r"double\.jsonl:11: duplicate id .* first seen in row 3"):
        train(files, tmp_path / "run", problems=tmp_path / "double.jsonl")


def test_a_policy_in_verify_rms_place_is_refused(files: Files, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="ForSequenceClassification checkpoint is needed"):
        train(files, tmp_path / "run", verify_rm=files.models / "policy")


def test_a_start_without_a_checkpoint_is_refused(files: Files, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no checkpoint"):
        train(files, tmp_path / "run", start=tmp_path / "nowhere")


def test_a_folder_without_models_is_refused(files: Files, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"models\.json: no such file"):
        train(files, tmp_path / "run", models=tmp_path)


@pytest.mark.parametrize(
    "arm", [["cooper.reward.update_verify_rm=false"], ["cooper.reward.kind=rule"]], ids=["frozen", "rule"]
)
def test_the_other_two_arms_leave_verify_rm_as_it_was(files: Files, tmp_path: Path, arm: list[str]) -> None:
    train(files, tmp_path / "run", "cooper.steps=1", *arm)
    loaded = read(tmp_path / "run")
    original = load_verify_rm(files.verify_rm, device=torch.device("cpu"))
    for name, tensor in original.model.state_dict().items():
        assert torch.equal(tensor, loaded.verify_rm.model.state_dict()[name])
    assert logged(tmp_path / "run", PAIRS, PreferencePair) == []


def test_no_step_trains_on_what_is_evaluated(files: Files, tmp_path: Path) -> None:
    """Questions of the gate's examples, of held-out problems and of later tests, however they are written."""
    rows = read_records(files.problems, Problem)
    example = read_records(files.examples, VerifyExample)[0]
    sides = {
        "examples": [example.model_copy(update={"question": rows[0].question.upper()})],
        "test": [example.model_copy(update={"question": rows[1].question})],
        "held_out": [rows[2]],
    }
    paths = {name: tmp_path / f"{name}.jsonl" for name in sides}
    for name, records in sides.items():
        write_records(paths[name], records)
    train(files, tmp_path / "run", "cooper.steps=6", **paths)
    drawn = {sample.problem_id for sample in logged(tmp_path / "run", ROLLOUTS, RolloutSample)}
    assert drawn
    assert drawn <= {row.id for row in rows[3:]}


def test_problems_that_are_all_evaluated_on_are_refused(files: Files, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="every problem has a question that is evaluated on; give other problems"
    ):
        train(files, tmp_path / "run", held_out=files.problems)
