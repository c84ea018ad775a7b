"""VerifyRM: one template, one logit, scores that do not depend on the batch."""

import logging
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.integrations import deepspeed

from cooper_rl.config.models import ScratchModel
from cooper_rl.errors import ModelError, TrainingError
from cooper_rl.models.policy import save_policy
from cooper_rl.models.verify_rm import (
    VerifyItem,
    load_verify_rm,
    make_from_backbone,
    make_from_scratch,
    save_verify_rm,
)

CPU = torch.device("cpu")
ITEMS = [
    VerifyItem("Tom has 7 apples.", "7", "The answer is 7."),
    VerifyItem("Tom has 7 apples and Ann has 9 more apples than Tom.", "16", "7+9=16. The answer is ten."),
    VerifyItem("Q", "1", ""),
]


def test_a_score_does_not_depend_on_what_shares_its_batch(make_verify_rm) -> None:
    """The release never sets pad_token_id, on which batches over 1 fail."""
    verify_rm = make_verify_rm(0)
    together = verify_rm.score(ITEMS)
    apart = [verify_rm.score([item])[0] for item in ITEMS]
    assert together == pytest.approx(apart, abs=1e-6)
    assert verify_rm.score(ITEMS, max_tokens_per_batch=1) == pytest.approx(apart, abs=1e-6)


def test_scores_that_do_not_fit_into_memory_say_what_to_lower(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    verify_rm.model.score.register_forward_pre_hook(lambda *_: torch.empty(10**15))
    with pytest.raises(
        TrainingError, match=r"^VerifyRM's scores: out of memory \(.*; lower cooper\.max_tokens_per_batch=9 "
    ):
        verify_rm.score(ITEMS, max_tokens_per_batch=9)


def test_the_saved_folder_scores_the_same_in_plain_transformers(make_verify_rm, tmp_path: Path) -> None:
    verify_rm = make_verify_rm(0)
    save_verify_rm(verify_rm, tmp_path / "rm")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "rm")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm")
    batch = tokenizer.pad({"input_ids": verify_rm.encode(ITEMS)}, return_tensors="pt")
    plain = model(**batch).logits[:, 0].sigmoid()
    assert verify_rm.score(ITEMS) == pytest.approx(plain.tolist(), abs=1e-6)
    assert model.config.pad_token_id == tokenizer.pad_token_id


def test_the_backbone_gives_everything_but_the_head(make_policy, tmp_path: Path) -> None:
    backbone = make_policy(3)
    save_policy(backbone, tmp_path / "lm")
    first = make_from_backbone(tmp_path / "lm", seed=1, device=CPU)
    again = make_from_backbone(tmp_path / "lm", seed=1, device=CPU)
    other = make_from_backbone(tmp_path / "lm", seed=2, device=CPU)
    rows = first.model.model.embed_tokens.weight[: len(backbone.tokenizer)]
    assert torch.equal(rows, backbone.model.model.embed_tokens.weight)
    assert torch.equal(first.model.score.weight, again.model.score.weight)
    assert not torch.equal(first.model.score.weight, other.model.score.weight)


def test_making_one_leaves_the_callers_random_numbers_alone(make_policy, tmp_path: Path) -> None:
    save_policy(make_policy(3), tmp_path / "lm")
    drawn: list[float] = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        expected = torch.rand(1).item()
        torch.manual_seed(seed)
        make_from_backbone(tmp_path / "lm", seed=5, device=CPU)
        make_from_scratch(["1 + 1 = 2"], ScratchModel(hidden_size=16, num_layers=1), seed=5, device=CPU)
        drawn.append(torch.rand(1).item())
        assert drawn[-1] == expected
    assert drawn[0] != drawn[1]


def test_a_new_head_is_nothing_to_report(
    make_policy, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library would print a table that advises to train it, and says nothing else either."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    save_policy(make_policy(0), tmp_path / "lm")
    AutoModelForSequenceClassification.from_pretrained(tmp_path / "lm", num_labels=1)
    assert "LOAD REPORT" in caplog.text
    caplog.clear()
    make_from_backbone(tmp_path / "lm", seed=1, device=CPU)
    assert caplog.text == ""
    AutoModelForSequenceClassification.from_pretrained(tmp_path / "lm", num_labels=1)
    assert "LOAD REPORT" in caplog.text, "the library reports to others again"


def test_a_scratch_model_brings_a_tokenizer_that_keeps_every_text(tmp_path: Path) -> None:
    texts = [text for item in ITEMS for text in item]
    made = make_from_scratch(texts, ScratchModel(vocab_size=400), seed=0, device=CPU)
    save_verify_rm(made, tmp_path / "rm")
    loaded = load_verify_rm(tmp_path / "rm", device=CPU)
    odd = "π ≈ 3.14159 \\boxed{½}\n\t日本"
    assert loaded.tokenizer.decode(loaded.tokenizer(odd)["input_ids"]) == odd
    assert loaded.score(ITEMS) == pytest.approx(made.score(ITEMS), abs=1e-6)
    texts = [odd, "a\n\nb", "can't  7", "e\u0301", "  \t x\r\n"]
    assert loaded.tokenizer(texts)["input_ids"] == made.tokenizer(texts)["input_ids"]


def test_a_scratch_model_is_in_fp32_whatever_the_processes_default_type_is() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        made = make_from_scratch(
            ["1 + 1 = 2"], ScratchModel(hidden_size=16, num_layers=1), seed=5, device=CPU
        )
    finally:
        torch.set_default_dtype(torch.float32)
    assert {weight.dtype for weight in made.model.parameters()} == {torch.float32}


class ZeRO3:
    """The configuration of a trainer that divides its models over its processes."""

    def is_zero3(self) -> bool:
        return True


def test_a_trainer_that_divides_its_models_has_a_whole_verify_rm(make_verify_rm, tmp_path: Path) -> None:
    """As Transformers' trainers do with DeepSpeed while their arguments live. Its own models stay divided."""
    save_verify_rm(made := make_verify_rm(0), tmp_path / "rm")
    arguments = ZeRO3()
    deepspeed.set_hf_deepspeed_config(arguments)
    try:
        loaded = load_verify_rm(tmp_path / "rm", device=CPU)
        assert deepspeed.is_deepspeed_zero3_enabled()
    finally:
        deepspeed.unset_hf_deepspeed_config()
    assert loaded.score(ITEMS) == made.score(ITEMS)


def test_a_policy_in_verify_rms_place_is_refused(make_policy, tmp_path: Path) -> None:
    save_policy(make_policy(0), tmp_path / "policy")
    with pytest.raises(ModelError, match=r"Qwen2ForCausalLM; a \.\.\.ForSequenceClassification checkpoint"):
        load_verify_rm(tmp_path / "policy", device=CPU)


def test_a_classifier_with_two_logits_is_refused(make_verify_rm, tmp_path: Path) -> None:
    verify_rm = make_verify_rm(0)
    verify_rm.model.config.num_labels = 2
    verify_rm.model.score = torch.nn.Linear(32, 2, bias=False)
    save_verify_rm(verify_rm, tmp_path / "rm")
    with pytest.raises(ModelError, match="has 2 logits; VerifyRM has one"):
        load_verify_rm(tmp_path / "rm", device=CPU)


def test_a_nan_score_names_the_question(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    with torch.no_grad():
        verify_rm.model.score.weight.fill_(float("nan"))
    with pytest.raises(TrainingError, match=r"NaN for the question 'Tom has 7 apples\.'"):
        verify_rm.score(ITEMS)


def test_the_tokenizer_of_a_larger_model_is_refused_in_a_verify_rm(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    verify_rm.tokenizer.add_tokens([f"<extra-{number}>" for number in range(9)])
    with pytest.raises(ModelError, match="its tokenizer has tokens with the ids of the separators"):
        verify_rm.score(ITEMS)
