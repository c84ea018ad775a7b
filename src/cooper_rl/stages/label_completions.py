"""Stage: completions to labels (row 3) and to leak-free training, validation and test examples (row 4).

Rule verifier first, then the judge on every completion, then the decision of `core/labeling.py`. Verdicts
are kept in `<labels>.journal` as they come: a run that was killed goes on without asking anyone twice.
Deliberately left out: how an answer is compared (`core/answers.py`) and how a judge is asked
(`backends/chat.py`). Imports no torch.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from cooper_rl.backends.rule_verifier import RuleVerifier
from cooper_rl.config import Config, LabelingConfig
from cooper_rl.core.labeling import (
    Judge,
    JudgeItem,
    JudgeResult,
    Split,
    StreamingJudge,
    decide,
    split_by_question,
)
from cooper_rl.errors import DataError
from cooper_rl.progress import Progress
from cooper_rl.records import check_unique, read_records, write_records, write_report
from cooper_rl.schema import Completion, Label, LabelReport, Problem, VerifyExample
from cooper_rl.stages._journal import Journal, KeptVerdict, verdict_key
from cooper_rl.stages._wiring import open_judge

logger = logging.getLogger(__name__)

CHUNK_SIZE = 512
"""Completions per call of the rule verifier: what is kept in one go."""


def run(
    config: Config,
    *,
    problems: Annotated[Path, "Problems that the completions answer (JSONL or Parquet)"],
    completions: Annotated[Path, "Completions to label"],
    labels: Annotated[Path, "Where to write the audit: one row per completion, dropped ones included"],
    train: Annotated[Path, "Where to write the examples to train VerifyRM on"],
    validation: Annotated[Path, "Where to write the examples that steer training"],
    test: Annotated[Path, "Where to write the examples that only evaluation sees"],
    report: Annotated[Path, "Where to write the report (JSON)"],
) -> LabelReport:
    """Label every completion, keep the reason of every decision, and split the labelled ones by question.

    Raises:
        DataError: a completion of an unknown problem, duplicate ids, or too few labelled questions to split.
        ServerError: the judge cannot be used; what it said so far is kept.
    """
    started = time.monotonic()
    rows = _read_rows(problems, completions)
    judge = open_judge(config.labeling.judge, config.seed) if config.labeling.judge else None
    with Journal(labels.with_name(labels.name + ".journal")) as journal:
        rule_verdicts = _rule_verdicts(rows, config.labeling, journal)
        judge_verdicts, num_known = _judge_verdicts(rows, judge, journal)
    decided = [
        _decide(row, rule, judged, judge.name if judge else None, config.labeling)
        for row, rule, judged in zip(rows, rule_verdicts, judge_verdicts, strict=True)
    ]
    write_records(labels, decided)
    counts = _write_splits(rows, decided, config, {"train": train, "validation": validation, "test": test})
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
        num_known_verdicts=num_known,
        seconds=time.monotonic() - started,
    )
    write_report(report, result)
    return result


class _Row(NamedTuple):
    problem: Problem
    completion: Completion


def _read_rows(problems: Path, completions: Path) -> list[_Row]:
    known = read_records(problems, Problem)
    check_unique(known, field="id", path=problems)
    by_id = {problem.id: problem for problem in known}
    found = read_records(completions, Completion)
    check_unique(found, field="id", path=completions)
    rows: list[_Row] = []
    for number, completion in enumerate(found, start=1):
        problem = by_id.get(completion.problem_id)
        if problem is None:
            raise DataError(
                f"{completions}:{number}: field 'problem_id': no problem {completion.problem_id!r} in "
                f"{problems}; give the problems that the completions were sampled for"
            )
        rows.append(_Row(problem, completion))
    return rows


def _rule_verdicts(rows: Sequence[_Row], config: LabelingConfig, journal: Journal) -> list[KeptVerdict]:
    voter = "rule:" + config.rule.policy.model_dump_json()
    keys = [verdict_key(voter, row.problem.reference_answer, row.completion.text) for row in rows]
    unknown = [index for index, key in enumerate(keys) if journal.recall(key) is None]
    progress = Progress("rule_verifier", len(rows), logger)
    progress.advance(len(rows) - len(unknown))
    with RuleVerifier(config.rule) as verifier:
        for chunk in _chunks(unknown):
            items = [(rows[index].problem.reference_answer, rows[index].completion.text) for index in chunk]
            for index, check in zip(chunk, verifier.verify(items), strict=True):
                journal.keep(keys[index], check.verdict, check.reason)
            progress.advance(len(chunk))
    return [_recall(journal, key) for key in keys]


def _judge_verdicts(
    rows: Sequence[_Row], judge: Judge | None, journal: Journal
) -> tuple[list[KeptVerdict | None], int]:
    if judge is None:
        return [None] * len(rows), 0
    items = [
        JudgeItem(row.problem.question, row.problem.reference_answer, row.completion.text) for row in rows
    ]
    keys = [verdict_key(f"judge:{judge.name}", *item) for item in items]
    unknown = list({key: index for index, key in enumerate(keys) if journal.recall(key) is None}.values())
    num_known = sum(journal.recall(key) is not None for key in keys)
    for place, result in _ask(judge, [items[index] for index in unknown]):
        journal.keep(keys[unknown[place]], result.verdict, result.reason)
    return [_recall(journal, key) for key in keys], num_known


def _ask(judge: Judge, items: Sequence[JudgeItem]) -> Iterator[tuple[int, JudgeResult]]:
    if isinstance(judge, StreamingJudge):
        yield from judge.stream(items)
        return
    for chunk in _chunks(range(len(items))):
        yield from zip(chunk, judge.judge([items[index] for index in chunk]), strict=True)


def _recall(journal: Journal, key: str) -> KeptVerdict:
    kept = journal.recall(key)
    if kept is None:
        raise DataError(f"journal: the verdict {key} is missing; remove the journal and start again")
    return kept


def _chunks(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(indices), CHUNK_SIZE):
        yield indices[start : start + CHUNK_SIZE]


def _decide(
    row: _Row, rule: KeptVerdict, judged: KeptVerdict | None, judge_model: str | None, config: LabelingConfig
) -> Label:
    verdict = judged.verdict if judged is not None else None
    decision = decide(rule.verdict, verdict, None, unparsable_rule=config.unparsable_rule)
    return Label(
        completion_id=row.completion.id,
        rule=rule.verdict,
        rule_reason=rule.reason,
        judge=verdict,
        judge_model=judge_model,
        is_correct=decision.is_correct,
        reason=decision.reason,
    )


def _write_splits(
    rows: Sequence[_Row], labels: Sequence[Label], config: Config, outputs: dict[Split, Path]
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
    return {
        split: write_records(path, [each for each in examples if splits[each.question] == split])
        for split, path in outputs.items()
    }
