"""The settings of `CooperReward`: the part of the section `cooper` that a reward reads, and its examples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from cooper_rl.config.cooper import CooperConfig, GateConfig
from cooper_rl.config.data import RuleConfig
from cooper_rl.config.load import describe_faults
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain, find_domain
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.machine.device import read_device
from cooper_rl.method.questions import with_questions
from cooper_rl.records.verify_formats import read_examples
from cooper_rl.schema.data import VerifyExample

Examples = str | Path | Sequence[VerifyExample] | Sequence[Mapping[str, Any]]
"""Labelled completions: a file, records, or mappings with the released columns."""

KEYS = (
    "reward",
    "pairs",
    "judge",
    "gate",
    "monitor",
    "max_grad_norm",
    "max_tokens_per_batch",
    "precision",
    "gradient_checkpointing",
    "checkpoint_every",
    "seed",
)
"""Keys of the section `cooper` that a reward reads; the trainer has its own for the policy."""


@dataclass(frozen=True)
class RewardSettings:
    """Settings of a run that learns, beside VerifyRM."""

    config: CooperConfig
    rule: RuleConfig
    replay: Sequence[VerifyExample]
    held_out: Sequence[VerifyExample]
    seed: int
    device: torch.device
    domain: Domain
    """The subject of the problems."""


def make_settings(
    config: CooperConfig | Mapping[str, Any] | None,
    *,
    rule: RuleConfig | None,
    replay: Examples,
    held_out: Examples,
    seed: int,
    device: str | torch.device | None,
    domain: str | None = None,
) -> RewardSettings:
    """The arguments of `CooperReward`, read and checked.

    Raises:
        ConfigError: an unknown, unused or contradictory key, or an unknown domain.
        DataError: examples that cannot be read, or replayed questions that are held out.
    """
    held = _read_examples(held_out, name="held_out")
    replayed = _read_examples(replay, name="replay")
    shared = with_questions(replayed, held)
    if shared:
        raise DataError(
            f"replay: {len(shared)} of its rows have a question that is held out, e.g. "
            f"{shared[0].question[:80]!r}; replay examples of other questions"
        )
    return RewardSettings(
        config=_reward_section(config, has_held_out=bool(held)),
        rule=rule or RuleConfig(),
        replay=replayed,
        held_out=held,
        seed=seed,
        device=read_device(device),
        domain=default_domain() if domain is None else find_domain(domain),
    )


def _reward_section(config: CooperConfig | Mapping[str, Any] | None, *, has_held_out: bool) -> CooperConfig:
    """The configuration, with defaults that need no server.

    Raises:
        ConfigError: an unknown, unused or contradictory key.
    """
    found = config if isinstance(config, CooperConfig) else _validated(config or {})
    if has_held_out and "gate" not in found.model_fields_set:
        found = found.model_copy(update={"gate": GateConfig()})
    if found.gate is not None and not has_held_out:
        raise ConfigError("config: gate needs labelled examples: give held_out=..., or set gate to None")
    if found.monitor is not None and found.monitor.action == "rollback":
        raise ConfigError(
            "config: monitor.action=rollback takes the policy back too, which only train-cooper can do; use "
            "warn, stop or rule"
        )
    if found.pairs.negatives.red_team:
        raise ConfigError(
            f"config: pairs.negatives.red_team={found.pairs.negatives.red_team:g} needs a red team's "
            "texts, which only train-cooper reads; set it to 0, or use canary"
        )
    if found.reward.overlong_buffer_tokens is not None:
        raise ConfigError(
            "config: reward.overlong_buffer_tokens counts tokens, which a reward of texts does not see; use "
            "the trainer's own length penalty beside CooperReward"
        )
    return found


def _validated(values: Mapping[str, Any]) -> CooperConfig:
    if not isinstance(values, Mapping):
        raise ConfigError(f"config: {values!r:.80} is no mapping; give the keys {', '.join(KEYS)}")
    unread = sorted(map(str, set(values) - set(KEYS)))
    if unread:
        nested = next((key for key in unread if key.partition(".")[0] in KEYS), None)
        hint = f"; write {nested} as nested mappings" if nested else ""
        raise ConfigError(
            f"config: {', '.join(unread)}: not read by a reward; its keys are {', '.join(KEYS)}, and the "
            f"policy's settings are the trainer's{hint}"
        )
    merged = dict(values)
    pairs = merged.get("pairs") or {}
    if isinstance(pairs, Mapping) and "assistant" not in pairs and "negatives" not in pairs:
        merged["pairs"] = {**pairs, "negatives": {"assistant": 0, "rollout": 1, "perturb": 1}}
    try:
        return CooperConfig.model_validate(merged)
    except ValidationError as error:
        raise ConfigError("config: " + "; ".join(describe_faults(error, CooperConfig))) from error


def _read_examples(source: Examples, *, name: str) -> list[VerifyExample]:
    """Labelled examples from a file, records or mappings.

    Raises:
        DataError: a row is no labelled example; names the argument and the index.
    """
    if isinstance(source, str | Path):
        return list(read_examples(Path(source)).records)
    examples: list[VerifyExample] = []
    if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
        raise DataError(f"{name}: {source!r:.80} is no list of labelled examples, and no path of their file")
    for index, row in enumerate(source):
        try:
            examples.append(row if isinstance(row, VerifyExample) else VerifyExample.model_validate(row))
        except ValidationError as error:
            found = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in found["loc"])
            raise DataError(
                f"{name}: row {index}: {place}: {found['msg']}; a labelled example has question, "
                "reference_answer, completion and label (0 or 1)"
            ) from error
    return examples
