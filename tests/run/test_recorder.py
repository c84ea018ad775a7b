"""The first rank's files beside the training: the state that a rollback puts back."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.records.live import LiveFile, LiveHeader
from cooper_rl.run.recorder import Books
from cooper_rl.run.tracker import Tracker
from cooper_rl.storage.open import open_store


def test_a_rollback_reads_a_base_model_that_a_template_of_the_configuration_prompts(
    make_policy, make_verify_rm, tmp_path: Path
) -> None:
    """Its tokenizer has no chat template, without which a policy is refused."""
    policy = replace(make_policy(0), prompt_template="{question}\n")
    policy.tokenizer.chat_template = None
    state = TrainingState(
        step=2,
        policy=policy,
        verify_rm=make_verify_rm(0),
        policy_optimizer={},
        verify_rm_optimizer={},
        metrics=[],
        pairs=[],
    )
    config = StorageConfig()
    opened = CheckpointStore(
        open_store(config, tmp_path / "run"), identity=RunIdentity({"seed": "0"}), retention=config
    )
    header = LiveHeader(arm=None, last_step=4, settings={}, command=None)
    with (
        CheckpointWriter(opened, tmp_path / "work") as writer,
        Tracker(None, run="run") as tracker,
        closing(LiveFile(tmp_path / "work", header, step=0)) as live,
    ):
        writer.save(state, score=None)
        books = Books(opened, writer, tracker, live, first=lambda: state, prompt_template="{question}\n")
        earlier = books.earlier(3)
    assert earlier.step == 2
    own = policy.model.state_dict()
    assert earlier.policy.weights.keys() == own.keys()
    assert all(torch.equal(weight, own[name]) for name, weight in earlier.policy.weights.items())
