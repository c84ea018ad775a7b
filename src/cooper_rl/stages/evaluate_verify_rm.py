"""Stage: VerifyRM on labelled examples that it has not seen (rows 4 and 5).

Reads what `label_completions` holds out, any file with the released columns, and VerifyBench. Beside the
scores it asks how VerifyRM could be fooled: canaries, wrong references, and a probe that sees no answer. The
threshold is 0.5, where the training loss puts it.
"""

import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cooper_rl.config.root import Config
from cooper_rl.domains.open import find_domain
from cooper_rl.machine.device import pick_device
from cooper_rl.method.metrics import (
    binary_scores,
    confusion_counts,
    reliability_bins,
    roc_points,
    score_intervals,
)
from cooper_rl.method.shortcuts import shortcut_auroc
from cooper_rl.models.packed.forward import use_packed
from cooper_rl.models.verify_rm import VerifyRM, load_verify_rm, score_examples
from cooper_rl.negatives.canaries import (
    canary_rates,
    false_positive_rate,
    mean_rate,
    wrong_references,
)
from cooper_rl.progress import Progress
from cooper_rl.randomness import derive_seed
from cooper_rl.records.files import write_report
from cooper_rl.records.rejected import set_aside
from cooper_rl.records.verify_formats import read_examples
from cooper_rl.schema.data import VerifyExample
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.reports import BinaryScores, EvaluateVerifyRMReport
from cooper_rl.storage.model_reference import model_in
from cooper_rl.storage.models import at_hand

logger = logging.getLogger(__name__)

NO_SOURCE = "(no source)"
POOR_AUROC = 0.75
"""Below it co-training on VerifyRM's reward alone ended behind the rule's; docs/results/experiment.md."""
CHUNK_SIZE = 512
"""Examples between two progress lines."""


def run(
    config: Config,
    *,
    verify_rm: Annotated[Path, Input("Folder of train_verify_rm")],
    examples: Annotated[
        Path, Input("Held-out labelled examples (JSONL or Parquet; released columns or VerifyBench)")
    ],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)", ".rejected.jsonl")],
    rejected: Annotated[
        Path | None,
        OutputFile("Where to write rows that cannot be used (absent: <report>.rejected.jsonl, if any)"),
    ] = None,
) -> EvaluateVerifyRMReport:
    """Score held-out examples and compare with their labels, over all and by source.

    Raises:
        DataError: the file is missing or has no usable row.
        ModelError: VerifyRM cannot be loaded.
        TrainingError: a score is not finite.
    """
    read = read_examples(examples)
    set_aside(report, read.rejected, rejected=rejected)
    rows: list[VerifyExample] = read.records
    model = load_verify_rm(at_hand(config.storage, model_in(verify_rm)), device=pick_device())
    use_packed(model.model, is_on=config.packed_forward)
    scores = _score(model, rows)
    labels = [row.label for row in rows]
    rng = random.Random(derive_seed(config.seed, "evaluate_verify_rm"))
    domain = find_domain(config.problems.domain)
    canaries = domain.make_canaries(rows, max_problems=config.verify_rm.max_canary_problems, rng=rng)
    attacks = canary_rates(canaries, score_examples(model, [canary.example for canary in canaries]))
    swapped = wrong_references(rows, rng, domain.is_other_answer)
    result = EvaluateVerifyRMReport(
        overall=_binary_scores(rows, scores),
        by_source=_by_group(rows, scores, [row.source or NO_SOURCE for row in rows]),
        by_answer_type=_by_group(rows, scores, [row.answer_type for row in rows]),
        intervals=score_intervals(labels, scores, problems=[row.question for row in rows]),
        reliability=reliability_bins(labels, scores),
        confusion=confusion_counts(labels, scores),
        roc=roc_points(labels, scores),
        canaries=attacks,
        canary_false_positive_rate=mean_rate(attacks),
        wrong_reference=false_positive_rate(swapped, _score(model, swapped)) if swapped else None,
        shortcut_auroc=shortcut_auroc(rows),
        num_rejected=len(read.rejected),
    )
    _warn(result, has_decoys=model.decoys is not None)
    write_report(report, result)
    return result


def _warn(result: EvaluateVerifyRMReport, *, has_decoys: bool) -> None:
    found = result.overall.auroc
    if found is not None and result.shortcut_auroc is not None and found - result.shortcut_auroc < 0.05:
        logger.warning(
            "a probe that reads neither answer nor reference reaches an AUROC of %.3f, VerifyRM %.3f: "
            "it may have learned the same shortcut; balance length and format between the labels",
            result.shortcut_auroc,
            found,
        )
    if found is not None and found < POOR_AUROC:
        logger.warning(
            "VerifyRM's AUROC is %.3f: a policy that it alone pays learns what it gets wrong before "
            "co-training mends it; train it on more labels%s, or start with cooper.reward.kind=rule_gated",
            found,
            "" if has_decoys else " or with verify_rm.num_decoys=23",
        )


def _score(verify_rm: VerifyRM, rows: Sequence[VerifyExample]) -> list[float]:
    """Scores in the order of the rows."""
    progress = Progress("evaluate_verify_rm", len(rows), logger)
    scores: list[float] = []
    for start in range(0, len(rows), CHUNK_SIZE):
        chunk = rows[start : start + CHUNK_SIZE]
        scores += score_examples(verify_rm, chunk)
        progress.advance(len(chunk))
    return scores


def _by_group(
    rows: Sequence[VerifyExample], scores: Sequence[float], names: Sequence[str | None]
) -> dict[str, BinaryScores]:
    """Scores by group, in alphabetical order; rows without a group are left out."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name is not None:
            places.setdefault(name, []).append(place)
    return {
        name: _binary_scores([rows[place] for place in places[name]], [scores[p] for p in places[name]])
        for name in sorted(places)
    }


def _binary_scores(rows: Sequence[VerifyExample], scores: Sequence[float]) -> BinaryScores:
    # Completions of one question are one cluster: they share whatever makes it easy or hard to judge.
    return binary_scores([row.label for row in rows], scores, problems=[row.question for row in rows])
