"""The memory plan against bytes worked out by hand, and its weights against the models themselves."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from cooper_rl.errors import ConfigError
from cooper_rl.models.memory import (
    GIB,
    RESERVED,
    Use,
    activation_bytes,
    cache_bytes,
    check_plan,
    describe_plan,
    plan_memory,
)
from cooper_rl.models.precision import round_layers
from cooper_rl.models.shape import count_unrounded, count_weights, read_shape

SMALL = {
    "model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 16,
    "vocab_size": 10, "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True,
}  # fmt: skip
QWEN_1_5B = {
    "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 1536, "intermediate_size": 8960,
    "vocab_size": 151936, "num_attention_heads": 12, "num_key_value_heads": 2, "tie_word_embeddings": True,
}  # fmt: skip
ONE = Use(
    num_processes=1, zero_stage=0, is_bfloat16=True, is_offloaded=False, is_checkpointed=False,
    adapter_rank=None, trains_verify_rm=True, max_tokens=100, engine_bytes=1000, engine_remedy="lower it",
    engine_weight_bytes=2, engine_sleeps=True, engine_wakes_early=False, has_gate=False, has_average=False,
)  # fmt: skip
SHAPE = read_shape(SMALL, place="here")


def sizes(use: Use) -> dict[str, int]:
    return {part.name: part.bytes for part in plan_memory(SHAPE, SHAPE, use).parts}


def test_weights_are_counted_by_hand() -> None:
    """Layer: q, o 2*8*8, k, v 2*8*4, MLP 3*8*16, norms 16, biases 8+4+4 = 608. 10*8 + 2*608 + 8 = 1304."""
    assert count_weights(SHAPE) == 1304
    assert count_weights(SHAPE, is_classifier=True) == 1312


def test_a_known_model_has_its_known_size() -> None:
    """Qwen2.5-1.5B's own card: 1.54B weights, 1.31B without embeddings (151936 * 1536 = 233M)."""
    assert count_weights(read_shape(QWEN_1_5B, place="here")) == 1_543_714_304


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
def test_weights_are_those_of_the_library(kind: str) -> None:
    values = SMALL | {"model_type": kind, "head_dim": 6, "tie_word_embeddings": kind == "llama"}
    if kind == "qwen2":
        values.pop("head_dim")
    config = AutoConfig.for_model(**values)
    shape = read_shape(config.to_dict(), place="here")
    assert count_weights(shape) == AutoModelForCausalLM.from_config(config).num_parameters()
    config.num_labels = 1
    classifier = AutoModelForSequenceClassification.from_config(config)
    assert count_weights(shape, is_classifier=True) == classifier.num_parameters()


def test_activations_are_counted_by_hand() -> None:
    """Per token and layer 12*8 + 2*8 + 2 rows of 2*(2*8 + 2*4) + 8*16 = 336; recomputed: 336 + 2 of 4*8."""
    assert activation_bytes(SHAPE, max_tokens=100, is_checkpointed=False) == 100 * 2 * 336
    assert activation_bytes(SHAPE, max_tokens=100, is_checkpointed=True) == 100 * (336 + 64)
    assert cache_bytes(SHAPE, num_tokens=100) == 2 * 2 * 2 * 4 * 100


def test_one_process_holds_everything_in_fp32() -> None:
    """4 bytes a weight, 8 of state, 4 of gradients and 2 of rounded weights of the model that is updated, 2
    of the reference and 2 of the engine's own copy. Of the reference 10*8 embeddings and 5*8 norms take 4."""
    assert sizes(ONE) == {
        "policy: weights, fp32": 4 * 1304,
        "policy: optimiser state": 8 * 1304,
        "VerifyRM: weights, fp32": 4 * 1312,
        "VerifyRM: optimiser state": 8 * 1312,
        "reference policy": 2 * 1304 + 2 * 120,
        "engine: weights": 2 * 1304,
        "policy: gradients": 4 * 1304,
        "policy: weights in bf16": 2 * 1304,
        "policy: activations": 67_200,
        "logits": 3 * 4 * 2**26,
    }


def test_a_reference_policy_is_as_large_as_the_one_that_is_loaded() -> None:
    """`round_layers` on the library's own models, tied and not, with norms in their heads and without."""
    for kind, is_tied in (("qwen2", True), ("qwen3", False), ("llama", False)):
        config = AutoConfig.for_model(**SMALL | {"model_type": kind, "tie_word_embeddings": is_tied})
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        round_layers(model)
        shape = read_shape(config.to_dict(), place="here")
        bytes_held = sum(weight.numel() * weight.element_size() for weight in model.parameters())
        assert bytes_held == 2 * count_weights(shape) + 2 * count_unrounded(shape)


def test_the_head_is_counted_where_logits_come_in_chunks() -> None:
    """A sum of 4 bytes for each of its 10*8 weights, from 2**26 logits on; adapters leave the head alone."""
    name = "head: gradient of all chunks, fp32"
    assert sizes(ONE._replace(max_tokens=2**23))[name] == 4 * 80
    assert name not in sizes(ONE)
    assert name not in sizes(ONE._replace(max_tokens=2**23, adapter_rank=3))


def test_zero_2_divides_state_and_gradients() -> None:
    """Four processes: 2 bytes of weights, 12/4 of masters and state, 4/4 of gradients and a bucket of 2."""
    found = sizes(ONE._replace(num_processes=4, zero_stage=2))
    assert found["policy: weights"] == 2 * 1304
    assert found["policy: master weights and state"] == 3 * 1304
    assert found["VerifyRM: master weights and state"] == 3 * 1312
    assert found["policy: gradients"] == 1304 + 2 * 1304
    assert found["reference policy"] == 2 * 1304
    undivided = sizes(ONE._replace(num_processes=4, zero_stage=1))
    assert undivided["policy: gradients"] == 4 * 1304 + 2 * 1304


def test_zero_3_divides_weights_and_gathers_those_in_use() -> None:
    found = sizes(ONE._replace(num_processes=4, zero_stage=3))
    assert found["policy: weights"] + found["policy: gathered weights"] == 2 * 1304
    assert found["VerifyRM: weights"] == 2 * 1312 // 4


def test_offload_and_a_frozen_verify_rm_take_their_parts_away() -> None:
    found = sizes(ONE._replace(zero_stage=1, is_offloaded=True, trains_verify_rm=False))
    assert "policy: master weights and state" not in found
    assert found["VerifyRM: weights"] == 4 * 1312


def test_adapters_need_no_reference_and_have_little_state() -> None:
    """Rank 3 beside q, o 2*(8+8), k, v 2*(8+4) and the MLP 3*(8+16) of 2 layers: 3 * 2 * 128 = 768."""
    found = sizes(ONE._replace(adapter_rank=3))
    assert "reference policy" not in found
    assert found["policy: frozen weights"] == 4 * 1304
    assert found["policy: optimiser state"] == 8 * 768
    shares = sizes(ONE._replace(adapter_rank=3, max_tokens=10_000_000))
    assert shares["policy: gradients"] == 4 * 768


def test_zero_divides_adapters_alone_which_stay_in_fp32() -> None:
    found = sizes(ONE._replace(adapter_rank=3, num_processes=4, zero_stage=3, max_tokens=10_000_000))
    assert found["policy: frozen weights"] == 4 * 1304
    assert found["policy: weights"] == 768
    assert found["policy: gathered weights"] == 3 * 768
    assert found["policy: master weights and state"] == 3 * 768
    assert found["policy: gradients"] == 768 + 4 * 768


def test_what_guards_verify_rm_counts_in_its_update() -> None:
    """4 bytes for what is trained beside the average, also at rest, 4 for the new average, and 8 for the
    gate's copy of both; without an average 4, of which two processes copy half each."""
    large = read_shape(QWEN_1_5B, place="here")
    count = count_weights(large, is_classifier=True)
    guarded = ONE._replace(has_gate=True, has_average=True, engine_wakes_early=True)
    plan = plan_memory(large, large, guarded)
    parts = {part.name: part.bytes for part in plan.parts}
    assert plan.phase == "update of the VerifyRM"
    assert parts["gate: copy of VerifyRM"] == 8 * count
    assert parts["VerifyRM: trained beside its average"] == parts["VerifyRM: new average"] == 4 * count
    assert parts["engine: weights, awake"] == 2 * count_weights(large)
    assert parts["VerifyRM: weights in bf16"] == 2 * count
    resting = plan_memory(large, large, guarded._replace(engine_bytes=100 * GIB))
    assert resting.phase == "rollouts"
    assert "VerifyRM: trained beside its average" in [part.name for part in resting.parts]
    two = guarded._replace(num_processes=2, zero_stage=2, has_average=False)
    parts = {part.name: part.bytes for part in plan_memory(large, large, two).parts}
    assert parts["gate: copy of VerifyRM"] == 2 * count
    assert "VerifyRM: weights in bf16" not in parts


@pytest.mark.parametrize(
    "use",
    [
        ONE._replace(engine_sleeps=False, engine_wakes_early=True),
        ONE._replace(zero_stage=1, has_gate=True, is_offloaded=True),
    ],
    ids=["unguarded, beside an engine that never slept", "what the gate copies is in CPU memory"],
)
def test_what_is_not_used_takes_no_memory_in_the_update_of_verify_rm(use: Use) -> None:
    plan = plan_memory(SHAPE, read_shape(QWEN_1_5B, place="here"), use)
    assert plan.phase == "update of the VerifyRM"
    names = {part.name for part in plan.parts}
    assert not names & {"gate: copy of VerifyRM", "VerifyRM: new average", "engine: weights, awake"}


def test_an_engine_that_stays_awake_counts_in_every_phase() -> None:
    assert "engine" not in sizes(ONE)
    assert sizes(ONE._replace(engine_sleeps=False))["engine"] == 1000
    assert plan_memory(SHAPE, SHAPE, ONE._replace(engine_bytes=2 * GIB)).phase == "rollouts"


def test_what_does_not_fit_is_refused_with_what_to_lower() -> None:
    plan = plan_memory(SHAPE, SHAPE, ONE)
    check_plan(plan, card_bytes=plan.bytes + RESERVED)
    with pytest.raises(
        ConfigError, match=r"needs about 2\.8 GiB .* has 1\.0 GiB: lower cooper\.max_tokens_per"
    ):
        check_plan(plan, card_bytes=GIB)
    sizes = [float(line.split()[-2]) for line in describe_plan(plan).splitlines()]
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True)
    assert sizes[-1] == pytest.approx((plan.bytes + RESERVED) / GIB, abs=0.01)


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"is_checkpointed": True}, "cooper.gradient_checkpointing=true"),
        ({"zero_stage": 1}, "distributed.zero_stage=1"),
        ({"zero_stage": 1, "is_offloaded": True}, "distributed.offload_optimizer=true"),
        ({"adapter_rank": 3}, "cooper.policy.lora.rank=16"),
    ],
)
def test_what_is_set_already_is_no_remedy(change: dict[str, Any], remedy: str) -> None:
    before, after = (plan_memory(SHAPE, SHAPE, use) for use in (ONE, ONE._replace(**change)))
    assert any(remedy in part.remedy for part in before.parts)
    assert not any(remedy in part.remedy for part in after.parts)


def test_bf16_is_a_remedy_where_passes_are_fp32() -> None:
    plans = [
        plan_memory(SHAPE, SHAPE, ONE._replace(zero_stage=1, is_bfloat16=value)) for value in (False, True)
    ]
    found = [any("cooper.precision=bfloat16" in part.remedy for part in plan.parts) for plan in plans]
    assert found == [True, False]


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"here: no memory plan for model_type='gpt2'; qwen2, qwen3 and llama"
    ):
        read_shape({"model_type": "gpt2"}, place="here")
    for wrong in ({"hidden_size": "x", "head_dim": None}, {"num_attention_heads": 0, "head_dim": None}):
        with pytest.raises(ConfigError, match="here: not the sizes of a qwen2 model"):
            read_shape({**SMALL, **wrong}, place="here")
    with pytest.raises(ConfigError, match=r"here: not the sizes .*KeyError: 'num_attention_heads'.*copy the"):
        read_shape({"model_type": "qwen2"}, place="here")
