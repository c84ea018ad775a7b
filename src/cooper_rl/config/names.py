"""The names that keys of the configuration take where a program can add its own (`docs/how-to/extending.md`).

The parts are registered by the modules that own them: `method/losses.py`, `method/advantages.py`,
`domains/base.py`, `training/negative_sources.py`, `distributed/trainable.py`. Names alone stand here, so that
the configuration is checked without importing torch.
"""

from cooper_rl.registry import Names

LOSSES = Names("cooper.policy.loss", "grpo", "gspo", "cispo")
ESTIMATORS = Names("cooper.advantages.estimator", "grpo", "rloo")
DOMAINS = Names("problems.domain", "mathematics", "programs")
TRAINERS = Names("distributed.trainer", "single", "zero")
NEGATIVE_SOURCES = Names("cooper.pairs.negatives", "assistant", "rollout", "perturb", "canary", "red_team")
