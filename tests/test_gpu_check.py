"""The check of a GPU: skipped with a line where there is none, and rehearsed on the CPU."""

import json

import pytest
import torch

from benchmarks.gpu_check import main

SIZES = ["--hidden=64", "--layers=1", "--vocab=1000", "--problems=2", "--group=2", "--max-new-tokens=8"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: run `make gpu-check`")
def test_without_a_gpu_the_check_says_that_it_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == "gpu_check: skipped, torch sees no CUDA device\n"


def test_the_check_measures_whole_steps(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """On the CPU with models of one layer: every phase took time, and all rollouts were counted."""
    import cooper_rl.training.reward_learner as reward_learner

    monkeypatch.setattr(reward_learner, "time", reward_learner.time)  # which the check replaces
    assert main(["--device", "cpu", "--only-step", "--steps=1", *SIZES]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"rollout", "reward", "policy_update", "reward_update", "step"} <= found["seconds"].keys()
    assert all(seconds > 0 for phase, seconds in found["seconds"].items() if phase != "pairing")
    assert found["seconds"]["step"] == pytest.approx(sum(found["seconds"].values()) / 2, rel=0.2)
    assert 4 <= found["rollout_tokens"] <= 4 * 8
    assert found["policy_update_mfu"] > 0
    assert found["planned_gib"] > 2
    assert {"rollouts", "reward", "policy update", "reward update"} <= found["reckoned_seconds"].keys()
    assert all(each["usual"] > each["floor"] > 0 for each in found["reckoned_seconds"].values())
