"""The laptop's judge and assistant are refused for real problems, and the overrides that are named work."""

import re
from pathlib import Path

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError
from cooper_rl.records.files import read_records, write_records
from cooper_rl.schema.data import Problem
from cooper_rl.servers.open import check_fits
from cooper_rl.stages import evaluate_policy, train_cooper
from tests.stages.conftest import SMALL, Files

TINY = Problem(id="t", source="tiny", question="q", reference_answer="1")
REAL = Problem(id="g1", source="gsm8k_train.jsonl", question="q", reference_answer="1")


def named_overrides(message: str) -> list[str]:
    """Every `key=value` after `set`, placeholders filled in."""
    found = re.findall(r"[a-z_.]+=[A-Za-z]+", message.split("; set ")[1])
    return [each.replace("=URL", "=http://judge:8000/v1").replace("=NAME", "=judge-1") for each in found]


def test_the_laptops_judge_is_refused_for_real_problems_with_overrides_that_work() -> None:
    config = load("laptop", [])
    check_fits(config.labeling.judge, [TINY], key="labeling.judge")
    with pytest.raises(ConfigError, match=r"labeling.judge.tiny_error_rate=0.02 .* problem 'g1'") as caught:
        check_fits(config.labeling.judge, [TINY, REAL], key="labeling.judge")
    alone, *server = named_overrides(str(caught.value))
    for overrides in ([alone], server):
        check_fits(load("laptop", overrides).labeling.judge, [REAL], key="labeling.judge")
    assert load("laptop", [alone]).labeling.judge is None
    judge = load("laptop", server).labeling.judge
    assert judge is not None
    assert judge.server is not None
    assert judge.server.model == "judge-1"


def test_the_laptops_assistant_is_refused_for_real_problems_with_overrides_that_work() -> None:
    config = load("laptop", [])
    check_fits(config.cooper.pairs.assistant, [TINY], key="cooper.pairs.assistant")
    with pytest.raises(
        ConfigError, match=r"cooper.pairs.assistant.tiny=true .* source 'gsm8k_train.jsonl'"
    ) as caught:
        check_fits(config.cooper.pairs.assistant, [REAL], key="cooper.pairs.assistant")
    *server, frozen = named_overrides(str(caught.value))
    check_fits(load("laptop", server).cooper.pairs.assistant, [REAL], key="cooper.pairs.assistant")
    assert load("laptop", [frozen]).cooper.reward.update_verify_rm is False


def as_real(files: Files, folder: Path) -> Path:
    problems = read_records(files.problems, Problem)
    write_records(folder / "real.jsonl", [each.model_copy(update={"source": "real"}) for each in problems])
    return folder / "real.jsonl"


def test_evaluation_refuses_the_laptops_judge_for_real_problems(files: Files, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"evaluation.judge.tiny_error_rate=0 .*; set evaluation.judge=null"
    ):
        evaluate_policy.run(
            load("laptop", SMALL), models=files.models, verify_rm=files.verify_rm,
            problems=as_real(files, tmp_path), examples=files.examples, evaluations=tmp_path / "evaluations",
            completions=tmp_path / "completions", report=tmp_path / "report",
        )  # fmt: skip


def test_co_training_refuses_the_laptops_assistant_and_judge_unless_nobody_asks_them(
    files: Files, tmp_path: Path
) -> None:
    def train(*overrides: str) -> None:
        train_cooper.run(
            load("laptop", [*SMALL, *overrides]), models=files.models, verify_rm=files.verify_rm,
            problems=as_real(files, tmp_path), checkpoint=tmp_path / "checkpoint", report=tmp_path / "report",
        )  # fmt: skip

    with pytest.raises(ConfigError, match=r"cooper.pairs.assistant.tiny=true is the laptop's assistant"):
        train()
    frozen = ["cooper.reward.update_verify_rm=false", "cooper.judge={tiny_error_rate=0.0}", "cooper.steps=1"]
    with pytest.raises(ConfigError, match=r"cooper.judge.tiny_error_rate=0 "):
        train(*frozen, "cooper.reward.kind=judge")
    train(*frozen)
