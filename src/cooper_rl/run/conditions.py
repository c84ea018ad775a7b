"""The conditions of an evaluation: every setting that its numbers depend on.

Evaluations under different conditions cannot be compared: neither with a champion's nor with an earlier one
of the same run.
"""

import hashlib
import json
from collections.abc import Mapping

from cooper_rl.config.root import Config
from cooper_rl.config.section import flatten
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import ConfigError
from cooper_rl.run.identity import SERVER_KEYS

PROMPT = "evaluation.judge.prompt"
LATER = ("engine.kind", "engine.dtype", PROMPT)
"""Keys that champions of earlier versions lack; they are taken to have had today's values."""
IGNORED = ("evaluation.generation.batch_size", *(f"evaluation.judge.server.{key}" for key in SERVER_KEYS))


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
