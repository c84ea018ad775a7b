"""Co-training with bad input: NaN, no correct rollout, and models that share no tokenizer.

The policy here has learned by heart to answer 7, so that pairs arise and VerifyRM is updated.
"""

import errno
import fcntl
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from cooper_rl.checkpoints.logs import PAIRS
from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.config.load import load
from cooper_rl.engines.hf import HFEngine
from cooper_rl.errors import DamagedObjectError, ModelError, StorageError, TrainingError
from cooper_rl.models.policy import load_policy, save_policy
from cooper_rl.models.verify_rm import VerifyItem, load_verify_rm, new_verify_rm, save_verify_rm
from cooper_rl.randomness import derive_seed
from cooper_rl.records.files import read_records
from cooper_rl.schema.data import PreferencePair, Problem
from cooper_rl.storage.local import LocalStore
from cooper_rl.training.rollout import begin_rollouts
from cooper_rl.training.step import step_problems
from tests.stages.conftest import SMALL, Files
from tests.stages.train_cooper.test_train_cooper import logged, numbers, read, train

CPU = torch.device("cpu")


def assert_equal_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def assert_same_state(one: TrainingState, other: TrainingState) -> None:
    assert one.step == other.step
    assert one.pairs == other.pairs
    assert_equal_tensors(one.policy.model.state_dict(), other.policy.model.state_dict())
    assert_equal_tensors(one.verify_rm.model.state_dict(), other.verify_rm.model.state_dict())
    assert_equal_tensors(one.policy_optimizer, other.policy_optimizer)
    assert_equal_tensors(one.verify_rm_optimizer, other.verify_rm_optimizer)


def test_verify_rm_and_its_optimiser_are_resumed(sevens: Files, tmp_path: Path) -> None:
    """The release neither saves nor resumes the reward model of a run."""
    train(sevens, tmp_path / "straight", "cooper.steps=3")
    train(sevens, tmp_path / "stopped", "cooper.steps=1")
    train(sevens, tmp_path / "stopped", "cooper.steps=3")
    straight = read(tmp_path / "straight")
    pairs = [logged(tmp_path / name, PAIRS, PreferencePair) for name in ("straight", "stopped")]
    assert pairs[0] == pairs[1]
    assert len(pairs[0]) >= 3
    assert straight.verify_rm_optimizer
    assert_same_state(straight, read(tmp_path / "stopped"))


def test_a_checkpoint_folder_without_locks_is_refused_before_the_first_step(
    sevens: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on NFS with `nolock`. Drafts and temporary folders do without locks."""

    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    caplog.set_level(logging.INFO)
    with pytest.raises(
        StorageError, match=r"has no locks \(No locks available\).*NFS: without nolock.*s3://"
    ):
        train(sevens, tmp_path / "run", "cooper.steps=1")
    assert not any("step=1" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        ("reward.lr", "VerifyRM's score is NaN for the question '"),
        ("policy.lr", "the policy's log-probabilities are not finite"),
    ],
)
def test_a_nan_names_the_step_and_keeps_the_last_checkpoint(
    rate: str, problem: str, sevens: Files, tmp_path: Path
) -> None:
    """At this learning rate the model overflows in the first update; the second step cannot use it."""
    overrides = [f"cooper.{rate}=1e36", "cooper.checkpoint_every=1"]
    with pytest.raises(TrainingError, match=rf"^step 2: {problem}.*the checkpoint of step 1 stays$"):
        train(sevens, tmp_path / "run", *overrides, "cooper.steps=3")
    train(sevens, tmp_path / "one", *overrides, "cooper.steps=1")
    assert_same_state(read(tmp_path / "run"), read(tmp_path / "one"))


def test_a_nan_in_the_first_step_says_that_there_is_no_checkpoint(
    sevens: Files, make_verify_rm, tmp_path: Path
) -> None:
    broken = make_verify_rm(0)
    with torch.no_grad():
        broken.model.score.weight.fill_(float("nan"))
    save_verify_rm(broken, tmp_path / "broken")
    with pytest.raises(TrainingError, match=r"^step 1: VerifyRM's score is NaN .*; no checkpoint yet$"):
        train(sevens, tmp_path / "run", verify_rm=tmp_path / "broken")


def test_a_damaged_start_is_refused(files: Files, tmp_path: Path) -> None:
    train(files, tmp_path / "first", "cooper.steps=1")
    weights = tmp_path / "first" / "step-000001" / "policy" / "model.safetensors"
    damaged = weights.read_bytes()[:-1] + b"x"
    weights.unlink()
    weights.write_bytes(damaged)
    with pytest.raises(DamagedObjectError, match=r"policy/model\.safetensors: changed since it was written"):
        train(files, tmp_path / "second", "cooper.steps=1", start=tmp_path / "first")


def test_a_store_that_ignores_conditions_is_refused_before_the_first_step(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStore, "write", lambda *_, **__: "tag")
    with pytest.raises(StorageError, match="the server ignores If-None-Match"):
        train(files, tmp_path / "run", "cooper.steps=1")


def test_rollouts_that_do_not_fit_into_memory_say_what_to_lower(sevens: Files, tmp_path: Path) -> None:
    said = r"^step 1: drawing completions: out of memory \(.*lower generation\.batch_size=\d+ of this stage"
    with pytest.raises(TrainingError, match=said):
        train(
            sevens,
            tmp_path / "run",
            "cooper.monitor=null",
            "cooper.generation.max_new_tokens=1000000000000000",
        )


def test_steps_without_a_correct_rollout_step_no_optimiser_and_are_counted(
    files: Files, tmp_path: Path, caplog
) -> None:
    """The policy is random: no pair in two steps; metrics, report and progress line say so."""
    with caplog.at_level(logging.INFO):
        report = train(files, tmp_path / "run", "cooper.steps=2")
    assert (report.num_pairs, report.num_skipped_reward_updates) == (0, 2)
    assert [row["pairs/count"] for row in numbers(tmp_path / "run")] == [0, 0]
    assert not any("verify_rm/loss" in row for row in numbers(tmp_path / "run"))
    shown = numbers(tmp_path / "run")[-1]
    paid, right = shown["rollout/verify_rm_reward"], shown["rollout/rule_accuracy"]
    assert f" verify_rm_reward={paid:.4g} rule_accuracy={right:.4g} pairs=0 " in caplog.text
    state = read(tmp_path / "run")
    assert state.verify_rm_optimizer == {}
    original = load_verify_rm(files.verify_rm, device=CPU)
    assert_equal_tensors(state.verify_rm.model.state_dict(), original.model.state_dict())


def test_a_policy_that_scales_its_logits_is_refused(files: Files, make_policy, tmp_path: Path) -> None:
    """Its completions would be drawn from other probabilities than the update computes."""
    policy = make_policy(0)
    config = GraniteConfig(
        vocab_size=len(policy.tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, logits_scaling=8.0, eos_token_id=policy.tokenizer.eos_token_id,
    )  # fmt: skip
    models = shutil.copytree(files.models, tmp_path / "models")
    save_policy(replace(policy, model=GraniteForCausalLM(config)), models / "policy")
    with pytest.raises(ModelError, match=r"GraniteForCausalLM scales or caps the logits of its head"):
        train(files, tmp_path / "run", models=models)


@pytest.fixture(scope="module")
def unigram_verify_rm(sevens: Files) -> Path:
    """A Llama classifier with a Unigram tokenizer, as SentencePiece makes them; the policy has BPE."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    texts = [problem.question for problem in read_records(sevens.problems, Problem)]
    tokenizer.train_from_iterator(
        [*texts, "#### 7 <question> </reference_answer> <completion> ..."],
        trainers.UnigramTrainer(
            vocab_size=120, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
        ),
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_labels=1, bos_token_id=None, eos_token_id=fast.eos_token_id,
        pad_token_id=None,
    )  # fmt: skip
    path = sevens.folder / "unigram"
    save_verify_rm(new_verify_rm(LlamaForSequenceClassification(config).eval(), fast), path)
    return path


def test_policy_and_verify_rm_may_have_different_tokenizers(
    sevens: Files, unigram_verify_rm: Path, tmp_path: Path
) -> None:
    """VerifyRM reads the texts with its own tokenizer: its mean score is that of the decoded rollouts."""
    train(sevens, tmp_path / "run", verify_rm=unigram_verify_rm)
    policy = load_policy(sevens.models / "policy", device=CPU)
    verify_rm = load_verify_rm(unigram_verify_rm, device=CPU)
    assert policy.tokenizer("#### 7")["input_ids"] != verify_rm.tokenizer("#### 7")["input_ids"]
    assert len(policy.tokenizer) != len(verify_rm.tokenizer)

    config = load("laptop", SMALL)
    problems = step_problems(read_records(sevens.problems, Problem), 1, count=4, seed=config.seed)
    wait = begin_rollouts(
        HFEngine(policy.model, end_ids=policy.end_ids, pad_id=policy.pad_id), policy, problems,
        config.cooper.generation, group_size=4, instruction=config.instruction,
        seed=derive_seed(config.seed, "step", 1),
    )  # fmt: skip
    groups = wait()
    texts = [(group.problem, text) for group in groups for text in group.texts]
    scores = verify_rm.score([VerifyItem(p.question, p.reference_answer, text) for p, text in texts])
    first = numbers(tmp_path / "run")[0]
    assert first["rollout/verify_rm_reward"] == pytest.approx(sum(scores) / len(scores), abs=1e-6)
    assert first["pairs/count"] > 0

    trained = read(tmp_path / "run")
    assert trained.verify_rm.tokenizer.get_vocab() == verify_rm.tokenizer.get_vocab()
    assert trained.policy.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    weights = zip(trained.verify_rm.model.parameters(), verify_rm.model.parameters(), strict=True)
    assert not all(torch.equal(after, before) for after, before in weights)
