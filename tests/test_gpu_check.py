"""The check of a GPU: skipped with a line where there is none, and rehearsed on the CPU."""

import json
from importlib.util import find_spec

import pytest

from benchmarks.gpu_check import ESTIMATED_IN, OPTIMIZERS, compare_phases, main
from cooper_rl.models.budget import Card, Load, Phase

SIZES = ["--hidden=64", "--layers=1", "--vocab=1000", "--problems=2", "--group=2", "--max-new-tokens=8"]


def test_without_a_gpu_the_check_says_that_it_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == "gpu_check: skipped, torch sees no CUDA device\n"


def test_the_check_measures_whole_steps(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """On the CPU with models of one layer: every phase took time, and all rollouts were counted."""
    import cooper_rl.training.reward_learner as reward_learner

    monkeypatch.setattr(reward_learner, "time", reward_learner.time)  # which the check replaces
    assert main(["--device", "cpu", "--only-step", "--steps=1", *SIZES]) == 0
    found = json.loads(capsys.readouterr().out)
    phases = found["phases"]
    estimated = {"rollout", "reward", "policy_update", "reward_update", "step"}
    assert estimated <= phases.keys()
    seconds = {name: each["measured"] for name, each in phases.items()}
    assert all(each > 0 for name, each in seconds.items() if name != "pairing")
    assert seconds["step"] == pytest.approx(sum(seconds.values()) / 2, rel=0.2)
    for name in estimated:
        assert phases[name]["estimated"] > phases[name]["floor"] > 0
        assert phases[name]["ratio"] == pytest.approx(seconds[name] / phases[name]["estimated"])
    parts = sum(phases[name]["estimated"] for name in estimated - {"step"})
    assert phases["step"]["estimated"] == pytest.approx(parts)
    assert phases["pairing"] == {
        "floor": None,
        "estimated": None,
        "measured": seconds["pairing"],
        "ratio": None,
    }
    assert found["engine"] == "hf"
    assert 4 <= found["rollout_tokens"] <= 4 * 8
    assert found["policy_update_mfu"] > 0
    assert found["planned_gib"] > 2


def test_every_phase_of_the_budget_is_compared_with_what_was_measured_of_it() -> None:
    """Products alone on a card of 1 FLOP/s at .65: 65 FLOPs are 65 s at the floor, and 100 s estimated.

    Optimisers: 70 bytes at 1 byte/s, 38 for the policy (32 + 6) and 32 for VerifyRM; 0.8 of the bandwidth.
    """
    names = [*ESTIMATED_IN, OPTIMIZERS]
    budget = [Phase(name, Load(65.0), Load(), Load()) for name in names[:-1]]
    budget.append(Phase(OPTIMIZERS, Load(bytes=70.0), Load(), Load()))
    measured = {
        "rollout": 200.0,
        "policy_update": 247.5,
        "reward_update": 14.0,
        "pairing": 1.0,
        "step": 585.0,
    }
    found = compare_phases(budget, Card(1.0, 1.0), measured)
    assert found["rollout"] == pytest.approx({"floor": 65, "estimated": 100, "measured": 200, "ratio": 2})
    assert found["policy_update"] == pytest.approx(
        {"floor": 130 + 38, "estimated": 200 + 47.5, "measured": 247.5, "ratio": 1}
    )
    assert found["reward_update"] == pytest.approx(
        {"floor": 65 + 32, "estimated": 100 + 40, "measured": 14, "ratio": 0.1}
    )
    assert found["step"]["estimated"] == pytest.approx(500 + 87.5)
    assert found["pairing"]["ratio"] is None


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_check_says_so(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    import cooper_rl.training.reward_learner as reward_learner

    monkeypatch.setattr(reward_learner, "time", reward_learner.time)
    assert main(["--device", "cpu", "--only-step", "--engine=vllm", *SIZES]) == 2
    assert capsys.readouterr().out.startswith("gpu_check: engine.kind=vllm: ")
