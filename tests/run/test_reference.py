"""The reference policy as a trainer gets it: the type of its weights, its log-probabilities to the bit."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.config.load import load
from cooper_rl.models.completions import batch_completions, completion_logprobs
from cooper_rl.models.policy import Policy, load_policy, save_policy
from cooper_rl.records.files import write_report
from cooper_rl.records.model_set import MANIFEST
from cooper_rl.run.build import SideData, make_trainer
from cooper_rl.schema.reports import ModelSet
from tests.tiny_models import random_policy, random_verify_rm


def open_reference(folder: Path, *values: str) -> Policy:
    config = load(
        "laptop", ["cooper.judge=null", "cooper.monitor=null", "cooper.pairs.negatives.assistant=0", *values]
    )
    state = TrainingState(
        step=0, policy=random_policy(0), verify_rm=random_verify_rm(0), policy_optimizer={},
        verify_rm_optimizer={}, metrics=[], pairs=[],
    )  # fmt: skip
    save_policy(random_policy(0), folder / "policy")
    write_report(folder / MANIFEST, ModelSet(policy="policy", samplers={}, backbone="policy"))
    with ExitStack() as stack:
        trainer = make_trainer(
            config, state, [], SideData((), (), ()), stack, models=folder, place="the start"
        )
        return trainer.reference


@pytest.mark.parametrize(
    ("precision", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)]
)
def test_its_linear_layers_are_in_the_type_of_its_passes(
    tmp_path: Path, precision: str, expected: torch.dtype
) -> None:
    reference = open_reference(tmp_path, f"cooper.precision={precision}")
    assert reference.model.model.layers[0].mlp.down_proj.weight.dtype == expected
    loaded = load_policy(tmp_path / "policy", device=torch.device("cpu"), is_trained=False)
    batch = batch_completions(reference, [[5, 6, 7]] * 2, [[8, 9], [10]])
    found, same = (
        completion_logprobs(policy, batch, temperature=1.0)
        for policy in (reference, replace(loaded, compute=reference.compute))
    )
    assert torch.equal(found, same)


def test_with_adapters_it_is_the_policys_own_weights_in_fp32(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    reference = open_reference(tmp_path, "cooper.precision=bfloat16", "cooper.policy.lora={}")
    assert reference.is_bare
    assert {weight.dtype for weight in reference.model.parameters()} == {torch.float32}
