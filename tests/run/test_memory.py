"""What `train_cooper` asks of a GPU before it starts; the card here is one that torch was told of."""

import logging
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, PretrainedConfig

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError
from cooper_rl.models.memory import GIB
from cooper_rl.run.memory import check_memory


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(total_memory=8 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)


def check(config: PretrainedConfig) -> None:
    model = SimpleNamespace(config=config, device=torch.device("cuda", 0))
    check_memory(load("single_gpu"), policy=model, verify_rm=model, num_processes=1)


def test_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"of a GPU that has 8\.0 GiB: "):
        check(LlamaConfig())


def test_models_of_unknown_sizes_are_trained_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(MistralConfig())
    assert "whether the models fit on the GPU is not known: " in caplog.text
    assert "no memory plan for model_type='mistral'" in caplog.text
