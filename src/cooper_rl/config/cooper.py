"""Configuration of co-training, its guards, evaluation and experiment."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from cooper_rl.config import names
from cooper_rl.config.data import AssistantConfig, GenerationConfig, JudgeConfig
from cooper_rl.config.section import Section


class NegativesConfig(Section):
    """The sources of preference pairs' negatives, as weights. Every pair draws its source, and another one
    where that gives none. A weight of 0 turns a source off."""

    assistant: float = Field(default=1.0, ge=0)
    """The assistant rewrites the positive; all of the paper's negatives."""
    rollout: float = Field(default=1.0, ge=0)
    """The policy's own wrong rollout that VerifyRM scores highest, where at least two verifiers reject it."""
    perturb: float = Field(default=0.0, ge=0)
    """The positive with another number as its answer; needs no server."""
    canary: float = Field(default=0.0, ge=0)
    """A known attack on graders."""
    red_team: float = Field(default=0.0, ge=0)
    """A text that the red team found VerifyRM to pay; above 0, `--attacks` is needed."""
    max_candidates: int = Field(default=4, ge=1)
    """Rollouts of a problem, by falling score, that verifiers are asked about."""

    others: dict[
        Annotated[str, AfterValidator(names.NEGATIVE_SOURCES.check)], Annotated[float, Field(ge=0)]
    ] = {}
    """Weights of the sources that a program registered, by their names (docs/how-to/extending.md)."""

    def weights(self) -> dict[str, float]:
        """Source -> weight, in a fixed order."""
        return {name: self._weight(name) for name in names.NEGATIVE_SOURCES.names}

    def _weight(self, name: str) -> float:
        return getattr(self, name) if name in type(self).model_fields else self.others.get(name, 0.0)

    @model_validator(mode="after")
    def _some_source(self) -> Self:
        if not any(self.weights().values()):
            raise ValueError(
                "all weights are 0: give one source a weight, or set cooper.reward.update_verify_rm=false"
            )
        return self


class GateConfig(Section):
    """Rolls back the weights of a reward update that makes VerifyRM worse than these bounds. The optimiser's
    state is kept."""

    max_accuracy_drop: float = Field(default=0.03, ge=0, le=1)
    """Below VerifyRM's accuracy on held-out labelled examples before the first step."""
    max_canary_rise: float = Field(default=0.05, ge=0, le=1)
    """Above its mean false-positive rate on canaries before the first step."""
    max_attack_rise: float = Field(default=0.25, ge=0, le=1)
    """Above the false-positive rate of any one attack before the first step. Of eight canaries of an attack,
    two more may pass."""
    num_examples: int = Field(default=128, ge=1)
    """Held-out examples that are scored after every update."""
    num_canary_problems: int = Field(default=8, ge=1)
    """Problems that canaries are made from."""


class MonitorConfig(Section):
    """The hacking monitor: raises the alarm when the reward does not tell right completions from wrong ones
    of the same problem, when the VerifyRM reward rises and rule accuracy does not, and when an evaluation
    finds accuracy on held-out problems below its best.

    With `cooper.evaluate_every` and `evaluation.judge` the judge evaluates at once, and denies an alarm of
    the second kind at which accuracy on held-out problems is not `max_gap_rise` below its best, chance
    included. The third kind is its own.
    """

    min_order: float | None = Field(default=0.65, ge=0.5, le=0.95)
    """The least probability that a completion which the rule verifier accepts is paid more than one of the
    same problem which it rejects; None: no alarm about it."""
    max_false_alarms: float = Field(default=0.05, gt=0, lt=1)
    """The chance that such an alarm is ever raised in a run whose order is `min_order` or better."""
    window: int = Field(default=15, ge=2)
    """Steps that are averaged."""
    max_gap_rise: float = Field(default=0.1, gt=0)
    """The rise of reward minus rule accuracy above its lowest average so far that is allowed, where the
    reward did not fall and rule accuracy did not rise."""
    max_judged_drop: float | None = Field(default=0.02, ge=0, le=1)
    """The drop of accuracy by the judge below its best that is allowed, beside chance: an evaluation raises
    the alarm if the 95 % interval of the difference, paired by problem, lies below it. None: no alarm about
    it."""
    num_anchors: int = Field(default=64, ge=0)
    """Completions of the starting policy whose mean score is subtracted from the reward: a VerifyRM that
    comes to pay an unchanged policy more is not being hacked. Drawn whenever a run starts or goes on."""
    action: Literal["warn", "stop", "rollback", "rule"] = "warn"
    """`stop` ends the run with its checkpoint kept; `rule` goes on with the rule reward; `rollback` takes the
    models back to a checkpoint from before the rise, kept for that, then goes on with the rule reward."""


class LoRAConfig(Section):
    """Low-rank adapters beside all linear layers of the policy but its head."""

    rank: int = Field(default=16, ge=1)
    """Inner dimension of the two adapter matrices."""
    alpha: float = Field(default=32.0, gt=0)
    """The adapters' product is scaled by alpha / rank."""


class PolicyConfig(Section):
    """The policy update (phase 4 of a step)."""

    lr: float = Field(default=1e-6, gt=0)
    """AdamW's learning rate."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises to `lr`. Adam's first updates have full length whatever the
    gradient, so a small model needs them small."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's weight decay; biases and norms have none."""
    updates_per_step: int = Field(default=1, ge=1)
    """Optimiser updates on the rollouts of one step, each on a share of the groups."""
    loss: Annotated[str, AfterValidator(names.LOSSES.check)] = "grpo"
    """Policy-gradient loss. `grpo`: clipped ratio of every token; `gspo`: one clipped ratio for a completion;
    `cispo`: the bounded ratio as a weight without a gradient, no token loses its own. A program can register
    its own (docs/how-to/extending.md)."""
    loss_aggregation: Literal["token_mean", "sequence_mean", "max_length"] = "token_mean"
    """The average of token losses. `token_mean`: all tokens of the batch weigh the same (DAPO, the paper);
    `sequence_mean`: all completions weigh the same (GRPO, GSPO); `max_length`: divided by the number of
    completions times `generation.max_new_tokens` (Dr. GRPO)."""
    clip_epsilon: float = Field(default=0.2, gt=0)
    """The probability ratio is clipped to [1 - epsilon, 1 + epsilon]; `cispo` has no lower bound."""
    clip_epsilon_high: float | None = Field(default=None, gt=0)
    """Upper bound of the ratio less 1, where it differs from `clip_epsilon` (clip-higher; DAPO: 0.28). None:
    `clip_epsilon`."""
    kl_coefficient: float = Field(default=1e-3, ge=0)
    """Weight of the k3 term that holds the policy to the reference policy; 0 also saves its forward pass."""
    max_importance_weight: float | None = Field(default=None, ge=1)
    """Upper bound of the weight p_trainer / p_engine on every token's gradient (truncated importance
    sampling): corrects for an engine whose log-probabilities differ from the trainer's (metric
    `policy/mismatch`), or drew with the weights of an earlier step (`max_rollout_staleness`). None: no
    correction."""
    overlong_filtering: bool = False
    """Leave completions that ended at the token limit out of the loss; they stay in their group's mean."""
    lora: LoRAConfig | None = None
    """Train adapters beside the policy's frozen weights (extra `lora`); None: train its weights. Checkpoints
    hold the policy with its adapters merged."""


class AdvantagesConfig(Section):
    """Rewards to advantages (phase 3 of a step)."""

    estimator: Annotated[str, AfterValidator(names.ESTIMATORS.check)] = "grpo"
    """The baseline of a reward. `grpo`: the mean of its group; `rloo`: the mean of the group's others (leave
    one out), with `scale` none. A program can register its own (docs/how-to/extending.md)."""
    scale: Literal["std", "none"] = "std"
    """Divisor of a group's centred rewards: their standard deviation (GRPO), or 1 (Dr. GRPO)."""
    std_floor: float = Field(default=0.05, gt=0)
    """Lower bound of the divisor, so that near-ties stay near zero; the paper's own behaviour is 1e-6."""
    drop_equal_groups: bool = False
    """Leave groups whose rewards are all equal out of the loss, its KL term and its token count."""


class PairsConfig(Section):
    """Preference pairs for the reward update (phase 5 of a step)."""

    assistant: AssistantConfig | None = None
    """LLM that rewrites a positive into a wrong solution. Required while VerifyRM is updated and
    `negatives.assistant` is above 0."""
    negatives: NegativesConfig = NegativesConfig()
    """Weights of the sources of negatives."""
    per_problem: int = Field(default=2, ge=1, le=4)
    """Most pairs of one problem, each with another source; the paper makes one."""
    max_attempts: int = Field(default=4, ge=1)
    """Rewrites asked for per positive before its source gives up."""
    max_staleness: Literal[0, 1] = 0
    """0, as in the paper: a step learns from its own pairs. 1: from the pairs of the step before, and waits
    less for a slow assistant."""
    max_shortcut_auroc: float = Field(default=0.9, ge=0.5, le=1)
    """Warn when a probe that does not read the answers tells positives from negatives better than this."""


class RewardConfig(Section):
    """The reward, and VerifyRM's update (phases 2 and 6 of a step)."""

    kind: Literal["verify_rm", "rule", "rule_gated", "judge"] = "verify_rm"
    """Reward that the policy is trained on. `rule_gated`: 1 where the rule verifier says correct, VerifyRM's
    score elsewhere. `judge`: 1 where `cooper.judge` says correct."""
    overlong_buffer_tokens: int | None = Field(default=None, ge=1)
    """Tokens before `generation.max_new_tokens` over which a completion's reward falls by up to
    `overlong_penalty` (overlong shaping, DAPO). None: lengths cost nothing."""
    overlong_penalty: float = Field(default=1.0, gt=0)
    """The reward that a completion at the token limit loses; unused without `overlong_buffer_tokens`."""
    update_verify_rm: bool = True
    """False with kind `verify_rm` is the paper's frozen arm; ignored for rewards without VerifyRM."""
    lr: float = Field(default=1e-5, gt=0)
    """AdamW's learning rate for VerifyRM."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's weight decay for VerifyRM; biases and norms have none."""
    ema_decay: float = Field(default=0.0, ge=0, lt=1)
    """Decay of an exponential moving average of VerifyRM's weights, which then scores; 0: no average."""
    num_replay_examples: int = Field(default=64, ge=0)
    """Labelled examples, drawn anew for every step, whose label loss is added to the pairs' loss. Used
    where the stage is given examples to replay; the paper has none."""
    hostile_fraction: float = Field(default=0.0, ge=0, le=1)
    """Number of hostile texts for each replayed example, drawn anew for every step and learned as wrong
    completions beside them: what a search would try (`verify_rm.hostile_fraction`)."""
    num_audited_rollouts: int = Field(default=0, ge=0)
    """Most rollouts of a step whose verdicts are learned as labels, beside the replayed examples: of each
    problem the one that VerifyRM pays most, the best paid problems first. They need no positive, so VerifyRM
    unlearns what it pays wrongly even where no rollout is right. Where the rule verifier abstains, a rollout
    that `cooper.judge` accepts is learned as right. The paper has none."""
    replay_weight: float = Field(default=1.0, gt=0)
    """Weight of the label loss."""


class CooperConfig(Section):
    """`train_cooper`: co-training of policy and VerifyRM."""

    seed: int | None = None
    """Seed of co-training alone, so that runs from one start differ; None: the run's."""
    steps: int = Field(default=20, ge=1)
    """Steps of one iteration."""
    problems_per_step: int = Field(default=16, ge=1)
    """Problems that rollouts are drawn for in one step."""
    group_size: int = Field(default=8, ge=2)
    """Rollouts per problem."""
    generation: GenerationConfig = GenerationConfig()
    """Settings for sampling rollouts."""
    max_refills: int = Field(default=0, ge=0)
    """Times in a step that problems whose completions are all right or all wrong are replaced by other ones
    (dynamic sampling, DAPO). The verdict that is the reward decides, or the rule verdict where VerifyRM's
    score is in the reward; lengths do not count."""
    max_rollout_staleness: int = Field(default=0, ge=0)
    """Steps by which rollouts are drawn ahead: those of step k by the policy after step k - 1 less this
    number. 0, as in the paper: by the policy that they train. Above 0, `policy.max_importance_weight` must be
    set."""
    reward: RewardConfig = RewardConfig()
    """The reward, and VerifyRM's update."""
    advantages: AdvantagesConfig = AdvantagesConfig()
    """Rewards to advantages."""
    policy: PolicyConfig = PolicyConfig()
    """The policy update."""
    pairs: PairsConfig = PairsConfig()
    """Preference pairs."""
    judge: JudgeConfig | None = None
    """Second verifier of the policy's own rollouts, and the reward `judge`."""
    gate: GateConfig | None = None
    """Rolls harmful reward updates back; None: every reward update stays."""
    monitor: MonitorConfig | None = MonitorConfig()
    """Watches for reward hacking; None: off. Always off where VerifyRM's score is no part of the reward."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients of either model are clipped to this norm."""
    max_tokens_per_batch: int = Field(default=16384, ge=1)
    """Token budget of one forward and backward pass; the loss does not depend on it."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Forward passes of both models in co-training; weights and optimisers stay in fp32. `auto`: bf16 where
    the hardware multiplies faster in it, except for models under 10M parameters on a CPU."""
    gradient_checkpointing: bool = False
    """Keep every layer's input only and recompute the rest in the backward pass: less memory, about a third
    more time in both updates."""
    evaluate_every: int | None = Field(default=None, ge=1)
    """Steps between evaluations on held-out problems and examples while training. With it, every alarm of
    the monitor is evaluated at once, too. None: no evaluation while training."""
    num_logged_rollouts: int = Field(default=2, ge=0)
    """Rollouts of every step that are kept for the audit: those with the highest rewards."""
    checkpoint_every: int = Field(default=20, ge=1)
    """Steps between checkpoints; the last step of an iteration always writes one."""

    @property
    def pays_verify_rm(self) -> bool:
        """True if VerifyRM's score is part of the reward, so that it can be hacked."""
        return self.reward.kind in ("verify_rm", "rule_gated")

    @property
    def trains_verify_rm(self) -> bool:
        """True if VerifyRM is updated beside the policy."""
        return self.pays_verify_rm and self.reward.update_verify_rm

    @property
    def active_monitor(self) -> MonitorConfig | None:
        """The monitor, where there is something to watch."""
        return self.monitor if self.pays_verify_rm else None

    @property
    def asks_judge(self) -> bool:
        """True if `judge` speaks of rollouts."""
        return self.reward.kind == "judge" or (
            self.trains_verify_rm
            and (self.pairs.negatives.rollout > 0 or self.reward.num_audited_rollouts > 0)
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.trains_verify_rm and self.pairs.negatives.assistant and self.pairs.assistant is None:
            raise ValueError(
                "cooper.reward.update_verify_rm needs cooper.pairs.assistant (server or tiny) to write "
                "negatives, or cooper.pairs.negatives.assistant=0 and another source"
            )
        if self.reward.kind == "judge" and self.judge is None:
            raise ValueError("cooper.reward.kind=judge needs cooper.judge (server or tiny_error_rate)")
        if self.problems_per_step % self.policy.updates_per_step:
            raise ValueError(
                f"cooper.problems_per_step={self.problems_per_step} must be a multiple of "
                f"cooper.policy.updates_per_step={self.policy.updates_per_step}"
            )
        _check_losses(self)
        _check_staleness(self)
        if self.generation.temperature == 0:
            raise ValueError("cooper.generation.temperature=0 makes all rollouts of a group equal: use 1.0")
        if self.generation.top_p < 1:
            raise ValueError(
                f"cooper.generation.top_p={self.generation.top_p}: the policy update needs the probabilities "
                "of the distribution that was sampled, which only top_p=1 keeps; use temperature instead"
            )
        return self


def _check_losses(cooper: CooperConfig) -> None:
    """Refuse combinations that are no published loss, or that cannot act."""
    if cooper.policy.loss == "gspo" and cooper.policy.loss_aggregation != "sequence_mean":
        raise ValueError(
            f"cooper.policy.loss=gspo with loss_aggregation={cooper.policy.loss_aggregation} weighs a "
            "completion by its length: set cooper.policy.loss_aggregation=sequence_mean"
        )
    if cooper.advantages.estimator == "rloo" and cooper.advantages.scale != "none":
        raise ValueError(
            "cooper.advantages.estimator=rloo divided by the standard deviation is GRPO's times G / (G - 1): "
            "set cooper.advantages.scale=none"
        )
    buffer, limit = cooper.reward.overlong_buffer_tokens, cooper.generation.max_new_tokens
    if buffer is not None and buffer > limit:
        raise ValueError(
            f"cooper.reward.overlong_buffer_tokens={buffer} is more than "
            f"cooper.generation.max_new_tokens={limit}: set at most that"
        )


def _check_staleness(cooper: CooperConfig) -> None:
    """Refuse rollouts drawn ahead that nothing corrects, or that a step would have to replace at once."""
    staleness = cooper.max_rollout_staleness
    if not staleness:
        return
    if cooper.policy.max_importance_weight is None:
        raise ValueError(
            f"cooper.max_rollout_staleness={staleness} trains on rollouts of an earlier policy, which "
            "importance weights must correct: set cooper.policy.max_importance_weight, e.g. 2.0"
        )
    if cooper.max_refills:
        raise ValueError(
            f"cooper.max_refills={cooper.max_refills} draws again once a step's rewards are known, and "
            f"cooper.max_rollout_staleness={staleness} draws steps ahead: set one of them to 0"
        )


class EvaluationConfig(Section):
    """`evaluate_policy`."""

    generation: GenerationConfig = GenerationConfig(temperature=0.7, top_p=0.95)
    samples_per_problem: int = Field(default=8, ge=1)
    """Completions drawn per problem; accuracy is their mean."""
    max_problems: int | None = Field(default=None, ge=1)
    """Problems drawn with the seed; None: all."""
    max_canary_problems: int = Field(default=20, ge=1)
    """Problems that canaries are made from."""
    judge: JudgeConfig | None = None
    """Judges meaning beside the rule verifier; on the laptop an exact evaluator (error rate 0)."""


class RunConfig(Section):
    """One run of a comparison."""

    arm: str
    """As `cooper-rl experiment --help` lists them."""
    seed: int = Field(ge=0)
    """In place of `cooper.seed`."""

    @property
    def name(self) -> str:
        """The run's `storage.arm`."""
        return f"{self.arm}_{self.seed}"


class ExperimentConfig(Section):
    """The command `experiment`, and the pipeline of that name."""

    steps: int = Field(default=400, ge=1)
    """Steps of every arm, in place of `cooper.steps`; the pipeline takes `cooper.steps`."""
    evaluate_every: int = Field(default=20, ge=1)
    """Steps between the points of the curves, in place of `cooper.evaluate_every`; likewise."""
    runs: tuple[RunConfig, ...] = ()
    """What `compare_arms` compares, in the order of its files. A pipeline fills it in (`arms` and `seeds` of
    its profile)."""

    @model_validator(mode="after")
    def _each_run_once(self) -> Self:
        names = [run.name for run in self.runs]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"experiment.runs: the run {name!r} stands there twice; name each once")
        return self
