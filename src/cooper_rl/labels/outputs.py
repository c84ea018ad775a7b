"""The files that labelling writes, once every label is known: the audit, and the examples of each split."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, get_args

from cooper_rl.config.data import LabelingConfig
from cooper_rl.config.root import Config
from cooper_rl.errors import DataError
from cooper_rl.labels.rows import Row, read_frozen
from cooper_rl.labels.shards import Digest
from cooper_rl.labels.splits import Split, Splits
from cooper_rl.labels.tally import Tally
from cooper_rl.records.files import record_writer, write_records
from cooper_rl.schema.data import Label, Record, VerifyExample
from cooper_rl.schema.reports import LabelReport


class Outputs(NamedTuple):
    """The places of the files."""

    labels: Path
    train: Path
    validation: Path
    test: Path


class Labelled(NamedTuple):
    """Counts of the labels in the files."""

    tally: Tally
    num_examples: dict[Split, int]
    digest: str | None = None
    """Names the rows of a shard with their labels."""

    def report(self, config: LabelingConfig, *, num_rejected: int, seconds: float) -> LabelReport:
        """All numbers but those of the judges."""
        tally, has_audit = self.tally, config.judge is not None and config.judge_asked != "always"
        return LabelReport(
            num_completions=tally.num_labels,
            num_labelled=tally.num_labelled,
            num_correct=tally.num_correct,
            num_dropped=tally.num_labels - tally.num_labelled,
            decisions=dict(sorted(tally.decisions.items())),
            num_train=self.num_examples["train"],
            num_validation=self.num_examples["validation"],
            num_test=self.num_examples["test"],
            judge_model=None,
            agreement=tally.agreement.report(),
            audit=tally.audit.report() if has_audit else None,
            num_rejected=num_rejected,
            digest=self.digest,
            seconds=seconds,
        )


class Decided(NamedTuple):
    """Rows in order, and the label of each; both can be read again and again."""

    rows: Iterable[Row]
    labels: Iterable[Label]
    name_answer_type: Callable[[str], str] | None
    """Kind of a reference answer, for the report; None: all are of one kind."""

    def pairs(self) -> Iterator[tuple[Row, Label]]:
        """Each row with its label."""
        return zip(self.rows, self.labels, strict=True)

    def counted(self, tally: Tally) -> Iterator[tuple[Row, Label]]:
        """The same, each added to the tally."""
        for row, label in self.pairs():
            tally.add(row, label)
            yield row, label


SPLITS: tuple[Split, ...] = get_args(Split)


def write_outputs(
    decided: Decided, config: Config, outputs: Outputs, *, frozen: Path | None, index: sqlite3.Connection
) -> Labelled:
    """Deal out the questions, and write all four files.

    Args:
        decided: What to write.
        config: Fractions of the splits, and the seed.
        outputs: Where to write.
        frozen: Test examples of an earlier run.
        index: For questions and counts.

    Raises:
        DataError: too few labelled questions to split, or a file cannot be written.
    """
    tally = Tally(decided.name_answer_type)
    splits = Splits(index, config.seed)
    for row, label in decided.counted(tally):
        if label.is_correct is not None:
            splits.add(row.problem.question, is_correct=label.is_correct)
    _deal(splits, tally, config)
    return Labelled(tally, _write(decided, splits, outputs, frozen=frozen))


def write_shard(decided: Decided, outputs: Outputs) -> Labelled:
    """Write the labels alone: the questions are dealt out when all shards are there."""
    tally, digest = Tally(decided.name_answer_type), Digest()
    with record_writer(outputs.labels) as write:
        for row, label in decided.counted(tally):
            write(label)
            digest.add(row, label)
    num_examples: dict[Split, int] = {split: write_records(getattr(outputs, split), []) for split in SPLITS}
    return Labelled(tally, num_examples, digest.name())


def _deal(splits: Splits, tally: Tally, config: Config) -> None:
    try:
        splits.deal(
            validation_fraction=config.labeling.validation_fraction,
            test_fraction=config.labeling.test_fraction,
        )
    except ValueError as error:
        raise DataError(
            f"{tally.num_labelled} of {tally.num_labels} completions were labelled (decisions: "
            f"{dict(tally.decisions)}): {error}"
        ) from error


def _write(decided: Decided, splits: Splits, outputs: Outputs, *, frozen: Path | None) -> dict[Split, int]:
    num_examples = dict.fromkeys(SPLITS, 0)
    with ExitStack() as files:
        write_label = files.enter_context(record_writer(outputs.labels))
        writers: dict[Split, Callable[[Record], None]] = {
            split: files.enter_context(record_writer(getattr(outputs, split))) for split in SPLITS
        }

        def write(split: Split, example: VerifyExample) -> None:
            writers[split](example)
            num_examples[split] += 1

        # The test set is there already: what would have gone to it is there to learn from.
        has_frozen = False
        for example in read_frozen(frozen):
            write("test", example)
            has_frozen = True
        for row, label in decided.pairs():
            write_label(label)
            if label.is_correct is not None:
                split = splits.split_of(row.problem.question)
                write("train" if has_frozen and split == "test" else split, _example(row, label))
    return num_examples


def _example(row: Row, label: Label) -> VerifyExample:
    return VerifyExample(
        question=row.problem.question,
        reference_answer=row.problem.reference_answer,
        completion=row.completion.text,
        label=1 if label.is_correct else 0,
        source=row.completion.model,
    )
