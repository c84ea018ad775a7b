"""What `train_cooper` asks of a GPU before it starts; the card here is one that torch was told of."""

import logging
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError
from cooper_rl.models.memory import GIB
from cooper_rl.run.memory import check_memory, make_plan


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


def test_an_engine_elsewhere_needs_nothing_here_and_one_of_its_own_process_never_sleeps() -> None:
    """GiB of a model of 1.5B parameters, in bf16: 2 bytes for each of its 1.54e9 weights make 2.9 GiB."""
    policy = Qwen2Config(
        hidden_size=1536, num_hidden_layers=28, intermediate_size=8960, num_attention_heads=12,
        num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True,
    ).to_dict()  # fmt: skip

    def parts(*values: str) -> dict[str, float]:
        config = load("single_gpu", ["cooper.precision=bfloat16", *values])
        plan = make_plan(config, policy=policy, verify_rm=policy, num_processes=1, card_bytes=80 * GIB)
        return {part.name: part.bytes / GIB for part in plan.parts}

    places = ([], ["engine.process=own"], ["engine.process=own", "engine.devices=[1]"])
    turns, beside, apart = (parts("engine.kind=hf", *values) for values in places)
    assert beside["engine: weights"] == turns["engine: weights"] == pytest.approx(2.9, abs=0.1)
    assert "engine" not in turns, "its cache is gone when models are updated"
    assert beside["engine"] > 0
    assert not {"engine", "engine: weights"} & set(apart)

    _, beside, apart = (parts("engine.kind=vllm", *values) for values in places)
    assert beside["engine"] == pytest.approx(0.4 * 80), "its share, which it keeps"
    assert not {"engine", "engine: weights", "engine: weights, awake"} & set(apart)


def test_models_of_unknown_sizes_are_trained_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check(MistralConfig())
    assert "whether the models fit on the GPU is not known: " in caplog.text
    assert "no memory plan for model_type='mistral'" in caplog.text
