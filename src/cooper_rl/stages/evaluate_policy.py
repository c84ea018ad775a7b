"""Stage: a policy on held-out problems, VerifyRM on held-out examples (row 14).

Rule accuracy, judged accuracy and VerifyRM's reward stand side by side: a widening gap is reward hacking.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from cooper_rl.backends.checkpoint_reference import open_checkpoint
from cooper_rl.backends.device import pick_device
from cooper_rl.backends.engine_hf import HFEngine
from cooper_rl.backends.policy import Policy, load_policy
from cooper_rl.backends.rule_verifier import RuleVerifier
from cooper_rl.backends.verify_rm import VerifyItem, VerifyRM, load_verify_rm, score_examples
from cooper_rl.config import Config, EvaluationConfig
from cooper_rl.core.labeling import JudgeItem
from cooper_rl.core.metrics import binary_scores, clustered_interval
from cooper_rl.core.randomness import derive_seed
from cooper_rl.records import read_records, write_records, write_report
from cooper_rl.schema import (
    EvalReport,
    EvaluatedCompletion,
    FinishReason,
    Interval,
    Problem,
    Verdict,
    VerifyExample,
)
from cooper_rl.stages._models import read_models
from cooper_rl.stages._wiring import check_fits, open_judge
from cooper_rl.training.rollout import RolloutGroup, collect_rollouts, score_rollouts


def run(
    config: Config,
    *,
    models: Annotated[Path, "Folder of prepare_models: the starting policy"],
    verify_rm: Annotated[Path, "Folder of train_verify_rm"],
    problems: Annotated[Path, "Held-out problems (JSONL or Parquet)"],
    examples: Annotated[Path, "Held-out labelled examples, for VerifyRM's own accuracy"],
    evaluations: Annotated[Path, "Where to write the evaluations so far and this one (JSONL)"],
    completions: Annotated[Path, "Where to write the evaluated completions (JSONL)"],
    report: Annotated[Path, "Where to write the report (JSON)"],
    checkpoint: Annotated[Path | None, "Checkpoint to evaluate; absent: the starting models"] = None,
    previous: Annotated[Path | None, "Evaluations of earlier points, kept in front"] = None,
) -> EvalReport:
    """Draw completions for held-out problems and let every verifier speak.

    Raises:
        ConfigError: the laptop's judge is configured for problems of another source.
        DataError: a file is missing or malformed, or the checkpoint is damaged.
        ModelError: a model cannot be used.
        ServerError: the evaluation judge cannot be used.
    """
    earlier = [] if previous is None else read_records(previous, EvalReport)
    rows = read_records(problems, Problem)[: config.evaluation.max_problems]
    check_fits(config.evaluation.judge, rows, key="evaluation.judge")
    labelled = read_records(examples, VerifyExample)
    subject = _load_subject(config, models=models, verify_rm=verify_rm, checkpoint=checkpoint)
    engine = HFEngine(subject.policy.model, end_ids=subject.policy.end_ids, pad_id=subject.policy.pad_id)
    # The same draws at every step, so that two evaluations differ by the policy alone.
    groups = collect_rollouts(
        engine,
        subject.policy,
        rows,
        config.evaluation.generation,
        group_size=config.evaluation.samples_per_problem,
        instruction=config.instruction,
        seed=derive_seed(config.seed, "evaluate"),
    )
    evaluated, judge_model = _ask_verifiers(groups, subject.verify_rm, config)
    result = EvalReport(
        step=subject.step,
        num_problems=len(rows),
        samples_per_problem=config.evaluation.samples_per_problem,
        rule_accuracy=_accuracy([row.rule == "correct" for row in evaluated], config.evaluation),
        judge_accuracy=None
        if judge_model is None
        else _accuracy([row.judge == "correct" for row in evaluated], config.evaluation),
        judge_model=judge_model,
        verify_rm_reward=_accuracy([row.score for row in evaluated], config.evaluation),
        verify_rm=binary_scores(
            [example.label for example in labelled],
            score_examples(subject.verify_rm, labelled),
            problems=[example.question for example in labelled],
        ),
        cut_fraction=sum(row.finish_reason == "length" for row in evaluated) / len(evaluated),
    )
    write_records(completions, evaluated)
    write_records(evaluations, [*earlier, result])
    write_report(report, result)
    return result


class _Subject(NamedTuple):
    step: int
    policy: Policy
    verify_rm: VerifyRM


def _load_subject(config: Config, *, models: Path, verify_rm: Path, checkpoint: Path | None) -> _Subject:
    device = pick_device()
    if checkpoint is None:
        policy = load_policy(read_models(models).policy, device=device, is_trained=False)
        return _Subject(0, policy, load_verify_rm(verify_rm, device=device))
    needed = ("policy/", "verify_rm/")
    with open_checkpoint(checkpoint, config.storage, starting_with=needed) as found:
        return _Subject(
            found.manifest.step,
            load_policy(found.folder / "policy", device=device, is_trained=False),
            load_verify_rm(found.folder / "verify_rm", device=device),
        )


def _ask_verifiers(
    groups: Sequence[RolloutGroup], verify_rm: VerifyRM, config: Config
) -> tuple[list[EvaluatedCompletion], str | None]:
    """One row per completion, groups contiguous, and the judge's name."""
    items = [
        VerifyItem(group.problem.question, group.problem.reference_answer, text)
        for group in groups
        for text in group.texts
    ]
    with RuleVerifier(config.labeling.rule) as rule:
        scores = score_rollouts(
            groups, verify_rm, rule, max_tokens_per_batch=config.cooper.max_tokens_per_batch
        )
    verdicts: list[Verdict | None] = [None] * len(items)
    judge_model = None
    if config.evaluation.judge is not None:
        judge = open_judge(config.evaluation.judge, config.seed)
        judge_model = judge.name
        verdicts = [result.verdict for result in judge.judge([JudgeItem(*item) for item in items])]
    owners: list[tuple[Problem, FinishReason]] = [
        (group.problem, generation.finish_reason) for group in groups for generation in group.generations
    ]
    evaluated = [
        EvaluatedCompletion(
            problem_id=problem.id,
            question=problem.question,
            reference_answer=problem.reference_answer,
            completion=item.completion,
            finish_reason=finish_reason,
            rule=rule_verdict,
            judge=judge_verdict,
            score=score,
        )
        for (problem, finish_reason), item, rule_verdict, judge_verdict, score in zip(
            owners, items, scores.rule, verdicts, scores.verify_rm, strict=True
        )
    ]
    return evaluated, judge_model


def _accuracy(values: Sequence[float], config: EvaluationConfig) -> Interval:
    size = config.samples_per_problem
    return clustered_interval([values[start : start + size] for start in range(0, len(values), size)])
