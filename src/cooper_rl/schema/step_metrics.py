"""The numbers of one step: a line of `metrics.jsonl` (rows 6 to 14 of the walk).

Code reads and writes typed fields, so that a mistyped name fails the type check. On disk, in trackers and for
callers of `CooperReward` a step is flat: `section/field` -> number, without the fields that are None.
Unlike other records these are filled while the step runs, and a name of another version is kept.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Phase = Literal[
    "rollout", "reward", "refill", "policy_update", "pairing", "reward_update", "evaluation", "checkpoint"
]
"""Part of a step whose seconds are measured. `checkpoint` is the time spent waiting for the previous one."""


@dataclass(frozen=True)
class Named:
    """A mapping whose entries are numbers of their own: `section/` + prefix + name."""

    prefix: str


class Section(BaseModel):
    """Numbers that are written together; None: not measured."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class RolloutMetrics(Section):
    """Means over the completions of the step."""

    verify_rm_reward: float
    """VerifyRM's score."""
    rule_accuracy: float
    reward: float | None = None
    """The policy's reward."""
    rejected_score: float | None = None
    """VerifyRM's score of completions that the rule verifier calls incorrect; None without any."""
    order: float | None = None
    """Probability that a completion which the rule verifier accepts is paid more than one of the same problem
    which it rejects; mean over problems that have both, None without any."""
    rule_unparsable: float | None = None
    judge_accuracy: float | None = None
    tokens: int | None = None
    """Sum."""
    completion_tokens: float | None = None
    """Tokens of a completion."""
    entropy: float | None = None
    """The policy's entropy at a token, in nats: mean of minus the log-probability of every drawn token.
    Unbiased for the distribution that the tokens were drawn from, and noisier than a sum over the
    vocabulary."""
    equal_groups: float | None = None
    """Share of groups whose completions are all right or all wrong, after refills. The verdict behind the
    reward decides, or the rule verdict where VerifyRM's score is in the reward."""
    cut_fraction: float | None = None
    abs_advantage: float | None = None
    refilled: int | None = None
    """Groups that were all right or all wrong and were replaced."""
    staleness: int | None = None
    """Steps between the policy that drew the rollouts and the one that they train; None: drawn by that one,
    because `cooper.max_rollout_staleness` is 0."""


class PolicyMetrics(Section):
    """The policy update: means over the tokens of the step, over all of its updates."""

    loss: float
    """Mean over the updates, each weighed by its tokens."""
    kl: float | None = None
    """k3 estimate of KL(policy || reference) per token, in nats; None: the loss has no KL term, so that the
    reference policy was not asked, or nothing was trained on."""
    clip_fraction: float
    grad_norm: float
    """Before clipping; mean over the updates that were made."""
    mismatch: float | None = None
    """Mean absolute difference between the trainer's and the engine's log-probabilities of the tokens trained
    on, in nats, before the first update; None: nothing was trained on. Stale rollouts add what the policy has
    learned since. The next two likewise."""
    max_mismatch: float | None = None
    importance_ratio: float | None = None
    """Mean of p_trainer / p_engine, before it is truncated."""


class VerifyRMMetrics(Section):
    """VerifyRM's level, and its update: means over the pairs of the step, from before the update."""

    anchor_score: float | None = None
    """Mean score of the monitor's anchors, from before the update."""
    loss: float | None = None
    pair_accuracy: float | None = None
    """Share of pairs whose positive has the higher logit."""
    grad_norm: float | None = None
    replay_loss: float | None = None
    """Mean log loss on the replayed labelled examples; 0 without any."""


class PairMetrics(Section):
    """The preference pairs of the step."""

    count: int | None = None
    """None: VerifyRM is not updated."""
    positives: int | None = None
    rewrites: int | None = None
    unanswered: int | None = None
    audited: int | None = None
    """Rollouts that were learned with their verdicts as labels."""
    audited_wrong: int | None = None
    """Audited rollouts that are wrong."""
    by_source: Annotated[dict[str, int], Named("")] = Field(default_factory=dict[str, int])
    shortcut_auroc: float | None = None
    """The leak guard's probe on the newest pairs."""


class JudgeMetrics(Section):
    """Completions of the step that co-training's judge was asked about, answered or not."""

    calls: int | None = None
    """All of them, 0 without a judge; None in runs of earlier versions. Evaluations are not counted: they
    measure, and teach nothing."""
    rewards: int | None = None
    """Rollouts whose reward is its verdict, those that refills replaced among them."""
    pairs: int | None = None
    """The policy's own rollouts that were to be negatives."""
    audits: int | None = None
    """Audited rollouts."""


class GateMetrics(Section):
    """The gate's reading after the update, and the start of the run that its bounds hold against."""

    accuracy: float | None = None
    canary_rate: float | None = None
    rolled_back: bool | None = None
    data: int | None = None
    """Fingerprint of the examples and canaries that were read."""
    start_accuracy: float | None = None
    start_canary_rate: float | None = None
    worst_attack_rise: float | None = None
    worst_canary_high: float | None = None
    """Highest upper end of the attacks' 95 % intervals; like `canary_rate` after the update, also after one
    that was taken back."""
    start_attacks: Annotated[dict[str, float], Named("start_canary_rate/")] = Field(
        default_factory=dict[str, float]
    )


class MonitorMetrics(Section):
    """The hacking monitor's numbers of the step."""

    gap_rise: float | None = None
    """None: it does not look yet, or not at all."""
    evidence: float | None = None
    """Natural logarithm of the evidence that the order is worse than `cooper.monitor.min_order`; None: no
    order is known yet."""
    unordered: bool | None = None
    """True: the evidence suffices, which is an alarm."""
    dropped: bool | None = None
    """True: the evaluation after the step found accuracy below its best, which is an alarm."""
    alarm: bool | None = None
    denied: bool | None = None
    """The judge found no loss of accuracy at the alarm."""
    rolled_back_to: int | None = None
    """The step whose models the alarm went back to."""


class EvalMetrics(Section):
    """The evaluation after the step, where one was due."""

    rule_accuracy: float | None = None
    judge_accuracy: float | None = None
    verify_rm_reward: float | None = None
    verify_rm_accuracy: float | None = None
    verify_rm_auroc: float | None = None
    canary_rate: float | None = None
    worst_canary_rate: float | None = None
    canary_rates: Annotated[dict[str, float], Named("canary_rate/")] = Field(default_factory=dict[str, float])
    canary_highs: Annotated[dict[str, float], Named("canary_high/")] = Field(default_factory=dict[str, float])
    """Upper ends of their 95 % intervals: with few canaries a rate of 0 proves little."""
    cut_fraction: float | None = None


class StepMetrics(BaseModel):
    """Everything that is measured at one step."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    step: int
    """Number of the step, from 1."""
    rollout: RolloutMetrics
    policy: PolicyMetrics | None = None
    """None: another trainer's policy."""
    verify_rm: VerifyRMMetrics = Field(default_factory=VerifyRMMetrics)
    pairs: PairMetrics = Field(default_factory=PairMetrics)
    judge: JudgeMetrics = Field(default_factory=JudgeMetrics)
    gate: GateMetrics = Field(default_factory=GateMetrics)
    monitor: MonitorMetrics = Field(default_factory=MonitorMetrics)
    eval: EvalMetrics = Field(default_factory=EvalMetrics)
    seconds: dict[Phase, float] = Field(default_factory=dict[Phase, float])
    others: dict[str, float] = Field(default_factory=dict[str, float])
    """Flat names that this version does not know."""

    def flat(self) -> dict[str, float]:
        """`section/field` -> number, as in metrics.jsonl."""
        row: dict[str, float] = {"step": self.step}
        for section in _SECTIONS:
            values: Section | None = getattr(self, section)
            row |= _numbers(section, values) if values is not None else ()
        return row | {f"seconds/{phase}": number for phase, number in self.seconds.items()} | self.others

    @classmethod
    def from_flat(cls, row: Mapping[str, object]) -> Self:
        """The step of a flat row.

        Raises:
            ValueError: a number is missing that every step has, or a value is not of its field's kind.
        """
        nested: dict[str, Any] = {}
        for key, value in row.items():
            if key == "step":
                nested[key] = value
                continue
            *path, last = _place(key)
            part = nested
            for name in path:
                part = part.setdefault(name, {})
            part[last] = value
        try:
            return cls.model_validate(nested)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(f"{'/'.join(map(str, first['loc']))}: {first['msg']}") from error


_SECTIONS: dict[str, type[Section]] = {
    name: kind
    for name, field in StepMetrics.model_fields.items()
    for kind in (field.annotation, *get_args(field.annotation))
    if isinstance(kind, type) and issubclass(kind, Section)
}
_MAPPINGS: dict[str, dict[str, str]] = {
    section: {
        name: mark.prefix
        for name, field in known.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, Named)
    }
    for section, known in _SECTIONS.items()
}
"""Section -> field that is a mapping -> prefix of its names."""


def _numbers(section: str, values: Section) -> Iterator[tuple[str, float]]:
    prefixes = _MAPPINGS[section]
    for field, value in values:
        if field in prefixes:
            yield from ((f"{section}/{prefixes[field]}{name}", number) for name, number in value.items())
        elif value is not None:
            yield f"{section}/{field}", float(value) if isinstance(value, bool) else value


def _place(key: str) -> tuple[str, ...]:
    """The place of a flat name in this version: section and field, or section, mapping and name in it."""
    section, _, name = key.partition("/")
    if section == "seconds":
        return (section, name) if name in get_args(Phase) else ("others", key)
    if section not in _SECTIONS:
        return "others", key
    if name in _SECTIONS[section].model_fields:
        return section, name
    for field, prefix in _MAPPINGS[section].items():
        if name.startswith(prefix):
            return section, field, name.removeprefix(prefix)
    return "others", key
