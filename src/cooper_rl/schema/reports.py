"""Reports of stages, and what they are made of: intervals, scores, agreement, costs.

A report is one JSON file; the dashboard shows its numbers.
"""

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict

from cooper_rl.schema.data import Record


class Interval(Record):
    """An estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float
    count: int
    """Independent units behind the estimate (problems, not samples)."""


class Report(Record):
    """A stage's account of its work; the dashboard shows `metrics()`."""

    def metrics(self) -> dict[str, float]:
        """Every number of the report as `name` or `group/name`; absent and non-finite values are left out."""
        return _flatten(self.model_dump(), prefix="")


def _flatten(values: dict[str, object], *, prefix: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, bool | int | float) and math.isfinite(value):
            numbers[prefix + name] = float(value)
        elif isinstance(value, dict):
            numbers |= _flatten(value, prefix=f"{prefix}{name}/")  # pyright: ignore[reportUnknownArgumentType] a dumped model
    return numbers


class ModelSet(Report):
    """The models that the run starts from: paths inside the folder of `models.json`, absolute paths, or hub
    ids."""

    policy: str
    samplers: dict[str, str]
    """Name -> model, for data collection."""
    backbone: str
    """Causal LM that VerifyRM is made from."""
    verify_rm: str | None = None
    """VerifyRM whose training goes on; None: it is made from the backbone."""


class CollectReport(Report):
    num_problems: int
    num_held_out: int
    num_rejected: int


class SampleReport(Report):
    num_completions: int
    num_cut: int
    """Completions that ended at the token limit."""
    num_tokens: int
    seconds: float


class JudgeUsage(Record):
    """The requests to the judge's server in one run of the stage."""

    model_config = ConfigDict(extra="ignore")  # 0.2.0 counted second requests too

    num_requests: int
    """Requests that were sent: first tries and retries."""
    num_retries: int
    """Requests that were sent again after a failure or a refused rate."""
    num_failed: int
    """Texts that were given up; their verdict is `unparsable` in this run, and the next one asks again."""
    prompt_tokens: int
    """Tokens as the server states them, else estimated."""
    completion_tokens: int
    cost: float | None = None
    """The cost of these tokens; None where `server` names no prices."""
    seconds: float
    """Summed over requests; with concurrency more than the clock shows."""


class AuditedVerdict(Record):
    """The random check of a cascade, for one rule verdict, `correct` or `incorrect`."""

    num_audited: int
    num_contradicted: int
    """The judge says the opposite, and the third vote, where one was given, does not side with the rule."""
    num_unchecked: int
    """Labels that rest on this rule verdict alone."""
    wrong_share: Interval | None
    """The share of audited ones that is contradicted, over questions; None where none was audited."""
    num_wrong: Interval | None
    """`wrong_share` of the unchecked ones: labels that are wrong, as far as the judge is right."""


class LabelAudit(Record):
    """The random check of a cascade, for the labels that rest on the rule verdict alone."""

    num_audited: int
    """Decisive rule verdicts that the judge was shown, and decided."""
    num_unchecked: int
    """Labels that rest on the rule verdict alone."""
    differing_share: Interval
    """The share of audited ones that is contradicted. It estimates the error of the unchecked ones, as far as
    the judge is right. The interval is over questions."""
    correct: AuditedVerdict | None = None
    """None in reports of earlier versions."""
    incorrect: AuditedVerdict | None = None
    num_wrong: Interval | None = None
    """Labels of both kinds that nobody checked and that are wrong, as far as the judge is right. None where a
    kind with unchecked labels was never audited."""


class VoterAgreement(Record):
    """Two voters on the completions that both were asked about."""

    num_both: int
    """Completions on which both gave a verdict, not an abstention; the other two numbers are of these."""
    agreeing_share: float | None
    kappa: float | None
    """Cohen's: 1 is agreement, 0 what chance gives. None where both call everything the same."""


class AnswerTypeLabels(Record):
    """Labels whose reference answers are of one kind."""

    num_completions: int
    num_dropped: int
    num_correct: int
    """Labelled correct, or dropped although the judge, or the rule where it abstains, calls them correct."""
    num_correct_dropped: int
    """The dropped ones of `num_correct`: what the labels lose, as far as the judge is right."""
    correct_dropped_share: float | None
    rule_and_judge: VoterAgreement


class LabelAgreement(Record):
    """The agreement of the voters, and the share of labels that is lost."""

    pairs: dict[str, VoterAgreement]
    """`rule~judge` and so on: `rule`, `judge` (of several the majority), `judge_1`, `judge_2`..., `third`.
    The third voter is asked only where rule and judge differ, so its pairs are of those completions."""
    overall: AnswerTypeLabels
    by_answer_type: dict[str, AnswerTypeLabels]
    """Kind of the reference answer, such as `integer`; empty where the domain tells no kinds apart."""


class LabelReport(Report):
    num_completions: int
    num_labelled: int
    num_correct: int
    num_dropped: int
    decisions: dict[str, int]
    """Reason -> count, over kept and dropped completions."""
    num_train: int
    num_validation: int
    num_test: int
    judge_model: str | None
    judge_usage: JudgeUsage | None = None
    """None when no judge was asked, or when asking it costs nothing."""
    third_judge_usage: JudgeUsage | None = None
    """The same for the second judge of the third vote."""
    other_judges_usage: dict[str, JudgeUsage] = {}
    """The same for each of `labeling.other_judges`, as `judge_2` and so on."""
    agreement: LabelAgreement | None = None
    """None when no judge was asked."""
    audit: LabelAudit | None = None
    """None unless `labeling.judge_asked` is a cascade that audited something."""
    num_known_verdicts: int = 0
    """Judge verdicts taken from the journal of an earlier, interrupted run; equal texts count each."""
    num_rejected: int = 0
    """Rows of both inputs that were set aside in `<report>.rejected.jsonl`; not among `num_completions`."""
    digest: str | None = None
    """Names the rows of a shard with their labels, for `merge_labels`. None without shards, and in reports of
    earlier versions."""
    seconds: float


class BinaryScores(Report):
    """A classifier against 0/1 labels; `reward model says correct` is score > 0.5."""

    num_examples: int
    accuracy: Interval
    majority_accuracy: float
    """Accuracy of always answering with the more frequent label."""
    precision: float | None
    recall: float | None
    auroc: float | None
    """None when only one class is present."""
    f1: float | None = None
    """Harmonic mean of precision and recall; None where nothing is or is said to be correct."""
    ece: float | None = None
    """Expected calibration error: |mean score - share of correct| over ten bins of the score."""


class TrainVerifyRMReport(Report):
    num_examples: int
    num_rejected: int
    num_updates: int
    final_loss: float
    best_update: int | None = None
    """Updates done when the weights that were kept were the current ones."""
    validation_loss: float | None = None
    """Mean log loss of the kept weights on the validation examples."""
    tokens_per_second: float | None = None
    """Tokens of the examples over the seconds of training on whole completions, validation included."""
    computed_token_fraction: float | None = None
    """Tokens that went through the layers over those of the examples; below 1 where beginnings are shared."""
    validation: BinaryScores
    seconds: float


class ReliabilityBin(Record):
    """Examples whose scores lie in one tenth of [0, 1]."""

    low: float
    high: float
    count: int
    mean_score: float
    correct_fraction: float


class EvaluateVerifyRMReport(Report):
    overall: BinaryScores
    by_source: dict[str, BinaryScores]
    by_answer_type: dict[str, BinaryScores] = {}
    """Empty where the data name no answer types."""
    intervals: dict[str, Interval] = {}
    """precision, recall, f1 and auroc of all examples, 95 % over questions."""
    reliability: list[ReliabilityBin] = []
    """Bins that hold an example, by rising score."""
    canaries: dict[str, Interval] = {}
    """Attack -> share of canaries that score above 0.5; all of them are wrong."""
    canary_false_positive_rate: float | None = None
    """Mean over the attacks."""
    wrong_reference: Interval | None = None
    """Share of correct completions that score above 0.5 with another problem's reference answer."""
    shortcut_auroc: float | None = None
    """AUROC of a probe that sees length, last characters, format and answer position only, on problems that
    it was not fitted on. Compare with overall/auroc."""
    confusion: dict[str, int]
    """`true_positive`, `false_positive`, `true_negative`, `false_negative` at score 0.5."""
    roc: list[tuple[float, float, float]]
    """(false positive rate, true positive rate, threshold), thinned to at most 100 points; empty when only
    one class is present. The origin carries threshold 1."""
    num_rejected: int = 0
    """Rows that were set aside because they are no labelled examples."""


class VerifyRMDetails(Record):
    """The details of a VerifyRM on labelled examples that one number hides."""

    intervals: dict[str, Interval]
    """precision, recall, f1 and auroc, 95 % over questions."""
    reliability: list[ReliabilityBin]
    confusion: dict[str, int]
    roc: list[tuple[float, float, float]]
    """See `EvaluateVerifyRMReport`."""


class CooperReport(Report):
    """One iteration of co-training: means over its last tenth of steps (at least one step)."""

    first_step: int
    last_step: int
    verify_rm_reward: float
    rule_accuracy: float
    num_pairs: int
    num_skipped_reward_updates: int
    """Steps without a pair."""
    num_rolled_back_reward_updates: int = 0
    """Updates that the gate took back."""
    first_alarm_step: int | None = None
    """The step at which the hacking monitor first raised an alarm in this iteration that the judge did not
    deny."""
    denied_alarm_steps: list[int] = []
    """Alarms at which the judge found no loss of accuracy."""
    seconds: float


class ProblemScores(Record):
    """A held-out problem: means over its completions."""

    id: str
    rule_accuracy: float
    judge_accuracy: float | None
    verify_rm_reward: float


class SourceScores(Record):
    """The held-out problems of one source: a benchmark, a file, a kind."""

    rule_accuracy: Interval
    judge_accuracy: Interval | None
    verify_rm_reward: Interval


def _read_hits(value: object) -> object:
    """Earlier versions wrote `101 1 00`: a word for each question, 1 where VerifyRM is right."""
    if isinstance(value, str) and set(value) <= set("01 "):
        return [[hit == "1" for hit in word] for word in value.split()]
    return value


class EvalReport(Report):
    """Row 14: a policy on held-out problems. Reward and accuracy side by side show reward hacking."""

    step: int
    num_problems: int
    samples_per_problem: int
    rule_accuracy: Interval
    """Share of completions that the rule verifier calls correct."""
    judge_accuracy: Interval | None
    """Share that the evaluation judge calls correct; on the laptop an exact evaluator of meaning."""
    judge_model: str | None
    verify_rm_reward: Interval
    """Mean score of VerifyRM on the same completions."""
    verify_rm: BinaryScores
    """VerifyRM on held-out labelled examples."""
    num_decoys: int = 0
    """Its decoys; 0 in evaluations of earlier versions too."""
    pass_at: dict[int, Interval] = {}
    """k -> share of problems that one of k completions solves (unbiased; k = 1, 2, 4, 8 as far as there are
    completions). Judged, or by the rule without a judge. Empty in evaluations of earlier versions."""
    by_problem: list[ProblemScores] = []
    """Values in the order of the file. Empty in evaluations of earlier versions."""
    by_source: dict[str, SourceScores] = {}
    """`Problem.source` -> its scores, where the problems are of several sources."""
    mean_over_sources: Interval | None = None
    """Mean of the sources' accuracies, each with the same weight, as papers state it over benchmarks. Judged,
    or the rule's without a judge. None where there is one source."""
    verify_rm_hits: Annotated[list[list[bool]] | None, BeforeValidator(_read_hits)] = None
    """For each question of the labelled examples, True for each example that VerifyRM is right about. None,
    or one list for all, in evaluations of earlier versions."""
    canary_false_positive_rate: float | None = None
    """Mean over the attacks of the share of canaries that VerifyRM scores above 0.5; all are wrong."""
    canaries: dict[str, float] = {}
    """The same for each attack."""
    canary_intervals: dict[str, Interval] = {}
    """`canaries` with 95 % intervals over problems. Empty in evaluations of earlier versions."""
    verify_rm_details: VerifyRMDetails | None = None
    """The details of `verify_rm`. None in evaluations of earlier versions."""
    cut_fraction: float
    """Share of completions that ended at the token limit."""
    checkpoint: str | None = None
    """Checksum of the manifest of the checkpoint that was evaluated. None: the starting models, a policy in
    training, or an evaluation of an earlier version."""

    @property
    def judged_by_problem(self) -> tuple[float, ...]:
        """Accuracy of each problem by the judge, in the order of `by_problem`; empty without a judge."""
        return tuple(each.judge_accuracy for each in self.by_problem if each.judge_accuracy is not None)


def _read_accuracy_name(value: object) -> object:
    return "accuracy" if value == "judged accuracy" else value


AccuracyName = Annotated[Literal["accuracy", "rule accuracy"], BeforeValidator(_read_accuracy_name)]
"""The accuracy that a decision rests on: the evaluation judge's where one is configured, else the rule's.
Version 0.1.0 wrote `judged accuracy`."""


class RunReport(Report):
    """The run in numbers: the starting point against the last evaluation."""

    last_step: int
    num_iterations: int
    accuracy_name: AccuracyName
    accuracy_before: Interval
    accuracy_after: Interval
    accuracy_change: Interval
    """Paired by problem, as the two below; as if independent where the evaluations cannot be paired."""
    reward_change: Interval
    """Change of the VerifyRM reward."""
    verify_rm_accuracy_change: Interval
    first_alarm_step: int | None = None
    """The step at which the hacking monitor first raised an alarm that the judge did not deny."""
    denied_alarm_steps: list[int] = []
    """Alarms at which the judge found no loss of accuracy."""
    worst_attack: str | None = None
    """The attack whose canaries the delivered VerifyRM accepts most often; None where none was tried."""
    worst_attack_rate: Interval | None = None
    universal_rate: Interval | None = None
    """Share of unseen problems on which it pays the red team's best universal text; None: it is not known."""
    frozen_accuracy: Interval | None = None
    """Accuracy at the end of the arm whose VerifyRM was frozen; None: no such arm was trained."""
    frozen_reward_before: Interval | None = None
    """The reward that the frozen VerifyRM pays at the start; None in reports of earlier versions too."""
    frozen_reward: Interval | None = None
    """The same at the end of that arm."""
    is_frozen_plain: bool = False
    """True if the frozen VerifyRM has no decoys, and Cooper's has."""
    frozen_conclusion: str | None = None
    """`conclusion` of that arm."""
    promotion_objection: str | None = None
    """Why `promote` would refuse the delivered VerifyRM, on canaries or the red team's text alone; None where
    it would not."""
    conclusion: str
    """The conclusions that the intervals allow, in sentences made from them."""
