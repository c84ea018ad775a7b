"""Co-training whose judge is a server that goes away and comes back."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.errors import ServerError
from tests.stages.conftest import Files
from tests.stages.train_cooper.test_train_cooper import numbers, train
from tests.stand_ins.chat import Reply, ScriptedServer

ROLLOUTS_PER_STEP = 16


class MoodyJudge:
    """Accepts every second solution, until it has answered `patience` requests."""

    def __init__(self) -> None:
        self.patience = 10**6
        self.server = ScriptedServer(self._answer)

    def settings(self, key: str) -> list[str]:
        server = f'{{ base_url = "{self.server.url}", model = "m", max_attempts = 1 }}'
        return [f"{key}=null", f"{key}.server={server}"]

    def _answer(self, number: int, body: dict[str, Any]) -> Reply:
        if number >= self.patience:
            return 0, {}, ""
        user = body["messages"][1]["content"]
        nonce = re.search(r"<solution-([0-9a-f]{16})>", user)[1]
        solution = re.search(rf"<solution-{nonce}>\n(.*)\n</solution", user, re.DOTALL)[1]
        word = "CORRECT" if len(solution) % 2 else "INCORRECT"
        content = f"VERDICT-{nonce}: {word}"
        return 200, {}, json.dumps({"choices": [{"message": {"content": content}}]})


@pytest.fixture
def judge() -> Iterator[MoodyJudge]:
    moody = MoodyJudge()
    yield moody
    moody.server.close()


def test_steps_before_the_rewards_judge_went_away_are_saved_and_not_done_again(
    files: Files, judge: MoodyJudge, tmp_path: Path
) -> None:
    values = ["cooper.reward.kind=judge", *judge.settings("cooper.judge"), "cooper.checkpoint_every=20"]
    train(files, tmp_path / "straight", *values, "cooper.steps=4")
    judge.patience = len(judge.server.bodies) + 2 * ROLLOUTS_PER_STEP
    with pytest.raises(ServerError, match=r"^step 3: .*; what was done before is saved"):
        train(files, tmp_path / "run", *values, "cooper.steps=4")
    assert numbers(tmp_path / "run") == numbers(tmp_path / "straight")[:2]
    judge.patience = 10**6
    train(files, tmp_path / "run", *values, "cooper.steps=4")
    assert numbers(tmp_path / "run") == numbers(tmp_path / "straight")


def test_an_evaluation_goes_without_a_judge_that_is_gone(
    files: Files, judge: MoodyJudge, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = [*judge.settings("evaluation.judge"), "cooper.evaluate_every=1", "cooper.steps=2"]
    judge.patience = 20  # requests of one evaluation: ten problems, two completions each
    train(files, tmp_path / "run", *values, examples=files.examples, held_out=files.held_out)
    first, second = numbers(tmp_path / "run")
    assert "eval/judge_accuracy" in first
    assert "eval/judge_accuracy" not in second
    assert "eval/rule_accuracy" in second
    assert "this evaluation goes without its judge: http://127.0.0.1:" in caplog.text
