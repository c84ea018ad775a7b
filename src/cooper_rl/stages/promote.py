"""Stage: a candidate takes the champion's place in the registry, or does not (row 14).

Both were evaluated on the frozen sets under the same settings, or the candidate is refused. Run again after
any interruption it comes to the same end: a version is named by its weights. The rule is in
`run/promotion.py`, the registry in `checkpoints/registry.py`; `checkpoints/model_registry.py` tells MLflow.
"""

import logging
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

from cooper_rl.checkpoints.model_registry import register_champion
from cooper_rl.checkpoints.reference import REFERENCE, CheckpointReference, open_checkpoint
from cooper_rl.checkpoints.registry import (
    EVALUATED,
    EXAMPLES,
    HELD_OUT,
    KNOWN,
    LISTS,
    MODELS,
    Champion,
    Registry,
    open_registry,
    version_name,
)
from cooper_rl.config.root import Config
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import DataError, WriteConflictError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.method.intervals import clustered_interval
from cooper_rl.method.questions import draw_evaluated, fingerprint
from cooper_rl.records.files import read_records, read_report, write_records, write_report, write_text
from cooper_rl.report.changes import outcomes
from cooper_rl.run.identity import check_conditions, evaluation_conditions
from cooper_rl.run.promotion import Evaluated, check_same_set, decide, title, to_markdown
from cooper_rl.schema.data import EvaluatedCompletion, Problem, VerifyExample
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvalReport
from cooper_rl.schema.runs import ChampionRecord, KnownProblem, PromoteReport
from cooper_rl.storage.base import files_below
from cooper_rl.storage.model_reference import sums_of
from cooper_rl.storage.models import SUMS
from cooper_rl.verdicts.verifier import AnswerItem

logger = logging.getLogger(__name__)

MAX_LOST_RACES = 5


def run(
    config: Config,
    *,
    checkpoint: Annotated[Path, Input("The candidate: a checkpoint of train_cooper")],
    evaluations: Annotated[Path, Input("Evaluations of its run; the last one is the candidate's (JSONL)")],
    completions: Annotated[Path, Input("Evaluated completions of the candidate (JSONL)")],
    problems: Annotated[Path, Input("Problems that it was trained on")],
    held_out: Annotated[Path, Input("Frozen problems that it was evaluated on")],
    examples: Annotated[Path, Input("Frozen labelled examples that its VerifyRM was evaluated on")],
    summary: Annotated[Path, OutputFile("Where to write the decision in words (Markdown)")],
    report: Annotated[Path, OutputFile("Where to write the decision (JSON)")],
    red_team: Annotated[
        Path | None, Input("Report of red_team on the candidate (registry.max_universal_rate)")
    ] = None,
) -> PromoteReport:
    """Compare the candidate with the champion, and promote it or keep the champion.

    Raises:
        ConfigError: no registry is named, or the champion was evaluated with other settings.
        DamagedObjectError: the champion or the checkpoint is damaged.
        DataError: the candidate was judged on other sets, or its files do not belong together.
        StorageError: the registry cannot be used; its champion stays.
    """
    registry = open_registry(config)
    candidate = _read_candidate(
        config,
        checkpoint=checkpoint,
        evaluations=evaluations,
        completions=completions,
        problems=problems,
        held_out=held_out,
        examples=examples,
        red_team=red_team,
    )
    result = _settle(config, registry, candidate)
    logger.info("promote %s: %s", title(result), " ".join(result.reasons))
    if result.is_promoted:
        register_champion(config.registry, result, place=registry.uri, run_key=config.storage.run_key)
    write_text(summary, to_markdown(result))
    write_report(report, result)
    return result


class _Candidate(NamedTuple):
    evaluated: Evaluated
    start: EvalReport
    """The first evaluation of its run."""
    checkpoint: Path
    address: str
    problems: list[Problem]
    held_out: list[Problem]
    examples: list[VerifyExample]
    red_team: RedTeamReport | None
    """None: nobody searched."""


def _read_candidate(
    config: Config,
    *,
    checkpoint: Path,
    evaluations: Path,
    completions: Path,
    problems: Path,
    held_out: Path,
    examples: Path,
    red_team: Path | None,
) -> _Candidate:
    with open_checkpoint(checkpoint, config.storage, starting_with=()) as found:
        name, step = version_name(found.manifest), found.manifest.step
        address = f"{checkpoint}/{found.name}"
    if (checkpoint / REFERENCE).is_file():
        reference = read_report(checkpoint / REFERENCE, CheckpointReference)
        address = f"{reference.uri}/{reference.name}"
    points = read_records(evaluations, EvalReport)
    last = points[-1]
    candidate = _Candidate(
        Evaluated(name, last, read_records(completions, EvaluatedCompletion)),
        points[0],
        checkpoint,
        address,
        read_records(problems, Problem),
        read_records(held_out, Problem),
        read_records(examples, VerifyExample),
        _read_red_team(red_team, name) if red_team else None,
    )
    if last.step != step:
        raise DataError(
            f"{evaluations}: the last evaluation is of step {last.step}, {address} of step {step}; "
            "evaluate the checkpoint that is to be promoted"
        )
    if not _answers_held_out(candidate, config):
        raise DataError(
            f"{completions}: does not answer the problems of {held_out}; give the files of one evaluation"
        )
    _check_evaluation(last, config, place=evaluations)
    if last.verify_rm.num_examples != len(candidate.examples):
        raise DataError(
            f"{examples}: holds {len(candidate.examples)} examples, and VerifyRM was evaluated on "
            f"{last.verify_rm.num_examples}; give the file of that evaluation"
        )
    return candidate


def _read_red_team(path: Path, candidate: str) -> RedTeamReport:
    found = read_report(path, RedTeamReport)
    if found.target != candidate:
        attacked = found.target or "a folder of train-verify-rm"
        raise DataError(
            f"{path}: attacked the VerifyRM of {attacked}, and the candidate is {candidate}; run red-team "
            "with --checkpoint set to the candidate's"
        )
    return found


def _answers_held_out(candidate: _Candidate, config: Config) -> bool:
    """True if the completions are of the problems that the configuration evaluates on, in their order."""
    problems = draw_evaluated(candidate.held_out, config.evaluation.max_problems, seed=config.seed)
    asked = [(row.id, row.question, row.reference_answer) for row in problems]
    rows = candidate.evaluated.completions
    return asked == list(dict.fromkeys((row.problem_id, row.question, row.reference_answer) for row in rows))


def _check_evaluation(last: EvalReport, config: Config, *, place: Path) -> None:
    """Refuse an evaluation with other settings than this stage's, or one that contradicts itself."""
    if (last.judge_accuracy is None) != (config.evaluation.judge is None):
        has = "no judge" if last.judge_accuracy is None else f"the judge {last.judge_model}"
        raise DataError(
            f"{place}: the last evaluation had {has}, against evaluation.judge of this "
            "configuration; evaluate the candidate with the settings of this stage"
        )
    num_hits = sum(map(len, last.verify_rm_hits or []))
    if last.verify_rm_hits is not None and num_hits != last.verify_rm.num_examples:
        raise DataError(
            f"{place}: the last evaluation has {num_hits} verify_rm_hits for "
            f"{last.verify_rm.num_examples} examples; evaluate the candidate again"
        )


def _settle(config: Config, registry: Registry, candidate: _Candidate) -> PromoteReport:
    """Decide against the champion of the moment, and anew when another one was promoted meanwhile."""
    for _ in range(MAX_LOST_RACES):
        champion = registry.champion(candidate=candidate.evaluated.name)
        if champion is not None and champion.name == candidate.evaluated.name:
            return champion.record.decision  # an earlier attempt came this far
        with scratch_folder() as scratch:
            folder = registry.fetch(champion, scratch / "champion", starting_with=LISTS) if champion else None
            decision = _compare(config, candidate, champion, folder)
            if not decision.is_promoted:
                return decision
            try:
                _promote(config, registry, candidate, decision, champion, folder=folder, scratch=scratch)
            except WriteConflictError as error:
                logger.warning("promote: another champion came first (%s); comparing with that one", error)
            else:
                return decision
    raise WriteConflictError(
        f"{registry.uri}: {MAX_LOST_RACES} other champions were promoted while this one was; run it again"
    )


def _compare(
    config: Config, candidate: _Candidate, champion: Champion | None, folder: Path | None
) -> PromoteReport:
    before = None
    if champion is not None and folder is not None:
        check_same_set(
            "held-out problems",
            champion.name,
            there=read_records(folder / HELD_OUT, Problem),
            here=candidate.held_out,
        )
        check_same_set(
            "labelled examples",
            champion.name,
            there=read_records(folder / EXAMPLES, VerifyExample),
            here=candidate.examples,
        )
        check_conditions(champion.name, there=champion.record.conditions, here=evaluation_conditions(config))
        before = _judge_again(
            config,
            Evaluated(
                champion.name,
                champion.record.evaluation,
                read_records(folder / EVALUATED, EvaluatedCompletion),
            ),
        )
    return decide(
        candidate.evaluated,
        before,
        start=candidate.start,
        max_canary_rate=config.registry.max_canary_rate,
        red_team=candidate.red_team,
        max_universal_rate=config.registry.max_universal_rate,
    )


def _judge_again(config: Config, champion: Evaluated) -> Evaluated:
    """The evaluation with the verdicts of the present rule verifier, where they decide: an upgrade may change
    them."""
    if config.evaluation.judge is not None:
        return champion
    rows = champion.completions
    with closing(find_domain(config.problems.domain).open_verifier(config.labeling.rule)) as rule:
        # As the evaluator asked: without question and ending the champion alone would lose what they tell.
        checks = rule.verify(
            [
                AnswerItem(row.reference_answer, row.completion, row.question, row.finish_reason)
                for row in rows
            ]
        )
    rows = [row.model_copy(update={"rule": check.verdict}) for row, check in zip(rows, checks, strict=True)]
    accuracy = clustered_interval(list(outcomes(rows).values()))
    report = champion.report.model_copy(update={"rule_accuracy": accuracy})
    return champion._replace(report=report, completions=rows)


def _promote(
    config: Config,
    registry: Registry,
    candidate: _Candidate,
    decision: PromoteReport,
    champion: Champion | None,
    *,
    folder: Path | None,
    scratch: Path,
) -> None:
    known = [row.fingerprint for row in read_records(folder / KNOWN, KnownProblem)] if folder else []
    known = list(dict.fromkeys([*known, *map(fingerprint, candidate.problems)]))
    write_records(scratch / HELD_OUT, candidate.held_out)
    write_records(scratch / EXAMPLES, candidate.examples)
    write_records(scratch / EVALUATED, candidate.evaluated.completions)
    write_records(scratch / KNOWN, [KnownProblem(fingerprint=each) for each in known])
    record = ChampionRecord(
        run=config.storage.run_key,
        checkpoint=candidate.address,
        previous=champion.name if champion else None,
        promoted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        conditions=evaluation_conditions(config),
        num_known_problems=len(known),
        evaluation=candidate.evaluated.report,
        decision=decision,
    )
    with open_checkpoint(candidate.checkpoint, config.storage, starting_with=MODELS) as found:
        files = {name: scratch / name for name in LISTS}
        files |= {name: found.folder / name for name in files_below(found.folder) if name.startswith(MODELS)}
        files |= _lists_of(found.folder, scratch)
        registry.promote(decision.candidate, files, record, replaces=champion)


def _lists_of(folder: Path, scratch: Path) -> dict[str, Path]:
    """SHA256SUMS of each model, by which a run starts from it where it lies."""
    lists: dict[str, Path] = {}
    for model in MODELS:
        place = scratch / f"{model.strip('/')}.{SUMS}"
        names = [name for name in files_below(folder / model) if name != SUMS]
        place.write_bytes(sums_of(folder / model, names))
        lists[f"{model}{SUMS}"] = place
    return lists
