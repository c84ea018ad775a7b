"""The rows of the files that stages read and write (rows 1-5, 11 and 14 of the walk).

Records are frozen, refuse unknown keys, and round-trip through JSONL and Parquet (`records/`).
Memory-only batches live beside their maker as frozen dataclasses, not here.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cooper_rl.schema.texts import replace_surrogates

Verdict = Literal["correct", "incorrect", "unparsable"]
"""A verifier's word on a completion. `unparsable` is an abstention, never a "no"."""
DECISIVE: tuple[Verdict, Verdict] = ("correct", "incorrect")
"""Yes and no."""

JudgeFailure = Literal["refused", "unreachable"]
"""Nobody judged: the request was refused, or no answer came."""

FinishReason = Literal["stop", "length"]
"""`stop`: the policy ended the completion itself; `length`: it was cut at the token limit."""


Text = Annotated[str, AfterValidator(replace_surrogates)]
"""A text from memory may hold half a surrogate pair; one in a file is refused before."""


class Record(BaseModel):
    """Base of all records: frozen, unknown keys refused, field docstrings kept as descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Problem(Record):
    """Row 1: a task with a known final answer."""

    id: str = Field(min_length=1)
    """Unique within a file."""
    source: str
    """The source of the problem, e.g. `tiny` or `gsm8k_train.jsonl`."""
    question: str = Field(min_length=1)
    reference_answer: str = Field(min_length=1)
    """The final answer only, without its derivation."""


class Completion(Record):
    """Row 2: one generated text. Files keep prompts in outer order and samples in inner order."""

    id: str = Field(min_length=1)
    problem_id: str
    model: str
    """Name of the sampler that wrote it."""
    text: str
    finish_reason: FinishReason


class JudgeVote(Record):
    """The vote of one of several judges on one completion."""

    voter: str
    """The judge's model."""
    verdict: Verdict
    reason: str
    """The judge's text, shortened, or why nothing came."""
    failure: JudgeFailure | None = None


class Label(Record):
    """Row 3: the hybrid decision on one completion; an audit row is kept for dropped ones too."""

    completion_id: str
    rule: Verdict
    rule_reason: str
    """Why the rule verifier said so: what it compared, or what it could not parse."""
    judge: Verdict | None
    """The judge verdict; None when no judge was asked. With several judges it is that of more than half of
    them."""
    judge_model: str | None
    """The judge's model; of several judges all their models."""
    judge_reason: str | None = None
    """The judge's text, shortened. None when it was not asked."""
    judge_failure: Literal["refused", "unreachable"] | None = None
    """Nobody judged: this request was refused, or no answer came. `judge` is `unparsable` then."""
    third: Verdict | None = None
    """None when nobody was asked, which is so unless rule and judge differ."""
    third_voter: str | None = None
    """The second judge's model."""
    third_reason: str | None = None
    """The second judge's text, shortened. None when it was not asked."""
    third_failure: Literal["refused", "unreachable"] | None = None
    """`judge_failure` of the second judge."""
    judges: tuple[JudgeVote, ...] = ()
    """The vote of each of several judges; empty where there is one, or none was asked."""
    is_correct: bool | None
    """None: dropped; `reason` says why."""
    reason: str


class VerifyExample(Record):
    """Row 4: the four columns of the released VerifyRM data, and where a row came from.

    Examples:
        >>> from cooper_rl import VerifyExample
        >>> VerifyExample(question="1+1?", reference_answer="2", completion="It is 2.", label=1).label
        1
    """

    question: Text
    reference_answer: Text
    completion: Text
    label: Literal[0, 1]
    source: str | None = None
    """Sampler or data set that the completion came from; absent in the released columns."""
    answer_type: str | None = None
    """Kind of answer where the data set names it (VerifyBench: Numeric Values, Expressions, ...)."""


class PreferencePair(Record):
    """Row 11: what one reward update learns from. Written to disk for every step."""

    step: int
    problem_id: str
    question: str
    reference_answer: str
    positive: str
    """A rollout that the rule verifier calls correct."""
    negative: str
    """Wrong: see `negatives/pairs.py` for what each source must show."""
    source: str
    """The source of the negative: `assistant:<model>`, `rollout`, `perturb` or `canary`."""


class Pairing(Record):
    """The pairs of one step and what they cost; on disk while the next step has yet to learn from them."""

    model_config = ConfigDict(extra="ignore")  # 0.2.0 counted second requests too

    pairs: list[PreferencePair] = []
    """Sorted by problem id, then by source."""
    audited: list[VerifyExample] = []
    """Rollouts with what the verifiers say of them, the best paid first."""
    num_positives: int = 0
    """Problems that had a positive."""
    num_rewrites: int = 0
    """Texts asked of the assistant."""
    num_unanswered: int = 0
    """Texts that the assistant did not give, and rollouts that the judge could not be asked about."""
    num_judged_pairs: int = 0
    """Rollouts that the judge was asked about before they became negatives."""
    num_judged_audits: int = 0
    """Audited rollouts that it was asked about."""


class DrawnCompletion(Record):
    """A completion as the engine made it; see `engines.base.Generation`."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason


class DrawnGroup(Record):
    """The rollouts of one problem."""

    problem: Problem
    prompt_ids: tuple[int, ...]
    completions: tuple[DrawnCompletion, ...]


class DrawnStep(Record):
    """The rollouts of one step; on disk while that step is still to come."""

    step: int
    """The step that learns from them."""
    drawn_after: int
    """The step after which the policy had the weights that drew them; 0: the start."""
    sampling: str | None = None
    """What they were drawn with, as text; None: a version wrote them that did not say."""
    groups: tuple[DrawnGroup, ...]


class RolloutSample(Record):
    """A rollout of a training step, kept for the audit with what was said of it."""

    step: int
    problem_id: str
    question: str
    reference_answer: str
    completion: str
    reward: float
    """The reward that the policy was trained on."""
    score: float = Field(ge=0, le=1)
    """VerifyRM's, before the step's reward update."""
    rule: Verdict


class EvaluatedCompletion(Record):
    """A completion on a held-out problem, with what every verifier says of it."""

    problem_id: str
    question: str
    reference_answer: str
    completion: str
    finish_reason: FinishReason
    rule: Verdict
    judge: Verdict | None
    """None when no evaluation judge is configured."""
    score: float = Field(ge=0, le=1)
    """VerifyRM's."""
    source: str = ""
    """The problem's. Empty in evaluations of earlier versions."""


class RejectedRow(Record):
    """A row of an input file that was set aside, with the reason."""

    file: str
    row: int
    """1-based line of a JSONL file or row of a Parquet file."""
    reason: str
    content: str
    """The row as it was read, cut to 500 characters."""
