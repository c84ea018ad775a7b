"""Records of whole runs: their ends, and the fate of their models.

`schema/data.py` has the records that follow the walk of the data.
"""

from pydantic import AwareDatetime, Field

from cooper_rl.schema.data import Record
from cooper_rl.schema.reports import AccuracyName, EvalReport, Interval, Report


class SettingsReport(Report):
    """The findings of the check before a run."""

    seed: int
    checkpoints: str | None
    """Address below which the run's checkpoints are kept; None: in the tasks' own folders."""
    champion: str | None
    """The registry's at the time; None: no registry, or no champion in it."""
    servers: list[str] = Field(default=[])
    """Keys of the chat servers that answered."""


class RunEnding(Record):
    """The end of a pipeline's run, as Kubeflow says it."""

    state: str
    """ML Metadata's state on a cluster: COMPLETE, FAILED, CACHED, CANCELED, RUNNING; from kfp.local SUCCEEDED
    or FAILED."""
    run: str
    """Kubeflow's name of the run."""
    message: str = ""


class TaskFailure(Record):
    """The reason why one try of a pipeline's task failed."""

    task: str
    """The stage, as the command line names it."""
    message: str
    """Without anything that opens an address."""
    failed_at: AwareDatetime
    """UTC."""


class RunEndReport(Report):
    """The end of a run."""

    state: str
    has_succeeded: bool | None
    """None: Kubeflow never learned it, since a pod ended before it could say so."""
    last_step: int | None
    """The step of the newest checkpoint; None where no store keeps them."""
    checkpoints: dict[str, str]
    """Iteration's folder -> name of its newest checkpoint; an experiment's are below their runs' places."""
    failures: list[str] = Field(default=[])
    """Why tasks failed, the last at the end. Empty in a run that succeeded, and where no store keeps it."""
    ended_jobs: list[str] = Field(default=[])
    """TrainJobs that went on when the run had ended, and were deleted (`namespace/name`)."""


class ChampionReport(Report):
    """The start of a retraining, and the decision whether there is something to learn."""

    champion: str | None
    """Version in the registry; None: there is none yet."""
    num_collected: int
    num_frozen: int
    """Collected problems that stand in a frozen set: nobody trains on them."""
    num_known: int
    """Collected problems that the champion has learned from."""
    num_new: int
    is_worth_training: bool
    statement: str
    """The same in words."""


class PromoteReport(Report):
    """The decision on a candidate, with every number that it rests on."""

    is_promoted: bool
    candidate: str
    """Version, named by the hash of its weights."""
    champion: str | None
    """Version that it was compared with; None: there was none."""
    accuracy_name: AccuracyName
    accuracy: Interval
    champion_accuracy: Interval | None
    accuracy_change: Interval | None
    """Candidate minus champion, paired by problem."""
    verify_rm_accuracy: Interval
    champion_verify_rm_accuracy: Interval | None
    verify_rm_accuracy_change: Interval | None
    """Candidate's VerifyRM minus the champion's, paired by problem; as if independent where one of the two
    evaluations is of an earlier version."""
    canary_false_positive_rate: float | None
    canaries: dict[str, float] = Field(default={})
    """Attack -> share of its canaries that the candidate's VerifyRM scores above 0.5."""
    canary_intervals: dict[str, Interval] = Field(default={})
    """`canaries` with 95 % intervals over problems. Empty in decisions of earlier versions."""
    max_canary_rate: float
    """The bound on every attack's rate."""
    universal_rate: Interval | None = None
    """Share of unseen problems on which the candidate's VerifyRM pays the red team's best universal text.
    None: no red team was asked, or its text holds the right answer of every problem."""
    universal_rate_by_answer_type: dict[str, Interval] = Field(default={})
    """Kind of answer -> the same for the best text for that kind, on its problems alone."""
    max_universal_rate: float | None = None
    """None: the red team does not decide."""
    reasons: list[str]
    """Why, in words."""


class KnownProblem(Record):
    """A problem that a champion, or one before it, has learned from."""

    fingerprint: str
    """The fingerprint of question and reference answer, see `method/questions.py`."""


class ChampionRecord(Record):
    """A version in the registry: where it comes from and what it is worth."""

    run: str | None
    """`storage.run_key` of the run that trained it."""
    checkpoint: str
    """Address of the checkpoint that it was copied from."""
    previous: str | None
    """Champion before it."""
    promoted_at: str
    """UTC."""
    conditions: dict[str, str]
    """Settings of the evaluation that its numbers depend on."""
    num_known_problems: int
    evaluation: EvalReport
    decision: PromoteReport
