"""The progress of an iteration (row 13): decided on the first rank, known to all after one exchange.

Everything that can fail before training is done inside the exchange, on whichever rank it fails. So every
rank takes part in it exactly once, and the error of one ends all of them.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from cooper_rl.checkpoints.logs import KINDS, METRICS, PAIRS
from cooper_rl.checkpoints.reading import Found
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.checkpoints.run_state import NUM_RECENT_PAIRS, RunState, replay
from cooper_rl.checkpoints.state import TrainingState, read_lines, read_state
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.versions import (
    POLICY,
    VERIFY_RM,
    numeric_versions,
    recorded_precision,
    say_differences,
)
from cooper_rl.config.root import Config
from cooper_rl.distributed.ranks import Ranks
from cooper_rl.errors import DataError
from cooper_rl.machine.device import pick_device
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.method.questions import without_questions
from cooper_rl.models.packed.forward import use_packed
from cooper_rl.models.policy import load_policy
from cooper_rl.models.precision import Compute
from cooper_rl.models.precision import settle as settle_precision
from cooper_rl.models.verify_rm import load_verify_rm
from cooper_rl.records.files import check_unique, read_records
from cooper_rl.records.model_set import read_models
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.run.alarms import check_hacked
from cooper_rl.run.build import SideData, read_side_data
from cooper_rl.run.identity import run_identity
from cooper_rl.schema.data import PreferencePair, Problem
from cooper_rl.servers.open import check_fits
from cooper_rl.storage.model_reference import model_in
from cooper_rl.storage.models import at_hand
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inputs:
    """The files of an iteration."""

    models: Path
    verify_rm: Path
    problems: Path
    checkpoint: Path
    """The folder of its own checkpoints, or of a reference to them."""
    start: Path | None
    """Checkpoint of the iteration before."""
    side: Mapping[str, Path | None]
    """`replay`, `examples`, `held_out`, `test`, `attacks`."""

    @property
    def data(self) -> dict[str, Path | None]:
        """The files that every start of the run must be given alike."""
        return {"problems": self.problems, **self.side}


class Plan(NamedTuple):
    """The plan that all ranks know; weights follow elsewhere."""

    first_step: int
    last_step: int
    is_finished: bool
    """Nothing is left to train."""
    step: int = 0
    """The last one that was done."""
    run: RunState = RunState()
    """The state after that step."""
    precision: Mapping[str, Compute] | None = None
    """Model, such as `VERIFY_RM` -> type of its forward passes; None: nothing is trained here."""


class Lead(NamedTuple):
    """The part of a run that the first rank alone holds."""

    checkpoints: CheckpointStore
    fetched: Path
    """Folder for what is fetched; removed at the end."""
    begun: Found | None
    """Last checkpoint of the iteration before."""
    found: Found | None
    """Newest checkpoint of this one."""
    state: TrainingState | None
    """The state that training continues from; None where nothing is trained in this process."""


class Standing(NamedTuple):
    """The progress of an iteration, on one rank."""

    plan: Plan
    problems: list[Problem]
    side: SideData
    lead: Lead | None
    """None on all ranks but the first."""


def settle(config: Config, inputs: Inputs, ranks: Ranks, stack: ExitStack) -> Standing:
    """Read the data on every rank, and decide on the first where the iteration stands.

    Raises:
        CooperError: on all ranks, whichever rank it was raised on.
    """
    data: list[tuple[list[Problem], SideData]] = []
    leads: list[Lead] = []

    # Every rank reads the data itself, so that nothing large is sent between them.
    def prepare() -> Plan | None:
        side = read_side_data(config, **inputs.side)
        data.append((_read_problems(config, inputs.problems, side), side))
        if not ranks.is_first:
            return None
        plan, lead = _decide(config, inputs, stack)
        leads.append(lead)
        return plan

    # One exchange for everything that can fail: with a call per file, a rank that fails at the second would
    # leave the others in it until the time-out.
    plan = ranks.agree(prepare)
    assert plan is not None, "the first rank's"
    ((problems, side),) = data
    return Standing(plan, problems, side, leads[0] if leads else None)


def starting_state(
    config: Config,
    inputs: Inputs,
    found: Found | None,
    *,
    device: torch.device | None = None,
    precision: Mapping[str, Compute] | None = None,
) -> TrainingState:
    """A checkpoint's state, or the starting models, where training goes on unless told a device.

    Args:
        config: Of the run.
        inputs: Its files.
        found: The checkpoint; None: the starting models.
        device: Where the models are put.
        precision: Of the plan, which the first rank makes; None: this is the plan.
    """
    device = device or pick_device()
    state = _read_state(config, inputs, found, device=device)
    for model in (state.policy.model, state.verify_rm.model):
        use_packed(model, is_on=config.packed_forward)
    versions = {} if found is None else found.manifest.versions
    # One rank chooses for all: they time a processor each, and their gradients are summed.
    chosen = precision or _choose_precision(config, state, versions)
    state.policy = replace(state.policy, compute=chosen[POLICY])
    state.verify_rm = replace(state.verify_rm, compute=chosen[VERIFY_RM])
    # After the models were loaded, which sets the number of threads.
    said = say_differences(versions, numeric_versions(device, chosen)) if found is not None else None
    if found is not None and said is not None:
        logger.warning("%s: %s", found.name, said)
    return state


def _choose_precision(
    config: Config, state: TrainingState, versions: Mapping[str, str]
) -> dict[str, Compute]:
    """The types of forward passes: the recorded ones where `auto` left them open."""
    return {
        name: settle_precision(model, config.cooper.precision, recorded=recorded_precision(versions, name))
        for name, model in ((POLICY, state.policy.model), (VERIFY_RM, state.verify_rm.model))
    }


def _read_state(
    config: Config, inputs: Inputs, found: Found | None, *, device: torch.device
) -> TrainingState:
    if found is None:
        return TrainingState(
            step=0,
            policy=load_policy(
                at_hand(config.storage, read_models(inputs.models).policy),
                device=device,
                prompt_template=config.prompt_template,
            ),
            verify_rm=load_verify_rm(at_hand(config.storage, model_in(inputs.verify_rm)), device=device),
            policy_optimizer={},
            verify_rm_optimizer={},
            metrics=[],
            pairs=[],
        )
    logger.info("continue from %s, step %d", found.name, found.manifest.step)
    state = read_state(
        found.folder, step=found.manifest.step, device=device, prompt_template=config.prompt_template
    )
    if found.manifest.log is None:  # a version that logged every step in every checkpoint
        rows, pairs = read_metrics(found.folder / METRICS), read_lines(found.folder / PAIRS, PreferencePair)
        state.run = replay(rows, pairs[-NUM_RECENT_PAIRS:], config.cooper.active_monitor)
    return state


def _decide(config: Config, inputs: Inputs, stack: ExitStack) -> tuple[Plan, Lead]:
    """Decide on the first rank which steps are left, and what they continue from."""
    is_job = config.launch.kind == "trainjob"
    # A job fetches what it continues from itself: here manifests and the small files do.
    needed, logs = ((), ()) if is_job else (("",), KINDS)
    begun = None
    if inputs.start:
        opened = open_checkpoint(inputs.start, config.storage, starting_with=needed, logs=logs)
        begun = stack.enter_context(opened)
    first_step = begun.manifest.step + 1 if begun else 1
    last_step = first_step + config.cooper.steps - 1
    checkpoints = _open_checkpoints(config, inputs, begun, first_step=first_step)
    fetched = stack.enter_context(scratch_folder())
    # Step 0 for a job: its own processes fetch the files, here only the manifest counts.
    found = checkpoints.newest(fetched, last_step=0 if is_job else last_step)
    if found is not None and found.manifest.step >= last_step:
        logger.info("%s/%s: finished already, nothing is trained", checkpoints.uri, found.name)
        checkpoints.lead_to(found.name)  # the process that published it may have been killed before it did
        return Plan(first_step, last_step, is_finished=True), Lead(checkpoints, fetched, begun, found, None)
    if is_job:
        return Plan(first_step, last_step, is_finished=False), Lead(checkpoints, fetched, begun, found, None)
    state = starting_state(config, inputs, found or begun)
    state.earlier = _earlier_log(found, begun)
    check_hacked(config, is_hacked=state.run.is_hacked, step=state.step)
    # Last of what can fail, and before the first step: a store that refuses writes would else be noticed
    # after hours.
    checkpoints.prepare()
    precision: dict[str, Compute] = {POLICY: state.policy.compute, VERIFY_RM: state.verify_rm.compute}
    plan = Plan(first_step, last_step, False, step=state.step, run=state.run, precision=precision)
    return plan, Lead(checkpoints, fetched, begun, found, state)


def _earlier_log(found: Found | None, begun: Found | None) -> dict[str, Sequence[Path]]:
    """See `TrainingState.earlier`."""
    if found is None:
        return {} if begun is None else dict(begun.log)
    if found.manifest.log is not None:
        return {}
    return {kind: [found.folder / kind] for kind in KINDS if kind in found.manifest.sha256}


def _open_checkpoints(
    config: Config, inputs: Inputs, begun: Found | None, *, first_step: int
) -> CheckpointStore:
    identity = run_identity(
        config,
        models=inputs.models,
        verify_rm=inputs.verify_rm,
        files=inputs.data,
        start=begun.manifest if begun else None,
    )
    uri = config.storage.run_uri()
    # Each iteration has a place of its own.
    store = open_store(config.storage, f"{uri}/from-{first_step:06d}" if uri else inputs.checkpoint)
    return CheckpointStore(store, identity=identity, retention=config.storage)


def _read_problems(config: Config, path: Path, data: SideData) -> list[Problem]:
    """Problems that are wired to the assistant and the judge that the run asks, and not evaluated on."""
    found: Sequence[Problem] = read_records(path, Problem)
    check_unique(found, field="id", path=path)
    rows = without_questions(found, data.evaluated)
    if len(rows) < len(found):
        logger.info(
            "%d of %d problems are left out: they are evaluated on", len(found) - len(rows), len(found)
        )
    if not rows:
        raise DataError(f"{path}: every problem has a question that is evaluated on; give other problems")
    if config.cooper.trains_verify_rm:
        check_fits(config.cooper.pairs.assistant, rows, key="cooper.pairs.assistant")
    if config.cooper.asks_judge:
        check_fits(config.cooper.judge, rows, key="cooper.judge")
    return rows
