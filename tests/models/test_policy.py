"""Prompts, saving, and what is refused as a policy."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from cooper_rl.errors import DataError, ModelError, TrainingError
from cooper_rl.models.policy import load_model, load_policy, save_policy
from cooper_rl.models.verify_rm import save_verify_rm
from cooper_rl.tiny.tokenizer import build_tokenizer
from tests.models.small_models import save_small
from tests.models.tokenizers_like import unigram

CPU = torch.device("cpu")


def test_a_saved_policy_loads_with_the_same_weights_and_tokens(make_policy, tmp_path: Path) -> None:
    policy = make_policy(0)
    save_policy(policy, tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy", device=CPU)
    question = "Tom has 7 apples. How many apples does Tom have?"
    assert loaded.encode_prompt(question, None) == policy.encode_prompt(question, None)
    assert loaded.end_ids == policy.end_ids
    for name, tensor in policy.weights():
        assert torch.equal(tensor, dict(loaded.weights())[name])


@pytest.mark.parametrize(
    ("given", "do_sample"),
    [({"temperature": 0.9, "top_p": 0.6}, True), ({"top_k": 5, "do_sample": False}, True), ({}, None)],
)
def test_a_policy_whose_file_names_a_temperature_alone_can_be_saved_by_every_transformers(
    tmp_path: Path, given: dict[str, object], do_sample: bool | None
) -> None:
    """5.19 saves what is valid alone; 5.23 saves what it has read."""
    folder = save_small("llama", tmp_path / "model")
    place = folder / "generation_config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | given))
    loaded = load_policy(folder, device=CPU)
    loaded.model.generation_config.validate(strict=True)
    save_policy(loaded, tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert saved.get("do_sample") is do_sample
    assert {key: saved[key] for key in given if key != "do_sample"} == {
        key: value for key, value in given.items() if key != "do_sample"
    }


def test_saved_weights_can_be_read_by_whoever_reads_the_config(make_policy, tmp_path: Path) -> None:
    save_policy(make_policy(0), tmp_path / "policy")
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "policy").iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]


def test_the_prompt_decodes_to_question_and_instruction(make_policy) -> None:
    policy = make_policy(0)
    prompt = policy.encode_prompt("Tom has 7 apples.", "Think.")
    assert policy.tokenizer.decode(prompt) == "Question: Tom has 7 apples.\nThink.\nAnswer: "


def test_a_prompt_template_keeps_the_start_token_and_not_the_end_token_that_a_tokenizer_adds(
    make_policy,
) -> None:
    policy = replace(make_policy(0), tokenizer=build_tokenizer(), prompt_template="Q: {question}<end>\nA:")
    added = {"single": "<pad> $A <end>", "special_tokens": [("<pad>", 0), ("<end>", 1)]}
    policy.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(**added)
    prompt = policy.encode_prompt("Tom has 7 apples.", None)
    assert policy.tokenizer.decode(prompt) == "<pad>Q: Tom has 7 apples.<end>\nA:"


def test_a_completions_text_is_what_its_tokens_spell(make_policy) -> None:
    """Whatever the tokenizer was saved with: transformers would write `apples.` and `is.`."""
    tokenizer = unigram()
    tokenizer.clean_up_tokenization_spaces = True
    policy, text = replace(make_policy(0), tokenizer=tokenizer), "Tom has 7 apples . The answer is ."
    assert policy.decode(tuple(tokenizer(text, add_special_tokens=False)["input_ids"])) == text


def test_a_prompt_does_not_depend_on_the_day(make_policy) -> None:
    """As Llama 3's template asks for it; its default would be another prompt tomorrow."""
    policy = make_policy(0)
    policy.tokenizer.chat_template = (
        "{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}\n"
        '        {%- set date_string = strftime_now("%d %b %Y") %}\n    {%- else %}\n'
        '        {%- set date_string = "26 Jul 2024" %}\n    {%- endif %}\n{%- endif %}\n'
        "{{- 'Today Date: ' + date_string + '\\n' + messages[0]['content'] }}"
    )
    prompt = policy.encode_prompt("Tom has 7 apples.", None)
    assert policy.tokenizer.decode(prompt) == "Today Date: 26 Jul 2024\nTom has 7 apples."


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere: no config\.json there; give a folder"):
        load_policy(tmp_path / "nowhere", device=CPU)


def test_a_reward_model_in_the_policys_place_is_refused(make_verify_rm, tmp_path: Path) -> None:
    save_verify_rm(make_verify_rm(0), tmp_path / "rm")
    with pytest.raises(ModelError, match=r"Qwen2ForSequenceClassification; a \.\.\.ForCausalLM checkpoint"):
        load_policy(tmp_path / "rm", device=CPU)


def test_a_checkpoint_without_some_weights_is_refused(make_policy, tmp_path: Path) -> None:
    """The config promises three layers, the file holds two."""
    save_policy(make_policy(0), tmp_path / "policy")
    config = json.loads((tmp_path / "policy" / "config.json").read_text())
    config["num_hidden_layers"] = 3
    config["layer_types"] = ["full_attention"] * 3
    (tmp_path / "policy" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"12 weights are missing, the first is model\.layers\.2"):
        load_policy(tmp_path / "policy", device=CPU)


def test_a_damaged_weights_file_is_refused(make_policy, tmp_path: Path) -> None:
    save_policy(make_policy(0), tmp_path / "policy")
    (tmp_path / "policy" / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_policy(tmp_path / "policy", device=CPU)


@pytest.mark.parametrize("take", [lambda: torch.empty(10**15), lambda: bytearray(10**17)])
def test_a_model_that_does_not_fit_into_memory_is_named(take: Callable[[], object]) -> None:
    class Huge:
        """In the place of transformers' class."""

        @staticmethod
        def from_pretrained(*_: object, **__: object) -> None:
            take()

    with pytest.raises(TrainingError, match=r"^some/model: out of memory.*; end what else runs on this"):
        load_model(Huge, "some/model", device=CPU)


def test_weights_that_would_have_to_be_unpickled_are_refused(make_policy, tmp_path: Path) -> None:
    """The older format: whole and readable, but a pickle."""
    policy = make_policy(0)
    save_policy(policy, tmp_path / "policy")
    (tmp_path / "policy" / "model.safetensors").unlink()
    torch.save(policy.model.state_dict(), tmp_path / "policy" / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"cannot be loaded: .*model\.safetensors"):
        load_policy(tmp_path / "policy", device=CPU)


def test_a_model_without_a_tokenizer_is_refused(make_policy, tmp_path: Path) -> None:
    make_policy(0).model.save_pretrained(tmp_path / "policy")
    with pytest.raises(ModelError, match="no tokenizer beside the model"):
        load_policy(tmp_path / "policy", device=CPU)


def test_an_empty_tokenizer_in_place_of_a_missing_one_is_refused(make_policy, tmp_path: Path) -> None:
    """transformers makes one of what tokenizer_config.json says."""
    save_policy(make_policy(0), tmp_path / "policy")
    (tmp_path / "policy" / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"no tokenizer beside the model; copy tokenizer\.json there"):
        load_policy(tmp_path / "policy", device=CPU)


def test_the_tokenizer_of_a_larger_model_is_named(make_policy) -> None:
    policy = make_policy(0)
    size = policy.model.config.vocab_size
    policy.tokenizer.add_tokens([f"<extra-{number}>" for number in range(size)])
    assert policy.encode_prompt("no such token", None)
    with pytest.raises(ModelError, match=rf"writes token {size}, and the model knows {size}"):
        policy.encode_prompt(policy.tokenizer.convert_ids_to_tokens(size), None)


def test_a_tokenizer_without_a_chat_template_is_refused(make_policy, tmp_path: Path) -> None:
    policy = make_policy(0)
    policy.tokenizer.chat_template = None
    save_policy(policy, tmp_path / "policy")
    with pytest.raises(ModelError, match="the tokenizer has no chat template"):
        load_policy(tmp_path / "policy", device=CPU)


def test_a_saved_folder_replaces_the_old_one_as_a_whole(make_policy, tmp_path: Path) -> None:
    save_policy(make_policy(0), tmp_path / "policy")
    save_policy(make_policy(1), tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy", device=CPU)
    assert torch.equal(loaded.model.lm_head.weight, make_policy(1).model.lm_head.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


@pytest.mark.parametrize("name", ["thesis.txt", "config.json", "notes/mine.txt", "model.safetensors"])
def test_a_folder_with_files_of_others_is_named_and_kept(make_policy, tmp_path: Path, name: str) -> None:
    """Beside ours, changed in place, or in a folder that we never wrote."""
    save_policy(make_policy(0), tmp_path / "policy")
    for folder in ("policy", "theirs"):
        (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text("mine")
        with pytest.raises(
            DataError, match=rf"{folder}/{name.partition('/')[0]}: was not written by Cooper-RL"
        ):
            save_policy(make_policy(1), tmp_path / folder)
        assert (tmp_path / folder / name).read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "theirs"]


def test_a_link_to_a_folder_is_not_replaced(make_policy, tmp_path: Path) -> None:
    save_policy(make_policy(0), tmp_path / "elsewhere")
    (tmp_path / "policy").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="policy: was not written by Cooper-RL"):
        save_policy(make_policy(1), tmp_path / "policy")
    assert (tmp_path / "policy").is_symlink()


def test_a_file_in_the_way_is_named_and_kept(make_policy, tmp_path: Path) -> None:
    """transformers only logs it, and the model would be lost."""
    (tmp_path / "policy").write_text("mine")
    with pytest.raises(DataError, match=r"policy: cannot be written \(.*in the way\); free space or choose"):
        save_policy(make_policy(0), tmp_path / "policy")
    assert (tmp_path / "policy").read_text() == "mine"


def test_saving_leaves_folders_beside_it_alone(make_policy, tmp_path: Path) -> None:
    for name in ("policy.old", "policy.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    for _ in range(2):
        save_policy(make_policy(0), tmp_path / "policy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "policy.old", "policy.partial"]
    assert (tmp_path / "policy.old" / "mine.txt").is_file()
    assert (tmp_path / "policy.partial" / "mine.txt").is_file()
