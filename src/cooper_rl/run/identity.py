"""The identity of a run of co-training, and of VerifyRM's training before: configuration and data that the
numbers depend on.

A run may be continued with other values of the rest: number of steps, checkpoints, processes, addresses of
servers.

The conditions of an evaluation are the settings that its numbers depend on. Evaluations under different ones
cannot be compared, neither with a champion's nor with an earlier one of the same run.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cooper_rl.checkpoints.identity import RunIdentity, split_identity
from cooper_rl.checkpoints.manifest import CheckpointManifest
from cooper_rl.config.infrastructure import StorageConfig, is_stored
from cooper_rl.config.root import Config
from cooper_rl.config.section import flatten
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import ConfigError
from cooper_rl.records.model_set import read_models
from cooper_rl.records.written import file_sha256
from cooper_rl.storage.base import files_below
from cooper_rl.storage.model_reference import model_in
from cooper_rl.storage.models import SUMS, find_model

SERVER_KEYS = (
    "base_url",
    "api_key_env",
    "max_concurrency",
    "timeout_seconds",
    "max_attempts",
    "max_requests",
    "max_total_tokens",
    "max_cost",
    "price_per_million_prompt_tokens",
    "price_per_million_completion_tokens",
    "expected_answer_tokens",
    "rate_limit_patience_seconds",
    "backoff_seconds",
)
MAY_DIFFER = (
    "cooper.steps",
    "cooper.checkpoint_every",
    "cooper.gradient_checkpointing",
    "labeling.rule.num_workers",
    *(f"cooper.{who}.server.{key}" for who in ("pairs.assistant", "judge") for key in SERVER_KEYS),
)
STATE_FILES = ("policy/", "verify_rm/", "policy_optimizer", "verify_rm_optimizer", "pending")
PROMPT = "evaluation.judge.prompt"
LATER = ("engine.kind", "engine.dtype", PROMPT)
"""Keys that champions of earlier versions lack; they are taken to have had today's values."""
IGNORED = ("evaluation.generation.batch_size", *(f"evaluation.judge.server.{key}" for key in SERVER_KEYS))


def may_differ(config: Config) -> frozenset[str]:
    """The keys of co-training that may change in the middle of a run."""
    monitor = config.cooper.active_monitor
    goes_back = monitor is not None and monitor.action == "rollback"
    return frozenset(MAY_DIFFER) - ({"cooper.checkpoint_every"} if goes_back else set())


def run_identity(
    config: Config,
    *,
    models: Path,
    verify_rm: Path,
    files: Mapping[str, Path | None],
    start: CheckpointManifest | None,
) -> RunIdentity:
    """Dotted configuration keys and the hashes of the inputs, as JSON."""
    values = config.model_dump(mode="json")
    chosen = {"seed": values["seed"], "instruction": values["instruction"], "cooper": values["cooper"]}
    chosen["packed_forward"] = values["packed_forward"]  # rounds in another way
    if config.prompt_template is not None:  # a run of a version that did not know it goes on
        chosen["prompt_template"] = config.prompt_template
    chosen["engine"] = {key: values["engine"][key] for key in ("kind", "dtype")}
    chosen["labeling"] = {"rule": values["labeling"]["rule"]}
    chosen["problems"] = {"domain": values["problems"]["domain"]}
    free = may_differ(config)
    identity = {key: json.dumps(value) for key, value in flatten(chosen) if key not in free}
    identity["data.models.policy"] = _model_sha256(config.storage, read_models(models).policy)
    identity["data.verify_rm"] = _model_sha256(config.storage, model_in(verify_rm))
    identity |= {f"data.{name}": file_sha256(path) for name, path in files.items() if path is not None}
    if start is not None:
        identity["data.start"] = _state_sha256(start)
    return split_identity(identity)


def co_training_identity(config: Config) -> RunIdentity:
    """The part of it that the section `cooper` is."""
    values = flatten({"cooper": config.cooper.model_dump(mode="json")})
    free = may_differ(config)
    return split_identity({key: json.dumps(value) for key, value in values if key not in free})


FIT_KEYS_THAT_MAY_DIFFER = {"checkpoint_seconds", "gradient_checkpointing", "max_canary_problems"}
"""Of the section `verify_rm`."""


def fit_identity(config: Config, *, models: Path | None, files: Mapping[str, Path | None]) -> RunIdentity:
    """The same of the training of VerifyRM; `models`: what it starts from, None: from scratch."""
    values = config.model_dump(mode="json")
    chosen: dict[str, Any] = {"seed": values["seed"]}
    chosen["verify_rm"] = config.verify_rm.model_dump(mode="json", exclude=FIT_KEYS_THAT_MAY_DIFFER)
    chosen["problems"] = {"domain": values["problems"]["domain"]}
    chosen["labeling"] = {"validation_fraction": values["labeling"]["validation_fraction"]}
    chosen["packed_forward"] = values["packed_forward"]
    found = {key: json.dumps(value) for key, value in flatten(chosen)}
    if models is not None:
        starts = read_models(models)
        found["data.models"] = _model_sha256(config.storage, starts.verify_rm or starts.backbone)
    found |= {f"data.{name}": file_sha256(path) for name, path in files.items() if path is not None}
    return split_identity(found)


def folder_sha256(folder: Path) -> str:
    """One hash of the files of a model's folder and their names, of those that it has in an object store too.

    That is without SHA256SUMS and what the hub's client keeps for itself; see docs/cluster/operations.md.
    """
    files = [file for file in files_below(folder) if file != SUMS and "/." not in f"/{file}"]
    return _sha256({file: file_sha256(folder / file) for file in files})


def _model_sha256(storage: StorageConfig, name: str) -> str:
    """The same wherever the same files are; a hub id says nothing of its files."""
    if is_stored(name):
        return _sha256(find_model(storage, name).files)
    return folder_sha256(Path(name)) if Path(name).is_dir() else name


def _state_sha256(start: CheckpointManifest) -> str:
    # Without the metrics, which hold timings: the same checkpoint computed again is the same start.
    return _sha256({file: sha256 for file, sha256 in start.sha256.items() if file.startswith(STATE_FILES)})


def _sha256(hashes: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(hashes.items())).encode()).hexdigest()


def evaluation_conditions(config: Config) -> dict[str, str]:
    """Dotted key -> value of every setting that an evaluation's numbers depend on.

    The rule verifier's version is left out: `promote.py` verifies the completions again.
    """
    values = config.model_dump(mode="json")
    chosen = {
        "seed": values["seed"],
        "instruction": values["instruction"],
        "evaluation": values["evaluation"],
        "labeling": {"rule": {"policy": values["labeling"]["rule"]["policy"]}},
        "engine": {key: values["engine"][key] for key in ("kind", "dtype")},
    }
    if config.prompt_template is not None:  # a champion of a version that did not know it is compared
        chosen["prompt_template"] = config.prompt_template
    conditions = {key: json.dumps(value) for key, value in flatten(chosen) if key not in IGNORED}
    if config.evaluation.judge is not None and config.evaluation.judge.server is not None:
        make_prompt = find_domain(config.problems.domain).judge_prompt
        prompt = make_prompt("question", "reference answer", "completion", nonce="nonce")
        conditions[PROMPT] = hashlib.sha256(repr(prompt).encode()).hexdigest()[:12]
    return conditions


def check_conditions(champion: str, *, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Refuse a comparison of evaluations that were made differently.

    Raises:
        ConfigError: naming every setting that differs.
    """
    there = {key: here[key] for key in LATER if key in here} | dict(there)
    differing = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
    if differing:
        shown = "; ".join(
            f"{key}: {there.get(key, 'absent')} there, {here.get(key, 'absent')} here" for key in differing
        )
        raise ConfigError(
            f"champion {champion} was evaluated with other settings ({shown}); set them as they were there, "
            "or start another registry with registry.uri"
        )


def conditions_sha256(config: Config) -> str:
    """One hash of them all."""
    return hashlib.sha256(json.dumps(evaluation_conditions(config), sort_keys=True).encode()).hexdigest()
