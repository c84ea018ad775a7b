"""Stage: a retraining's starting models, its new problems, and its frozen sets (rows 1, 4 and 13).

A collected problem is new when neither the champion nor one before it learned from it, by the fingerprint of
question and reference answer, and when its question stands in no frozen set. The frozen sets are the first
champion's: its held-out problems and its labelled test examples. Where there is no champion, everything is
new and this run's own held-out problems are proposed. `promote.py` decides.
"""

import logging
from collections.abc import Mapping, Sequence
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
from cooper_rl.config.infrastructure import is_stored
from cooper_rl.config.root import Config
from cooper_rl.errors import DataError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.method.questions import fingerprint, without_questions
from cooper_rl.records.files import read_records, read_report, write_records, write_report, write_text
from cooper_rl.records.model_set import MANIFEST
from cooper_rl.records.written import check_own, check_replaceable, copy_written, remove_written
from cooper_rl.report.numbers import percent
from cooper_rl.run.identity import check_conditions, evaluation_conditions
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.paths import Input, OutputFile, OutputFolder
from cooper_rl.schema.reports import ModelSet
from cooper_rl.schema.runs import ChampionReport, KnownProblem
from cooper_rl.storage.models import SUMS, find_model

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    prepared: Annotated[Path, Input("Folder of prepare_models: the start where there is no champion")],
    collected: Annotated[Path, Input("Collected problems (JSONL or Parquet)")],
    collected_held_out: Annotated[Path, Input("Collected problems that were held out")],
    models: Annotated[Path, OutputFolder("Folder to write models.json to, and models that are not stored")],
    problems: Annotated[Path, OutputFile("Where to write the new problems, to train on")],
    held_out: Annotated[Path, OutputFile("Where to write the frozen problems")],
    examples: Annotated[
        Path, OutputFile("Where to write the frozen labelled examples; empty without a champion")
    ],
    attacks: Annotated[Path, OutputFile("Where to write the texts that red teams found before (JSONL)")],
    summary: Annotated[Path, OutputFile("Where to write what was found, in words (Markdown)")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
) -> ChampionReport:
    """Take the champion and the frozen sets out of the registry, and keep what is new.

    Raises:
        ConfigError: no registry is named, or the champion was evaluated with other settings.
        DamagedObjectError: the champion or the list of attacks is damaged.
        DataError: an input is missing or malformed, or an output cannot be written.
        StorageError: the registry cannot be used.
    """
    registry = open_registry(config)
    training = read_records(collected, Problem)
    proposed = read_records(collected_held_out, Problem)
    champion = registry.champion()
    if champion is not None:  # now, and not after the training: `promote` would refuse the comparison
        check_conditions(champion.name, there=champion.record.conditions, here=evaluation_conditions(config))
    with scratch_folder() as scratch:
        if champion is None:
            sets = _Sets(training, proposed, [], num_frozen=len(proposed), num_known=0)
        else:
            folder = registry.fetch(champion, scratch, starting_with=(HELD_OUT, EXAMPLES, KNOWN))
            sets = _sort(folder, [*training, *proposed])
        result = _describe(config, registry, champion, sets)
        write_records(problems, sets.new)
        write_records(held_out, sets.held_out)
        write_records(examples, sets.examples)
        write_records(attacks, registry.attacks())
        if result.is_worth_training:
            _write_models(config, registry, champion, models=models, prepared=prepared, scratch=scratch)
        else:
            models.mkdir(parents=True, exist_ok=True)
    logger.info("take_champion %s", result.statement)
    write_text(summary, f"# Where this retraining starts\n\n{result.statement}\n")
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


def _write_models(
    config: Config,
    registry: Registry,
    champion: Champion | None,
    *,
    models: Path,
    prepared: Path,
    scratch: Path,
) -> None:
    """The prepared models, with the champion's in place of policy and VerifyRM."""
    found = read_report(prepared / MANIFEST, ModelSet)
    named = _named(config, registry, champion)
    sources = {name: prepared / name for name in _inside(found) if (prepared / name).is_dir()}
    if champion is not None and not named:
        weights = registry.fetch(champion, scratch, starting_with=MODELS)
        sources |= {name: weights / name for name in ("policy", "verify_rm")}
    try:
        _replace(models, sources)
    except OSError as error:
        raise DataError(f"{models}: cannot be written ({error}); free space there") from error
    if champion is not None:
        policy = named.get("policy", "policy")
        found = ModelSet(
            policy=policy,
            # The policy of today writes what VerifyRM has to judge tomorrow.
            samplers={
                name: policy if model == found.policy else model for name, model in found.samplers.items()
            },
            backbone=found.backbone,
            verify_rm=named.get("verify_rm", "verify_rm"),
        )
    write_report(models / MANIFEST, found)


def _named(config: Config, registry: Registry, champion: Champion | None) -> dict[str, str]:
    """Each model's address in an object store, with its hash; empty where later tasks need a folder.

    That is without a champion, in a registry in a folder, and for one promoted before there were such lists.
    """
    if champion is None or not is_stored(registry.uri):
        return {}
    if not all(f"{model}{SUMS}" in champion.manifest.sha256 for model in MODELS):
        return {}
    place = f"{registry.uri}/{champion.name}"
    names = [model.strip("/") for model in MODELS]
    return {name: find_model(config.storage, f"{place}/{name}").pinned for name in names}


def _inside(models: ModelSet) -> set[str]:
    """Names that may be folders beside models.json."""
    names = {models.policy, models.backbone, *models.samplers.values(), models.verify_rm or ""}
    return {name for name in names if name and "/" not in name and name not in {".", ".."}}


def _replace(models: Path, sources: Mapping[str, Path]) -> None:
    """Copies of these folders take the place of an earlier run's; whatever else the folder holds stays.

    Raises:
        DataError: one of them holds files of others; nothing was changed.
    """
    check_own(models / MANIFEST, ModelSet)
    names = {*sources, "policy", "verify_rm"}
    for name in names:
        check_replaceable(models / name)
    (models / MANIFEST).unlink(missing_ok=True)
    for name in names - sources.keys():
        remove_written(models / name)
    for name, source in sources.items():
        copy_written(source, models / name)
