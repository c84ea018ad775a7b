"""Stage: search for completions that VerifyRM pays without a right answer (`redteam/`).

Seeds, random changes and VerifyRM's own gradients, on some problems; what is found is measured on others. A
search that was stopped goes on from the journal beside its texts. With a registry, the texts that it knows
are seeds, and universal texts that are paid are added to them.
"""

import hashlib
import json
import logging
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

from cooper_rl.checkpoints.logs import ROLLOUTS
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.checkpoints.registry import open_registry, version_name
from cooper_rl.config.data import RuleConfig
from cooper_rl.config.root import Config
from cooper_rl.domains.open import find_domain
from cooper_rl.machine.device import pick_device
from cooper_rl.models.packed.forward import use_packed
from cooper_rl.models.verify_rm import load_verify_rm
from cooper_rl.records.files import (
    check_unique,
    parse_row,
    read_records,
    read_rows,
    write_records,
    write_report,
)
from cooper_rl.redteam.attack import attack
from cooper_rl.redteam.findings import describe
from cooper_rl.redteam.gradients import GradientGuide
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.library import LIBRARY
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.run.identity import folder_sha256
from cooper_rl.schema.data import Problem, RolloutSample
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import Interval
from cooper_rl.storage.model_reference import model_in
from cooper_rl.storage.models import at_hand

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    verify_rm: Annotated[Path, Input("Folder of train_verify_rm")],
    problems: Annotated[Path, Input("Held-out problems (JSONL or Parquet)")],
    texts: Annotated[Path, OutputFile("Where to write the texts that were found (JSONL)")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
    checkpoint: Annotated[
        Path | None,
        Input(
            "Checkpoint whose VerifyRM is attacked, its paid wrong rollouts as seeds; absent: --verify-rm's"
        ),
    ] = None,
) -> RedTeamReport:
    """Attack VerifyRM: search for texts that it pays, and measure them on other problems.

    Raises:
        ConfigError: an unknown domain.
        DamagedObjectError: VerifyRM in the store or the registry's attacks are damaged.
        DataError: a file is missing or malformed, duplicate ids, or too few problems.
        ModelError: VerifyRM cannot be loaded.
        StorageError: VerifyRM cannot be fetched; or the registry cannot be used, when texts and report are
            written.
        TrainingError: a score is not finite.
    """
    domain = find_domain(config.problems.domain)
    held_out = read_records(problems, Problem)
    check_unique(held_out, field="id", path=problems)
    registry = open_registry(config) if config.registry.uri is not None else None
    known = [attack.text for attack in registry.attacks()] if registry else []
    # The rule verifier at its full strength, whatever the run's own was told not to read.
    verifier = closing(domain.open_verifier(RuleConfig()))
    with _open_target(config, verify_rm, checkpoint) as target, verifier as rule:
        model = load_verify_rm(target.folder, device=pick_device())
        use_packed(model.model, is_on=config.packed_forward)
        identity = _identity(config, target, held_out, known)
        with Journal(texts.with_name(f"{texts.name}.{identity}.journal")) as journal:
            if journal.num_recorded:
                logger.info("red_team goes on after %d recorded results", journal.num_recorded)
            oracle = Oracle(model, journal, domain)
            found = attack(
                oracle, GradientGuide(model, oracle, journal), held_out, target.rollouts, known,
                config=config.red_team, seed=config.seed, journal=journal,
            )  # fmt: skip
            described, rows = describe(found, oracle, rule, seconds=journal.seconds())
            result = described.model_copy(update={"target": target.name})
    write_records(texts, rows)
    write_report(report, result)
    if registry is not None:
        paid = [row for row in rows if row.unseen is not None and row.unseen.value > 0]
        logger.info("red_team %d texts are new to the registry", registry.add_attacks(paid))
    logger.info("red_team best universal text %r: %s", result.texts[0].text[:200], _say(result.universal))
    return result


class _Target(NamedTuple):
    name: str | None
    """The registry's name of the checkpoint."""
    folder: Path
    rollouts: list[RolloutSample]


@contextmanager
def _open_target(config: Config, verify_rm: Path, checkpoint: Path | None) -> Generator[_Target]:
    if checkpoint is None:
        yield _Target(None, Path(at_hand(config.storage, model_in(verify_rm))), [])
        return
    needed, logs = ("verify_rm/",), (ROLLOUTS,)
    with open_checkpoint(checkpoint, config.storage, starting_with=needed, logs=logs) as found:
        rows = chain.from_iterable(read_rows(path) for path in found.log[ROLLOUTS])
        rollouts = [parse_row(row, RolloutSample) for row in rows]
        yield _Target(version_name(found.manifest), found.folder / "verify_rm", rollouts)


def _identity(config: Config, target: _Target, problems: Sequence[Problem], known: Sequence[str]) -> str:
    """Names everything that the results of a search depend on."""
    digest = hashlib.blake2b(digest_size=6)
    parts = [
        metadata.version("cooper-rl"),
        config.seed,
        config.problems.domain,
        config.red_team.model_dump(mode="json"),
        dict(LIBRARY),
        folder_sha256(target.folder),
        [problem.model_dump() for problem in problems],
        [rollout.model_dump() for rollout in target.rollouts],
        list(known),
    ]
    digest.update(json.dumps(parts).encode())
    return digest.hexdigest()


def _say(rate: Interval | None) -> str:
    if rate is None:
        return "it holds the right answer of every unseen problem"
    return f"paid on {rate.value:.1%} [{rate.low:.1%}, {rate.high:.1%}] of {rate.count} unseen problems"
