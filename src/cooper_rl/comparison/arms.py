"""The arms of an experiment: what each sets in the configuration; nothing else differs between them."""

from collections.abc import Mapping, Sequence

from cooper_rl.config.load import changed, settings_of
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError
from cooper_rl.run.chain import FROZEN

ARMS: dict[str, tuple[str, ...]] = {
    "rule": ("cooper.reward.kind=rule",),
    "frozen": FROZEN,
    "cooper": ("cooper.reward.kind=verify_rm", "cooper.reward.update_verify_rm=true"),
    "exact": ("cooper.reward.kind=judge", "cooper.judge.tiny_error_rate=0"),
}
"""`exact` is the upper bound: the laptop's exact evaluator as the reward."""

ABLATIONS: dict[str, tuple[str, ...]] = {
    "paper": (
        "cooper.pairs.negatives={ assistant = 1, rollout = 0 }",
        "cooper.pairs.per_problem=1",
        "cooper.reward.num_replay_examples=0",
        "cooper.reward.hostile_fraction=0",
        "cooper.advantages.std_floor=1e-6",
        "cooper.policy.warmup_steps=0",
        "cooper.judge=null",
    ),
    "no_judge": ("cooper.judge=null",),
    "judge": ("cooper.reward.kind=judge",),
    "assistant_only": ("cooper.pairs.negatives.rollout=0", "cooper.pairs.per_problem=1"),
    "rollout_only": ("cooper.pairs.negatives.assistant=0", "cooper.pairs.per_problem=1"),
    "perturb_for_assistant": ("cooper.pairs.negatives.assistant=0", "cooper.pairs.negatives.perturb=1"),
    "canary_negatives": ("cooper.pairs.negatives.canary=1", "cooper.pairs.per_problem=3"),
    "audited": ("cooper.reward.num_audited_rollouts=16",),
    "audited_no_judge": ("cooper.reward.num_audited_rollouts=16", "cooper.judge=null"),
    "audited_rule_gated": ("cooper.reward.num_audited_rollouts=16", "cooper.reward.kind=rule_gated"),
    "overlong": ("cooper.reward.overlong_buffer_tokens=16",),
    "gate": ("cooper.gate.max_accuracy_drop=0.03",),
    "no_replay": ("cooper.reward.num_replay_examples=0",),
    "average": ("cooper.reward.ema_decay=0.9",),
    "rule_gated": ("cooper.reward.kind=rule_gated",),
    "no_std": ("cooper.advantages.scale=none",),
    "paper_std_floor": ("cooper.advantages.std_floor=1e-6",),
    "drop_equal_groups": ("cooper.advantages.drop_equal_groups=true",),
    "mask_cut": ("cooper.policy.overlong_filtering=true",),
    "grpo_sequence_mean": ("cooper.policy.loss_aggregation=sequence_mean",),
    "dr_grpo": ("cooper.advantages.scale=none", "cooper.policy.loss_aggregation=max_length"),
    "rloo": ("cooper.advantages.estimator=rloo", "cooper.advantages.scale=none"),
    "dapo": (
        "cooper.policy.clip_epsilon_high=0.28",
        "cooper.policy.kl_coefficient=0",
        "cooper.reward.overlong_buffer_tokens=16",
        "cooper.max_refills=3",
    ),
    "gspo": (
        "cooper.policy.loss=gspo",
        "cooper.policy.loss_aggregation=sequence_mean",
        "cooper.policy.clip_epsilon=3e-4",
        "cooper.policy.clip_epsilon_high=4e-4",
    ),
    "cispo": ("cooper.policy.loss=cispo", "cooper.policy.clip_epsilon_high=4"),
    "stale_pairs": ("cooper.pairs.max_staleness=1",),
    "stale_rollouts": ("cooper.max_rollout_staleness=1", "cooper.policy.max_importance_weight=2.0"),
    "frozen_rule_gated": (*ARMS["frozen"], "cooper.reward.kind=rule_gated"),
    "frozen_monitor_rule": (*ARMS["frozen"], "cooper.monitor.action=rule"),
    "frozen_monitor_rollback": (*ARMS["frozen"], "cooper.monitor.action=rollback"),
}
"""Each changes one thing of `cooper`, or of `frozen` where the name says so. `paper` undoes what co-training
has beside the paper; the start's labels are those of the preset (`labeling.unparsable_rule`). `dr_grpo`,
`rloo`, `dapo`, `gspo` and `cispo` are the settings of their papers. `no_judge` asks no judge in co-training;
the reward `judge` asks it of every rollout."""


def arm_overrides(name: str) -> tuple[str, ...]:
    """The settings of an arm or ablation.

    Raises:
        ConfigError: there is none of this name.
    """
    if name in ARMS:
        return ARMS[name]
    if name in ABLATIONS:
        base = () if name.startswith("frozen_") else ARMS["cooper"]
        return (*base, *ABLATIONS[name])
    raise ConfigError(f"unknown arm {name!r}; use some of {', '.join([*ARMS, *ABLATIONS])}")


def check_free(overrides: Sequence[str], arms: Sequence[str], *, taken: Mapping[str, str], by: str) -> None:
    """Refuse settings that a comparison makes itself: they would not be what its runs have.

    Args:
        overrides: As `dotted.key=value`.
        arms: Of the comparison.
        taken: Key -> what is set in its place.
        by: The comparison, in words.

    Raises:
        ConfigError: names the setting and what to set instead.
    """
    setters = {key: arm for arm in reversed(arms) for each in arm_overrides(arm) for key in settings_of(each)}
    for override in overrides:
        for key in settings_of(override):
            if key in taken:
                raise ConfigError(f"{override}: {by} takes {taken[key]} instead; set that")
            if key in setters:
                raise ConfigError(
                    f"{override}: the arm {setters[key]!r} sets {key}; leave out one of the two"
                )


def check_arms(config: Config) -> None:
    """Refuse arms of `experiment.runs` that cannot be trained or compared.

    Raises:
        ConfigError: an arm is unknown or does not fit the configuration, or no judge evaluates.
    """
    for arm in dict.fromkeys(run.arm for run in config.experiment.runs):
        if arm == "exact" and config.models.tiny is None:
            raise ConfigError(
                "arm 'exact' of experiment.runs: only the laptop world has an exact evaluator (models.tiny); "
                "use the arm 'judge', whose reward is a judge's verdict"
            )
        try:
            changed(config, arm_overrides(arm))
        except ConfigError as error:
            raise ConfigError(f"arm {arm!r} of experiment.runs: {error}") from error
    if config.experiment.runs and config.evaluation.judge is None:
        raise ConfigError("arms are compared by what a judge says of their completions; set evaluation.judge")


def parse_names(text: str, *, allowed: Sequence[str], option: str) -> list[str]:
    """`a,b` as names without repetition; `all` is all of them.

    Raises:
        ConfigError: a name is not allowed.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == ["all"]:
        return list(allowed)
    for name in names:
        if name not in allowed:
            raise ConfigError(f"{option}: unknown name {name!r}; use all, or some of {', '.join(allowed)}")
    return names


def parse_seeds(text: str) -> list[int]:
    """`0,1,2` as numbers without repetition.

    Raises:
        ConfigError: one is no whole number.
    """
    try:
        seeds = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise ConfigError(f"--seeds {text!r}: give whole numbers, for example 0,1,2") from error
    return seeds
