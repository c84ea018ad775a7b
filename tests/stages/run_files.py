"""Files of a run as the stages write them, for the tests of the report."""

import random
from pathlib import Path

from cooper_rl.method.intervals import clustered_interval
from cooper_rl.method.metrics import binary_scores, confusion_counts, reliability_bins, roc_points
from cooper_rl.records.files import write_records, write_report
from cooper_rl.records.step_metrics import write_metrics
from cooper_rl.schema.data import EvaluatedCompletion
from cooper_rl.schema.reports import (
    AnswerTypeLabels,
    AuditedVerdict,
    EvalReport,
    EvaluateVerifyRMReport,
    Interval,
    LabelAgreement,
    LabelAudit,
    LabelReport,
    ProblemScores,
    VerifyRMDetails,
    VoterAgreement,
)
from cooper_rl.schema.step_metrics import (
    PairMetrics,
    PolicyMetrics,
    RolloutMetrics,
    StepMetrics,
    VerifyRMMetrics,
)


def make_evaluation(
    step: int,
    accuracy: float,
    reward: float,
    *,
    judge: bool = True,
    seed: int = 0,
    attacks: dict[str, Interval] | None = None,
) -> EvalReport:
    """An evaluation of 60 problems x 4 completions; the given shares are met exactly.

    Without `attacks` it is of an earlier version, which kept no details of VerifyRM.
    """
    rng = random.Random(seed)
    outcomes = [float(place < round(240 * accuracy)) for place in range(240)]
    rng.shuffle(outcomes)
    judged = clustered_interval([outcomes[start : start + 4] for start in range(0, 240, 4)])
    seen = [value * float(place % 3 > 0) for place, value in enumerate(outcomes)]
    by_problem = [
        ProblemScores(
            id=f"p-{start}", rule_accuracy=sum(seen[start : start + 4]) / 4,
            judge_accuracy=sum(outcomes[start : start + 4]) / 4 if judge else None, verify_rm_reward=reward,
        )
        for start in range(0, 240, 4)
    ]  # fmt: skip
    labels = [place % 3 == 0 for place in range(120)]
    scores = [min(0.99, 0.35 * label + 0.65 * rng.random()) for label in labels]
    numbers = [int(label) for label in labels]
    details = VerifyRMDetails(
        intervals={"auroc": Interval(value=0.9, low=0.85, high=0.94, count=120)},
        reliability=reliability_bins(numbers, scores), confusion=confusion_counts(numbers, scores),
        roc=roc_points(numbers, scores),
    )  # fmt: skip
    return EvalReport(
        canaries={name: found.value for name, found in (attacks or {}).items()},
        canary_intervals=attacks or {}, verify_rm_details=details if attacks else None,
        step=step, num_problems=60, samples_per_problem=4,
        rule_accuracy=clustered_interval([seen[start : start + 4] for start in range(0, 240, 4)]),
        judge_accuracy=judged if judge else None, judge_model="tiny(error_rate=0.0)" if judge else None,
        verify_rm_reward=Interval(value=reward, low=reward - 0.04, high=reward + 0.04, count=60),
        verify_rm=binary_scores([int(label) for label in labels], scores), by_problem=by_problem,
        verify_rm_hits=" ".join(str(int((s > 0.5) == y)) for s, y in zip(scores, labels, strict=True)),
        cut_fraction=0.05,
    )  # fmt: skip


def make_completion(number: int, **changes) -> EvaluatedCompletion:
    values = {
        "problem_id": f"p-{number}", "question": f"Tom has {number} pens and buys 2. How many?",
        "reference_answer": str(number + 2), "completion": f"{number}+2={number + 2}.\n#### {number + 2}",
        "finish_reason": "stop", "rule": "correct", "judge": "correct", "score": 0.9,
    } | changes  # fmt: skip
    return EvaluatedCompletion.model_validate(values)


COMPLETIONS = [
    *(make_completion(number) for number in range(9)),
    *(make_completion(n, completion="The answer is seven.", rule="unparsable") for n in range(10, 14)),
    *(
        make_completion(n, completion="#### 3", rule="incorrect", judge="incorrect", score=0.1)
        for n in range(20, 24)
    ),
    make_completion(30, completion="7 7 7 7 7 7", rule="unparsable", judge="incorrect", score=0.97),
    make_completion(31, completion="#### 77", rule="incorrect", judge="incorrect", score=0.99),
    make_completion(31, completion="#### 78", rule="incorrect", judge="incorrect", score=0.98),
]


def make_metrics(steps: int) -> list[StepMetrics]:
    """Steps of the shape that train_cooper writes; the reward update fails to run now and then."""
    rng = random.Random(0)
    rows = []
    for step in range(1, steps + 1):
        share = step / steps
        row = StepMetrics(
            step=step,
            rollout=RolloutMetrics(
                verify_rm_reward=0.45 + 0.3 * share + rng.gauss(0, 0.04),
                rule_accuracy=0.3 + 0.18 * share + rng.gauss(0, 0.05),
                rule_unparsable=0.3 - 0.1 * share,
                cut_fraction=0.05,
                tokens=2560 + step,
                completion_tokens=(2560 + step) / 128,
                entropy=0.6 - 0.3 * share,
                equal_groups=0.1 * share,
            ),
            policy=PolicyMetrics(loss=rng.gauss(0, 0.01), kl=0.002 * step, clip_fraction=0.0, grad_norm=1.0),
            pairs=PairMetrics(count=rng.randint(5, 12), positives=rng.randint(12, 16)),
            seconds={
                "rollout": 2.0 + rng.random(), "reward": 0.4, "policy_update": 1.5 + rng.random(),
                "pairing": 0.2, "reward_update": 0.3,
            },
        )  # fmt: skip
        if step % 7:
            row.verify_rm = VerifyRMMetrics(loss=0.6 - 0.3 * share, pair_accuracy=0.7 + 0.2 * share)
        rows.append(row)
    return rows


_SHARE = Interval(value=0.01, low=0.002, high=0.05, count=100)
_AUDITED = AuditedVerdict(
    num_audited=50, num_contradicted=1, num_unchecked=1000, wrong_share=_SHARE,
    num_wrong=Interval(value=10, low=2, high=50, count=50),
)  # fmt: skip
AUDIT = LabelAudit(
    num_audited=100, num_unchecked=2000, differing_share=_SHARE, correct=_AUDITED, incorrect=_AUDITED,
    num_wrong=Interval(value=20, low=4, high=90, count=100),
)  # fmt: skip
_AGREEING = VoterAgreement(num_both=800, agreeing_share=0.875, kappa=0.745)
_INTEGERS = AnswerTypeLabels(
    num_completions=1200, num_dropped=100, num_correct=530, num_correct_dropped=50,
    correct_dropped_share=50 / 530, rule_and_judge=_AGREEING,
)  # fmt: skip
AGREEMENT = LabelAgreement(
    pairs={
        "rule~judge": _AGREEING,
        "judge~third": VoterAgreement(num_both=0, agreeing_share=None, kappa=None),
    },
    overall=_INTEGERS,
    by_answer_type={"integer": _INTEGERS},
)


def write_run(folder: Path, **changes) -> dict[str, Path]:
    """Files of a run; `changes` replace evaluations, completions, start, metrics, labels or verify_rm."""
    rng = random.Random(3)
    labels = [rng.randint(0, 1) for _ in range(400)]
    halves = {"policy": slice(0, None, 2), "small": slice(1, None, 2)}
    scores = [min(0.999, max(0.001, rng.gauss(0.35 + 0.3 * label, 0.2))) for label in labels]
    files = {
        "evaluations": changes.get("evaluations")
        or [make_evaluation(0, 0.40, 0.45), make_evaluation(20, 0.45, 0.58), make_evaluation(40, 0.55, 0.7)],
        "completions": changes.get("completions") or COMPLETIONS,
        "start_completions": changes.get("start")
        or [row.model_copy(update={"judge": "incorrect", "completion": "At first."}) for row in COMPLETIONS],
    }
    paths = {
        name: folder / name
        for name in ("evaluations", "completions", "start_completions", "label_report", "verify_rm_report")
    }
    for name, rows in files.items():
        write_records(paths[name], rows)
    write_report(paths["label_report"], changes.get("labels") or LabelReport(
        num_completions=1200, num_labelled=1100, num_correct=480, num_dropped=100,
        decisions={"both_agree": 700, "rule_abstains_judge_decides": 400, "rule_and_judge_disagree": 100},
        num_train=880, num_validation=110, num_test=110, judge_model="tiny(error_rate=0.02)", seconds=4.2,
        agreement=AGREEMENT, audit=AUDIT,
    ))  # fmt: skip
    write_report(paths["verify_rm_report"], changes.get("verify_rm") or EvaluateVerifyRMReport(
        overall=binary_scores(labels, scores),
        by_source={name: binary_scores(labels[half], scores[half]) for name, half in halves.items()},
        confusion=confusion_counts(labels, scores), roc=roc_points(labels, scores),
        by_answer_type={"Integer": binary_scores(labels[:200], scores[:200])},
        intervals={"auroc": Interval(value=0.861, low=0.82, high=0.9, count=400)},
        reliability=reliability_bins(labels, scores), canary_false_positive_rate=0.125, shortcut_auroc=0.55,
        canaries={"empty": Interval(value=0.0, low=0.0, high=0.07, count=50),
                  "several_boxes": Interval(value=0.25, low=0.15, high=0.4, count=48)},
        wrong_reference=Interval(value=0.031, low=0.02, high=0.05, count=200),
    ))  # fmt: skip
    paths["checkpoint"] = folder / "checkpoint"
    paths["checkpoint"].mkdir(parents=True)
    write_metrics(paths["checkpoint"] / "metrics.jsonl", changes.get("metrics") or make_metrics(40))
    return paths
