"""Configuration: one frozen model per stage, presets as TOML, overrides as `dotted.key=value`.

Precedence: field defaults < preset < overrides. The same text works in the CLI (`--set`) and in a
pipeline's `overrides` parameter. Unknown keys are refused; nothing is read from the environment.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cooper_rl.errors import ConfigError


class Section(BaseModel):
    """Base of every section: frozen, unknown keys refused, a docstring under each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TinyModel(Section):
    """Size and supervised warm-up of one laptop model (Qwen2 architecture, random start)."""

    hidden_size: int = Field(default=128, ge=16)
    intermediate_size: int | None = Field(default=None, ge=16)
    """Width inside the MLP; None: three and a half times `hidden_size`."""
    num_layers: int = Field(default=4, ge=1)
    num_heads: int = Field(default=4, ge=1)
    num_updates: int = Field(default=270, ge=1)
    """Warm-up optimiser updates."""
    batch_size: int = Field(default=32, ge=1)
    lr: float = Field(default=5e-3, gt=0)

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size={self.hidden_size} must be a multiple of twice num_heads={self.num_heads}"
            )
        return self


class TinyBackbone(TinyModel):
    """The same for VerifyRM's backbone, which first learns to match closing statements with answers."""

    hidden_size: int = Field(default=96, ge=16)
    num_layers: int = Field(default=3, ge=1)
    num_matching_updates: int = Field(default=120, ge=0)
    """Updates on bare closing statements, before `num_updates` on whole solutions."""
    num_updates: int = Field(default=140, ge=1)
    batch_size: int = Field(default=64, ge=1)


class TinyModels(Section):
    """The laptop's model hub, trained from scratch in `prepare_models`."""

    policy: TinyModel = TinyModel()
    snapshots: dict[str, float] = {}
    """Samplers kept from the policy's warm-up: name -> share of its updates done, between 0 and 1."""
    samplers: dict[str, TinyModel] = {}
    """Other models for data collection, by name. The policy is always a sampler too."""
    backbone: TinyBackbone = TinyBackbone()
    """Causal LM that VerifyRM is made from; its text teaches when two answers mean the same."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        for name in (*self.snapshots, *self.samplers):
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name in {"policy", "backbone"}:
                raise ValueError(
                    f"sampler name {name!r}: use letters, digits, - and _, and neither policy nor backbone"
                )
        twice = sorted(set(self.snapshots) & set(self.samplers))
        if twice:
            raise ValueError(f"{twice[0]!r} is both a snapshot and a sampler: rename one")
        for name, share in self.snapshots.items():
            if not 0 < share < 1:
                raise ValueError(f"snapshots.{name}={share} must lie between 0 and 1")
        return self


class ModelsConfig(Section):
    """`prepare_models`: where the run starts from. Either `tiny`, or names of existing checkpoints."""

    tiny: TinyModels | None = None
    """Train the laptop's models from scratch; exclusive with the three fields below."""
    policy: str | None = None
    """Causal LM to be trained: a folder in Hugging Face format or a hub id."""
    samplers: dict[str, str] = {}
    """Name -> causal LM whose completions VerifyRM learns from; empty: the policy alone."""
    backbone: str | None = None
    """Causal LM that VerifyRM is made from."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        named = self.policy is not None or self.backbone is not None or bool(self.samplers)
        if self.tiny is not None and named:
            raise ValueError(
                "models.tiny excludes models.policy, models.samplers and models.backbone: keep one"
            )
        if self.tiny is None and (self.policy is None or self.backbone is None):
            raise ValueError("set models.policy and models.backbone, or models.tiny for the laptop world")
        return self


class ProblemsConfig(Section):
    """`collect_problems`: which problems, and how many are held out for evaluation."""

    num_tiny: int = Field(default=0, ge=0)
    """Problems to generate in the laptop world, before the ones that are read."""
    sources: tuple[str, ...] = ()
    """Files (.jsonl, .parquet), http(s) URLs of such files, or Hugging Face data set ids
    (`openai/gsm8k:main:train`)."""
    held_out_sources: tuple[str, ...] = ()
    """The same, for evaluation only."""
    num_held_out: int = Field(default=0, ge=0)
    """Problems drawn from the collected ones (not from `held_out_sources`) for evaluation."""
    max_problems: int | None = Field(default=None, ge=1)
    """Keep at most so many of the collected ones, drawn with the seed before `num_held_out` is taken."""
    question_column: str | None = None
    """Where the question stands, for files whose columns are not recognised; holds for all sources."""
    answer_column: str | None = None
    """Where the final answer stands, for files whose columns are not recognised."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.num_tiny == 0 and not self.sources:
            raise ValueError("no problems: set problems.sources or problems.num_tiny")
        if self.num_held_out == 0 and not self.held_out_sources:
            raise ValueError("nothing to evaluate on: set problems.num_held_out or problems.held_out_sources")
        return self


class GenerationConfig(Section):
    """How completions are drawn."""

    temperature: float = Field(default=1.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_new_tokens: int = Field(default=512, ge=1)
    batch_size: int = Field(default=128, ge=1)
    """Completions generated at a time by the Hugging Face engine."""


class SamplingConfig(Section):
    """`sample_completions`: the completions that VerifyRM is trained on."""

    generation: GenerationConfig = GenerationConfig()
    max_problems: int | None = Field(default=None, ge=1)
    """Problems to sample for; None: all."""
    completions_per_problem: int = Field(default=1, ge=1)
    """From each sampler."""
    temperatures: dict[str, float] = {}
    """Sampler -> temperature, where it differs from generation.temperature."""


class ServerConfig(Section):
    """An OpenAI-compatible chat server. The key is read from an environment variable, never stored."""

    base_url: str
    """e.g. `http://judge:8000/v1`."""
    model: str
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    temperature: float = Field(default=0.0, ge=0)
    max_tokens: int = Field(default=1024, ge=1)
    max_concurrency: int = Field(default=32, ge=1)
    timeout_seconds: float = Field(default=120.0, gt=0)
    max_attempts: int = Field(default=5, ge=1)
    """Tries per request on 429, 5xx and connection errors, with exponential backoff."""
    backoff_seconds: float = Field(default=1.0, ge=0)
    """Pause before the second try; it doubles with every further one."""
    hedge_after: float | None = Field(default=None, gt=1)
    """Ask a second time when an answer takes this many times the median of those so far, and
    `max_concurrency` leaves room; the first answer counts. None: never."""


class JudgeConfig(Section):
    """Who judges completions beside the rule verifier. Exactly one of the two."""

    server: ServerConfig | None = None
    tiny_error_rate: float | None = Field(default=None, ge=0, le=1)
    """Use the laptop's exact evaluator, with this share of its verdicts flipped."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.server is None) == (self.tiny_error_rate is None):
            raise ValueError("set exactly one of server and tiny_error_rate")
        return self


class AssistantConfig(Section):
    """Who rewrites a correct solution into a wrong one. Exactly one of the two."""

    server: ServerConfig | None = None
    tiny: bool = False
    """Use the laptop's rewriter, which slips in one step and carries the error through."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.server is None) == (not self.tiny):
            raise ValueError("set exactly one of server and tiny")
        return self


class AnswerPolicy(Section):
    """What the rule verifier accepts where people differ."""

    number_words: bool = True
    """Read `ten` as 10. Off: an answer in number words is `unparsable`, so that the judge decides."""
    reference_rounding: bool = True
    """Accept an exact answer that rounds to a reference answer with two or more decimals (27/59 for 0.458).
    The other way round (0.333 for 1/3) is never accepted."""
    convert_units: bool = True
    """Compare `5 km` with `5000 m` by converting. Off: answers in different units are `unparsable`."""
    several_boxes: Literal["last", "abstain"] = "last"
    """Boxes that differ and that no `and`, `or` or comma connects: the last one corrects the others."""
    several_json: Literal["abstain", "first", "last"] = "abstain"
    """JSON objects that give different answers: a reply in JSON is one object, so two of them contradict."""
    answer_in_thought: bool = False
    """Accept an answer that stands inside a `<think>` block only."""


class RuleConfig(Section):
    """The rule verifier."""

    timeout_seconds: float = Field(default=5.0, gt=0)
    """Hard limit for one item, in CPU seconds; then its worker is killed and the verdict is `unparsable`."""
    num_workers: int | None = Field(default=None, ge=1)
    """Worker processes; None: one per core."""
    policy: AnswerPolicy = AnswerPolicy()
    """What counts as the same answer where people differ."""


class ThirdVoteConfig(Section):
    """Who breaks the tie where rule verdict and judge verdict differ."""

    numeric: bool = True
    """Compare by value, rounding allowed. Asked first; costs no server."""
    judge: JudgeConfig | None = None
    """A second judge, asked where the numeric vote abstains."""

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if not self.numeric and self.judge is None:
            raise ValueError("nobody votes: set numeric=true, or judge, or leave third_vote out")
        return self


class LabelingConfig(Section):
    """`label_completions`: rule verdict and judge verdict become one label."""

    rule: RuleConfig = RuleConfig()
    judge: JudgeConfig | None = None
    """None: the rule verdict alone decides (unparsable is dropped)."""
    third_vote: ThirdVoteConfig | None = None
    """Decides where rule and judge differ. None: such completions are dropped, as in the paper."""
    unparsable_rule: Literal["judge_decides", "drop"] = "judge_decides"
    """What happens when the rule verifier abstains. `drop` is the paper's agreement filter, which
    removes every correct answer in a format that the rule cannot read."""
    validation_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the problems whose examples steer training (early stop, checks between steps)."""
    test_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the problems whose examples only `evaluate_verify_rm` sees."""


class ScratchModel(Section):
    """A from-scratch VerifyRM for data without a backbone: its own byte-level BPE tokenizer."""

    vocab_size: int = Field(default=2048, ge=300)
    hidden_size: int = Field(default=128, ge=16)
    num_layers: int = Field(default=2, ge=1)
    num_heads: int = Field(default=4, ge=1)
    num_matching_examples: int = Field(default=0, ge=0)
    """Generated pairs of a reference answer and a stated answer that are learned first: what a pre-trained
    backbone brings along. 0: none."""
    matching_lr: float = Field(default=1e-3, gt=0)
    """Peak learning rate for them."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size={self.hidden_size} must be a multiple of twice num_heads={self.num_heads}"
            )
        return self


class VerifyRMConfig(Section):
    """`train_verify_rm`: binary cross-entropy on labelled examples."""

    scratch: ScratchModel = ScratchModel()
    """Used only when the stage is given no backbone."""
    answer_span_epochs: int = Field(default=0, ge=0)
    """Passes over the data with every completion cut to its last `answer_span_chars`, before `num_epochs`
    over whole completions: short texts in which little but the final answer is left to look at."""
    answer_span_chars: int = Field(default=120, ge=1)
    swapped_references: bool = False
    """Also train on every completion with another reference answer: a correct one with another problem's
    answer (label 0), an incorrect one with the answer that it states itself (label 1), so that the label
    cannot be told from the completion alone."""
    num_epochs: int = Field(default=3, ge=1)
    batch_size: int = Field(default=128, ge=1)
    """Examples per optimiser update."""
    max_tokens_per_batch: int = Field(default=16384, ge=1)
    """Token budget of one forward and backward pass; a batch is split to fit, its loss does not change."""
    lr: float = Field(default=2e-5, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_fraction: float = Field(default=0.03, ge=0, lt=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon`: for models from scratch; matrices by Muon at four times `lr`, the rest by AdamW."""
    class_balance: Literal["none", "weights"] = "none"
    """`weights`: the rarer label counts more in the loss, so that both labels have the same total weight.
    Scores are then no longer probabilities on data with the original balance."""
    gradient_checkpointing: bool = False
    """Keep one layer's activations and recompute the others: less memory, about a third more time."""
    compute: Literal["auto", "float32", "bfloat16"] = "auto"
    """Forward pass of training and scoring; weights stay in fp32. `auto`: bf16 where the hardware has it,
    except for models under 10M parameters on a CPU."""
    validate_every: int | None = Field(default=None, ge=1)
    """Updates between validations; None: at the end of every epoch."""
    max_canary_problems: int = Field(default=50, ge=1)
    """Problems that `evaluate_verify_rm` makes canaries from."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many validations in a row without a better one; None: never. The best one is kept in
    any case."""


class ServeConfig(Section):
    """`serve-verify-rm`: VerifyRM behind HTTP. Set on the command line; no preset holds it."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    """0: any free port."""
    max_items_per_request: int = Field(default=256, ge=1)
    max_chars_per_field: int = Field(default=100_000, ge=1)
    """Longer questions, answers and completions are refused; VerifyRM reads 1,500 characters of each."""
    max_body_bytes: int = Field(default=16_000_000, ge=1)
    max_items_per_batch: int = Field(default=64, ge=1)
    """Items of waiting requests that are scored together."""
    max_wait_seconds: float = Field(default=0.005, ge=0)
    """How long the first waiting request waits for company."""
    max_waiting_items: int = Field(default=4096, ge=1)
    """Beyond that, requests are answered 503."""
    grace_seconds: float = Field(default=25.0, ge=0)
    """After SIGTERM, how long requests in progress may take; orchestrators kill after 30 s by default."""


class NegativesConfig(Section):
    """Where the negatives of preference pairs come from, as weights: every pair draws its source, and another
    one where that gives none. A weight of 0 turns a source off."""

    assistant: float = Field(default=1.0, ge=0)
    """The assistant rewrites the positive; all of the paper's negatives."""
    rollout: float = Field(default=0.0, ge=0)
    """The policy's own wrong rollout that VerifyRM scores highest, where at least two verifiers reject it."""
    perturb: float = Field(default=0.0, ge=0)
    """The positive with another number as its answer; needs no server."""
    canary: float = Field(default=0.0, ge=0)
    """A known attack on graders (`core/canaries.py`)."""
    max_candidates: int = Field(default=4, ge=1)
    """Rollouts of a problem, by falling score, that verifiers are asked about."""

    def weights(self) -> dict[Literal["assistant", "rollout", "perturb", "canary"], float]:
        """Source -> weight, in a fixed order."""
        return {
            "assistant": self.assistant,
            "rollout": self.rollout,
            "perturb": self.perturb,
            "canary": self.canary,
        }

    @model_validator(mode="after")
    def _some_source(self) -> Self:
        if not any((self.assistant, self.rollout, self.perturb, self.canary)):
            raise ValueError(
                "all weights are 0: give one source a weight, or set cooper.update_verify_rm=false"
            )
        return self


class GateConfig(Section):
    """The gate on reward updates: one that makes VerifyRM worse than these bounds is rolled back."""

    max_accuracy_drop: float = Field(default=0.03, ge=0, le=1)
    """Below VerifyRM's accuracy on held-out labelled examples before the first step."""
    max_canary_rise: float = Field(default=0.05, ge=0, le=1)
    """Above its mean false-positive rate on canaries before the first step."""
    num_examples: int = Field(default=128, ge=1)
    """Held-out examples that are scored after every update."""
    num_canary_problems: int = Field(default=8, ge=1)
    """Problems that canaries are made from."""


class MonitorConfig(Section):
    """The hacking monitor: raises the alarm when VerifyRM's reward rises and rule accuracy does not."""

    window: int = Field(default=15, ge=2)
    """Steps that are averaged."""
    max_gap_rise: float = Field(default=0.1, gt=0)
    """How far reward minus rule accuracy may rise above its lowest average so far, where the reward did not
    fall and rule accuracy did not rise."""
    num_anchors: int = Field(default=64, ge=0)
    """Held-out incorrect examples, where there are any, whose mean score is subtracted from the reward: the
    pairs' loss leaves VerifyRM's level free, and a level that rises for all is no hacking."""
    action: Literal["warn", "stop", "rollback", "rule"] = "warn"
    """`stop` ends the run with its checkpoint kept; `rule` goes on with the rule reward; `rollback` takes the
    models back to a checkpoint from before the rise, then goes on with the rule reward."""


class CooperConfig(Section):
    """`train_cooper`: co-training of policy and VerifyRM."""

    reward: Literal["verify_rm", "rule", "rule_gated", "judge"] = "verify_rm"
    """What the policy is trained on. `rule_gated`: 1 where the rule verifier says correct, VerifyRM's score
    elsewhere. `judge`: 1 where `cooper.judge` says correct."""
    update_verify_rm: bool = True
    """False with reward `verify_rm` is the paper's frozen arm; ignored for rewards without VerifyRM."""
    judge: JudgeConfig | None = None
    """Second verifier of the policy's own rollouts, and the reward `judge`."""
    seed: int | None = None
    """Seed of co-training alone, so that runs from one start differ; None: the run's."""
    steps: int = Field(default=20, ge=1)
    """Steps of one iteration."""
    problems_per_step: int = Field(default=16, ge=1)
    group_size: int = Field(default=8, ge=2)
    """Rollouts per problem."""
    generation: GenerationConfig = GenerationConfig()
    policy_updates_per_step: int = Field(default=1, ge=1)
    """Optimiser updates on the rollouts of one step, each on a share of the groups."""
    policy_lr: float = Field(default=1e-6, gt=0)
    policy_warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the policy's learning rate rises to `policy_lr`; Adam's first steps are as long as its
    later ones, whatever the gradient."""
    policy_weight_decay: float = Field(default=0.01, ge=0)
    clip_epsilon: float = Field(default=0.2, gt=0)
    kl_coefficient: float = Field(default=1e-3, ge=0)
    advantage_scale: Literal["std", "none"] = "std"
    """Divisor of a group's centred rewards: their standard deviation, or 1 (Dr. GRPO)."""
    advantage_std_floor: float = Field(default=0.05, gt=0)
    """A group's standard deviation is never taken as less, so that near-ties stay near zero; the paper's
    own behaviour is 1e-6."""
    drop_equal_groups: bool = False
    """Leave groups whose rewards are all equal out of the loss, its KL term and its token count."""
    mask_cut: bool = False
    """Leave completions that ended at the token limit out of the loss; they stay in their group's mean."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    max_tokens_per_batch: int = Field(default=16384, ge=1)
    """Token budget of one forward and backward pass; the loss does not depend on it."""
    assistant: AssistantConfig | None = None
    """Needed when VerifyRM is updated."""
    negatives: NegativesConfig = NegativesConfig()
    pairs_per_problem: int = Field(default=1, ge=1, le=4)
    """Pairs of a problem that has a positive, each with another source; the paper makes one."""
    max_negative_attempts: int = Field(default=4, ge=1)
    """Rewrites asked for per positive before its source gives up."""
    max_pair_staleness: Literal[0, 1] = 0
    """1: a step learns from the pairs of the step before, and waits less for a slow assistant; 0, as in the
    paper: from its own."""
    max_shortcut_auroc: float = Field(default=0.9, ge=0.5, le=1)
    """Warn when a probe that does not read the answers tells positives from negatives better than this."""
    verify_rm_lr: float = Field(default=1e-5, gt=0)
    verify_rm_weight_decay: float = Field(default=0.01, ge=0)
    verify_rm_average: float = Field(default=0.0, ge=0, lt=1)
    """Decay of an exponential moving average of VerifyRM's weights, which then scores; 0: none."""
    replay_examples: int = Field(default=0, ge=0)
    """Labelled examples, drawn anew for every step, whose label loss is added to the pairs' loss."""
    replay_weight: float = Field(default=1.0, gt=0)
    gate: GateConfig | None = None
    """None: every reward update stays."""
    monitor: MonitorConfig | None = MonitorConfig()
    """None: nobody watches."""
    evaluate_every: int | None = Field(default=None, ge=1)
    """Steps between evaluations on held-out problems and examples while training; None: none."""
    num_logged_rollouts: int = Field(default=2, ge=0)
    """Rollouts of every step that are kept for the audit: those with the highest rewards."""
    checkpoint_every: int = Field(default=20, ge=1)
    """Steps between checkpoints; the last step of an iteration always writes one."""

    @property
    def trains_verify_rm(self) -> bool:
        """Whether VerifyRM is updated beside the policy."""
        return self.reward in ("verify_rm", "rule_gated") and self.update_verify_rm

    @property
    def asks_judge(self) -> bool:
        """Whether `judge` speaks of rollouts."""
        return self.reward == "judge" or (self.trains_verify_rm and self.negatives.rollout > 0)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.trains_verify_rm and self.negatives.assistant and self.assistant is None:
            raise ValueError(
                "cooper.update_verify_rm needs cooper.assistant (server or tiny) to write negatives, or "
                "cooper.negatives.assistant=0 and another source"
            )
        if self.reward == "judge" and self.judge is None:
            raise ValueError("cooper.reward=judge needs cooper.judge (server or tiny_error_rate)")
        if self.problems_per_step % self.policy_updates_per_step:
            raise ValueError(
                f"cooper.problems_per_step={self.problems_per_step} must be a multiple of "
                f"cooper.policy_updates_per_step={self.policy_updates_per_step}"
            )
        if self.generation.temperature == 0:
            raise ValueError("cooper.generation.temperature=0 makes all rollouts of a group equal: use 1.0")
        if self.generation.top_p < 1:
            raise ValueError(
                f"cooper.generation.top_p={self.generation.top_p}: the policy update needs the probabilities "
                "of the distribution that was sampled, which only top_p=1 keeps; use temperature instead"
            )
        return self


class EvaluationConfig(Section):
    """`evaluate_policy`."""

    generation: GenerationConfig = GenerationConfig(temperature=0.7, top_p=0.95)
    samples_per_problem: int = Field(default=8, ge=1)
    max_problems: int | None = Field(default=None, ge=1)
    max_canary_problems: int = Field(default=20, ge=1)
    """Problems that canaries are made from."""
    judge: JudgeConfig | None = None
    """Judges meaning beside the rule verifier; on the laptop an exact evaluator (error rate 0)."""


class ExperimentConfig(Section):
    """`experiment`: how long every arm is trained, in place of `cooper.steps`, and how often evaluated."""

    steps: int = Field(default=200, ge=1)
    evaluate_every: int = Field(default=10, ge=1)
    """Steps between the points of the curves."""


class StorageConfig(Section):
    """Checkpoints of co-training: how many are kept, and where, when not in the task's own folder."""

    uri: str | None = None
    """`s3://bucket/prefix` or a folder that outlives the task. Absent: checkpoints stay in the folder given
    as `--checkpoint`."""
    run_key: str | None = None
    """Name of the run below `uri`: a run that is started again with the same key continues. Needed with
    `uri` for co-training, the only stage that writes there."""
    endpoint: str | None = None
    """`https://host:port` of the S3 server; needed with an `s3://` address."""
    region: str = "us-east-1"
    path_style: bool = True
    """Bucket in the path (MinIO, Ceph) instead of in the host name (AWS)."""
    ca_bundle: Path | None = None
    """PEM file of the authorities that the server's certificate is checked against."""
    credentials: Path | None = None
    """Folder with the files `access_key` and `secret_key` (a mounted secret), read again when they change.
    Absent: the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    part_mib: int = Field(default=16, ge=5, le=1024)
    """Size of one part of a transfer; memory of a transfer is twice `num_parallel` parts."""
    num_parallel: int = Field(default=4, ge=1, le=64)
    """Parts that are transferred at a time."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """How long the server may say nothing."""
    retry_seconds: float = Field(default=300.0, ge=0)
    """How long a request is tried again on 5xx, 429 and connection errors, before the run stops."""
    keep_last: int = Field(default=2, ge=1)
    """Newest checkpoints that are kept; the second is what a run continues from if the first is damaged."""
    keep_every: int | None = Field(default=None, ge=1)
    """Also keep checkpoints whose step is a multiple of this."""
    keep_best: bool = False
    """Also keep the one with the best rule accuracy of rollouts since the checkpoint before."""
    grace_seconds: float = Field(default=25.0, ge=0)
    """Time between SIGTERM and SIGKILL. The step in progress is finished only where steps take less."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.run_key is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.run_key):
            raise ValueError("storage.run_key: use 1 to 100 letters, digits, '.', '_', '-', no leading dot")
        if self.uri is not None and self.uri.startswith("s3://") and self.endpoint is None:
            raise ValueError("storage.uri=s3://... needs storage.endpoint, e.g. https://minio:9000")
        return self

    def run_uri(self) -> str | None:
        """Where the run's checkpoints are, or None: in the task's own folder.

        Raises:
            ConfigError: there is a `uri`, but no `run_key`.
        """
        if self.uri is None:
            return None
        if self.run_key is None:
            raise ConfigError("storage.uri needs storage.run_key, the name that a run is continued under")
        return f"{self.uri.rstrip('/')}/{self.run_key}"


class LaunchConfig(Section):
    """Where `train_cooper` works: in this process, or as a Kubeflow TrainJob on other nodes."""

    kind: Literal["here", "trainjob"] = "here"
    """`trainjob` needs `image`, `storage_secret` and `storage.uri=s3://...`: inputs and weights travel
    through the store."""
    image: str | None = None
    """Image of the GPU stages, by digest or version."""
    storage_secret: str | None = None
    """Secret with the keys `access_key` and `secret_key`, which the job reads in place of
    `storage.credentials`."""
    runtime: str = "torch-distributed"
    """TrainingRuntime or ClusterTrainingRuntime of the framework torch."""
    namespace: str | None = None
    """None: that of this pod, or of the current context of kubectl."""
    nodes: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=1, ge=0)
    """Each gets a process; 0: one process a node, on CPUs."""
    cpu: int | str | None = None
    """CPUs of a node's pod, e.g. `16`; None: as the runtime or the namespace says."""
    memory: str | None = None
    """Memory of a node's pod, shared memory included, e.g. `120Gi`; None: likewise."""
    shared_memory: str = "8Gi"
    """Size of /dev/shm, which NCCL and data loaders use."""
    queue: str | None = None
    """LocalQueue of Kueue that the job waits in; None: it starts at once."""
    node_selector: dict[str, str] = {}
    """Labels that its nodes must have. A queue's flavor brings its own."""
    secrets: tuple[str, ...] = ()
    """More secrets, each mounted as the folder /var/run/cooper-rl/NAME."""
    image_pull_secrets: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    """Variables of every process. They stand in the TrainJob for all to read: no secrets."""
    poll_seconds: float = Field(default=5.0, gt=0)
    """Between two looks at the job."""
    retry_seconds: float = Field(default=300.0, ge=0)
    """How long the cluster's API server may be away while a job is followed."""

    @property
    def processes_per_node(self) -> int:
        """One for each GPU."""
        return max(1, self.gpus_per_node)

    @model_validator(mode="after")
    def _job_is_described(self) -> Self:
        missing = [key for key in ("image", "storage_secret") if not getattr(self, key)]
        if self.kind == "trainjob" and missing:
            raise ValueError(f"launch.kind=trainjob needs launch.{' and launch.'.join(missing)}")
        return self


class TrackerConfig(Section):
    """Where the numbers of metrics.jsonl go besides; the run's name there is `storage.run_key`."""

    kind: Literal["tensorboard", "mlflow", "wandb"]
    """Each is an extra: `pip install 'cooper-rl[tensorboard]'`. A tracker that fails never stops training."""
    uri: str
    """TensorBoard: folder of runs. MLflow: tracking URI. W&B: folder of its local files."""
    project: str = "cooper-rl"
    """Name of the experiment (MLflow) or project (W&B)."""


class Config(Section):
    """The whole run. Every stage takes this and reads its own section."""

    seed: int = 0
    instruction: str | None = None
    """Appended to every question before the policy or a sampler sees it."""
    models: ModelsConfig
    problems: ProblemsConfig
    sampling: SamplingConfig = SamplingConfig()
    labeling: LabelingConfig = LabelingConfig()
    verify_rm: VerifyRMConfig = VerifyRMConfig()
    cooper: CooperConfig
    storage: StorageConfig = StorageConfig()
    launch: LaunchConfig = LaunchConfig()
    tracker: TrackerConfig | None = None
    """None: metrics.jsonl alone."""
    evaluation: EvaluationConfig = EvaluationConfig()
    experiment: ExperimentConfig = ExperimentConfig()

    @model_validator(mode="after")
    def _job_has_a_store(self) -> Self:
        uri = self.storage.uri
        if self.launch.kind == "trainjob" and not (uri or "").startswith("s3://"):
            raise ValueError(
                f"launch.kind=trainjob needs storage.uri=s3://bucket/prefix (found {uri}), which inputs and "
                "checkpoints travel through: a job on other nodes sees no folder of this machine"
            )
        return self


def load(preset: str, overrides: Sequence[str] = ()) -> Config:
    """Build the configuration from a preset's name (or a .toml path) and `dotted.key=value` overrides.

    A value is TOML (`0.1`, `true`, `["a", "b"]`); text that is no TOML value is taken as a string.
    `key=null` removes what the preset set.

    Raises:
        ConfigError: naming the preset, key or value, the place, and what is allowed.
    """
    values = _read_preset(preset)
    for override in overrides:
        _apply(values, override)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, preset)) from error


def load_serve(overrides: Sequence[str] = ()) -> ServeConfig:
    """The server's configuration from `key=value` overrides of its defaults.

    Raises:
        ConfigError: naming the key or value, and what is allowed.
    """
    values: dict[str, Any] = {}
    for override in overrides:
        _apply(values, override)
    try:
        return ServeConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, "serve-verify-rm", ServeConfig)) from error


def preset_names() -> list[str]:
    """Names of the presets that ship with the package."""
    folder = resources.files("cooper_rl") / "presets"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def _read_preset(preset: str) -> dict[str, Any]:
    if preset.endswith(".toml"):
        path = Path(preset)
        if not path.is_file():
            raise ConfigError(
                f"preset {preset!r}: no such file; give a path to a .toml file or one of {preset_names()}"
            )
        text = _read_text(path)
    elif preset in preset_names():
        text = (resources.files("cooper_rl") / "presets" / f"{preset}.toml").read_text(encoding="utf-8")
    else:
        raise ConfigError(
            f"unknown preset {preset!r}; use one of {preset_names()} or a path that ends in .toml"
        )
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"preset {preset!r} is not TOML: {error}") from error


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"preset {str(path)!r} cannot be read as UTF-8 text: {error}") from error


def _apply(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts):
        raise ConfigError(f"override {override!r} is not dotted.key=value, e.g. cooper.steps=2")
    section = values
    for part in parts[:-1]:
        child: Any = section.setdefault(part, {})
        if not isinstance(child, dict):
            raise ConfigError(f"override {override!r}: {part!r} is a value, not a section")
        section = cast("dict[str, Any]", child)
    if text.strip() == "null":
        section.pop(parts[-1], None)
    else:
        section[parts[-1]] = _parse_value(text)


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(error: ValidationError, preset: str, root: type[BaseModel] = Config) -> str:
    lines = [f"preset {preset!r} with its overrides is not a valid configuration:"]
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(whole)"
        if item["type"] == "extra_forbidden":
            known = _known_keys(item["loc"][:-1], root)
            close = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
            lines.append(f"  {key}: unknown key; {hint}")
        else:
            found = json.dumps(item["input"], default=str)
            # A whole section is not shown: an address in it may hold a password.
            is_shown = len(found) < 80 and not isinstance(item["input"], dict)
            hint = ', write a list: ["a", "b"]' if item["type"] in {"tuple_type", "list_type"} else ""
            lines.append(f"  {key}: {item['msg']}{hint}" + (f" (found {found})" if is_shown else ""))
    return "\n".join(lines)


def _known_keys(location: tuple[int | str, ...], root: type[BaseModel]) -> list[str]:
    section = root
    for part in location:
        field = section.model_fields.get(str(part))
        if field is None:
            return []
        kinds: list[Any] = [field.annotation, *getattr(field.annotation, "__args__", ())]
        section = next(
            (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), section
        )
    return sorted(section.model_fields)
