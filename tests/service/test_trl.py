"""TRL's own GRPOTrainer asks a real server of rewards that learn, through the function file."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cooper_rl import CooperReward
from cooper_rl.adapters import trl as adapter
from cooper_rl.config.load import load_learn
from cooper_rl.errors import CooperError
from cooper_rl.models.policy import save_policy
from tests.api.test_trl import make_trainer, rows
from tests.service.conftest import ROOT, Server
from tests.service.service_world import SETTINGS


@pytest.fixture
def start(make_policy, tmp_path: Path) -> Path:
    save_policy(make_policy(0), tmp_path / "policy")
    return tmp_path


@pytest.fixture(scope="module")
def address(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a server whose steps are six completions, as those of `make_trainer`."""
    assert server.start(tmp_path_factory.mktemp("trl") / "state", {}, "max_runs=9")
    return server.url


@pytest.fixture(autouse=True)
def run(address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test has a run of its own."""
    name = re.sub(r"[^a-z]+", "-", request.node.name)[-60:].strip("-")
    monkeypatch.setenv("COOPER_REWARD_URL", address)
    monkeypatch.setenv("COOPER_REWARD_RUN", name)
    adapter.connect.cache_clear()
    yield name
    adapter.connect.cache_clear()


def served(address: str, run: str) -> dict[str, Any]:
    (found,) = (row for row in httpx.get(f"{address}/v1/runs", timeout=60).json() if row["run"] == run)
    return found


def means(trainer: Any) -> list[float]:
    key = "rewards/cooper_reward/mean"
    return [row[key] for row in trainer.state.log_history if key in row]


@pytest.mark.parametrize("is_chat", [False, True], ids=["plain", "chat"])
def test_the_service_gives_trl_the_rewards_of_cooper_reward(
    start: Path, server: Server, address: str, run: str, is_chat: bool
) -> None:
    """Three steps with an evaluation after each, which teaches nothing; the same seeds in both trainings."""
    options = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 1}
    trainer = make_trainer(start, adapter.cooper_reward, rows(is_chat=is_chat), **options)
    trainer.train()
    config = load_learn(SETTINGS)
    with CooperReward(server.verify_rm, config=config.cooper, rule=config.rule, device="cpu") as reward:
        own = make_trainer(start, reward, rows(is_chat=is_chat), **options)
        own.train()
        assert reward.step == 3
    assert len(means(trainer)) == 3
    assert means(trainer) == means(own)
    evaluated = [row["eval_reward"] for row in trainer.state.log_history if "eval_reward" in row]
    assert evaluated == [row["eval_reward"] for row in own.state.log_history if "eval_reward" in row]
    assert (served(address, run)["step"], served(address, run)["collected_items"]) == (3, 0)


def test_the_question_may_have_a_column_of_its_own(
    start: Path, address: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For prompts that hold more than it."""
    plain = rows()
    longer = plain.add_column("question", plain["prompt"]).map(
        lambda row: {"prompt": f"Solve this. {row['prompt']}"}
    )
    client, asked = adapter.connect(), []

    def record(completions: list[str], **columns: Any) -> list[float]:
        asked.extend(columns["questions"])
        return client(completions, **columns)

    monkeypatch.setattr(adapter, "connect", lambda: record)
    make_trainer(start, adapter.cooper_reward, longer, max_steps=1).train()
    monkeypatch.undo()
    assert len(asked) == 6
    assert set(asked) <= set(plain["prompt"])
    assert served(address, run)["step"] == 1


def test_rows_of_another_task_have_no_reward(start: Path, server: Server, address: str, run: str) -> None:
    """The second of every two rows has no reference answer, and another function that rewards it."""
    mixed = rows().map(lambda row, number: {"task": number % 2}, with_indices=True)
    mixed = mixed.map(lambda row: {"reference_answer": None if row["task"] else row["reference_answer"]})

    def other(completions: list[str], task: list[int], **_: Any) -> list[float | None]:
        return [float(len(text)) if each else None for text, each in zip(completions, task, strict=True)]

    def train(reward: Any) -> list[float]:
        trainer = make_trainer(start, [reward, other], mixed, max_steps=2)
        trainer.train()
        assert all("rewards/other/mean" in row for row in trainer.state.log_history[:2])
        return means(trainer)

    found = train(adapter.cooper_reward)
    config = load_learn(SETTINGS)
    with CooperReward(server.verify_rm, config=config.cooper, rule=config.rule, device="cpu") as reward:
        assert train(reward) == found
        assert reward.step == 2
    assert served(address, run)["step"] == 2


def test_a_trainer_that_asks_for_one_group_at_a_time_collects_a_step(address: str, run: str) -> None:
    """As the rollout worker of `AsyncGRPOTrainer` calls it: in a process that has no trainer."""
    for number in range(3):
        found = adapter.cooper_reward(
            prompts=[f"{number} + 1?"] * 2,
            completions=[f"#### {number + 1}", "#### 9"],
            completion_ids=[[1], [2]],
            reference_answer=[str(number + 1)] * 2,
        )
        assert len(found) == 2
    # Answered when the step of the six completions is done.
    adapter.connect()(["2"], questions=["1 + 1?"], reference_answers=["2"], learn="never")
    assert (served(address, run)["step"], served(address, run)["collected_items"]) == (1, 0)


def test_a_data_set_without_reference_answers_is_told_which_column(start: Path) -> None:
    trainer = make_trainer(start, adapter.cooper_reward, rows("solution"), max_steps=1)
    with pytest.raises(CooperError, match="no column 'reference_answer'; rename that of the final answers"):
        trainer.train()


def train_in_a_process(folder: Path) -> None:
    """What each of two processes runs: `python -m tests.service.test_trl FOLDER`."""
    trainer = make_trainer(folder, adapter.cooper_reward, rows(), per_device_train_batch_size=3, max_steps=2)
    trainer.train()
    (folder / f"means-{os.environ['RANK']}.json").write_text(json.dumps(means(trainer)))


@pytest.mark.slow
def test_completions_of_two_processes_are_one_step(start: Path, address: str, run: str) -> None:
    """Three completions each, and `collect_items` is six."""
    environment = os.environ | {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29638", "WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true",
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.service.test_trl", str(start)],
            cwd=ROOT, stderr=subprocess.PIPE, text=True,
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]  # fmt: skip
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert (served(address, run)["step"], served(address, run)["collected_items"]) == (2, 0)


if __name__ == "__main__":
    train_in_a_process(Path(sys.argv[1]))
