"""Candidates for the registry, made by hand: real model folders, evaluations with chosen outcomes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.method.intervals import clustered_interval
from cooper_rl.method.metrics import binary_scores
from cooper_rl.models.policy import save_policy
from cooper_rl.models.verify_rm import save_verify_rm
from cooper_rl.records.files import write_records
from cooper_rl.schema.data import EvaluatedCompletion, Problem, VerifyExample
from cooper_rl.schema.reports import EvalReport
from cooper_rl.storage.open import open_store
from cooper_rl.tiny.problems import generate_problems

PROBLEMS = generate_problems(40, 0)
HELD_OUT, TRAINING, LATER = PROBLEMS[:8], PROBLEMS[8:20], PROBLEMS[20:]


def make_examples(problems: Sequence[Problem]) -> list[VerifyExample]:
    """A right and a wrong completion of each problem."""
    return [
        VerifyExample(
            question=problem.question,
            reference_answer=problem.reference_answer,
            completion=f"#### {problem.reference_answer if right else 'nothing'}",
            label=right,
        )
        for problem in problems
        for right in (0, 1)
    ]


EXAMPLES = make_examples(TRAINING[:4])


def configured(registry: Path | str, *more: str) -> Config:
    return load("laptop", [f"registry.uri={registry}", *more])


def make_completions(outcomes: Sequence[int], problems: Sequence[Problem]) -> list[EvaluatedCompletion]:
    """One completion of each problem; 1: the judge calls it correct."""
    return [
        EvaluatedCompletion(
            problem_id=problem.id,
            question=problem.question,
            reference_answer=problem.reference_answer,
            completion="#### 1",
            finish_reason="stop",
            rule="unparsable",
            judge="correct" if is_right else "incorrect",
            score=0.5,
        )
        for is_right, problem in zip(outcomes, problems, strict=True)
    ]


def make_evaluation(
    outcomes: Sequence[int],
    *,
    step: int = 3,
    num_right: int = 6,
    hits: str | None = None,
    canaries: Mapping[str, float] = {"empty": 0.1, "colon": 0.0},
    examples: Sequence[VerifyExample] = EXAMPLES,
) -> EvalReport:
    """Of those outcomes; VerifyRM is right on the first `num_right` examples, or where `hits` has a 1."""
    labels = [example.label for example in examples]
    hits = hits or "".join(str(int(row < num_right)) for row in range(len(examples)))
    words: dict[str, str] = {}
    for example, hit in zip(examples, hits, strict=True):
        words[example.question] = words.get(example.question, "") + hit
    scores = [float(label if hit == "1" else 1 - label) for label, hit in zip(labels, hits, strict=True)]
    return EvalReport(
        step=step,
        num_problems=len(outcomes),
        samples_per_problem=1,
        rule_accuracy=clustered_interval([[0.0] for _ in outcomes]),
        judge_accuracy=clustered_interval([[float(each)] for each in outcomes]),
        judge_model="tiny",
        verify_rm_reward=clustered_interval([[0.5] for _ in outcomes]),
        verify_rm=binary_scores(labels, scores, problems=[example.question for example in examples]),
        verify_rm_hits=" ".join(words.values()),
        canary_false_positive_rate=sum(canaries.values()) / max(len(canaries), 1),
        canaries=dict(canaries),
        cut_fraction=0.0,
    )


def make_candidate(
    folder: Path,
    outcomes: Sequence[int],
    *,
    policy: Any,
    verify_rm: Any,
    held_out: Sequence[Problem] = HELD_OUT,
    training: Sequence[Problem] = TRAINING,
    examples: Sequence[VerifyExample] = EXAMPLES,
    **evaluation: Any,
) -> dict[str, Path]:
    """The paths that `promote` takes; the checkpoint is a whole one, of step 3."""
    made = folder / "made"
    save_policy(policy, made / "policy")
    save_verify_rm(verify_rm, made / "verify_rm")
    for name in ("metrics.jsonl", "pairs.jsonl", "rollouts.jsonl"):
        (made / name).write_text("")
    store = open_store(StorageConfig(), folder / "checkpoint")
    CheckpointStore(store, identity=RunIdentity({}), retention=StorageConfig()).publish(
        made, step=3, score=None, versions={}
    )
    write_records(folder / "problems.jsonl", training)
    write_records(folder / "held_out.jsonl", held_out)
    write_records(folder / "examples.jsonl", examples)
    write_records(folder / "completions.jsonl", make_completions(outcomes, held_out))
    start = make_evaluation([0] * len(outcomes), step=0, examples=examples)
    end = make_evaluation(outcomes, examples=examples, **evaluation)
    write_records(folder / "evaluations.jsonl", [start, end])
    names = ("problems", "held_out", "examples", "completions", "evaluations")
    paths = {name: folder / f"{name}.jsonl" for name in names}
    outputs = {"summary": folder / "summary.md", "report": folder / "decision.json"}
    return paths | outputs | {"checkpoint": folder / "checkpoint"}


Candidates = Callable[..., dict[str, Path]]
