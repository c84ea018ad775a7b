import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForSequenceClassification

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError, ModelError
from cooper_rl.models.policy import load_policy
from cooper_rl.records.files import read_report
from cooper_rl.records.model_set import read_models
from cooper_rl.schema.reports import ModelSet
from cooper_rl.stages import prepare_models
from cooper_rl.tiny.tokenizer import build_tokenizer
from tests.models.small_models import save_small

SMALLEST = "hidden_size = 16, num_layers = 1, num_heads = 2, num_updates = 2, batch_size = 2"
TINY = [
    f"models.tiny.policy={{ {SMALLEST} }}",
    f"models.tiny.samplers={{ small = {{ {SMALLEST} }} }}",
    f"models.tiny.backbone={{ {SMALLEST}, num_matching_updates = 1 }}",
]


def named(policy: Path | str, backbone: Path | str, *more: str):
    values = [f"models.policy={json.dumps(str(policy))}", f"models.backbone={json.dumps(str(backbone))}"]
    return load("laptop", ["models.tiny=null", *values, *more])


def test_the_laptop_models_are_trained_and_the_later_stages_find_them(tmp_path: Path) -> None:
    found = prepare_models.run(load("laptop", TINY), models=tmp_path / "models", report=tmp_path / "report")
    assert read_report(tmp_path / "report", ModelSet) == found
    models = read_models(tmp_path / "models")
    assert list(models.samplers) == ["policy", "early", "small"]
    for path in (models.policy, models.backbone, *models.samplers.values()):
        AutoModelForCausalLM.from_pretrained(path)


@pytest.mark.slow
def test_running_again_replaces_the_models(tmp_path: Path) -> None:
    policies: list[bytes] = []
    for seed in (0, 1, 1):
        settings = [*TINY, f"seed={seed}"]
        prepare_models.run(load("laptop", settings), models=tmp_path / "models", report=tmp_path / "report")
        policies.append((tmp_path / "models/policy/model.safetensors").read_bytes())
    assert policies[0] != policies[1] == policies[2]


@pytest.mark.parametrize("name", ["policy", "backbone", "early", "small"])
def test_what_others_put_into_a_models_place_is_named_and_kept(tmp_path: Path, name: str) -> None:
    thesis = tmp_path / "models" / name / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("mine", encoding="utf-8")
    with pytest.raises(
        DataError,
        match=rf"{name}/thesis\.txt: was not written by Cooper-RL, .*move it away, or choose another",
    ):
        prepare_models.run(load("laptop", TINY), models=tmp_path / "models", report=tmp_path / "report")
    assert thesis.read_text(encoding="utf-8") == "mine"


def test_a_file_of_others_in_the_place_of_the_list_is_named_and_kept(tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text("{}", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"models\.json: would be replaced, and is no ModelSet of Cooper-RL; move"
    ):
        prepare_models.run(load("laptop", TINY), models=tmp_path, report=tmp_path / "report")
    assert (tmp_path / "models.json").read_text(encoding="utf-8") == "{}"


def test_named_models_are_checked_and_written_down_as_absolute_paths(files, tmp_path: Path) -> None:
    policy = files.models / "policy"
    config = named(policy, policy)
    found = prepare_models.run(config, models=tmp_path / "models", report=tmp_path / "report")
    assert found.policy == str(policy.resolve())
    assert found.samplers == {"policy": str(policy.resolve())}
    assert read_models(tmp_path / "models") == found


def test_a_missing_folder_is_named(files, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nowhere: no config\.json there; give a folder"):
        prepare_models.run(
            named(tmp_path / "nowhere", files.models / "policy"),
            models=tmp_path / "models",
            report=tmp_path / "report",
        )
    assert not (tmp_path / "models" / "models.json").exists()


def test_a_home_folder_of_nobody_is_named(files, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"models\.policy: ~nobody9/model: no such home folder"):
        prepare_models.run(
            named("~nobody9/model", files.models / "policy"),
            models=tmp_path / "models",
            report=tmp_path / "report",
        )


def test_a_model_without_a_tokenizer_is_refused(files, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(files.models / "policy")
    model.save_pretrained(tmp_path / "bare")
    with pytest.raises(ModelError, match="bare: no tokenizer beside the model"):
        prepare_models.run(
            named(files.models / "policy", tmp_path / "bare"),
            models=tmp_path / "models",
            report=tmp_path / "report",
        )


@pytest.mark.parametrize("role", ["models.policy", "models.backbone", "models.samplers.other"])
def test_every_named_model_needs_its_weights(files, tmp_path: Path, role: str) -> None:
    whole = files.models / "policy"
    shutil.copytree(whole, tmp_path / "bare")
    (tmp_path / "bare" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=rf"{role}: .*/bare: no weights there"):
        prepare_models.run(
            named(whole, whole, f"{role}={json.dumps(str(tmp_path / 'bare'))}"),
            models=tmp_path / "models",
            report=tmp_path / "report",
        )


def test_scaled_logits_are_refused_of_a_policy_and_taken_of_a_sampler(files, tmp_path: Path) -> None:
    whole, other = files.models / "policy", save_small("granite", tmp_path / "granite")
    paths = {"models": tmp_path / "models", "report": tmp_path / "report"}
    prepare_models.run(named(whole, whole, f"models.samplers.other={json.dumps(str(other))}"), **paths)
    with pytest.raises(ModelError, match=r"models\.policy: .*granite: GraniteForCausalLM scales or caps"):
        prepare_models.run(named(other, whole), **paths)


def test_a_base_model_is_prompted_by_the_configurations_template(files, tmp_path: Path) -> None:
    whole = files.models / "policy"
    shutil.copytree(whole, tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").unlink()
    paths = {"models": tmp_path / "models", "report": tmp_path / "report"}
    with pytest.raises(ModelError, match=r"models\.policy: .*/base: the tokenizer has no chat template"):
        prepare_models.run(named(tmp_path / "base", whole), **paths)
    template = "prompt_template=User: {question} Assistant: <think>"
    found = prepare_models.run(named(tmp_path / "base", whole, template), **paths)
    policy = load_policy(
        found.policy, device=torch.device("cpu"), prompt_template="User: {question} Assistant: <think>"
    )
    prompt = policy.tokenizer.decode(policy.encode_prompt("What is 1+1?", "Think."))
    assert prompt == "User: What is 1+1?\nThink. Assistant: <think>"


@pytest.mark.parametrize("template", ["no place for it", "{question} and {question}"])
def test_a_template_needs_one_place_for_the_question(template: str) -> None:
    with pytest.raises(ConfigError, match=r"prompt_template.* holds \{question\} [02] times: write it once"):
        load("laptop", [f"prompt_template={template}"])


def test_a_classifier_is_no_policy(files, tmp_path: Path) -> None:
    tokenizer = build_tokenizer()
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, **size)
    Qwen2ForSequenceClassification(config).save_pretrained(tmp_path / "classifier")
    tokenizer.save_pretrained(tmp_path / "classifier")
    with pytest.raises(ModelError, match=r"architecture Qwen2ForSequenceClassification; a .*ForCausalLM"):
        prepare_models.run(
            named(tmp_path / "classifier", files.models / "policy"),
            models=tmp_path / "models",
            report=tmp_path / "report",
        )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("models.tiny.snapshots={ early = 1.5 }", r"snapshots\.early=1\.5 must lie between 0 and 1"),
        ("models.tiny.snapshots={ small = 0.5 }", "'small' is both a snapshot and a sampler"),
        ("models.tiny.snapshots={ policy = 0.5 }", "neither policy nor backbone"),
        ('models.tiny.snapshots={ "../up" = 0.5 }', "use letters, digits, - and _"),
        ("models.tiny.policy.hidden_size=30", "hidden_size=30 must be a multiple of twice num_heads=4"),
    ],
)
def test_settings_that_cannot_be_trained_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("laptop", [override])


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("mine")
    with pytest.raises(DataError, match=r"models: cannot be made a folder .*; choose another path"):
        prepare_models.run(load("laptop"), models=tmp_path / "models", report=tmp_path / "report.json")
