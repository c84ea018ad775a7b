import logging
import threading
from logging.handlers import QueueHandler
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from cooper_rl.config.models import TinyBackbone, TinyModel, TinyModels
from cooper_rl.errors import DataError
from cooper_rl.models.template import Separators
from cooper_rl.tiny.hub import run_in_processes, train_tiny_models

SIZE = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_updates": 4, "batch_size": 4}
TINY = TinyModels(
    policy=TinyModel(**SIZE),
    snapshots={"early": 0.5},
    samplers={"small": TinyModel(**SIZE)},
    backbone=TinyBackbone(**SIZE, num_matching_updates=2),
)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    train_tiny_models(TINY, folder, seed=0, num_processes=1)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def test_the_policy_its_snapshots_and_the_samplers_are_the_samplers(tmp_path: Path) -> None:
    models = train_tiny_models(TINY, tmp_path, seed=0, num_processes=1)
    assert models.policy == "policy"
    assert models.backbone == "backbone"
    assert models.samplers == {"policy": "policy", "early": "early", "small": "small"}
    assert all((tmp_path / name / "config.json").is_file() for name in models.samplers)


@pytest.mark.parametrize("name", ["policy", "early", "small", "backbone"])
def test_every_model_is_an_ordinary_folder_with_its_end_and_pad_tokens(hub: Path, name: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(hub / name)
    tokenizer = AutoTokenizer.from_pretrained(hub / name)
    generation = GenerationConfig.from_pretrained(hub / name)
    assert model.config.architectures == ["Qwen2ForCausalLM"]
    assert generation.eos_token_id == tokenizer.eos_token_id
    assert model.config.pad_token_id == generation.pad_token_id == tokenizer.pad_token_id
    num_separators = len(Separators._fields) if name == "backbone" else 0
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer) + num_separators


def test_processes_train_the_same_models_as_one_process_and_their_progress_is_seen(
    hub: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        train_tiny_models(TINY, tmp_path, seed=0, num_processes=2)
    for name in ("policy", "early", "small", "backbone"):
        expected = weights(hub / name)
        for key, tensor in weights(tmp_path / name).items():
            torch.testing.assert_close(tensor, expected[key], msg=f"{name} {key}")
    assert "prepare_models policy 4/4" in caplog.text
    assert "prepare_models backbone 6/6" in caplog.text


def test_another_seed_trains_other_models(hub: Path, tmp_path: Path) -> None:
    train_tiny_models(TINY, tmp_path, seed=1, num_processes=1)
    first, second = weights(hub / "policy"), weights(tmp_path / "policy")
    assert any(not torch.equal(first[key], second[key]) for key in first)


def test_a_worker_that_fails_ends_the_training_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "backbone").write_text("a file where a folder must be", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"backbone: cannot be written .*; free space or choose another folder"
    ):
        train_tiny_models(TINY, tmp_path, seed=0, num_processes=2)


def fail_while_logging() -> None:
    """As a worker that is ended in the moment in which it writes a record: the queue's lock stays taken."""
    handler = next(one for one in logging.getLogger().handlers if isinstance(one, QueueHandler))
    handler.queue._wlock.acquire()  # pyright: ignore[reportAttributeAccessIssue] multiprocessing's own
    raise KeyboardInterrupt


def test_a_worker_that_is_ended_while_it_logs_keeps_nobody_waiting() -> None:
    """Ctrl-C ends workers at any moment."""
    seen: list[BaseException] = []

    def run() -> None:
        try:
            run_in_processes([fail_while_logging], 1)
        except KeyboardInterrupt as error:
            seen.append(error)

    runner = threading.Thread(target=run, daemon=True)
    runner.start()
    runner.join(timeout=120)
    assert not runner.is_alive()
    assert len(seen) == 1
