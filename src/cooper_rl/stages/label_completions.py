"""Stage: completions to labels (row 3) and to leak-free training, validation and test examples (row 4).

Rule verifier first, then the judge on every completion, or on those from which the rule abstains and on a
sample of the others (`labeling.judge_asked`), then the decision of `verdicts/hybrid.py`. Verdicts
are kept in `<labels>.journal` as they come: a run that was killed goes on without asking anyone twice.
Rows that cannot be used are set aside with the reason.
Deliberately left out: how an answer is compared (`verdicts/answers/verify.py`) and how a judge is asked
(`servers/chat.py`). Imports no torch.
"""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cooper_rl.config.data import LabelingConfig
from cooper_rl.config.root import Config
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import DataError
from cooper_rl.method.intervals import clustered_interval
from cooper_rl.method.questions import with_questions
from cooper_rl.records.files import parse_row, read_rows, write_records, write_report
from cooper_rl.records.one_file import Answered, OneFile, read_one_file
from cooper_rl.records.rejected import read_usable, set_aside
from cooper_rl.schema.data import (
    Completion,
    Label,
    LabelAudit,
    LabelReport,
    Problem,
    VerifyExample,
)
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.servers.open import check_fits, open_judge
from cooper_rl.verdicts.hybrid import Judge, JudgeItem, Split, StreamingJudge, decide, split_by_question
from cooper_rl.verdicts.journal import Journal
from cooper_rl.verdicts.votes import Votes, collect_votes


def run(
    config: Config,
    *,
    problems: Annotated[Path, Input("Problems that the completions answer")],
    completions: Annotated[Path, Input("Completions to label, or the file of --problems if it holds both")],
    labels: Annotated[
        Path, OutputFile("Where to write the audit: one row per completion, dropped ones included")
    ],
    train: Annotated[Path, OutputFile("Where to write the examples to train VerifyRM on")],
    validation: Annotated[Path, OutputFile("Where to write the examples that steer training")],
    test: Annotated[Path, OutputFile("Where to write the examples that only evaluation sees")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
    frozen: Annotated[
        Path | None,
        Input("Test examples of an earlier run, used in place of new ones; an empty file: none are"),
    ] = None,
    rejected: Annotated[
        Path | None,
        OutputFile("Where to write rows that cannot be used (absent: <report>.rejected.jsonl, if any)"),
    ] = None,
) -> LabelReport:
    """Label every completion, keep the reason of every decision, and split the labelled ones by question.

    Raises:
        ConfigError: the laptop's judge is configured for problems of another source.
        DataError: no usable problem or completion, too few labelled questions to split, or a frozen question
            among them.
        ServerError: the judge cannot be used; what it said so far is kept.
    """
    started = time.monotonic()
    fixed = _read_frozen(frozen)
    domain = find_domain(config.problems.domain)
    rows, unusable = _read_rows(problems, completions, domain)
    _check_apart([row.problem for row in rows], fixed, problems=problems, frozen=frozen)
    set_aside(report, unusable, rejected=rejected)
    _check_judges(config.labeling, [row.problem for row in rows])
    judge = open_judge(config.labeling.judge, config.seed, domain) if config.labeling.judge else None
    third_judge = _open_third_judge(config, domain)
    items = [
        JudgeItem(row.problem.question, row.problem.reference_answer, row.completion.text) for row in rows
    ]
    with Journal(labels.with_name(labels.name + ".journal")) as journal:
        ballot = collect_votes(
            items,
            config.labeling,
            verifier=domain.open_verifier(config.labeling.rule),
            verdict_name=domain.name_verdicts(config.labeling.rule),
            judge=judge,
            third_judge=third_judge,
            journal=journal,
            finish_reasons=[row.completion.finish_reason for row in rows],
        )
    decided = [
        _decide(row, votes, judge.name if judge else None, config.labeling)
        for row, votes in zip(rows, ballot.votes, strict=True)
    ]
    write_records(labels, decided)
    outputs: dict[Split, Path] = {"train": train, "validation": validation, "test": test}
    counts = _write_splits(rows, decided, config, outputs, fixed=fixed)
    result = LabelReport(
        num_completions=len(decided),
        num_labelled=sum(label.is_correct is not None for label in decided),
        num_correct=sum(label.is_correct is True for label in decided),
        num_dropped=sum(label.is_correct is None for label in decided),
        decisions=dict(sorted(Counter(label.reason for label in decided).items())),
        num_train=counts["train"],
        num_validation=counts["validation"],
        num_test=counts["test"],
        judge_model=judge.name if judge else None,
        judge_usage=judge.usage if isinstance(judge, StreamingJudge) else None,
        third_judge_usage=third_judge.usage if isinstance(third_judge, StreamingJudge) else None,
        audit=_audit(rows, decided) if judge and config.labeling.judge_asked != "always" else None,
        num_known_verdicts=ballot.num_known,
        num_rejected=len(unusable),
        seconds=time.monotonic() - started,
    )
    write_report(report, result)
    return result


def _read_rows(problems: Path, completions: Path, domain: Domain) -> OneFile:
    if problems == completions:
        return read_one_file(problems, domain.find_reference_fault)

    def find_reference_fault(problem: Problem) -> str | None:
        fault = domain.find_reference_fault(problem.reference_answer)
        return None if fault is None else f"field 'reference_answer': {fault}"

    known = read_usable(problems, Problem, unique="id", find_fault=find_reference_fault)
    by_id = {problem.id: problem for problem in known.records}

    def find_fault(completion: Completion) -> str | None:
        if completion.problem_id in by_id:
            return None
        return (
            f"field 'problem_id': no usable problem {completion.problem_id!r} in {problems}; give the "
            "problems that the completions were sampled for"
        )

    found = read_usable(completions, Completion, unique="id", find_fault=find_fault)
    rows = [Answered(by_id[completion.problem_id], completion) for completion in found.records]
    return OneFile(rows, [*known.rejected, *found.rejected])


def _read_frozen(path: Path | None) -> list[VerifyExample]:
    return [] if path is None else [parse_row(row, VerifyExample) for row in read_rows(path)]


def _check_apart(
    rows: Sequence[Problem], fixed: Sequence[VerifyExample], *, problems: Path, frozen: Path | None
) -> None:
    shared = with_questions(rows, fixed)
    if shared:
        raise DataError(
            f"{problems}: problem {shared[0].id!r} has a question of {frozen}; take the frozen questions out "
            "of the problems, as take-champion does"
        )


def _check_judges(config: LabelingConfig, problems: Sequence[Problem]) -> None:
    check_fits(config.judge, problems, key="labeling.judge")
    if config.third_vote is not None:
        check_fits(config.third_vote.judge, problems, key="labeling.third_vote.judge")


def _open_third_judge(config: Config, domain: Domain) -> Judge | None:
    third = config.labeling.third_vote
    return open_judge(third.judge, config.seed, domain) if third is not None else None


def _decide(row: Answered, votes: Votes, judge_model: str | None, config: LabelingConfig) -> Label:
    judge = votes.judge.verdict if votes.judge else None
    third = votes.third.verdict if votes.third else None
    decision = decide(votes.rule.verdict, judge, third, unparsable_rule=config.unparsable_rule)
    return Label(
        completion_id=row.completion.id,
        rule=votes.rule.verdict,
        rule_reason=votes.rule.reason,
        judge=judge,
        judge_model=judge_model if votes.judge else None,
        judge_reason=votes.judge.reason if votes.judge else None,
        judge_failure=votes.judge.failure if votes.judge else None,
        third=third,
        third_voter=votes.third_voter,
        is_correct=decision.is_correct,
        reason=decision.reason,
    )


def _audit(rows: Sequence[Answered], labels: Sequence[Label]) -> LabelAudit | None:
    differs: dict[str, list[float]] = {}
    for row, label in zip(rows, labels, strict=True):
        if label.rule != "unparsable" and label.judge in ("correct", "incorrect"):
            differs.setdefault(row.problem.question, []).append(float(label.judge != label.rule))
    if not differs:
        return None
    return LabelAudit(
        num_audited=sum(map(len, differs.values())),
        num_unchecked=sum(label.rule != "unparsable" and label.judge is None for label in labels),
        differing_share=clustered_interval(list(differs.values())),
    )


def _write_splits(
    rows: Sequence[Answered],
    labels: Sequence[Label],
    config: Config,
    outputs: dict[Split, Path],
    *,
    fixed: Sequence[VerifyExample],
) -> dict[Split, int]:
    examples = [
        VerifyExample(
            question=row.problem.question,
            reference_answer=row.problem.reference_answer,
            completion=row.completion.text,
            label=1 if label.is_correct else 0,
            source=row.completion.model,
        )
        for row, label in zip(rows, labels, strict=True)
        if label.is_correct is not None
    ]
    outcomes: dict[str, list[int]] = {}
    for example in examples:
        outcomes.setdefault(example.question, []).append(example.label)
    try:
        splits = split_by_question(
            {question: sum(found) / len(found) for question, found in outcomes.items()},
            config.seed,
            validation_fraction=config.labeling.validation_fraction,
            test_fraction=config.labeling.test_fraction,
        )
    except ValueError as error:
        reasons = dict(Counter(label.reason for label in labels))
        raise DataError(
            f"{len(examples)} of {len(labels)} completions were labelled (decisions: {reasons}): {error}"
        ) from error
    split_rows: dict[Split, list[VerifyExample]] = {"train": [], "validation": [], "test": []}
    for example in examples:
        split = splits[example.question]
        # The test set is there already: what would have gone to it is there to learn from.
        split_rows["train" if fixed and split == "test" else split].append(example)
    if fixed:
        split_rows["test"] = list(fixed)
    return {split: write_records(path, split_rows[split]) for split, path in outputs.items()}
