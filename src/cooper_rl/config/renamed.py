"""Keys of earlier versions and their names today.

A preset or override that uses an old key is refused with the new one. Checkpoints written under the old names
are compared under the new ones.
"""

RENAMED = {
    "cooper.advantage_scale": "cooper.advantages.scale",
    "cooper.advantage_std_floor": "cooper.advantages.std_floor",
    "cooper.assistant": "cooper.pairs.assistant",
    "cooper.clip_epsilon": "cooper.policy.clip_epsilon",
    "cooper.compute": "cooper.precision",
    "cooper.drop_equal_groups": "cooper.advantages.drop_equal_groups",
    "cooper.kl_coefficient": "cooper.policy.kl_coefficient",
    "cooper.lora": "cooper.policy.lora",
    "cooper.mask_cut": "cooper.policy.overlong_filtering",
    "cooper.max_importance_weight": "cooper.policy.max_importance_weight",
    "cooper.max_negative_attempts": "cooper.pairs.max_attempts",
    "cooper.max_pair_staleness": "cooper.pairs.max_staleness",
    "cooper.max_shortcut_auroc": "cooper.pairs.max_shortcut_auroc",
    "cooper.negatives": "cooper.pairs.negatives",
    "cooper.pairs_per_problem": "cooper.pairs.per_problem",
    "cooper.policy_lr": "cooper.policy.lr",
    "cooper.policy_updates_per_step": "cooper.policy.updates_per_step",
    "cooper.policy_warmup_steps": "cooper.policy.warmup_steps",
    "cooper.policy_weight_decay": "cooper.policy.weight_decay",
    "cooper.replay_examples": "cooper.reward.num_replay_examples",
    "cooper.replay_weight": "cooper.reward.replay_weight",
    "cooper.reward": "cooper.reward.kind",
    "cooper.update_verify_rm": "cooper.reward.update_verify_rm",
    "cooper.verify_rm_average": "cooper.reward.ema_decay",
    "cooper.verify_rm_lr": "cooper.reward.lr",
    "cooper.verify_rm_weight_decay": "cooper.reward.weight_decay",
    "verify_rm.compute": "verify_rm.precision",
}
"""Dotted key before -> dotted key now. A key of a section stands for everything below it."""


def current_key(key: str) -> str:
    """The name that a dotted key of any version has today."""
    # `cooper.reward` was a value and is a section now: below it, keys are new already.
    if key.startswith("cooper.reward."):
        return key
    for old, new in RENAMED.items():
        if key == old or key.startswith(f"{old}."):
            return new + key.removeprefix(old)
    return key
