"""Stage: VerifyRM on labelled examples that it has not seen (rows 4 and 5).

Reads what `label_completions` holds out, or any file with the released columns. Deliberately left out:
choosing a threshold; 0.5 is where its training loss puts it.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cooper_rl.backends.device import pick_device
from cooper_rl.backends.verify_rm import VerifyRM, load_verify_rm, score_examples
from cooper_rl.config import Config
from cooper_rl.core.metrics import binary_scores, confusion_counts, roc_points
from cooper_rl.progress import Progress
from cooper_rl.records import read_good_records, write_report
from cooper_rl.schema import BinaryScores, EvaluateVerifyRMReport, VerifyExample

logger = logging.getLogger(__name__)

NO_SOURCE = "(no source)"
CHUNK_SIZE = 512
"""Examples between two progress lines."""


def run(
    config: Config,
    *,
    verify_rm: Annotated[Path, "Folder of train_verify_rm"],
    examples: Annotated[Path, "Held-out labelled examples (JSONL or Parquet; the released columns)"],
    report: Annotated[Path, "Where to write the report (JSON)"],
) -> EvaluateVerifyRMReport:
    """Score held-out examples and compare with their labels, over all and by source.

    Raises:
        DataError: the file is missing or has no usable row.
        ModelError: VerifyRM cannot be loaded.
        TrainingError: a score is not finite.
    """
    read = read_good_records(examples, VerifyExample)
    for row in read.rejected:
        logger.warning("set aside: %s", row.reason)
    rows: list[VerifyExample] = read.records
    scores = _score(load_verify_rm(verify_rm, device=pick_device()), rows)
    labels = [row.label for row in rows]
    result = EvaluateVerifyRMReport(
        overall=_binary_scores(rows, scores),
        by_source=_by_source(rows, scores),
        confusion=confusion_counts(labels, scores),
        roc=roc_points(labels, scores),
        num_rejected=len(read.rejected),
    )
    write_report(report, result)
    return result


def _score(verify_rm: VerifyRM, rows: Sequence[VerifyExample]) -> list[float]:
    """Scores in the order of the rows."""
    progress = Progress("evaluate_verify_rm", len(rows), logger)
    scores: list[float] = []
    for start in range(0, len(rows), CHUNK_SIZE):
        chunk = rows[start : start + CHUNK_SIZE]
        scores += score_examples(verify_rm, chunk)
        progress.advance(len(chunk))
    return scores


def _by_source(rows: Sequence[VerifyExample], scores: Sequence[float]) -> dict[str, BinaryScores]:
    """By source in alphabetical order."""
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.source or NO_SOURCE, []).append(place)
    return {
        source: _binary_scores([rows[place] for place in places[source]], [scores[p] for p in places[source]])
        for source in sorted(places)
    }


def _binary_scores(rows: Sequence[VerifyExample], scores: Sequence[float]) -> BinaryScores:
    # Completions of one question are one cluster: they share whatever makes it easy or hard to judge.
    return binary_scores([row.label for row in rows], scores, problems=[row.question for row in rows])
