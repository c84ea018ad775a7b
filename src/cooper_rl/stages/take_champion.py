"""Stage: where a retraining starts, what is new for it, and what it will be judged on (rows 1, 4 and 13).

A collected problem is new when neither the champion nor one before it learned from it, by the fingerprint of
question and reference answer, and when its question stands in no frozen set. The frozen sets are the first
champion's: its held-out problems and its labelled test examples. Where there is no champion, everything is
new and this run's own held-out problems are proposed. Deliberately left out: training, and deciding
(`promote.py`).
"""

import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from cooper_rl.checkpoints.registry import (
    EXAMPLES,
    HELD_OUT,
    KNOWN,
    MODELS,
    Champion,
    Registry,
    open_registry,
)
from cooper_rl.config.root import Config
from cooper_rl.errors import DataError
from cooper_rl.method.questions import fingerprint, without_questions
from cooper_rl.records.files import atomic_path, read_records, read_report, write_records, write_report
from cooper_rl.records.model_set import MANIFEST
from cooper_rl.report.text import percent
from cooper_rl.schema.data import ModelSet, Problem, VerifyExample
from cooper_rl.schema.paths import Input, OutputFile, OutputFolder
from cooper_rl.schema.runs import ChampionReport, KnownProblem

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    prepared: Annotated[Path, Input("Folder of prepare_models: the start where there is no champion")],
    collected: Annotated[Path, Input("Collected problems (JSONL or Parquet)")],
    collected_held_out: Annotated[Path, Input("Collected problems that were held out")],
    models: Annotated[Path, OutputFolder("Folder to write models.json and the champion's models to")],
    problems: Annotated[Path, OutputFile("Where to write the new problems, to train on")],
    held_out: Annotated[Path, OutputFile("Where to write the frozen problems")],
    examples: Annotated[
        Path, OutputFile("Where to write the frozen labelled examples; empty without a champion")
    ],
    summary: Annotated[Path, OutputFile("Where to write what was found, in words (Markdown)")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
) -> ChampionReport:
    """Take the champion and the frozen sets out of the registry, and keep what is new.

    Raises:
        ConfigError: no registry is named.
        DamagedObjectError: the champion is damaged.
        DataError: an input is missing or malformed, or an output cannot be written.
        StorageError: the registry cannot be used.
    """
    registry = open_registry(config)
    training = read_records(collected, Problem)
    proposed = read_records(collected_held_out, Problem)
    champion = registry.champion()
    with tempfile.TemporaryDirectory(prefix="cooper-rl-") as scratch:
        if champion is None:
            sets = _Sets(training, proposed, [], num_frozen=len(proposed), num_known=0)
        else:
            folder = registry.fetch(champion, Path(scratch), starting_with=(HELD_OUT, EXAMPLES, KNOWN))
            sets = _sort(folder, [*training, *proposed])
        result = _describe(config, registry, champion, sets)
        write_records(problems, sets.new)
        write_records(held_out, sets.held_out)
        write_records(examples, sets.examples)
        if result.is_worth_training:
            weights = registry.fetch(champion, Path(scratch), starting_with=MODELS) if champion else None
            _write_models(models, prepared, weights)
        else:
            models.mkdir(parents=True, exist_ok=True)
    logger.info("take_champion %s", result.statement)
    with atomic_path(summary) as draft:
        draft.write_text(f"# Where this retraining starts\n\n{result.statement}\n", encoding="utf-8")
    write_report(report, result)
    return result


class _Sets(NamedTuple):
    new: list[Problem]
    held_out: list[Problem]
    examples: list[VerifyExample]
    num_frozen: int
    num_known: int


def _sort(folder: Path, collected: Sequence[Problem]) -> _Sets:
    """Collected problems against what the champion brings along; `folder` holds its lists."""
    held_out = read_records(folder / HELD_OUT, Problem)
    examples = read_records(folder / EXAMPLES, VerifyExample)
    known = {row.fingerprint for row in read_records(folder / KNOWN, KnownProblem)}
    trainable = without_questions(collected, (*held_out, *examples))
    new = [problem for problem in trainable if fingerprint(problem) not in known]
    return _Sets(
        new,
        held_out,
        examples,
        num_frozen=len(collected) - len(trainable),
        num_known=len(trainable) - len(new),
    )


def _describe(config: Config, registry: Registry, champion: Champion | None, sets: _Sets) -> ChampionReport:
    num_new, least = len(sets.new), config.registry.min_new_problems
    is_worth_training = num_new >= least
    num_collected = num_new + sets.num_frozen + sets.num_known
    if champion is None:
        who = f"The registry {registry.uri} has no champion"
    else:
        found = champion.record.decision
        accuracy = f"{found.accuracy_name} {percent(found.accuracy.value)}"
        who = f"The champion of registry {registry.uri} is {champion.name} ({accuracy})"
    if is_worth_training:
        start = f"{champion.name}'s policy and VerifyRM" if champion else "the models of the preset"
        end = f"Training starts from {start}, on the new problems."
    else:
        end = (
            "Nothing is trained in this run, and nothing changes: fewer than "
            f"registry.min_new_problems={least} are new."
        )
    return ChampionReport(
        champion=champion.name if champion else None,
        num_collected=num_collected,
        num_frozen=sets.num_frozen,
        num_known=sets.num_known,
        num_new=num_new,
        is_worth_training=is_worth_training,
        statement=(
            f"{who}. Of {num_collected} collected problems {num_new} are new, {sets.num_known} were learned "
            f"from before, and {sets.num_frozen} are frozen for evaluation. {end}"
        ),
    )


def _write_models(models: Path, prepared: Path, champion: Path | None) -> None:
    """The prepared models, with the champion's in place of policy and VerifyRM."""
    found = read_report(prepared / MANIFEST, ModelSet)
    try:
        # Only what is written anew is replaced: the folder may hold other things.
        for name in {*(entry.name for entry in prepared.iterdir()), "policy", "verify_rm"}:
            _remove(models / name)
        shutil.copytree(prepared, models, dirs_exist_ok=True)
        if champion is not None:
            for name in ("policy", "verify_rm"):
                shutil.rmtree(models / name, ignore_errors=True)
                shutil.copytree(champion / name, models / name)
    except OSError as error:
        raise DataError(f"{models}: cannot be written ({error}); free space there") from error
    if champion is not None:
        found = ModelSet(
            policy="policy",
            # The policy of today writes what VerifyRM has to judge tomorrow.
            samplers={
                name: "policy" if model == found.policy else model for name, model in found.samplers.items()
            },
            backbone=found.backbone,
            verify_rm="verify_rm",
        )
    write_report(models / MANIFEST, found)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
