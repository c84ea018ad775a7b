"""One run of a reward that learns, in one process: groups of completions in, rewards out, checkpoints.

`CooperReward` has one on the first process of a trainer; the service has one for every run. Scoring and
learning are `training/reward_learner.py`'s, as in `train_cooper`.
"""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import torch

from cooper_rl.api.groups import CompletionGroup, group_rows
from cooper_rl.api.reward_config import RewardSettings
from cooper_rl.api.reward_state import (
    NUM_METRICS,
    LogRows,
    RewardState,
    open_states,
    read_state,
    versions_here,
    write_state,
)
from cooper_rl.api.rows import Row
from cooper_rl.checkpoints.run_state import RunState
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.versions import VERIFY_RM, recorded_precision, say_differences
from cooper_rl.config.section import flatten
from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.domains.open import default_domain
from cooper_rl.domains.veto import KEY as VETO
from cooper_rl.errors import ConfigError, CooperError, HackingError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.method.questions import question_key
from cooper_rl.models.decoys import KEY as DECOYS
from cooper_rl.models.precision import settle
from cooper_rl.models.template import KEY as TEMPLATE
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, load_verify_rm
from cooper_rl.run.alarms import ask_monitor
from cooper_rl.run.identity import MAY_DIFFER, SERVER_KEYS, folder_sha256
from cooper_rl.schema.data import Pairing, PreferencePair
from cooper_rl.schema.step_metrics import Phase, StepMetrics
from cooper_rl.servers.open import open_assistant, open_judge
from cooper_rl.training.gate import make_gate
from cooper_rl.training.optimizer import make_adamw, read_tensors, restore_optimizer
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.reward_learner import (
    RewardLearner,
    describe_judge,
    describe_scores,
    describe_verify_rm,
    timed,
)
from cooper_rl.training.rollout import Scores

logger = logging.getLogger(__name__)


NUM_STEPS_WITHOUT_PAIRS = 10
"""After so many the log says that there were none."""


class ScoredRows(NamedTuple):
    """Rows with their rewards, for `RewardRun.learn`."""

    groups: list[CompletionGroup]
    scores: Scores
    anchor_score: float | None
    rewards: list[float]
    """Values in the order of the rows."""
    metrics: StepMetrics


class RewardRun:
    """Not safe from threads: one caller at a time."""

    def __init__(
        self, verify_rm: str | Path | VerifyRM, settings: RewardSettings, *, folder: Path | None = None
    ) -> None:
        """Load VerifyRM, or the newest checkpoint of `folder`, where further ones are written."""
        self._settings = settings
        self._identity = _make_identity(settings, verify_rm)
        self._given = verify_rm if isinstance(verify_rm, VerifyRM) else None
        self._stack = ExitStack()
        self._saved_step: int | None = 0
        """None: its own folder does not hold what was loaded from elsewhere."""
        self._is_torn = False
        """Ctrl-C broke an update off, of which a part may be done."""
        self.step = 0
        self.metrics: deque[StepMetrics] = deque(maxlen=NUM_METRICS)
        """Of the newest steps, oldest first."""
        self._run = RunState()
        self._held_out = {question_key(example.question) for example in settings.held_out}
        self._has_told_held_out = False
        self._folder = folder
        self._store: CheckpointStore | None = None
        self._unlogged = LogRows()
        found = None
        if folder is not None:
            self._store = open_states(folder, self._identity)
            self._store.prepare()
            found = self._read(self._store)
        if found is None:
            self._learner = self._open(verify_rm)
        else:
            self._go_on(found, is_own=True)

    @property
    def verify_rm(self) -> VerifyRM:
        return self._learner.verify_rm

    @property
    def pairs(self) -> Sequence[PreferencePair]:
        """The newest pairs, oldest first."""
        return self._run.recent_pairs

    @property
    def past(self) -> RunState:
        """The state after the steps done, as far as later ones need it."""
        return self._run

    @property
    def saved_step(self) -> int:
        """The step of the last checkpoint in its own folder; 0: there is none of this state."""
        return self._saved_step or 0

    @property
    def staleness(self) -> int:
        """Steps whose pairs VerifyRM has yet to learn from; see `pairs.max_staleness`."""
        return min(self.step, self._settings.config.pairs.max_staleness)

    @property
    def stopped_step(self) -> int | None:
        """The step at which the monitor stopped the run; None: it goes on."""
        monitor = self._settings.config.active_monitor
        return self._run.first_alarm_step if monitor is not None and monitor.action == "stop" else None

    def take_step(self, rows: Sequence[Row], *, is_training: bool) -> tuple[list[float], StepMetrics]:
        """Rewards in the order of the rows, and the step's metrics; see `CooperReward.__call__`."""
        scored = self.score(rows, is_training=is_training)
        return scored.rewards, self.learn(scored) if is_training else scored.metrics

    def score(self, rows: Sequence[Row], *, is_training: bool) -> ScoredRows:
        """Rewards from VerifyRM as it is; with `is_training`, `learn` is to follow before anything else.

        Raises:
            HackingError: for training, and the monitor has stopped the run.
        """
        if is_training:
            self._check_stopped()
        learner, monitor = self._learner, self._settings.config.active_monitor
        groups = group_rows(rows)
        if is_training and monitor is not None and self.step == 0 and monitor.num_anchors:
            # At the first step the policy is the starting policy, whose completions are the anchors.
            learner = self._learner = replace(learner, anchors=_draw_anchors(groups, monitor.num_anchors))
        falls_back = monitor is not None and monitor.action == "rule" and self._run.is_hacked
        seconds: dict[Phase, float] = {}
        with timed(seconds, "reward"):
            scores, own_rewards, _ = learner.score(groups, falls_back_to_rule=falls_back)
            anchor_score = learner.score_anchors()
        row = StepMetrics(
            step=self.step + 1,
            rollout=describe_scores(groups, scores, own_rewards),
            verify_rm=describe_verify_rm(anchor_score, None),
            seconds=seconds,
        )
        rewards = [0.0] * len(rows)
        places = (index for group in groups for index in group.indices)
        for index, reward in zip(places, own_rewards, strict=True):
            rewards[index] = reward
        return ScoredRows(groups, scores, anchor_score, rewards, row)

    def learn(self, scored: ScoredRows) -> StepMetrics:
        """Take the step: VerifyRM learns from rows that were just scored; returns the step's metrics.

        Raises:
            HackingError: the monitor's action is `stop`, and it raised the alarm; the step counts.
            TrainingError: a loss or gradient is not finite; the step does not count.
        """
        learner, config, row = self._learner, self._settings.config, scored.metrics
        step = self.step + 1
        self._is_torn = True
        try:
            # Trainers call rewards without gradients, some in inference mode or under autocast, which would
            # round in the backward.
            with (
                torch.inference_mode(False),
                torch.enable_grad(),
                torch.autocast(learner.verify_rm.device.type, enabled=False),
            ):
                learner.begin_pairs(*self._without_held_out(scored), step=step)
                learned = learner.learn(row.seconds, step=step)
        except CooperError:
            self._is_torn = False  # the weights are as before
            raise
        row.verify_rm = describe_verify_rm(scored.anchor_score, learned.update)
        row.pairs, row.gate = learned.made, learned.gate
        row.judge = describe_judge(len(scored.scores.judge or ()), learned.pairing)
        self.step = step
        self.metrics.append(row)
        self._run = self._run.with_pairs(learned.pairing.pairs)
        if self._store is not None:
            self._unlogged.metrics.append(row)
            self._unlogged.pairs.extend(learned.pairing.pairs)
        monitor, alarm = ask_monitor(
            self._settings.config.active_monitor, self._run, row, key="monitor.action"
        )
        self._run = self._run.after(row, monitor)
        self._is_torn = False
        if step == NUM_STEPS_WITHOUT_PAIRS and config.trains_verify_rm and not self._run.num_pairs:
            _tell_of_no_pairs(scored)
        try:
            if self._store is not None and (alarm or step % config.checkpoint_every == 0):
                self._save(self._store)
        finally:  # a full disk lets no hacked run go on
            self._check_stopped()
        return row

    def _check_stopped(self) -> None:
        if self.stopped_step is not None:
            raise HackingError(
                f"the monitor found reward hacking at step {self.stopped_step}; look at the policy's "
                "completions, and train with other settings or with monitor.action=rule or warn"
            )

    def _without_held_out(self, scored: ScoredRows) -> tuple[list[CompletionGroup], Scores]:
        """The groups that VerifyRM may learn from: the gate asks about the other ones."""
        is_free = [question_key(group.problem.question) not in self._held_out for group in scored.groups]
        if all(is_free):
            return scored.groups, scored.scores
        if not self._has_told_held_out:
            self._has_told_held_out = True
            logger.warning(
                "step %d: %d of %d groups have a question of held_out, e.g. %r: they are rewarded, and "
                "VerifyRM learns nothing from them; hold out completions of questions that the policy is not "
                "trained on",
                self.step + 1,
                is_free.count(False),
                len(is_free),
                scored.groups[is_free.index(False)].problem.question[:80],
            )
        return list(compress(scored.groups, is_free)), scored.scores.of_groups(scored.groups, is_free)

    def save(self, folder: Path) -> None:
        """See `CooperReward.save`."""
        if self._store is not None and self._is_own(folder):
            # A second store there would publish behind the back of the first, which then finds a conflict.
            self._save(self._store)
            return
        store = open_states(folder, self._identity)
        with scratch_folder() as work:
            store.newest(work, last_step=0)  # refuses those of another run
        store.forget_log()
        self._save(store)

    def load(self, folder: Path) -> bool:
        """See `CooperReward.load`."""
        own = self._store if self._is_own(folder) else None
        found = self._read(own or open_states(folder, self._identity))
        if found is not None:
            self._stack.close()
            self._go_on(found, is_own=own is not None)
        return found is not None

    def close(self, *, saves: bool = True) -> None:
        """Write the last checkpoint, where there is a folder, and end the worker processes.

        Ctrl-C in an update leaves the checkpoint before: the weights are of no step. Where the checkpoint
        cannot be written, the run stays open, so that it can be tried again.
        """
        if saves and not self._is_torn and self._store is not None and self.step != self._saved_step:
            self._save(self._store)
        self._stack.close()

    def _is_own(self, folder: Path) -> bool:
        return self._folder is not None and folder.resolve() == self._folder.resolve()

    def _read(self, store: CheckpointStore) -> RewardState | None:
        settings = self._settings
        return read_state(store, device=settings.device, monitor=settings.config.active_monitor)

    def _go_on(self, state: RewardState, *, is_own: bool) -> None:
        logger.info("cooper_reward continues from step %d", state.step)
        verify_rm = state.verify_rm if self._given is None else _put_into(self._given, state.verify_rm)
        self._learner = self._open(verify_rm, state)
        said = say_differences(state.versions, versions_here(self._learner.verify_rm))
        if said is not None:
            logger.warning("cooper_reward: %s", said)
        self._saved_step = state.step if is_own else None
        self._is_torn = False
        self._unlogged = (state.unlogged if is_own else None) or LogRows()
        if not is_own and self._store is not None:
            self._store.forget_log()  # of its own folder, which has other steps

    def _save(self, store: CheckpointStore) -> None:
        learner, is_own = self._learner, store is self._store
        state = RewardState(
            step=self.step,
            verify_rm=learner.verify_rm,
            optimizer=read_tensors(learner.verify_rm.model, learner.optimizer).optimizer,
            run=self._run,
            metrics=tuple(self.metrics),
            pending=learner.pairs.pending() if learner.pairs is not None else [],
            anchors=learner.anchors,
            unlogged=self._unlogged if is_own else None,
        )
        write_state(state, store)
        if is_own:
            self._unlogged = LogRows()
            self._saved_step = self.step

    def _open(self, verify_rm: str | Path | VerifyRM, state: RewardState | None = None) -> RewardLearner:
        settings, config = self._settings, self._settings.config
        if not isinstance(verify_rm, VerifyRM):
            verify_rm = load_verify_rm(verify_rm, device=settings.device)
        recorded = recorded_precision(state.versions, VERIFY_RM) if state is not None else None
        model = replace(verify_rm, compute=settle(verify_rm.model, config.precision, recorded=recorded))
        adamw = make_adamw(model.model, lr=config.reward.lr, weight_decay=config.reward.weight_decay)
        optimizer = SingleProcess(model.model, adamw)
        pending: Sequence[Pairing] = ()
        anchors: Sequence[VerifyItem] = ()
        if state is not None:
            restore_optimizer(model.model, optimizer, state.optimizer, place="the reward's checkpoint")
            pending, anchors = state.pending, state.anchors
            self.step, self._run = state.step, state.run
            self.metrics = deque(state.metrics, maxlen=NUM_METRICS)
        domain = settings.domain
        rule = self._stack.enter_context(closing(domain.open_verifier(settings.rule)))
        judge = open_judge(config.judge, settings.seed, domain) if config.judge else None
        pairs = gate = None
        if config.trains_verify_rm:
            assistant = open_assistant(config.pairs.assistant, domain) if config.pairs.assistant else None
            maker = PairMaker(config, rule, assistant, judge, domain)
            staleness = config.pairs.max_staleness
            pairs = self._stack.enter_context(PairQueue(maker, max_staleness=staleness, pending=pending))
            if config.gate is not None:
                starts = self._run.gate_starts
                gate = make_gate(
                    config.gate, model, settings.held_out, seed=settings.seed, starts=starts, domain=domain
                )
        return RewardLearner(
            verify_rm=model,
            optimizer=optimizer,
            rule=rule,
            judge=judge,
            pairs=pairs,
            gate=gate,
            anchors=anchors,
            replay=settings.replay,
            domain=domain,
            config=config,
            seed=settings.seed if config.seed is None else config.seed,
        )


def _tell_of_no_pairs(scored: ScoredRows) -> None:
    group, rollout = scored.groups[0], scored.metrics.rollout
    logger.warning(
        "%d steps made no preference pair, so VerifyRM has learned nothing from the policy: of the last "
        "completions the rule calls %.0f %% correct and cannot read %.0f %%. The reference answer must be "
        "the final answer alone (%r), and completions must state theirs as the rule verifier reads it (%r)",
        NUM_STEPS_WITHOUT_PAIRS,
        100 * rollout.rule_accuracy,
        100 * (rollout.rule_unparsable or 0),
        group.problem.reference_answer[-80:],
        group.texts[0][-80:],
    )


def _put_into(given: VerifyRM, saved: VerifyRM) -> VerifyRM:
    """The saved VerifyRM with its weights in the caller's model, which is the one that goes on learning.

    Raises:
        ConfigError: the two differ in architecture.
    """
    try:
        given.model.load_state_dict(saved.model.state_dict())
    except RuntimeError as error:
        raise ConfigError(
            "verify_rm: the given model differs from the checkpoint's in architecture; give a model like the "
            f"one that the run began with, or another folder ({str(error).splitlines()[0]})"
        ) from error
    # The weights learned with the checkpoint's fields, decoys and veto; the given model may have others.
    for note in (TEMPLATE, DECOYS, VETO):
        setattr(given.model.config, note, getattr(saved.model.config, note, None))
    return replace(saved, model=given.model)


def _draw_anchors(groups: Sequence[CompletionGroup], count: int) -> list[VerifyItem]:
    """The first completion of every group, then the second ones, and so on."""
    largest = max(len(group.texts) for group in groups)
    found = [
        VerifyItem(group.problem.question, group.problem.reference_answer, group.texts[place])
        for place in range(largest)
        for group in groups
        if place < len(group.texts)
    ]
    return found[:count]


def _make_identity(settings: RewardSettings, verify_rm: str | Path | VerifyRM) -> dict[str, str]:
    """The settings that a checkpoint must have been written with to be continued."""
    identity = {
        key: json.dumps(value)
        for key, value in flatten({"cooper": settings.config.model_dump(mode="json")})
        if key not in MAY_DIFFER and not (".server." in key and key.rpartition(".")[2] in SERVER_KEYS)
    }
    identity["seed"] = str(settings.seed)
    if settings.domain is not default_domain():  # checkpoints of earlier versions name none
        identity["domain"] = settings.domain.name
    identity["rule"] = settings.rule.model_dump_json(exclude={"num_workers"})
    if not isinstance(verify_rm, VerifyRM):
        is_folder = Path(verify_rm).is_dir()
        identity["data.verify_rm"] = folder_sha256(Path(verify_rm)) if is_folder else str(verify_rm)
    for name, rows in (("replay", settings.replay), ("held_out", settings.held_out)):
        text = "\n".join(row.model_dump_json() for row in rows)
        identity[f"data.{name}"] = hashlib.sha256(text.encode()).hexdigest()
    return identity
