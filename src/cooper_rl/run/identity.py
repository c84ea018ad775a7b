"""The identity of a run of co-training, and of VerifyRM's training before: configuration and data that the
numbers depend on.

A run may be continued with other values of the rest: number of steps, checkpoints, processes, addresses of
servers.
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
from cooper_rl.records.model_set import read_models
from cooper_rl.storage.base import file_sha256, files_below
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
    "hedge_after",
)
MAY_DIFFER = (
    "cooper.steps",
    "cooper.checkpoint_every",
    "cooper.gradient_checkpointing",
    "labeling.rule.num_workers",
    *(f"cooper.{who}.server.{key}" for who in ("pairs.assistant", "judge") for key in SERVER_KEYS),
)
STATE_FILES = ("policy/", "verify_rm/", "policy_optimizer", "verify_rm_optimizer", "pending")


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
    identity = {key: json.dumps(value) for key, value in flatten(chosen) if key not in MAY_DIFFER}
    identity["data.models.policy"] = _model_sha256(config.storage, read_models(models).policy)
    identity["data.verify_rm"] = _model_sha256(config.storage, model_in(verify_rm))
    identity |= {f"data.{name}": file_sha256(path) for name, path in files.items() if path is not None}
    if start is not None:
        identity["data.start"] = _state_sha256(start)
    return split_identity(identity)


def co_training_identity(config: Config) -> RunIdentity:
    """The part of it that the section `cooper` is."""
    values = flatten({"cooper": config.cooper.model_dump(mode="json")})
    return split_identity({key: json.dumps(value) for key, value in values if key not in MAY_DIFFER})


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
