"""Stage: problems to train on and problems to evaluate on (row 1).

Problems are generated in the laptop world, or read from files, URLs, stores and the hub in the layouts of
`records/layouts.py`. A row that cannot be used is set aside with its reason. No question is in both outputs:
what is held out stays whole, and its double among the training problems is set aside.
"""

import json
import logging
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from cooper_rl.addresses import redact
from cooper_rl.config.data import ProblemsConfig
from cooper_rl.config.infrastructure import StorageConfig, is_stored
from cooper_rl.config.root import Config
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import DataError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.method.questions import question_key
from cooper_rl.progress import track
from cooper_rl.randomness import derive_seed
from cooper_rl.records.files import SUFFIXES, RawRow, read_rows, reject, write_records, write_report
from cooper_rl.records.layouts import VERL_ANSWER, Layout, describe_columns, find_layout, translate
from cooper_rl.records.standard_input import NAME as STANDARD_INPUT
from cooper_rl.records.standard_input import standard_input
from cooper_rl.schema.data import Problem, RejectedRow
from cooper_rl.schema.paths import OutputFile
from cooper_rl.schema.reports import CollectReport
from cooper_rl.storage.remote_data import download, fetch_object, parse_hub_id, read_hub

logger = logging.getLogger(__name__)

NUM_LAYOUT_ROWS = 100
"""Rows from the start of a file that decide its layout."""


def run(
    config: Config,
    *,
    problems: Annotated[Path, OutputFile("Where to write the problems to train on (JSONL or Parquet)")],
    held_out: Annotated[Path, OutputFile("Where to write the problems to evaluate on")],
    rejected: Annotated[Path, OutputFile("Where to write rows that were set aside, with the reason")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
) -> CollectReport:
    """Read or generate problems, hold some out, set aside what cannot be used.

    Raises:
        DataError: a source is missing, unreachable, empty, of an unknown layout, has no usable row or is an
            output too, or too few problems are left.
        StorageError: the object store of a source cannot be used.
    """
    options = config.problems
    _check_sources(
        [*options.held_out_sources, *options.sources], outputs=[problems, held_out, rejected, report]
    )
    collection = _Collection()
    evaluated = _read_sources(options.held_out_sources, config, collection)
    collected = [
        *_generate(config, collection),
        *_read_sources(options.sources, config, collection),
    ]
    write_records(rejected, collection.rejected)
    if options.max_problems is not None and len(collected) > options.max_problems:
        collected, _ = _draw(
            collected, options.max_problems, seed=derive_seed(config.seed, "collect", "max_problems")
        )
    if options.num_held_out >= len(collected):
        raise DataError(
            f"problems.num_held_out={options.num_held_out} leaves nothing to train on: {len(collected)} "
            f"usable problems were collected, {len(collection.rejected)} rows set aside (see {rejected}); "
            "lower it or add sources"
        )
    drawn, training = _draw(
        collected, options.num_held_out, seed=derive_seed(config.seed, "collect", "held_out")
    )
    write_records(problems, training)
    write_records(held_out, [*evaluated, *drawn])
    result = CollectReport(
        num_problems=len(training),
        num_held_out=len(evaluated) + len(drawn),
        num_rejected=len(collection.rejected),
    )
    write_report(report, result)
    return result


def _check_sources(names: Sequence[str], *, outputs: Sequence[Path]) -> None:
    for name in names:
        if Path(name).is_file() and os.path.realpath(name) in map(os.path.realpath, outputs):
            raise DataError(
                f"{name}: is a source and an output, which would overwrite it; choose another output"
            )


@dataclass
class _Collection:
    """The problems seen so far, over all sources."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Id -> place."""
    questions: dict[str, str] = field(default_factory=dict[str, str])
    """Question without case and spacing -> place."""
    stems: list[str] = field(default_factory=list[str])
    rejected: list[RejectedRow] = field(default_factory=list[RejectedRow])

    def admit(self, problem: Problem, place: str) -> None:
        """Note a problem.

        Raises:
            DataError: its id or its question was seen before.
        """
        question = question_key(problem.question)
        for kind, value, seen in (("id", problem.id, self.ids), ("question", question, self.questions)):
            if value in seen:
                raise DataError(f"duplicate {kind} {value[:80]!r}, first seen in {seen[value]}")
        self.ids[problem.id] = place
        self.questions[question] = place

    def new_stem(self, name: str) -> str:
        """A prefix for ids that no earlier source has: `train`, then `train-2` for another train.jsonl."""
        count = self.stems.count(name) + 1
        self.stems.append(name)
        return name if count == 1 else f"{name}-{count}"


class _Source(NamedTuple):
    """A source that was read."""

    name: str
    """The source as the configuration names it, without credentials."""
    label: str
    """The `source` of its problems."""
    stem: str
    rows: list[RawRow]


def _generate(config: Config, collection: _Collection) -> list[Problem]:
    options = config.problems
    if options.num_tiny == 0:
        return []
    from cooper_rl.tiny.world import find_world

    blind_share = options.tiny_blind_share
    generate_problems = find_world(options.domain, blind_share=blind_share).generate_problems
    kept: list[Problem] = []
    if blind_share:
        generate_problems = partial(generate_problems, blind_share=blind_share)
    for row, problem in enumerate(generate_problems(options.num_tiny, config.seed), start=1):
        try:
            collection.admit(problem, f"tiny:{row}")
            kept.append(problem)
        except DataError as error:
            content = problem.model_dump_json()
            collection.rejected.append(reject(RawRow("tiny", row, None, content, None), str(error)))
    return kept


def _read_sources(names: Sequence[str], config: Config, collection: _Collection) -> list[Problem]:
    """The problems of all sources in order; rows that cannot be used go to `collection.rejected`."""
    return [problem for name in names for problem in _read_source(name, config, collection)]


def _read_source(name: str, config: Config, collection: _Collection) -> list[Problem]:
    source = _open(name, config.storage, collection)
    layout = _find_layout(source, config.problems)
    domain = find_domain(config.problems.domain)
    kept: list[Problem] = []
    num_readable = 0
    first_reason = ""
    for row in track(source.rows, name=f"collect {source.label}", total=len(source.rows), logger=logger):
        try:
            problem = _to_problem(row, layout, source, domain)
            num_readable += 1
            collection.admit(problem, f"{row.file}:{row.row}")
            kept.append(problem)
        except DataError as error:
            first_reason = first_reason or f"{row.file}:{row.row}: {error}"
            collection.rejected.append(reject(row, str(error)))
    num_rejected = len(source.rows) - len(kept)
    if num_readable == 0:
        raise DataError(f"{source.name}: no usable row among {len(source.rows)}; the first: {first_reason}")
    logger.info(
        "collect_problems source=%s question=%s answer=%s (%s) problems=%d set_aside=%d",
        source.name, "+".join(layout.question_columns), layout.answer_column, layout.form, len(kept),
        num_rejected,
    )  # fmt: skip
    if num_rejected:
        logger.warning("%s: %d rows set aside; the first: %s", source.name, num_rejected, first_reason)
    return kept


def _open(name: str, storage: StorageConfig, collection: _Collection) -> _Source:
    """Read all rows of a source, whichever kind it is.

    Raises:
        DataError: it cannot be read, or has no rows.
        StorageError: its object store cannot be used.
    """
    if is_stored(name) or name.startswith(("http://", "https://")):
        rows = list(_fetched_rows(name, storage))
        label = PurePosixPath(urlsplit(name).path).name or redact(name)
    elif name == str(STANDARD_INPUT):
        label = "stdin"
        with standard_input() as path:
            rows = list(read_rows(path))
    elif Path(name).is_file() or name.endswith(SUFFIXES):
        label = Path(name).name
        rows = list(read_rows(Path(name)))
    elif Path(name).is_dir():
        raise DataError(f"{name}: is a folder; name the .jsonl or .parquet files in it")
    elif parse_hub_id(name) is not None and not name.startswith("."):
        label = name
        rows = list(read_hub(name))
    else:
        raise DataError(
            f"problems source {redact(name)!r}: no such file, and neither an address (https://..., s3://...) "
            "nor a hub data set id (owner/name:config:split); check the path"
        )
    if not rows:
        raise DataError(f"{redact(name)}: is empty; give a source with at least one problem")
    stem = label.replace("/", "_").replace(":", "-")
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    return _Source(redact(name), label, collection.new_stem(stem), rows)


def _fetched_rows(address: str, storage: StorageConfig) -> Iterator[RawRow]:
    with scratch_folder() as folder:
        path = fetch_object(storage, address, folder) if is_stored(address) else download(address, folder)
        try:
            for row in read_rows(path):
                yield row._replace(file=redact(address))
        except DataError as error:
            raise DataError(str(error).replace(str(path), redact(address))) from error


def _find_layout(source: _Source, options: ProblemsConfig) -> Layout:
    first = [row.value for row in source.rows if row.problem is None][:NUM_LAYOUT_ROWS]
    layout = find_layout(first, question_column=options.question_column, answer_column=options.answer_column)
    if layout is not None:
        return layout
    if not first:
        row = source.rows[0]
        raise DataError(
            f"{source.name}: no readable row; the first: {row.file}:{row.row}: {row.problem}; a .jsonl file "
            "has one JSON object per line"
        )
    found = sorted(first[0]) if isinstance(first[0], dict) else f"a {type(first[0]).__name__}"
    raise DataError(
        f"{source.name}: unknown layout, its first row has {json.dumps(found, default=str)[:300]}; "
        f"a problem row has {describe_columns()}"
    )


def _to_problem(row: RawRow, layout: Layout, source: _Source, domain: Domain) -> Problem:
    """Raises DataError with the reason, without the place."""
    if row.problem is not None:
        raise DataError(row.problem)
    question, reference_answer = translate(row.value, layout, domain.find_reference_fault)
    named = {"reference_answer": "source", VERL_ANSWER: "data_source"}.get(layout.answer_column)
    origin = row.value.get(named) if named is not None else None
    return Problem(
        id=_identity(row.value.get("id"), stem=source.stem, row=row.row),
        source=origin if isinstance(origin, str) and origin else source.label,
        question=question,
        reference_answer=reference_answer,
    )


def _identity(value: Any, *, stem: str, row: int) -> str:
    """The row's own id; a bare number is no identity across files and gets the file's name in front."""
    text = "" if value is None or isinstance(value, bool | float | list | dict) else str(value).strip()
    if not text:
        return f"{stem}-{row}"
    return f"{stem}-{text}" if text.isdecimal() else text


def _draw(problems: Sequence[Problem], count: int, *, seed: int) -> tuple[list[Problem], list[Problem]]:
    """`count` problems drawn with the seed, and the others; both in the order of the input."""
    chosen = frozenset(random.Random(seed).sample(range(len(problems)), count))
    return (
        [problem for place, problem in enumerate(problems) if place in chosen],
        [problem for place, problem in enumerate(problems) if place not in chosen],
    )
