"""Stage: one page that says what a run has shown, and a short summary for a dashboard.

The page is one HTML file under 1 MB without scripts or anything from elsewhere; whatever comes from data is
escaped. Words: `report/text.py`; figures: `report/plots.py`; of VerifyRM: `report/verify_rm.py`.
Deliberately left out: judging whether the result is good.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.manifest import LATEST, MANIFEST
from cooper_rl.checkpoints.reading import fetch, read_manifest
from cooper_rl.config.root import Config
from cooper_rl.config.section import flatten
from cooper_rl.errors import DataError
from cooper_rl.records.files import atomic_path, read_records, read_report, write_report
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.report import plots
from cooper_rl.report import red_team as attacks
from cooper_rl.report import text as words
from cooper_rl.report import verify_rm as classifier
from cooper_rl.schema.data import (
    BinaryScores,
    EvalReport,
    EvaluatedCompletion,
    EvaluateVerifyRMReport,
    LabelReport,
    RunReport,
)
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.step_metrics import StepMetrics
from cooper_rl.storage.local import LocalStore

MAX_TABLE_ROWS = 40
LIBRARIES = ("cooper-rl", "torch", "transformers", "math-verify", "numpy")


def run(
    config: Config,
    *,
    evaluations: Annotated[Path, Input("The run's evaluations in order, from the starting point on (JSONL)")],
    completions: Annotated[Path, Input("Evaluated completions of the last evaluation (JSONL)")],
    checkpoint: Annotated[Path, Input("Last checkpoint folder, with the metrics of every step")],
    verify_rm_report: Annotated[Path, Input("Report of evaluate_verify_rm (JSON)")],
    page: Annotated[Path, OutputFile("Where to write the page (HTML)")],
    summary: Annotated[Path, OutputFile("Where to write the summary (Markdown)")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
    label_report: Annotated[
        Path | None, Input("Report of label_completions (JSON), where this run labelled")
    ] = None,
    red_team: Annotated[
        Path | None, Input("Report of red_team on the delivered VerifyRM (JSON), where it was attacked")
    ] = None,
    frozen_evaluations: Annotated[
        Path | None, Input("As --evaluations, of the arm whose VerifyRM was frozen (JSONL)")
    ] = None,
    frozen_completions: Annotated[Path | None, Input("As --completions, of that arm (JSONL)")] = None,
    frozen_checkpoint: Annotated[Path | None, Input("As --checkpoint, of that arm")] = None,
) -> RunReport:
    """Write the page and the summary of a run.

    Raises:
        DataError: a file is missing or malformed, or there is nothing to compare.
    """
    points = _read_points(evaluations)
    frozen = _read_points(frozen_evaluations) if frozen_evaluations else []
    metrics = read_step_metrics(checkpoint)
    attacked = read_report(red_team, RedTeamReport) if red_team else None
    result = words.summarise(
        points,
        metrics,
        max_canary_rate=config.registry.max_canary_rate,
        red_team=attacked,
        max_universal_rate=config.registry.max_universal_rate,
        frozen=frozen,
    )
    rows = words.headline_rows(points)
    texts = read_records(completions, EvaluatedCompletion)
    verify_rm = read_report(verify_rm_report, EvaluateVerifyRMReport)
    sides = classifier.compare_sides(verify_rm, points)
    html = render(
        resources.files("cooper_rl") / "report" / "report.html.jinja",
        run=result,
        rows=rows,
        evaluations=points,
        caveat=words.caveat(points),
        headline=plots.headline_figure(points),
        curves=plots.training_figures(metrics),
        arms=_compare_arms(metrics, frozen_checkpoint),
        frozen_rows=words.headline_rows(frozen) if frozen else [],
        frozen_texts=_most_paid(frozen_completions),
        labels=read_report(label_report, LabelReport) if label_report else None,
        verify_rm=verify_rm,
        sides=sides,
        figures=classifier.make_figures(sides),
        attacked=attacked,
        efforts=attacks.effort_rows(attacked) if attacked else [],
        families=attacks.family_rows(attacked) if attacked else [],
        attack_texts=attacks.best_texts(attacked) if attacked else [],
        attack_figures=attacks.make_figures(attacked) if attacked else [],
        sources=list(verify_rm.by_source.items())[:MAX_TABLE_ROWS],
        answer_types=list(verify_rm.by_answer_type.items())[:MAX_TABLE_ROWS],
        fooled=classifier.fooled_rows(sides, verify_rm.wrong_reference),
        measures=classifier.measure_rows(sides),
        verdicts=verdict_table(texts),
        groups=words.sample_groups(texts),
        num_completions=len(texts),
        settings=settings(config),
        versions=versions(),
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    for path, text in ((page, html), (summary, words.to_markdown(result, rows, points))):
        with atomic_path(path) as draft:
            draft.write_text(text, encoding="utf-8")
    write_report(report, result)
    return result


def _read_points(evaluations: Path) -> list[EvalReport]:
    points = sorted(read_records(evaluations, EvalReport), key=lambda point: point.step)
    if len(points) < 2:
        raise DataError(
            f"{evaluations}: holds one evaluation, and a report compares two; run evaluate-policy on a "
            "checkpoint with --previous set to this file"
        )
    return points


def _compare_arms(metrics: Sequence[StepMetrics], frozen_checkpoint: Path | None) -> list[plots.Figure]:
    """Reward beside accuracy, of both arms; none where there is one arm."""
    if frozen_checkpoint is None:
        return []
    arms = [("VerifyRM that learns", metrics), ("VerifyRM frozen", read_step_metrics(frozen_checkpoint))]
    found = [plots.reward_figure(rows, title) for title, rows in arms]
    return [figure for figure in found if figure is not None]


def _most_paid(completions: Path | None) -> words.SampleGroup | None:
    """What is paid most and wrong."""
    if completions is None:
        return None
    return words.sample_groups(read_records(completions, EvaluatedCompletion))[0]


def read_step_metrics(checkpoint: Path) -> list[StepMetrics]:
    """The numbers of every step since the first, from a checkpoint folder or one of its step folders.

    Raises:
        DamagedObjectError: a piece of the log is missing or changed; names it.
        DataError: there is none, or a line is not the numbers of a step.
    """
    paths = _metrics_files(checkpoint)
    rows = read_metrics(*paths)
    if not rows:
        raise DataError(f"{paths[0]}: is empty; train at least one step before a report")
    return rows


def _metrics_files(checkpoint: Path) -> Sequence[Path]:
    """The one file of a reference or of an earlier version; else the verified pieces of the log."""
    pointer, folder = checkpoint / LATEST, checkpoint
    if pointer.is_file():
        folder /= pointer.read_text(encoding="utf-8", errors="replace").strip()
    if not (folder / METRICS).is_file() and (folder / MANIFEST).is_file():
        store, name = LocalStore(folder.parent), folder.name
        manifest = read_manifest(store, name)
        if manifest.log is not None:
            return fetch(store, name, manifest, folder=folder, starting_with=(), logs=(METRICS,)).log[METRICS]
    if not (folder / METRICS).is_file():
        raise DataError(f"{folder / METRICS}: no such file; give a checkpoint folder that train-cooper wrote")
    return [folder / METRICS]


def verdict_table(completions: Sequence[EvaluatedCompletion]) -> list[tuple[str, list[int]]]:
    """Rule verdict by judge verdict: a row per rule verdict, columns correct, incorrect, unparsable, none."""
    kinds = ("correct", "incorrect", "unparsable")
    return [
        (rule, [sum(c.rule == rule and c.judge == judge for c in completions) for judge in (*kinds, None)])
        for rule in kinds
    ]


def settings(config: Config) -> list[tuple[str, str]]:
    """Every setting as (dotted key, value), as `--set` takes them; passwords and queries in
    URLs are blanked."""
    dumped = config.model_dump(mode="json")
    return [(key, _blank(json.dumps(value, ensure_ascii=False))) for key, value in flatten(dumped)]


def _blank(text: str) -> str:
    text = re.sub(r"(://[^\s\"?]*\?)[^\s\"]*", r"\1***", text)  # a signature, perhaps
    return re.sub(r"(://)[^/@\s\"]*@", r"\1***@", text)


def versions() -> list[tuple[str, str]]:
    """Installed versions of what a result depends on; a library that is not installed is left out."""
    found: list[tuple[str, str]] = []
    for name in LIBRARIES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return found


def render(template: Traversable, **context: Any) -> str:
    """Fill a page's template; everything but our own figures and style is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "percent": words.percent,
        "points": words.points,
        "span": words.span,
        "shorten": words.shorten,
        "verdict": words.verdict,
        "direction": words.direction,
        "lift": _lift,
        "quoted": lambda text: json.dumps(text, ensure_ascii=False),
        "humanise": lambda text: text.replace("_", " "),
        "svg": lambda figure: Markup(figure.svg),  # our own, without text from data
    }
    style = (resources.files("cooper_rl") / "report" / "page.css").read_text(encoding="utf-8")
    page = environment.from_string(template.read_text(encoding="utf-8"))
    return page.render(style=Markup(style), **context)  # our own, without text from data


def _lift(scores: BinaryScores) -> str:
    """Accuracy over the majority baseline, in points."""
    return words.points(scores.accuracy.value - scores.majority_accuracy)
