"""Co-training in several processes: the numbers of one process, checkpoints that know nothing of ranks.

Run by `make test-deepspeed`; on the CPU with gloo, in fp32, so that the numbers can be compared.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.records.files import read_records, write_records
from cooper_rl.records.written import MARKER
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.stages import train_cooper
from tests.stages.conftest import SMALL, Files, with_other_questions
from tests.stages.train_cooper.test_train_cooper import numbers, read

pytestmark = [
    pytest.mark.deepspeed,
    pytest.mark.skipif(
        importlib.util.find_spec("deepspeed") is None, reason="needs DeepSpeed: run `make test-deepspeed`"
    ),
]
CPU = torch.device("cpu")
TIMEOUT_SECONDS = 600
GUARDED = [
    "cooper.problems_per_step=3",  # which two ranks do not share evenly
    "cooper.pairs.negatives.perturb=1",
    "cooper.reward.num_replay_examples=4",
    "cooper.evaluate_every=1",
    "cooper.gate={ num_examples = 8, num_canary_problems = 2 }",
    "cooper.max_tokens_per_batch=512",
]


def options(files: Files, checkpoint: Path) -> dict[str, Path]:
    return {
        "models": files.models,
        "verify_rm": files.verify_rm,
        "problems": files.problems,
        "checkpoint": checkpoint,
        "report": checkpoint.with_suffix(".json"),
        "replay": with_other_questions(files.examples),
        "examples": files.examples,
        "held_out": files.held_out,
    }


def train_alone(files: Files, checkpoint: Path, *overrides: str) -> None:
    train_cooper.run(load("laptop", [*SMALL, *GUARDED, *overrides]), **options(files, checkpoint))


def command(files: Files, checkpoint: Path, stage: int, *overrides: str, num_processes: int = 2) -> list[str]:
    """As a person starts it."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}"]
    launcher = torchrun if num_processes > 1 else []
    paths = [
        text
        for name, path in options(files, checkpoint).items()
        for text in (f"--{name.replace('_', '-')}", str(path))
    ]
    settings = [*SMALL, *GUARDED, f"distributed.zero_stage={stage}", *overrides]
    chosen = [text for key in settings for text in ("--set", key)]
    return [sys.executable, *launcher, "-m", "cooper_rl", "train-cooper", "--preset=laptop", *chosen, *paths]


def start_together(
    files: Files, checkpoint: Path, stage: int, *overrides: str, num_processes: int = 2
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(files, checkpoint, stage, *overrides, num_processes=num_processes),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def train_together(
    files: Files, checkpoint: Path, stage: int, *overrides: str, num_processes: int = 2
) -> str:
    done = start_together(files, checkpoint, stage, *overrides, num_processes=num_processes)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "is deprecated" not in done.stderr  # torch's warnings of what DeepSpeed calls, for every step
    return done.stdout


def assert_same_numbers(found: list[dict[str, float]], expected: list[dict[str, float]]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=2e-5)


@pytest.fixture(scope="module")
def examined(sevens: Files) -> Files:
    """With labelled examples for gate, replay and evaluation."""
    examples = [
        VerifyExample(
            question=problem.question, reference_answer="7", completion=f"#### {7 + wrong}", label=1 - wrong
        )
        for problem in read_records(sevens.held_out, Problem)
        for wrong in (0, 1)
    ]
    write_records(sevens.examples, examples)
    return sevens


@pytest.fixture(scope="module")
def alone(examined: Files, tmp_path_factory) -> Path:
    """Three steps in one process."""
    checkpoint = tmp_path_factory.mktemp("alone") / "checkpoint"
    train_alone(examined, checkpoint, "cooper.steps=3")
    return checkpoint


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_processes_give_the_numbers_of_one_which_can_continue(
    examined: Files, alone: Path, tmp_path: Path, stage: int
) -> None:
    """Two steps by two processes, whose checkpoint one process without DeepSpeed continues with the third."""
    expected = numbers(alone)
    assert sum(row["pairs/count"] for row in expected) > 0
    shown = train_together(examined, tmp_path / "run", stage, "cooper.steps=2")
    assert shown.count("CooperReport") == 1
    assert_same_numbers(numbers(tmp_path / "run"), expected[:2])
    train_alone(examined, tmp_path / "run", "cooper.steps=3")
    assert_same_numbers(numbers(tmp_path / "run"), expected)
    one, other = read(alone), read(tmp_path / "run")
    assert one.pairs == other.pairs
    assert one.policy_optimizer.keys() == other.policy_optimizer.keys()
    for name, tensor in one.policy_optimizer.items():
        torch.testing.assert_close(other.policy_optimizer[name], tensor, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize(("stage", "process"), [(2, "same"), (3, "own")])
def test_each_process_draws_its_share_ahead_and_one_continues_with_all_of_it(
    examined: Files, tmp_path: Path, stage: int, process: str
) -> None:
    ahead = ["cooper.max_rollout_staleness=1", "cooper.policy.max_importance_weight=2.0"]
    train_alone(examined, tmp_path / "alone", *ahead, "cooper.steps=3")
    train_together(examined, tmp_path / "run", stage, *ahead, "cooper.steps=2", f"engine.process={process}")
    assert [len(step.groups) for step in read(tmp_path / "run").drawn] == [3]
    train_alone(examined, tmp_path / "run", *ahead, "cooper.steps=3")
    assert_same_numbers(numbers(tmp_path / "run"), numbers(tmp_path / "alone"))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_processes_take_back_what_the_gate_refuses(examined: Files, tmp_path: Path, stage: int) -> None:
    """VerifyRM learns, at a rate far too high, what is right, which the gate's examples deny."""
    turned = [
        row.model_copy(update={"label": 1 - row.label})
        for row in read_records(examined.examples, VerifyExample)
    ]
    write_records(tmp_path / "turned.jsonl", turned)
    files = replace(examined, examples=tmp_path / "turned.jsonl")
    values = ["cooper.steps=2", "cooper.reward.num_replay_examples=0", "cooper.reward.lr=3e-3"]
    train_alone(files, tmp_path / "alone", *values)
    train_together(files, tmp_path / "run", stage, *values)
    assert [row["gate/rolled_back"] for row in numbers(tmp_path / "alone")] == [1.0, 1.0]
    assert_same_numbers(numbers(tmp_path / "run"), numbers(tmp_path / "alone"))
    one, other = read(tmp_path / "alone"), read(tmp_path / "run")
    for name, tensor in one.verify_rm.model.state_dict().items():
        torch.testing.assert_close(other.verify_rm.model.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)
    assert one.verify_rm_optimizer.keys() == other.verify_rm_optimizer.keys()
    for name, tensor in one.verify_rm_optimizer.items():
        torch.testing.assert_close(other.verify_rm_optimizer[name], tensor, rtol=1e-2, atol=1e-5)


def test_one_process_with_deepspeed_gives_the_numbers_of_one_without(
    examined: Files, alone: Path, tmp_path: Path
) -> None:
    offload = "distributed.offload_optimizer=true"
    train_together(examined, tmp_path / "run", 1, "cooper.steps=3", offload, num_processes=1)
    assert_same_numbers(numbers(tmp_path / "run"), numbers(alone))


def test_two_processes_continue_what_one_began(examined: Files, alone: Path, tmp_path: Path) -> None:
    train_alone(examined, tmp_path / "run", "cooper.steps=1")
    train_together(examined, tmp_path / "run", 3, "cooper.steps=3", "distributed.offload_optimizer=true")
    assert_same_numbers(numbers(tmp_path / "run"), numbers(alone))
    with open_checkpoint(tmp_path / "run", StorageConfig()) as found:
        loaded = AutoModelForCausalLM.from_pretrained(found.folder / "policy")
        names = {path.name for path in (found.folder / "policy").iterdir()}
        assert names == {path.name for path in (examined.models / "policy").iterdir()} - {MARKER}
    expected = read(alone).policy.model.state_dict()
    assert loaded.dtype == torch.float32
    assert loaded.state_dict().keys() == expected.keys()


def test_bf16_weights_keep_fp32_masters(examined: Files, tmp_path: Path) -> None:
    """At a learning rate of 1e-6 bf16 weights alone would not change: half their spacing at .02 is 3e-5."""
    train_together(
        examined, tmp_path / "run", 2, "cooper.steps=1", "cooper.policy.lr=1e-6",
        "cooper.precision=bfloat16",
    )  # fmt: skip
    before = AutoModelForCausalLM.from_pretrained(examined.models / "policy").state_dict()
    with open_checkpoint(tmp_path / "run", StorageConfig()) as found:
        after = AutoModelForCausalLM.from_pretrained(found.folder / "policy").state_dict()
    name = "model.layers.0.mlp.up_proj.weight"
    difference = (after[name] - before[name]).abs()
    assert after[name].dtype == torch.float32
    assert (difference > 0).float().mean() > 0.9
    assert difference.max() < 3e-6


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_adapters_give_the_numbers_of_one_process_which_can_continue(
    examined: Files, tmp_path: Path, stage: int
) -> None:
    adapters = [
        "cooper.policy.lora.rank=2",
        "cooper.policy.kl_coefficient=0.1",
        "cooper.policy.warmup_steps=0",
    ]
    train_alone(examined, tmp_path / "alone", *adapters, "cooper.steps=3")
    expected = numbers(tmp_path / "alone")
    assert expected[2]["policy/kl"] > 1e-6
    train_together(examined, tmp_path / "run", stage, *adapters, "cooper.steps=1")
    train_together(examined, tmp_path / "run", stage, *adapters, "cooper.steps=2")
    assert_same_numbers(numbers(tmp_path / "run"), expected[:2])
    train_alone(examined, tmp_path / "run", *adapters, "cooper.steps=3")
    assert_same_numbers(numbers(tmp_path / "run"), expected)
    one, other = read(tmp_path / "alone"), read(tmp_path / "run")
    assert one.policy_optimizer.keys() == other.policy_optimizer.keys()
    for name, tensor in one.policy.model.state_dict().items():
        torch.testing.assert_close(other.policy.model.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)


def test_adapters_leave_the_weights_beside_them_unrounded_in_bf16(examined: Files, tmp_path: Path) -> None:
    lora = ["cooper.policy.lora.rank=2", "cooper.precision=bfloat16", "cooper.policy.lr=1e-6"]
    train_together(examined, tmp_path / "run", 3, "cooper.steps=1", *lora)
    before = AutoModelForCausalLM.from_pretrained(examined.models / "policy").state_dict()
    after = read(tmp_path / "run").policy.model.state_dict()
    for name, weight in before.items():
        change = (after[name] - weight).abs().max()
        assert (0 < change < 1e-5) if name.endswith("_proj.weight") else change == 0, name


ALARMED = [
    "cooper.monitor.window=2", "cooper.monitor.max_gap_rise=1e-6", "cooper.reward.update_verify_rm=false",
    "cooper.evaluate_every=null", "cooper.policy.lr=3e-3", "cooper.policy.warmup_steps=0",
]  # fmt: skip
"""Bounds so small that any rise is an alarm."""


@pytest.mark.parametrize("adapters", [[], ["cooper.policy.lora.rank=2"]], ids=["weights", "adapters"])
def test_an_alarm_rolls_both_processes_back(examined: Files, tmp_path: Path, adapters: list[str]) -> None:
    values = [*ALARMED, *adapters, "cooper.monitor.action=rollback", "cooper.checkpoint_every=1"]
    train_alone(examined, tmp_path / "alone", *values, "cooper.steps=8")
    train_together(examined, tmp_path / "run", 3, *values, "cooper.steps=8")
    expected = numbers(tmp_path / "alone")
    assert [row["monitor/rolled_back_to"] for row in expected if "monitor/rolled_back_to" in row] == [2]
    assert_same_numbers(numbers(tmp_path / "run"), expected)


def test_an_alarm_stops_both_processes_when_all_is_saved(examined: Files, tmp_path: Path) -> None:
    values = [*ALARMED, "cooper.monitor.action=stop", "cooper.steps=8"]
    done = start_together(examined, tmp_path / "run", 2, *values)
    assert done.returncode != 0
    found = re.findall(r"found reward hacking by step (\d+), which is saved", done.stderr)
    assert found
    assert {int(step) for step in found} == {read(tmp_path / "run").step}


def test_a_rank_that_dies_takes_the_job_down_with_its_error(examined: Files, tmp_path: Path) -> None:
    log = (tmp_path / "log").open("w+")
    job = subprocess.Popen(
        command(examined, tmp_path / "run", 2, "cooper.steps=1000", "cooper.checkpoint_every=1"),
        stdout=log,
        stderr=log,
    )
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (tmp_path / "run" / "LATEST").exists():
            assert job.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        os.kill(pid_of_rank(job.pid, 1), signal.SIGKILL)
        killed = time.monotonic()
        status = job.wait(timeout=120)
    finally:
        job.kill()
    text = (tmp_path / "log").read_text()
    assert status != 0
    assert time.monotonic() - killed < 60
    assert "rank      : 1" in text
    assert "Signal 9 (SIGKILL)" in text


def pid_of_rank(parent: int, rank: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return next(
        int(pid) for pid in children if f"RANK={rank}" in Path(f"/proc/{pid}/environ").read_text().split("\0")
    )
