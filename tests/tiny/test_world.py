"""The laptop preset as a whole: what its numbers were chosen for."""

from pathlib import Path

import pytest
import torch

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.load import load
from cooper_rl.engines.hf import HFEngine
from cooper_rl.models.policy import load_policy
from cooper_rl.tiny.hub import train_policy
from cooper_rl.tiny.judge import judge_exactly
from cooper_rl.tiny.problems import generate_problems
from cooper_rl.verdicts.hybrid import JudgeItem


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_presets_policy_solves_between_30_and_60_percent_when_sampled(seed: int, tmp_path: Path) -> None:
    tiny = load("laptop").models.tiny
    assert tiny is not None
    train_policy(tiny.policy, tmp_path, name="policy", seed=seed)
    policy = load_policy(tmp_path / "policy", device=torch.device("cpu"))
    engine = HFEngine(policy.model, end_ids=policy.end_ids, pad_id=policy.pad_id)
    problems = generate_problems(1000, seed=12345)
    prompts = [policy.encode_prompt(problem.question, None) for problem in problems]
    drawn = engine.generate(prompts, GenerationConfig(max_new_tokens=64), samples=1, seed=0)
    num_correct = sum(
        judge_exactly(
            JudgeItem(problem.question, problem.reference_answer, policy.decode(generations[0].token_ids))
        ).verdict
        == "correct"
        for problem, generations in zip(problems, drawn, strict=True)
    )
    assert 0.3 <= num_correct / len(problems) <= 0.6
