"""The names that keys of the configuration take where a program can add its own (`docs/how-to/extending.md`).

The parts are registered by the modules that own them: `method/losses.py`, `method/advantages.py`,
`domains/open.py`, `training/negative_sources.py`.
"""

from typing import Any

from cooper_rl.registry import Registry

LOSSES: Registry[Any] = Registry("cooper.policy.loss", "grpo", "gspo", "cispo")
ESTIMATORS: Registry[Any] = Registry("cooper.advantages.estimator", "grpo", "rloo")
DOMAINS: Registry[Any] = Registry("problems.domain", "mathematics", "programs")
NEGATIVE_SOURCES: Registry[Any] = Registry(
    "cooper.pairs.negatives", "assistant", "rollout", "perturb", "canary", "red_team"
)
