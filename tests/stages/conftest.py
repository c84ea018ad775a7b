"""A run's files, small: random models on disk, generated problems, labelled examples."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.models.policy import Policy, save_policy
from cooper_rl.models.verify_rm import save_verify_rm
from cooper_rl.records.files import read_records, write_records, write_report
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.reports import ModelSet
from cooper_rl.tiny.problems import generate_problems
from tests.stages.champions import make_examples

SMALL = [
    "cooper.problems_per_step=4",
    "cooper.group_size=4",
    "cooper.generation.max_new_tokens=12",
    "cooper.policy.lr=1e-3",
    "cooper.policy.warmup_steps=20",
    "cooper.steps=2",
    "labeling.rule.num_workers=1",
    "evaluation.samples_per_problem=2",
    "evaluation.generation.max_new_tokens=12",
]


@dataclass(frozen=True)
class Files:
    """Where the inputs of the later stages stand."""

    folder: Path
    models: Path
    verify_rm: Path
    problems: Path
    examples: Path
    held_out: Path


def files_in(folder: Path) -> Files:
    return Files(
        folder,
        models=folder / "models",
        verify_rm=folder / "verify_rm",
        problems=folder / "problems.jsonl",
        examples=folder / "examples.jsonl",
        held_out=folder / "held_out.jsonl",
    )


def with_other_questions(examples: Path) -> Path:
    """The same examples for replay, which asks nothing that is evaluated on; the file beside theirs."""
    path = examples.with_name(f"replay-{examples.name}")
    rows = read_records(examples, VerifyExample)
    write_records(path, [row.model_copy(update={"question": f"{row.question} Now?"}) for row in rows])
    return path


def write_problems(folder: Path, problems: list[Problem]) -> tuple[list[Problem], list[Problem]]:
    """Ten to train on; the others are held out."""
    write_records(folder / "problems.jsonl", problems[:10])
    write_records(folder / "held_out.jsonl", problems[10:])
    return problems[:10], problems[10:]


@pytest.fixture(scope="session")
def files(tmp_path_factory, make_policy, make_verify_rm) -> Files:
    folder = tmp_path_factory.mktemp("files")
    save_policy(make_policy(0), folder / "models" / "policy")
    models = ModelSet(policy="policy", samplers={"policy": "policy"}, backbone="policy")
    write_report(folder / "models" / "models.json", models)
    save_verify_rm(make_verify_rm(0), folder / "verify_rm")
    _, held_out = write_problems(folder, generate_problems(20, 0))
    write_records(folder / "examples.jsonl", make_examples(held_out))
    return files_in(folder)


@pytest.fixture(scope="session")
def small() -> Config:
    return load("laptop", SMALL)


@pytest.fixture(scope="session")
def sevens(tmp_path_factory, make_policy, make_verify_rm) -> Files:
    """Ten problems whose answer is 7, and a policy that mostly says so."""
    folder = tmp_path_factory.mktemp("sevens")
    problems, _ = write_problems(
        folder, [problem.model_copy(update={"reference_answer": "7"}) for problem in generate_problems(20, 0)]
    )
    policy = make_policy(0)
    _learn_by_heart(policy, problems, "#### 7")
    save_policy(policy, folder / "models" / "policy")
    names = ModelSet(policy="policy", samplers={"policy": "policy"}, backbone="policy")
    write_report(folder / "models" / "models.json", names)
    save_verify_rm(make_verify_rm(0), folder / "verify_rm")
    return files_in(folder)


def _learn_by_heart(policy: Policy, problems: list[Problem], text: str) -> None:
    answer = [*policy.tokenizer(text)["input_ids"], policy.tokenizer.eos_token_id]
    rows = [[*policy.encode_prompt(problem.question, None), *answer] for problem in problems[:3]]
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-2)
    for update in range(24):
        ids = torch.tensor([rows[update % 3]])
        labels = ids.clone()
        labels[:, : -len(answer)] = -100
        policy.model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
