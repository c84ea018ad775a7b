"""Stage: problems to train on and problems to evaluate on (row 1).

Problems are generated in the laptop world, or read from files, URLs, stores and the hub in the layouts of
`records/layouts.py`. A row that cannot be used is set aside with its reason. No question is in both outputs:
what is held out stays whole, and its double among the training problems is set aside. Rows pass through one
by one, and problems wait on disk: memory holds a number for each.
"""

import json
import logging
import os
import random
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
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
from cooper_rl.labels.spool import Spool
from cooper_rl.machine.index import temporary_index
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.method.questions import question_key
from cooper_rl.progress import track
from cooper_rl.randomness import derive_seed
from cooper_rl.records.files import (
    SUFFIXES,
    RawRow,
    read_rows,
    reject,
    write_records,
    write_report,
)
from cooper_rl.records.layouts import (
    VERL_ANSWER,
    Layout,
    describe_columns,
    find_layout,
    read_columns,
    translate,
)
from cooper_rl.records.standard_input import NAME as STANDARD_INPUT
from cooper_rl.records.standard_input import standard_input
from cooper_rl.schema.data import Problem, RejectedRow
from cooper_rl.schema.paths import OutputFile
from cooper_rl.schema.reports import CollectReport
from cooper_rl.schema.texts import replace_surrogates
from cooper_rl.storage.remote_data import (
    check_hub_extra,
    download,
    fetch_object,
    parse_hub_id,
    read_hub,
)

logger = logging.getLogger(__name__)

_SEEN = ("id", "question")
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
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        evaluated, collected = (
            stack.enter_context(Spool(folder / name, Problem)) for name in ("evaluated", "collected")
        )
        set_aside = stack.enter_context(Spool(folder / "rejected", RejectedRow))
        collection = _Collection(stack.enter_context(temporary_index()), set_aside)
        for name in options.held_out_sources:
            _read_source(name, config, collection, evaluated)
        _generate(config, collection, collected)
        for name in options.sources:
            _read_source(name, config, collection, collected)
        write_records(rejected, set_aside)
        kept, drawn = _choose(len(collected), config)
        if not kept:
            raise DataError(
                f"problems.num_held_out={options.num_held_out} leaves nothing to train on: {len(drawn)} "
                f"usable problems were collected, {len(set_aside)} rows set aside (see {rejected}); "
                "lower it or add sources"
            )
        num_problems = write_records(problems, _at(collected, kept))
        num_held_out = write_records(held_out, chain(evaluated, _at(collected, drawn)))
        result = CollectReport(
            num_problems=num_problems, num_held_out=num_held_out, num_rejected=len(set_aside)
        )
    write_report(report, result)
    return result


def _check_sources(names: Sequence[str], *, outputs: Sequence[Path]) -> None:
    for name in names:
        if (
            _exists(name)
            and Path(name).is_file()
            and os.path.realpath(name) in map(os.path.realpath, outputs)
        ):
            raise DataError(
                f"{name}: is a source and an output, which would overwrite it; choose another output"
            )
        if _is_of_hub(name):
            check_hub_extra(name)


def _exists(name: str) -> bool:
    """True if a file or folder has this name."""
    with suppress(OSError):  # a signed address is longer than any name
        return Path(name).exists()
    return False


def _is_of_hub(name: str) -> bool:
    """True if a source can only be a data set of the hub."""
    is_path = name.startswith(".") or name.endswith(SUFFIXES) or _exists(name)
    return not is_path and parse_hub_id(name) is not None


class _Collection:
    """The problems seen so far, over all sources; ids and questions are looked up on disk."""

    def __init__(self, index: sqlite3.Connection, rejected: Spool[RejectedRow]) -> None:
        self.rejected = rejected
        self.stems: list[str] = []
        self._index = index
        for kind in _SEEN:
            index.execute(f"CREATE TABLE {kind} (value TEXT PRIMARY KEY, place TEXT) WITHOUT ROWID")

    def admit(self, problem: Problem, place: str) -> None:
        """Note a problem.

        Raises:
            DataError: its id or its question was seen before.
        """
        values = (problem.id, question_key(problem.question))
        for kind, value in zip(_SEEN, values, strict=True):
            found = self._index.execute(f"SELECT place FROM {kind} WHERE value = ?", [value]).fetchone()
            if found is not None:
                raise DataError(f"duplicate {kind} {value[:80]!r}, first seen in {found[0]}")
        for kind, value in zip(_SEEN, values, strict=True):
            self._index.execute(f"INSERT INTO {kind} VALUES (?, ?)", [value, place])

    def new_stem(self, name: str) -> str:
        """A prefix for ids that no earlier source has: `train`, then `train-2` for another train.jsonl."""
        stem, number = name, 1
        while stem in self.stems:
            number += 1
            stem = f"{name}-{number}"
        self.stems.append(stem)
        return stem


class _Source(NamedTuple):
    """A source of which the first rows were read."""

    name: str
    """The source as the configuration names it, without credentials."""
    label: str
    """The `source` of its problems."""
    stem: str
    first: list[RawRow]
    """The rows up to the one that completes those which decide the layout."""
    rest: Iterator[RawRow]


def _generate(config: Config, collection: _Collection, kept: Spool[Problem]) -> None:
    options = config.problems
    if options.num_tiny == 0:
        return
    from cooper_rl.tiny.world import find_world

    blind_share = options.tiny_blind_share
    generate_problems = find_world(options.domain, blind_share=blind_share).generate_problems
    if blind_share:
        generate_problems = partial(generate_problems, blind_share=blind_share)
    for row, problem in enumerate(generate_problems(options.num_tiny, config.seed), start=1):
        try:
            collection.admit(problem, f"tiny:{row}")
            kept.append(problem)
        except DataError as error:
            content = problem.model_dump_json()
            collection.rejected.append(reject(RawRow("tiny", row, None, content, None), str(error)))


def _read_source(name: str, config: Config, collection: _Collection, kept: Spool[Problem]) -> None:
    """Keep a source's problems in order; rows that cannot be used go to `collection.rejected`."""
    source = _open(name, config.storage, collection)
    layout = _find_layout(source, config.problems)
    domain = find_domain(config.problems.domain)
    num_rows = num_readable = num_kept = 0
    first_reason = ""
    rows = chain(source.first, source.rest)
    for row in track(rows, name=f"collect {source.label}", total=None, logger=logger):
        num_rows += 1
        try:
            problem = _to_problem(row, layout, source, domain)
            num_readable += 1
            collection.admit(problem, f"{row.file}:{row.row}")
            kept.append(problem)
            num_kept += 1
        except DataError as error:
            first_reason = first_reason or f"{row.file}:{row.row}: {error}"
            collection.rejected.append(reject(row, str(error)))
    num_rejected = num_rows - num_kept
    if num_readable == 0:
        raise DataError(f"{source.name}: no usable row among {num_rows}; the first: {first_reason}")
    logger.info(
        "collect_problems source=%s question=%s answer=%s (%s) problems=%d set_aside=%d",
        source.name, "+".join(layout.question_columns), layout.answer_column, layout.form, num_kept,
        num_rejected,
    )  # fmt: skip
    if num_rejected:
        logger.warning("%s: %d rows set aside; the first: %s", source.name, num_rejected, first_reason)


def _open(name: str, storage: StorageConfig, collection: _Collection) -> _Source:
    """Begin to read a source, whichever kind it is.

    Raises:
        DataError: it cannot be read, or has no rows.
        StorageError: its object store cannot be used.
    """
    if is_stored(name) or name.startswith(("http://", "https://")):
        rows = _fetched_rows(name, storage)
        label = _last_part(name) or redact(name)
    elif name == str(STANDARD_INPUT):
        label = "stdin"
        rows = _piped_rows()
    elif _exists(name) and Path(name).is_dir():
        raise DataError(f"{name}: is a folder; name the .jsonl or .parquet files in it")
    elif _exists(name) or name.endswith(SUFFIXES):
        label = replace_surrogates(Path(name).name)
        rows = read_rows(Path(name), is_limited=False)
    elif _is_of_hub(name):
        from cooper_rl.models.hub import ask_hub  # the hub's library is imported where it is used only

        label = name
        rows = read_hub(name, away=ask_hub())
    else:
        raise DataError(
            f"problems source {redact(name)!r}: no such file, and neither an address (https://..., s3://...) "
            "nor a hub data set id (owner/name:config:split); check the path"
        )
    first = _first_rows(rows)
    if not first:
        raise DataError(f"{redact(name)}: is empty; give a source with at least one problem")
    stem = label.replace("/", "_").replace(":", "-")
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    return _Source(redact(name), label, collection.new_stem(stem), first, rows)


def _last_part(address: str) -> str:
    """The name of a file behind an address; empty where there is none, or no client can read the address."""
    try:
        return PurePosixPath(urlsplit(address).path).name
    except ValueError:
        return ""


def _first_rows(rows: Iterator[RawRow]) -> list[RawRow]:
    """Take the rows up to the last of `NUM_LAYOUT_ROWS` that can be read."""
    first: list[RawRow] = []
    num_readable = 0
    while num_readable < NUM_LAYOUT_ROWS and (row := next(rows, None)) is not None:
        first.append(row)
        num_readable += row.problem is None
    return first


def _piped_rows() -> Iterator[RawRow]:
    with standard_input() as path:
        yield from read_rows(path, is_limited=False)


def _fetched_rows(address: str, storage: StorageConfig) -> Iterator[RawRow]:
    with scratch_folder() as folder:
        path = fetch_object(storage, address, folder) if is_stored(address) else download(address, folder)
        try:
            for row in read_rows(path, is_limited=False):
                yield row._replace(file=redact(address))
        except DataError as error:
            raise DataError(str(error).replace(str(path), redact(address))) from error


def _find_layout(source: _Source, options: ProblemsConfig) -> Layout:
    first = [row.value for row in source.first if row.problem is None]
    layout = find_layout(first, question_column=options.question_column, answer_column=options.answer_column)
    if layout is not None:
        return layout
    if not first:
        row = source.first[0]
        raise DataError(
            f"{source.name}: no readable row; the first: {row.file}:{row.row}: {row.problem}; a .jsonl file "
            "has one JSON object per line"
        )
    found = sorted(first[0]) if isinstance(first[0], dict) else f"a {type(first[0]).__name__}"
    raise DataError(
        f"{source.name}: unknown layout, its first row has {json.dumps(found, default=str)[:300]}; "
        f"{_needed_columns(options)}"
    )


def _needed_columns(options: ProblemsConfig) -> str:
    named = {
        f"problems.{name}": value
        for name in ("question_column", "answer_column")
        if (value := getattr(options, name)) is not None
    }
    if named:
        given = " and ".join(f"{key}={value}" for key, value in named.items())
        return (
            f"it lacks {given}, which holds for every source: collect files with other columns on their own"
        )
    return (
        f"a problem row has {describe_columns()}; name yours with problems.question_column and "
        "problems.answer_column"
    )


def _to_problem(row: RawRow, layout: Layout, source: _Source, domain: Domain) -> Problem:
    """Raises DataError with the reason, without the place."""
    if row.problem is not None:
        raise DataError(row.problem)
    question, reference_answer = translate(row.value, layout, domain.find_reference_fault)
    columns = read_columns(row.value)
    named = {"reference_answer": "source", VERL_ANSWER: "data_source"}.get(layout.answer_column)
    origin = columns.get(named) if named is not None else None
    return Problem(
        id=_identity(columns.get("id"), stem=source.stem, row=row.row),
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


def _choose(count: int, config: Config) -> tuple[list[int], list[int]]:
    """Places of the problems to train on, and of those held out, among `count` collected ones.

    Drawn with the seed, each in the order of the input. None to train on: too few were collected.
    """
    options = config.problems
    places: Sequence[int] = range(count)
    if options.max_problems is not None and count > options.max_problems:
        _, places = _draw(
            places, options.max_problems, seed=derive_seed(config.seed, "collect", "max_problems")
        )
    if options.num_held_out >= len(places):
        return [], list(places)
    return _draw(places, options.num_held_out, seed=derive_seed(config.seed, "collect", "held_out"))


def _draw(places: Sequence[int], count: int, *, seed: int) -> tuple[list[int], list[int]]:
    """The others, and `count` places drawn with the seed; both in the order of the input."""
    chosen = frozenset(random.Random(seed).sample(range(len(places)), count))
    return (
        [place for number, place in enumerate(places) if number not in chosen],
        [place for number, place in enumerate(places) if number in chosen],
    )


def _at(problems: Iterable[Problem], places: Iterable[int]) -> Iterator[Problem]:
    """The problems at some places, which rise."""
    wanted = iter(places)
    following = next(wanted, None)
    for place, problem in enumerate(problems):
        if place == following:
            yield problem
            following = next(wanted, None)
