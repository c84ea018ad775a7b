"""Stage: one page that says what a run has shown, and a short summary for a dashboard.

The page is one HTML file under 1 MB with nothing from elsewhere (`report/page.py`). Words: `report/text.py`;
figures: `report/plots.py`; texts of the policy: `report/samples.py`; of VerifyRM: `report/verify_rm.py`. The
page does not judge whether the result is good.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

from cooper_rl.checkpoints.logs import METRICS, ROLLOUTS
from cooper_rl.checkpoints.manifest import MANIFEST
from cooper_rl.checkpoints.reading import fetch, read_manifest
from cooper_rl.checkpoints.reference import newest_folder
from cooper_rl.config.root import Config
from cooper_rl.errors import DataError
from cooper_rl.records.files import atomic_path, read_records, read_report, write_report, write_text
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.report import plots, provenance
from cooper_rl.report import red_team as attacks
from cooper_rl.report import samples as shown
from cooper_rl.report import text as words
from cooper_rl.report import verify_rm as classifier
from cooper_rl.report.changes import told_by_others
from cooper_rl.report.figure import Figure, draw_png
from cooper_rl.report.page import render, settings, versions
from cooper_rl.schema.data import EvaluatedCompletion, RolloutSample
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvalReport, EvaluateVerifyRMReport, LabelReport, RunReport
from cooper_rl.schema.step_metrics import StepMetrics
from cooper_rl.storage.local import LocalStore

MAX_TABLE_ROWS = 40


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
    start_completions: Annotated[
        Path | None,
        Input("Evaluated completions of the starting point, to show beside the last ones (JSONL)"),
    ] = None,
    picture: Annotated[Path | None, OutputFile("Where to write the first figure, to share (PNG)")] = None,
) -> RunReport:
    """Write the page and the summary of a run.

    Raises:
        DataError: a file is missing or malformed, or there is nothing to compare.
    """
    points = _read_points(evaluations)
    frozen = _read_points(frozen_evaluations) if frozen_evaluations else []
    metrics = read_step_metrics(checkpoint)
    arms = [plots.Arm("cooper" if frozen else "", metrics, points)]
    if frozen_checkpoint is not None:
        arms.append(plots.Arm("frozen", read_step_metrics(frozen_checkpoint), frozen))
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
    ends = _Ends(
        *(
            read_records(path, EvaluatedCompletion) if path else []
            for path in (start_completions, completions, frozen_completions)
        )
    )
    verify_rm = read_report(verify_rm_report, EvaluateVerifyRMReport)
    headline = plots.headline_plot(points)
    markdown = words.to_markdown(result, rows, points)
    html = render(
        "report/report.html.jinja",
        run=result,
        rows=rows,
        evaluations=points,
        told_by_others=told_by_others(points, result.accuracy_name),
        evaluated_sources=list(points[-1].by_source)[:MAX_TABLE_ROWS],
        caveat=words.caveat(points),
        headline=Figure(headline),
        curves=plots.training_figures(arms),
        arms=_compare_arms(arms),
        arm_rows=words.pair_rows(rows, words.headline_rows(frozen)) if frozen else [],
        labels=read_report(label_report, LabelReport) if label_report else None,
        **_verify_rm_section(verify_rm, points),
        **_red_team_section(attacked),
        **_texts_section(ends, checkpoint),
        summary=markdown,
        origin=provenance.describe(settings(config), metrics=metrics),
        settings=settings(config),
        versions=versions(),
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    for path, text in ((page, html), (summary, markdown)):
        write_text(path, text)
    if picture is not None:
        with atomic_path(picture) as draft:
            draft.write_bytes(draw_png(headline))
    write_report(report, result)
    return result


class _Ends(NamedTuple):
    """Evaluated completions of the starting point, the last checkpoint, and the frozen arm's last."""

    start: list[EvaluatedCompletion]
    last: list[EvaluatedCompletion]
    frozen: list[EvaluatedCompletion]


def _verify_rm_section(found: EvaluateVerifyRMReport, points: Sequence[EvalReport]) -> dict[str, object]:
    """The template's names for VerifyRM before and after co-training."""
    sides = classifier.compare_sides(found, points)
    return {
        "verify_rm": found,
        "sides": sides,
        "figures": classifier.make_figures(sides),
        "sources": list(found.by_source.items())[:MAX_TABLE_ROWS],
        "answer_types": list(found.by_answer_type.items())[:MAX_TABLE_ROWS],
        "fooled": classifier.fooled_rows(sides, found.wrong_reference),
        "measures": classifier.measure_rows(sides),
    }


def _red_team_section(attacked: RedTeamReport | None) -> dict[str, object]:
    """The template's names for the attack on the delivered VerifyRM; empty rows where there was none."""
    return {
        "attacked": attacked,
        "efforts": attacks.effort_rows(attacked) if attacked else [],
        "families": attacks.family_rows(attacked) if attacked else [],
        "attacked_types": attacks.answer_type_rows(attacked) if attacked else [],
        "attack_texts": attacks.best_texts(attacked) if attacked else [],
        "attack_figures": attacks.make_figures(attacked) if attacked else [],
    }


def _texts_section(ends: _Ends, checkpoint: Path) -> dict[str, object]:
    """The template's names for completions and rollouts."""
    pairs, changed = shown.before_after(
        ends.start, {"after": ends.last, "after, VerifyRM frozen": ends.frozen}
    )
    rollouts = [
        *shown.from_evaluation("start", ends.start),
        *shown.from_training(read_rollouts(checkpoint)),
        *shown.from_evaluation("end, VerifyRM frozen", ends.frozen),
        *shown.from_evaluation("end", ends.last),
    ]
    return {
        "frozen_texts": shown.sample_groups(ends.frozen)[0] if ends.frozen else None,
        "verdict_rows": verdict_table(ends.last),
        "groups": shown.sample_groups(ends.last),
        "num_completions": len(ends.last),
        "pairs": pairs,
        "changed": changed,
        "rollouts": shown.choose_rollouts(rollouts),
        "num_rollouts": len(rollouts),
    }


def _read_points(evaluations: Path) -> list[EvalReport]:
    points = sorted(read_records(evaluations, EvalReport), key=lambda point: point.step)
    if len(points) < 2:
        raise DataError(
            f"{evaluations}: holds one evaluation, and a report compares two; run evaluate-policy on a "
            "checkpoint with --previous set to this file, or see what is there with `cooper-rl watch FOLDER`"
        )
    return points


def _compare_arms(arms: Sequence[plots.Arm]) -> list[Figure]:
    """VerifyRM reward beside accuracy on held-out problems, of both arms; none where there is one arm."""
    if len(arms) < 2:
        return []
    titles = ("Cooper", "VerifyRM, frozen")
    found = [
        plots.held_out_figure([arm._replace(name="")], title) for arm, title in zip(arms, titles, strict=True)
    ]
    return [figure for figure in found if figure is not None]


def read_step_metrics(checkpoint: Path) -> list[StepMetrics]:
    """The numbers of every step since the first, from a checkpoint folder or one of its step folders.

    Raises:
        DamagedObjectError: a piece of the log is missing or changed; names it.
        DataError: there is none, or a line is not the numbers of a step.
    """
    paths = _log_files(checkpoint, METRICS)
    if not paths:
        place = checkpoint / METRICS
        raise DataError(f"{place}: no such file; give a checkpoint folder that train-cooper wrote")
    rows = read_metrics(*paths)
    if not rows:
        raise DataError(f"{paths[0]}: is empty; train at least one step before a report")
    return rows


def read_rollouts(checkpoint: Path) -> list[RolloutSample]:
    """The logged rollouts of every step; none where a store keeps them, of which a reference has no copy."""
    return [row for path in _log_files(checkpoint, ROLLOUTS) for row in read_records(path, RolloutSample)]


def _log_files(checkpoint: Path, kind: str) -> Sequence[Path]:
    """The one file of a reference or of an earlier version; else the verified pieces of the log."""
    folder = newest_folder(checkpoint)
    if not (folder / METRICS).is_file() and (folder / MANIFEST).is_file():
        store, name = LocalStore(folder.parent), folder.name
        manifest = read_manifest(store, name)
        if manifest.log is not None:
            return fetch(store, name, manifest, folder=folder, starting_with=(), logs=(kind,)).log[kind]
    return [folder / kind] if (folder / kind).is_file() else []


def verdict_table(completions: Sequence[EvaluatedCompletion]) -> list[tuple[str, list[int]]]:
    """Rule verdict by judge verdict: a row per rule verdict, columns correct, incorrect, unparsable, none."""
    kinds = ("correct", "incorrect", "unparsable")
    return [
        (rule, [sum(c.rule == rule and c.judge == judge for c in completions) for judge in (*kinds, None)])
        for rule in kinds
    ]
