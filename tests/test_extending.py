"""The page on parts of one's own: its program runs, and a step trains with all of its parts.

In a process of its own, since the parts stay registered.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STEP = """
from dataclasses import replace

import torch

from cooper_rl.config.data import ServerConfig
from cooper_rl.distributed.ranks import ALONE
from cooper_rl.distributed.trainable import TRAINERS
from cooper_rl.domains.open import find_domain
from cooper_rl.models.verify_rm import load_verify_rm
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.schema.data import Problem
from cooper_rl.servers.judge import ChatJudge
from cooper_rl.training.optimizer import make_adamw
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.step import run_step
from tests.conftest import make_policy, make_verify_rm
from tests.training.scripted import scripted_trainer


def test_a_step(make_policy, make_verify_rm):
    domain = find_domain(config.problems.domain)
    problems = [
        Problem(id="f", source="t", question="Capital of France?", reference_answer="Paris"),
        Problem(id="n", source="t", question="Capital of Norway?", reference_answer="Oslo"),
    ]
    script = {
        problems[0]: ["It is Paris", "It is Rome", "", "Paris."],
        problems[1]: ["Oslo", "Bergen", "Rome", "It is Oslo."],
    }
    cooper = config.cooper.model_copy(update={"group_size": 4, "problems_per_step": 2})
    rule = domain.open_verifier(None)
    maker = PairMaker(cooper, rule, None, None, domain)
    trainer = scripted_trainer(make_policy, make_verify_rm(0), maker, script)
    trainer = replace(
        trainer,
        policy_optimizer=TRAINERS[config.distributed.trainer_name](
            trainer.policy.model, make_adamw(trainer.policy.model, lr=1e-3, weight_decay=0),
            config=config.distributed, is_bfloat16=False, max_grad_norm=1.0, ranks=ALONE,
        ),
    )
    before = trainer.policy.model.lm_head.weight.detach().clone()
    result = run_step(trainer, 1, problems)
    assert not before.equal(trainer.policy.model.lm_head.weight), "the policy was not trained"
    lr = trainer.policy_optimizer.param_groups[0]["lr"]
    moved = (trainer.policy.model.lm_head.weight.detach() - before).abs()
    assert torch.isclose(moved.max(), torch.tensor(lr), rtol=1e-3), "a step of the sign is the learning rate"
    assert result.metrics.rollout.rule_accuracy == 0.5, result.metrics
    assert result.metrics.rollout.rule_unparsable == 0.125
    assert result.metrics.policy.clip_fraction == 0
    assert result.metrics.pairs.by_source["perturb"] == result.metrics.pairs.by_source["shout"] == 2
    negatives = {(pair.problem_id, pair.source): pair.negative for pair in result.pairs}
    assert negatives["f", "shout"].endswith("ATLANTIS")
    assert negatives["n", "perturb"].rstrip(".").endswith("Paris")
    judge = ChatJudge(ServerConfig(base_url="http://nowhere/v1", model="m"), domain)
    assert judge.identity != ChatJudge(ServerConfig(base_url="http://nowhere/v1", model="m")).identity
"""


@pytest.mark.slow
def test_the_pages_program_runs_and_a_step_trains_with_its_parts(tmp_path: Path) -> None:
    """France: Paris, Rome, nothing, Paris; Norway: Oslo, Bergen, Rome, Oslo: 4 of 8 right, 1 abstention."""
    page = (ROOT / "docs" / "how-to" / "extending.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5
    program = tmp_path / "test_program.py"
    program.write_text("\n".join([*blocks, STEP]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-c", "/dev/null", str(program)],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert "1 passed" in done.stdout


def test_every_key_protocol_and_registry_of_the_page_exists() -> None:
    page = (ROOT / "docs" / "how-to" / "extending.md").read_text()
    for path, name in re.findall(r"`(\w+/\w+\.py): (\w+)`", page):
        text = (ROOT / "src" / "cooper_rl" / path).read_text()
        assert re.search(rf"^(class {name}\b|{name}\b)", text, re.MULTILINE), (path, name)
