"""The first steps of the laptop's co-training against recorded numbers.

Random models, the laptop preset's settings, solver-written rollouts (so that no draw can tip over on another
processor), the real rule verifier and assistant. `make golden` records again; commit that on its own.
"""

import json
import os
import random
from pathlib import Path

import pytest

from cooper_rl.backends.engine import ScriptedEngine
from cooper_rl.backends.rule_verifier import RuleVerifier
from cooper_rl.config import load
from cooper_rl.schema import Problem
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.tiny.problems import generate_stories
from cooper_rl.tiny.solutions import Habits, solve
from cooper_rl.training.optimizer import make_adamw
from cooper_rl.training.step import Trainer, run_step, step_problems

GOLDEN = Path(__file__).parent.parent / "golden" / "first_steps.json"
NUM_STEPS = 3


def first_steps(make_policy, make_verify_rm) -> list[dict[str, float]]:
    config = load("laptop", ["cooper.problems_per_step=4", "cooper.group_size=4"])
    rng = random.Random(0)
    stories = generate_stories(8, rng)
    problems = [
        Problem(id=str(n), source="tiny", question=story.question, reference_answer=str(story.answer))
        for n, story in enumerate(stories)
    ]
    policy, verify_rm = make_policy(0), make_verify_rm(1)
    end = policy.tokenizer.eos_token_id
    script = {
        tuple(policy.encode_prompt(story.question, None)): [
            (*policy.tokenizer(solve(story, rng, habits=Habits(slip=0.3)).text)["input_ids"], end)
            for _ in range(config.cooper.group_size)
        ]
        for story in stories
    }
    with RuleVerifier(config.labeling.rule) as rule:
        trainer = Trainer(
            policy=policy, reference=make_policy(0), verify_rm=verify_rm,
            engine=ScriptedEngine(script, end_ids=policy.end_ids), rule=rule, assistant=TinyAssistant(),
            policy_optimizer=make_adamw(policy.model, lr=config.cooper.policy_lr, weight_decay=0.01),
            verify_rm_optimizer=make_adamw(verify_rm.model, lr=config.cooper.verify_rm_lr, weight_decay=0.01),
            config=config.cooper, instruction=None, seed=0,
        )  # fmt: skip
        results = [
            run_step(trainer, step, step_problems(problems, step, count=4, seed=0))
            for step in range(1, NUM_STEPS + 1)
        ]
    return [
        {name: value for name, value in result.metrics.items() if not name.startswith("seconds/")}
        for result in results
    ]


def test_the_first_steps_are_the_recorded_ones(make_policy, make_verify_rm) -> None:
    found = first_steps(make_policy, make_verify_rm)
    if os.environ.get("COOPER_RECORD_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert len(found) == NUM_STEPS
    for step, row in zip(found, expected, strict=True):
        assert step == pytest.approx(row, rel=1e-3, abs=1e-6)
