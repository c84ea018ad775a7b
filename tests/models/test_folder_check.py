"""What cannot be trained is found in a folder before its weights are loaded."""

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerFast

from cooper_rl.errors import ModelError
from cooper_rl.models.folder_check import (
    INDEX,
    SMALL,
    WEIGHTS,
    check_backbone,
    check_prompting,
    check_trainable,
    check_weights,
)
from cooper_rl.tiny.tokenizer import build_tokenizer
from tests.models.small_models import REFUSED, save_small


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_small("qwen2", tmp_path / "model")


def sharded(folder: Path) -> Path:
    """Two files and an index in place of the one file."""
    (folder / WEIGHTS).unlink()
    save_file({"a": torch.zeros(3)}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": torch.zeros(3)}, folder / "model-00002-of-00002.safetensors")
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": names}))
    return folder


def test_a_whole_folder_passes(folder: Path) -> None:
    check_weights(folder)
    check_prompting(folder, prompt_template=None)
    check_trainable(folder)
    check_backbone(folder)
    check_weights(sharded(folder))


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    with pytest.raises(
        ModelError, match=r"model: no weights there, neither .* nor .*; copy the whole folder"
    ):
        check_weights(folder)


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"its weights are pickled \(pytorch_model\.bin\), which runs code"):
        check_weights(folder)


@pytest.mark.parametrize("place", ["../outside.safetensors", "/tmp/outside.safetensors"])
def test_an_index_that_leads_out_of_its_folder_is_refused(folder: Path, place: str) -> None:
    """The file is whole, and loading it would succeed."""
    sharded(folder)
    save_file({"a": torch.zeros(3)}, folder.parent / "outside.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": place}}))
    with pytest.raises(ModelError, match=r"not an index of weights \('.*outside\.safetensors' leads out of"):
        check_weights(folder)


def test_an_adapter_beside_the_weights_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"has an adapter beside its weights .*; merge it into them"):
        check_backbone(folder)


def test_json_that_is_too_deep_is_refused(folder: Path) -> None:
    deep = b"[" * 100_000
    (sharded(folder) / INDEX).write_bytes(deep)
    with pytest.raises(ModelError, match=r"not an index of weights .*recursion depth exceeded"):
        check_weights(folder)
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(deep)) + deep)
    with pytest.raises(ModelError, match=r"its header is no JSON: .*recursion depth exceeded"):
        check_weights(folder)
    (folder / "config.json").write_bytes(deep)
    with pytest.raises(
        ModelError, match=r"cannot be read as a Hugging Face model .*recursion depth exceeded"
    ):
        check_backbone(folder)


def test_every_way_to_cut_a_file_short_is_found(folder: Path) -> None:
    path = folder / WEIGHTS
    whole = path.read_bytes()
    start = 8 + struct.unpack("<Q", whole[:8])[0]
    for size in (0, 7, 8, start - 1, start, len(whole) - 1):
        path.write_bytes(whole[:size])
        expected = "cut short, .* bytes of .* that its header" if size >= start else "its header is cut short"
        with pytest.raises(ModelError, match=rf"{WEIGHTS}: .*{expected}.*; copy the file again"):
            check_weights(folder)
    path.write_bytes(whole + b"more")
    with pytest.raises(ModelError, match=r"longer than it should be, .* bytes of"):
        check_weights(folder)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"no JSON!", "its header is no JSON"),
        (b"[1]", "its header is no object"),
        (b'{"a": {}}', "its header has no offsets"),
        (
            b'{"a": {"data_offsets": [0, 4]}, "b": {"data_offsets": [2, 4]}}',
            "its tensors overlap or leave gaps",
        ),
        (b'{"a": {"data_offsets": [2, 4]}}', "its tensors overlap or leave gaps"),
        (b'{"a": {"data_offsets": ["0", "4"]}}', "its header has no offsets: .* is no pair of numbers"),
        (b'{"a": {"data_offsets": [0, 4, 4]}}', "its header has no offsets: .* is no pair of numbers"),
        (
            b'{"a": {"data_offsets": [0, 4]}, "b": {"data_offsets": [4, 2]}}',
            "its header has no offsets: .* is no pair of numbers",
        ),
    ],
)
def test_a_header_that_describes_no_tensors_is_refused(folder: Path, header: bytes, message: str) -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header + b"1234")
    with pytest.raises(ModelError, match=rf"not a readable safetensors file \({message}.*; copy the file"):
        check_weights(folder)


def test_a_pointer_of_git_lfs_is_named(folder: Path) -> None:
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n")
    with pytest.raises(ModelError, match=r"not a readable safetensors file \(a pointer of git-lfs\)"):
        check_weights(folder)


def test_shards_are_held_to_their_index(folder: Path) -> None:
    second = sharded(folder) / "model-00002-of-00002.safetensors"
    save_file({"c": torch.zeros(3)}, second)
    with pytest.raises(ModelError, match=rf"{second.name}: does not hold b, which .* says it does; copy the"):
        check_weights(folder)
    second.unlink()
    with pytest.raises(ModelError, match=rf"{second.name}: missing, and {INDEX} names it; copy the file"):
        check_weights(folder)
    (folder / INDEX).write_text("{}")
    with pytest.raises(ModelError, match=rf"{INDEX}: not an index of weights \(.*\); copy the file again"):
        check_weights(folder)


@pytest.mark.parametrize("name", ["5", "null", "[]"])
def test_an_index_that_names_no_file_is_refused(folder: Path, name: str) -> None:
    sharded(folder)
    (folder / INDEX).write_text(f'{{"weight_map": {{"a": "model-00001-of-00002.safetensors", "b": {name}}}}}')
    with pytest.raises(ModelError, match=rf"{INDEX}: not an index of weights \(.*\); copy the file again"):
        check_weights(folder)


def test_a_policy_that_cannot_end_is_refused(tmp_path: Path) -> None:
    folder = save_small("llama", tmp_path / "model")
    own = build_tokenizer()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=own.backend_tokenizer, pad_token=own.pad_token)
    tokenizer.chat_template = own.chat_template
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        values = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(values | {"eos_token_id": None}))
    with pytest.raises(ModelError, match=r"no end token; set eos_token_id in generation_config\.json"):
        check_prompting(folder, prompt_template=None)


def test_a_base_model_needs_a_template_of_the_configuration(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="has no chat template; use an instruct model, or set prompt_temp"):
        check_prompting(folder, prompt_template=None)
    check_prompting(folder, prompt_template="User: {question}\nAssistant:")


@pytest.mark.parametrize("kind", REFUSED)
def test_a_policy_with_scaled_or_capped_logits_is_refused(kind: str, tmp_path: Path) -> None:
    folder = save_small(kind, tmp_path / "model")
    with pytest.raises(ModelError, match=r"model: \w+ForCausalLM scales or caps the logits of its head"):
        check_trainable(folder)


def test_a_model_that_cannot_be_built_small_is_left_to_its_loading(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SMALL, "hidden_size", -1)
    check_trainable(folder)
    assert "qwen2 cannot be tried in small; it is when it is loaded" in caplog.text


def test_a_backbone_that_has_no_classifier_is_refused(tmp_path: Path) -> None:
    folder = save_small("granite", tmp_path / "model")
    with pytest.raises(ModelError, match="transformers has no sequence classifier of the architecture gran"):
        check_backbone(folder)
