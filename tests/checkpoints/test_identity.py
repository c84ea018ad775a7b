"""Which checkpoints belong to a run: what differs from the defaults decides."""

import json
from pathlib import Path

import pytest
import torch
from pydantic import create_model

from cooper_rl.checkpoints.identity import RunIdentity, differences, is_default, split_identity
from cooper_rl.checkpoints.manifest import CheckpointManifest
from cooper_rl.checkpoints.versions import (
    VARIABLES,
    VERIFY_RM,
    numeric_versions,
    recorded_precision,
    say_differences,
)
from cooper_rl.config.cooper import CooperConfig, GateConfig, LoRAConfig, PolicyConfig
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.config.section import Section, flatten


def identity_of(config: Section, schema: type[Section] = Config) -> RunIdentity:
    values = config.model_dump(mode="json")
    flat = {
        key: json.dumps(value) for key, value in flatten({"cooper": values["cooper"], "seed": values["seed"]})
    }
    return split_identity(flat, schema)


def written(identity: RunIdentity) -> CheckpointManifest:
    """The manifest of a checkpoint that a run of this identity wrote."""
    return CheckpointManifest(
        step=1, score=None, identity=dict(identity.chosen), defaults=dict(identity.defaults), versions={},
        history=(), sha256={},
    ).sealed()  # fmt: skip


def with_a_new_key(default: object) -> type[Section]:
    """The configuration of a later version: `cooper.policy.new_key` is new."""
    policy = create_model("Policy", __base__=PolicyConfig, new_key=(type(default), default))
    cooper = create_model("Cooper", __base__=CooperConfig, policy=(policy, policy()))
    return create_model("Later", __base__=Config, cooper=(cooper, ...))


def test_a_new_key_at_its_default_changes_nothing_and_at_another_value_is_named() -> None:
    config = load("laptop", [])
    later = with_a_new_key(0.5)
    before = written(identity_of(config))
    values = config.model_dump()
    now = later.model_validate(values)
    assert differences(before, identity_of(now, later), later) == []
    values["cooper"]["policy"]["new_key"] = 0.75
    changed = later.model_validate(values)
    assert differences(before, identity_of(changed, later), later) == [
        "cooper.policy.new_key: absent there, 0.75 here"
    ]


def test_a_key_that_is_gone_may_have_had_its_default_and_no_other_value() -> None:
    later = with_a_new_key(0.5)
    config = load("laptop", [])
    values = config.model_dump()
    assert differences(written(identity_of(later.model_validate(values), later)), identity_of(config)) == []
    values["cooper"]["policy"]["new_key"] = 0.75
    assert differences(written(identity_of(later.model_validate(values), later)), identity_of(config)) == [
        "cooper.policy.new_key: 0.75 there, absent here"
    ]


def test_a_default_that_a_later_version_changed_is_noticed() -> None:
    before, now = with_a_new_key(0.5), with_a_new_key(0.75)
    values = load("laptop", []).model_dump()
    there = written(identity_of(before.model_validate(values), before))
    assert differences(there, identity_of(now.model_validate(values), now), now) == [
        "cooper.policy.new_key: 0.5 there, 0.75 here"
    ]


@pytest.mark.parametrize(
    ("there", "here", "found"),
    [
        ([], ["cooper.gate={}"], ["cooper.gate: null there, {} here"]),
        (["cooper.gate={}"], [], ["cooper.gate: {} there, null here"]),
        ([], ["cooper.monitor=null"], ["cooper.monitor: {} there, null here"]),
        (["cooper.policy.lora={ rank = 16 }"], [], ["cooper.policy.lora: {} there, null here"]),
        ([], ["cooper.policy.lora={ rank = 4 }"], ["cooper.policy.lora: null there, {} here",
                                                   "cooper.policy.lora.rank: absent there, 4 here"]),
        (["cooper.group_size=4"], ["cooper.group_size=6"], ["cooper.group_size: 4 there, 6 here"]),
        (["cooper.gate={}"], ["cooper.gate={ num_examples = 128 }"], []),
    ],
)  # fmt: skip
def test_an_optional_section_is_told_from_none(there: list[str], here: list[str], found: list[str]) -> None:
    manifest = written(identity_of(load("laptop", ["cooper.gate=null", *there])))
    assert differences(manifest, identity_of(load("laptop", ["cooper.gate=null", *here]))) == found


def test_only_what_differs_from_the_defaults_is_chosen() -> None:
    """The two defaults that are sections themselves say so."""
    found = split_identity(
        {
            "cooper.group_size": "8",
            "cooper.policy.clip_epsilon": "0.3",
            "evaluation.generation.temperature": "0.7",  # of this section, where the class says 1
            "data.problems": "abc",
        }
    )
    assert found.chosen == {"cooper.policy.clip_epsilon": "0.3", "data.problems": "abc"}
    assert found.defaults == {"cooper.group_size": "8", "evaluation.generation.temperature": "0.7"}
    assert is_default("cooper.monitor", "{}")
    assert not is_default("cooper.gate", "{}")
    assert is_default("cooper.gate.num_examples", json.dumps(GateConfig().num_examples))
    assert is_default("cooper.policy.lora.rank", json.dumps(LoRAConfig().rank))
    assert not any(
        is_default(key, "null")
        for key in ("cooper.judge.server.base_url", "cooper.judge.server.model")  # required
    )
    assert not any(
        is_default(key, "null") for key in ("cooper.gone", "gone.key", "cooper.steps.gone", "data.x")
    )


def test_a_manifest_of_a_version_without_a_log_keeps_its_checksum() -> None:
    text = Path(__file__).parents[1] / "data" / "checkpoint-0.1.0" / "checkpoint" / "step-000002"
    manifest = CheckpointManifest.model_validate_json((text / "manifest.json").read_bytes())
    assert manifest.sealed() == manifest
    changed = manifest.model_copy(update={"defaults": {"seed": "0"}})
    assert changed.sealed() != changed


def test_what_bears_on_numbers_is_named_when_it_differs() -> None:
    here = {"torch": "2.13", "threads": "1", "CPU capability": "AVX2"}
    assert say_differences(here, here) is None
    assert say_differences(here | {"threads": "2", "CPU capability": "AVX512"}, here) == (
        "continues, but not bit for bit, because CPU capability is AVX2 and was AVX512, "
        "threads is 1 and was 2"
    )
    assert say_differences({"torch": "2.13"}, here) == (
        "continues, perhaps not bit for bit, because the version that wrote it did not record "
        "CPU capability, threads"
    )


def test_variables_by_which_libraries_choose_kernels_are_compared_also_when_they_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With AVX512 as the capability, MKL and oneDNN multiply to other bits under these."""
    device = torch.device("cpu")
    monkeypatch.setenv("ONEDNN_VERBOSE", "1")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")  # we set it ourselves
    plain = numeric_versions(device, {})
    assert plain[VARIABLES] == "none"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    held = numeric_versions(device, {})
    said = "MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=AVX2"
    reason = "continues, but not bit for bit, because variables of MKL, oneDNN and ATen is"
    assert say_differences(plain, held) == f"{reason} {said} and was none"
    assert say_differences(held, plain) == f"{reason} none and was {said}"


def test_the_processor_is_recorded_with_its_vector_instructions() -> None:
    here = numeric_versions(torch.device("cpu"), {})
    assert here["processor"]
    if Path("/proc/cpuinfo").is_file():
        words = set(Path("/proc/cpuinfo").read_text().split())
        assert set(here["vector instructions"].split()) <= words
        assert not {"sse", "sse2"} & set(here["vector instructions"].split())


def test_a_type_is_kept_of_a_run_on_a_cpu_and_chosen_anew_after_one_on_a_gpu() -> None:
    there = numeric_versions(torch.device("cpu"), {VERIFY_RM: "bfloat16"})
    assert recorded_precision(there, VERIFY_RM) == "bfloat16"
    assert recorded_precision(there | {"device": "NVIDIA H100"}, VERIFY_RM) is None
    assert recorded_precision({"device": "cpu"}, VERIFY_RM) is None
    here = there | {"precision of VerifyRM": "float32"}
    assert say_differences(there, here) == (
        "continues, but not bit for bit, because precision of VerifyRM is float32 and was bfloat16"
    )
