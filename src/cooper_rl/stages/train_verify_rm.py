"""Stage: make VerifyRM from a backbone, or take one that is there, and train it (rows 4 and 5).

A training that was stopped, in whatever way, goes on when it is started again with the same arguments, and
its weights are those of one that was not stopped (`run/fit_checkpoints.py`).
"""

import dataclasses
import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import torch

from cooper_rl.config.root import Config
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import DataError
from cooper_rl.labels.splits import Splits
from cooper_rl.labels.spool import Spool
from cooper_rl.machine.device import pick_device
from cooper_rl.machine.index import temporary_index
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.method.questions import with_questions
from cooper_rl.models.packed.forward import use_packed
from cooper_rl.models.precision import settle
from cooper_rl.models.template import cut_fields
from cooper_rl.models.verify_rm import (
    VerifyRM,
    load_verify_rm,
    make_from_backbone,
    make_from_scratch,
    measure,
    save_verify_rm,
    score_examples,
)
from cooper_rl.models.verify_rm_card import write_card
from cooper_rl.records.files import is_same_file, write_report
from cooper_rl.records.model_set import read_models
from cooper_rl.records.rejected import set_aside
from cooper_rl.records.verify_formats import stream_examples
from cooper_rl.redteam.negatives import read_attacks
from cooper_rl.run.fit_checkpoints import FitCheckpoints, fit_checkpoints
from cooper_rl.run.identity import fit_identity
from cooper_rl.run.stopping import StopRequest
from cooper_rl.schema.data import Record, RejectedRow, VerifyExample
from cooper_rl.schema.paths import Input, OutputFile, OutputFolder
from cooper_rl.schema.reports import BinaryScores, TrainVerifyRMReport
from cooper_rl.storage.model_reference import handed_over
from cooper_rl.storage.models import at_hand
from cooper_rl.training.fitting.fit_verify_rm import Fit, train_in_lessons

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Record)


def run(
    config: Config,
    *,
    train: Annotated[Path, Input("Labelled examples to train on (the released columns)")],
    validation: Annotated[
        Path,
        Input("Labelled examples of other problems, to validate on; the same file: some of its questions"),
    ],
    verify_rm: Annotated[
        Path, OutputFolder("Folder to write VerifyRM to; a reference with a storage.uri of s3://")
    ],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)", ".rejected.jsonl")],
    models: Annotated[
        Path | None,
        Input(
            "Folder of prepare_models or take_champion: its VerifyRM, else its backbone; absent: from scratch"
        ),
    ] = None,
    attacks: Annotated[Path | None, Input("Texts of red_team, learned as wrong completions")] = None,
    rejected: Annotated[
        Path | None,
        OutputFile("Where to write rows that cannot be used (absent: <report>.rejected.jsonl, if any)"),
    ] = None,
) -> TrainVerifyRMReport:
    """Train VerifyRM with binary cross-entropy.

    Raises:
        ConfigError: beside the output lies the state of a training with another configuration or other data.
        DataError: no usable example in a file, or a problem that stands in both files.
        ModelError: the backbone cannot be used.
        TrainingError: one class only, a gradient that is not finite, or out of memory; the best weights
            so far stay in the folder, unless it gets a reference.
        StoppedError: SIGTERM; what was done is saved.
        StorageError: storage.uri is in an object store that cannot be used, or the state cannot be kept.
    """
    started = time.monotonic()
    with ExitStack() as stack:
        spools = _Spools(stack)
        rows = _read(config, train, validation, spools)
        set_aside(report, rows.unusable, rejected=rejected)
        texts = read_attacks(attacks)
        files = {"train": train, "validation": validation, "attacks": attacks}
        identity = fit_identity(config, models=models, files=files)
        stop = stack.enter_context(StopRequest(config.storage.grace_seconds))
        watch = stack.enter_context(fit_checkpoints(config, verify_rm, identity, stop))
        with handed_over(config.storage, verify_rm) as folder:
            fit, validated = _fit(config, rows, spools, folder, models=models, attacks=texts, watch=watch)
        result = TrainVerifyRMReport(
            num_examples=len(rows.examples),
            num_rejected=len(rows.unusable),
            num_updates=fit.num_updates,
            final_loss=fit.final_loss,
            best_update=fit.best_update,
            validation_loss=fit.validation_loss,
            tokens_per_second=fit.num_tokens / fit.seconds,
            computed_token_fraction=fit.num_computed_tokens / fit.num_tokens,
            validation=validated,
            seconds=time.monotonic() - started,
        )
        write_report(report, result)
        watch.finish()
    _warn(validated)
    return result


def _warn(validated: BinaryScores) -> None:
    if validated.auroc is None:
        logger.warning(
            "all %d validation examples have one label: they do not say whether VerifyRM tells right from "
            "wrong; validate on completions of both kinds",
            validated.num_examples,
        )
    elif validated.accuracy.value <= validated.majority_accuracy:
        logger.warning(
            "VerifyRM is right on %.3f of %d validation examples, and the more frequent label on %.3f: it "
            "has not learned to compare answers; start from a pre-trained backbone, train on more labels, or "
            "set what docs/how-to/verify_rm.md says of training from scratch",
            validated.accuracy.value,
            validated.num_examples,
            validated.majority_accuracy,
        )


class _Spools:
    """Places on disk for examples, for any number of them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._folder = stack.enter_context(scratch_folder())
        self._names = itertools.count()

    def open(self, kind: type[R]) -> Spool[R]:
        return self._stack.enter_context(Spool(self._folder / f"{next(self._names)}.jsonl", kind))

    def keep(self, examples: Iterable[VerifyExample]) -> Spool[VerifyExample]:
        spool = self.open(VerifyExample)
        spool.extend(examples)
        return spool


class _Rows(NamedTuple):
    examples: Sequence[VerifyExample]
    held_out: Sequence[VerifyExample]
    unusable: Sequence[RejectedRow]


def _read(config: Config, train: Path, validation: Path, spools: _Spools) -> _Rows:
    """Both files, whose questions must differ; one file is split by question."""
    unusable = spools.open(RejectedRow)
    examples = spools.keep(stream_examples(train, set_aside=unusable.append))
    if is_same_file(train, validation):
        return _Rows(*_split(config, examples, train, spools), unusable)
    held_out = list(stream_examples(validation, set_aside=unusable.append))
    _check_apart(examples, held_out, train=train, validation=validation)
    return _Rows(examples, held_out, unusable)


def _split(
    config: Config, rows: Sequence[VerifyExample], path: Path, spools: _Spools
) -> tuple[Sequence[VerifyExample], Sequence[VerifyExample]]:
    fraction = config.labeling.validation_fraction
    kept, held_out = spools.open(VerifyExample), list[VerifyExample]()
    with temporary_index() as index:
        splits = Splits(index, config.seed)
        for row in rows:
            splits.add(row.question, is_correct=row.label == 1)
        try:
            splits.deal(validation_fraction=fraction, test_fraction=fraction)
        except ValueError as error:
            raise DataError(f"{path}: {error}, or give a file of its own as --validation") from error
        for row in rows:
            # What would be kept for a test is learned from: the file's owner evaluates on another one.
            (held_out if splits.split_of(row.question) == "validation" else kept).append(row)
    return kept, held_out


def _check_apart(
    examples: Sequence[VerifyExample], held_out: Sequence[VerifyExample], *, train: Path, validation: Path
) -> None:
    shared = {example.question for example in with_questions(examples, held_out)}
    if shared:
        raise DataError(
            f"{len(shared)} questions stand both in {train} and in {validation}, e.g. {min(shared)[:80]!r}; "
            "split by question, or the validation says nothing"
        )


def _fit(
    config: Config,
    rows: _Rows,
    spools: _Spools,
    folder: Path,
    *,
    models: Path | None,
    attacks: Sequence[str],
    watch: FitCheckpoints,
) -> tuple[Fit, BinaryScores]:
    """Train, and measure the best weights on the validation examples."""
    device = pick_device()
    model = _starting_model(config, rows.examples, models=models, device=device)
    precision = settle(model.model, config.verify_rm.precision, recorded=watch.recorded_precision)
    model = dataclasses.replace(model, compute=precision)
    use_packed(model.model, is_on=config.packed_forward)
    watch.open(folder, device, precision)
    fit = train_in_lessons(
        model,
        rows.examples,
        config=config.verify_rm,
        is_from_scratch=models is None,
        seed=config.seed,
        domain=find_domain(config.problems.domain),
        validation=rows.held_out,
        attacks=attacks,
        keep=lambda: save_verify_rm(model, folder),
        watch=watch,
        keep_examples=spools.keep,
    )
    scores = fit.validation_scores
    if scores is None:  # a process that was stopped found the best weights
        model = dataclasses.replace(load_verify_rm(folder, device=device), compute=model.compute)
        use_packed(model.model, is_on=config.packed_forward)
        scores = score_examples(model, rows.held_out, with_veto=False)
    validated = measure(rows.held_out, scores)
    write_card(folder, model.model, validated)
    return fit, validated


def _starting_model(
    config: Config, examples: Sequence[VerifyExample], *, models: Path | None, device: torch.device
) -> VerifyRM:
    if models is None:
        cut_completion = find_domain(config.problems.domain).cut_completion
        items = ((e.question, e.reference_answer, e.completion) for e in examples)
        texts = (part for item in items for parts in cut_fields(item, cut_completion) for part in parts)
        return make_from_scratch(texts, config.verify_rm.scratch, seed=config.seed, device=device)
    found = read_models(models)
    if found.verify_rm is not None:
        logger.info("train_verify_rm goes on with %s", found.verify_rm)
        return load_verify_rm(at_hand(config.storage, found.verify_rm), device=device)
    backbone = at_hand(config.storage, found.backbone)
    return make_from_backbone(backbone, seed=config.seed, device=device)
