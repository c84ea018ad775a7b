"""The laptop pipeline's first steps against recorded numbers.

Problems, labels, VerifyRM's training and three Cooper steps, with the laptop preset's settings on random
models and solver-written completions in place of drawn ones, so that nothing can tip over on another
processor; judge, rule verifier and assistant are the real ones. The engine and the stages' wiring are in
`tests/pipelines/local/test_local.py`. `make golden` records again; commit that on its own.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.schema.data import PreferencePair, Problem, VerifyExample
from cooper_rl.servers.open import open_assistant, open_judge
from cooper_rl.tiny.problems import Story, generate_stories
from cooper_rl.tiny.solutions import Habits, solve
from cooper_rl.training.fitting.fit_verify_rm import fit_verify_rm
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.step import run_step, step_problems
from cooper_rl.verdicts.hybrid import JudgeItem, decide
from cooper_rl.verdicts.rule import RuleVerifier
from tests.training.scripted import scripted_trainer

GOLDEN = Path(__file__).parent.parent / "golden" / "first_steps.json"
HABITS = Habits(slip=0.2)


def first_steps(make_policy, make_verify_rm) -> dict[str, Any]:
    config = load("laptop", ["cooper.problems_per_step=4", "cooper.group_size=4", "verify_rm.batch_size=8"])
    rng = random.Random(0)
    stories = generate_stories(8, rng)
    problems = [
        Problem(id=str(n), source="tiny", question=story.question, reference_answer=str(story.answer))
        for n, story in enumerate(stories)
    ]
    completions = {
        problem.id: _solutions(story, rng) for problem, story in zip(problems, stories, strict=True)
    }
    with RuleVerifier(config.labeling.rule) as rule:
        examples = _label(problems, completions, rule, config)
        verify_rm = make_verify_rm(1)
        fit = fit_verify_rm(verify_rm, examples, config=config.verify_rm, seed=config.seed)
        judge = open_judge(config.cooper.judge, config.seed)
        maker = PairMaker(config.cooper, rule, open_assistant(config.cooper.pairs.assistant), judge)
        script = {problem: completions[problem.id] for problem in problems}
        trainer = scripted_trainer(make_policy, verify_rm, maker, script)
        results = [
            run_step(trainer, step, step_problems(problems, step, count=4, seed=0)) for step in (1, 2, 3)
        ]
    return {
        "problems": [problem.question for problem in problems],
        "labels": [example.label for example in examples],
        "train_verify_rm": {"num_updates": fit.num_updates, "final_loss": fit.final_loss},
        "pairs": [_texts(pair) for result in results for pair in result.pairs],
        "steps": [
            # The judge's calls are counted since the record was made: tests/training/test_judge_calls.py.
            {
                name: value
                for name, value in result.metrics.flat().items()
                if not name.startswith(("seconds/", "judge/"))
            }
            for result in results
        ],
    }


def _solutions(story: Story, rng: random.Random) -> list[str]:
    return [solve(story, rng, habits=HABITS).text for _ in range(4)]


def _label(
    problems: list[Problem], completions: dict[str, list[str]], rule: RuleVerifier, config: Config
) -> list[VerifyExample]:
    rows = [(problem, text) for problem in problems for text in completions[problem.id]]
    judge = open_judge(config.labeling.judge, config.seed)
    judged = judge.judge(
        [JudgeItem(problem.question, problem.reference_answer, text) for problem, text in rows]
    )
    checks = rule.verify([(problem.reference_answer, text) for problem, text in rows])
    decisions = [
        decide(check.verdict, result.verdict, None, unparsable_rule=config.labeling.unparsable_rule)
        for check, result in zip(checks, judged, strict=True)
    ]
    return [
        VerifyExample(
            question=problem.question,
            reference_answer=problem.reference_answer,
            completion=text,
            label=int(decision.is_correct),
        )
        for (problem, text), decision in zip(rows, decisions, strict=True)
        if decision.is_correct is not None
    ]


def _texts(pair: PreferencePair) -> list[str]:
    return [pair.problem_id, pair.positive, pair.negative, pair.source]


def test_the_first_steps_are_the_recorded_ones(make_policy, make_verify_rm) -> None:
    found = first_steps(make_policy, make_verify_rm)
    if os.environ.get("COOPER_RECORD_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for part in ("problems", "labels", "pairs"):
        assert found[part] == expected[part]
    assert found["train_verify_rm"] == pytest.approx(expected["train_verify_rm"], rel=1e-3)
    assert len(found["steps"]) == len(expected["steps"]) == 3
    for step, row in zip(found["steps"], expected["steps"], strict=True):
        assert step == pytest.approx(row, rel=1e-3, abs=1e-6)
