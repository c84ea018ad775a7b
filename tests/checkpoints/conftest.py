"""A small training state, and a store in a folder and on an S3 server."""

from pathlib import Path

import pytest
import torch

from cooper_rl.checkpoints.state import (
    TrainingState,
)
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.schema.step_metrics import RolloutMetrics, StepMetrics
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.open import open_store
from tests.checkpoints.saving import PAIR
from tests.stand_ins.fixtures import storage_config


@pytest.fixture
def state(make_policy, make_verify_rm) -> TrainingState:
    return TrainingState(
        step=3,
        policy=make_policy(0),
        verify_rm=make_verify_rm(0),
        policy_optimizer={"a/exp_avg": torch.arange(3.0)},
        verify_rm_optimizer={},
        metrics=[StepMetrics(step=3, rollout=RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.25))],
        pairs=[PAIR],
    )


@pytest.fixture(params=["folder", "s3"])
def config(request, tmp_path: Path) -> StorageConfig:
    if request.param == "folder":
        return StorageConfig(uri=str(tmp_path / "store"), run_key="run")
    return storage_config(
        request.getfixturevalue("s3_server").endpoint, request.getfixturevalue("bucket"), run_key="run"
    )


@pytest.fixture
def store(config: StorageConfig) -> ObjectStore:
    return open_store(config, f"{config.uri}/{config.run_key}")
