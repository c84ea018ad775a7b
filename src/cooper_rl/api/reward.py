"""`CooperReward`: a reward function whose VerifyRM learns while the policy of any trainer learns.

One call is one step: phases 2, 5 and 6 of the method, by the code that `train_cooper` runs
(`training/reward_learner.py`). Of several processes the first one holds VerifyRM; the others send it their
completions and wait for their rewards.
"""

import logging
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from cooper_rl.api import trl
from cooper_rl.api.processes import gather_rows, is_first_process, join_processes
from cooper_rl.api.reward_config import make_identity, read_examples_of, reward_section
from cooper_rl.api.reward_state import RewardState, open_states, read_state, write_state
from cooper_rl.api.rows import CompletionGroup, Row, group_rows, read_rows
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.config.cooper import CooperConfig
from cooper_rl.config.data import RuleConfig
from cooper_rl.distributed.ranks import Ranks
from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.errors import CooperError, DataError, HackingError
from cooper_rl.machine.device import pick_device
from cooper_rl.method.monitor import ALARM, first_alarm, watch
from cooper_rl.method.questions import with_questions
from cooper_rl.models.precision import settle
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, load_verify_rm, save_verify_rm
from cooper_rl.schema.data import Pairing, PreferencePair, VerifyExample
from cooper_rl.servers.open import open_assistant, open_judge
from cooper_rl.training.gate import make_gate
from cooper_rl.training.optimizer import make_adamw, read_tensors, restore_optimizer
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.reward_learner import RewardLearner
from cooper_rl.verdicts.rule import RuleVerifier

logger = logging.getLogger(__name__)

Examples = str | Path | Sequence[VerifyExample] | Sequence[Mapping[str, Any]]
"""Labelled completions: a file, records, or mappings with the released columns."""


class CooperReward:
    """Rewards from a VerifyRM that is co-trained with the policy; a reward function of TRL's GRPOTrainer.

    With TRL it is the whole change: `GRPOTrainer(model, reward_funcs=CooperReward("verify_rm"), ...)`. In a
    loop of one's own, each call is one step on the whole batch:

    >>> reward = CooperReward("verify_rm", device="cpu")
    >>> rewards = reward(
    ...     ["It is 2.", "It is 3."], questions=["1+1?"] * 2, reference_answers=["2"] * 2, group_ids=["a"] * 2
    ... )
    >>> [0 < each < 1 for each in rewards], reward.step
    ([True, True], 1)
    >>> reward.close()

    One instance per training process; create it before the trainer. Use it in a `with` statement or call
    `close` to end its worker processes at once; they end with this process in any case.
    """

    def __init__(
        self,
        verify_rm: str | Path | VerifyRM,
        *,
        config: CooperConfig | Mapping[str, Any] | None = None,
        rule: RuleConfig | None = None,
        replay: Examples = (),
        held_out: Examples = (),
        folder: str | Path | None = None,
        reference_column: str = "reference_answer",
        seed: int = 0,
        device: str | torch.device | None = None,
    ) -> None:
        """Load VerifyRM on the first process.

        Args:
            verify_rm: Folder or hub id, or a loaded model, which is then changed in place.
            config: Keys of the section `cooper`: `reward`, `pairs`, `judge`, `gate`, `monitor` and a few
                more. By default negatives are the policy's own wrong completions and perturbations, which
                need no server, and updates go through the gate where there are held-out examples.
            rule: The rule verifier's settings.
            replay: Labelled completions that VerifyRM keeps training on beside the pairs.
            held_out: Labelled completions of other questions, for the gate.
            folder: Where checkpoints are written every `checkpoint_every` steps and by `close`; what is there
                is continued. Not with TRL, whose own checkpoints hold the reward's state.
            reference_column: Data set column with the reference answer, where a trainer passes columns.
            seed: Of positives, sources of negatives, replay and gate.
            device: Where VerifyRM lives; None: this process's CUDA device, else the CPU.

        Raises:
            ConfigError: an unknown, unused or contradictory key, or a folder of another configuration.
            DataError: examples that cannot be read, or replayed questions that are held out.
            ModelError: VerifyRM cannot be loaded.
        """
        self.__name__ = "cooper_reward"
        held = read_examples_of(held_out, name="held_out")
        self._config = reward_section(config, has_held_out=bool(held))
        self._rule_config = rule or RuleConfig()
        self._replay = read_examples_of(replay, name="replay")
        self._held_out = held
        shared = with_questions(self._replay, held)
        if shared:
            raise DataError(
                f"replay: {len(shared)} of its rows have a question that is held out, e.g. "
                f"{shared[0].question[:80]!r}; replay examples of other questions"
            )
        self._reference_column = reference_column
        self._seed = seed
        self._device = pick_device() if device is None else torch.device(device)
        self._lock = threading.RLock()
        self._ranks: Ranks | None = None
        self._trainer: Any = None
        self._learner: RewardLearner | None = None
        self._stack = ExitStack()
        self._has_folder = folder is not None
        self._store: CheckpointStore | None = None
        self._saved_step = 0
        self.is_learning = True
        """False: calls score, and nothing is learned."""
        self.step = 0
        """Steps that VerifyRM has learned from."""
        self.metrics: list[dict[str, float]] = []
        """One entry per step, with the names of metrics.jsonl. On the first process, as the next one."""
        self.pairs: list[PreferencePair] = []
        """All preference pairs so far."""
        if is_first_process():
            self._identity = make_identity(
                self._config,
                self._rule_config,
                seed=seed,
                verify_rm=None if isinstance(verify_rm, VerifyRM) else verify_rm,
                examples={"replay": self._replay, "held_out": self._held_out},
            )
            self._open(verify_rm)
            if folder is not None:
                self._store = open_states(Path(folder), self._identity)
                self._store.prepare()
                self._load(self._store)

    @property
    def verify_rm(self) -> VerifyRM:
        """The model as it is now. Raises CooperError on all processes but the first."""
        return self._own.verify_rm

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        prompts: Sequence[Any] | None = None,
        questions: Sequence[str] | None = None,
        reference_answers: Sequence[str] | None = None,
        group_ids: Sequence[object] | None = None,
        log_metric: Any = None,
        **columns: Any,
    ) -> list[float]:
        """One reward per completion, in order; then VerifyRM learns from the batch.

        Rewards come from VerifyRM as it was before the call. All processes must call together.

        Args:
            completions: Texts, or chat messages of which the last assistant message is read.
            prompts: Texts, or chat messages whose last user message is the question.
            questions: In place of prompts, where they hold more than the question. A column `question` of a
                trainer's data set is taken too.
            reference_answers: One per completion; absent: the trainer's column `reference_column`.
            group_ids: Equal for completions of one problem; absent: consecutive equal questions are a group.
            log_metric: TRL's.
            columns: What else a trainer passes.

        Raises:
            DataError: a column is missing, too short, or holds no text.
            HackingError: the monitor's action is `stop`, and it raised the alarm.
            ServerError: the judge cannot be used, and the reward is its verdict.
            TrainingError: a score, loss or gradient is not finite.
        """
        with self._lock:
            ranks = self._meet(log_metric)
            trainer = trl.trainer_of(log_metric)
            is_training = self.is_learning and (trainer is None or bool(trainer.model.training))
            parts = gather_rows(
                ranks,
                lambda: read_rows(
                    completions,
                    prompts=prompts,
                    questions=columns.get("question") if questions is None else questions,
                    reference_answers=self._find_references(reference_answers, columns),
                    group_ids=group_ids,
                ),
            )
            joined = [row for part in parts for row in part]
            if not joined:
                return []
            rewards, metrics = ranks.first(lambda: self._take_step(joined, is_training=is_training))
            if is_training:
                self.step = int(metrics["step"])
                if log_metric is not None:
                    trl.log(log_metric, metrics)
            start = sum(len(part) for part in parts[: ranks.rank])
            return rewards[start : start + len(parts[ranks.rank])]

    def save(self, folder: str | Path) -> None:
        """Write a checkpoint that `load` continues from exactly. On the first process.

        Raises:
            ConfigError: the folder holds checkpoints of another configuration.
            DataError, StorageError: it cannot be written.
        """
        with self._lock, tempfile.TemporaryDirectory(prefix="cooper-rl-") as work:
            store = open_states(Path(folder), self._identity)
            store.newest(Path(work), last_step=0)  # refuses those of another run
            self._save(store)

    def load(self, folder: str | Path) -> bool:
        """Go on from the newest checkpoint of a folder; whether there was one. On the first process.

        Raises:
            ConfigError: it belongs to another configuration; names the keys.
            DataError: what is there is damaged.
        """
        with self._lock:
            return self._load(open_states(Path(folder), self._identity))

    def save_verify_rm(self, folder: str | Path) -> None:
        """Write VerifyRM as it is now, for `load_verify_rm`. On the first process.

        Raises:
            DataError: the folder cannot be written.
        """
        with self._lock:
            save_verify_rm(self.verify_rm, Path(folder))

    def close(self) -> None:
        """Write the last checkpoint, where there is a folder, and end the worker processes."""
        with self._lock:
            try:
                if self._learner is not None and self._store is not None and self.step > self._saved_step:
                    self._save(self._store)
            finally:
                self._learner = None
                self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _own(self) -> RewardLearner:
        if self._learner is None:
            raise CooperError(
                "this CooperReward is closed, or this is not the first process, which alone has VerifyRM"
            )
        return self._learner

    def _save(self, store: CheckpointStore) -> None:
        learner = self._own
        state = RewardState(
            step=self.step,
            verify_rm=learner.verify_rm,
            optimizer=read_tensors(learner.verify_rm.model, learner.optimizer).optimizer,
            metrics=self.metrics,
            pairs=self.pairs,
            pending=learner.pairs.pending() if learner.pairs is not None else [],
            anchors=learner.anchors,
        )
        write_state(state, store)
        self._saved_step = self.step

    def _load(self, store: CheckpointStore) -> bool:
        state = read_state(store, device=self._device)
        if state is None:
            return False
        logger.info("cooper_reward continues from %s, step %d", store.uri, state.step)
        self._stack.close()
        self._open(state.verify_rm, state)
        self._saved_step = state.step
        return True

    def _open(self, verify_rm: str | Path | VerifyRM, state: RewardState | None = None) -> None:
        config = self._config
        if not isinstance(verify_rm, VerifyRM):
            verify_rm = load_verify_rm(verify_rm, device=self._device)
        model = replace(verify_rm, compute=settle(verify_rm.model, config.precision))
        adamw = make_adamw(model.model, lr=config.reward.lr, weight_decay=config.reward.weight_decay)
        optimizer = SingleProcess(model.model, adamw)
        pending: Sequence[Pairing] = ()
        anchors: Sequence[VerifyItem] = ()
        if state is not None:
            restore_optimizer(model.model, optimizer, state.optimizer, place="the reward's checkpoint")
            pending, anchors = state.pending, state.anchors
            self.step, self.metrics, self.pairs = state.step, list(state.metrics), list(state.pairs)
        rule = self._stack.enter_context(RuleVerifier(self._rule_config))
        judge = open_judge(config.judge, self._seed) if config.judge else None
        pairs = gate = None
        if config.trains_verify_rm:
            assistant = open_assistant(config.pairs.assistant) if config.pairs.assistant else None
            maker = PairMaker(config, rule, assistant, judge)
            staleness = config.pairs.max_staleness
            pairs = self._stack.enter_context(PairQueue(maker, max_staleness=staleness, pending=pending))
            if config.gate is not None:
                gate = make_gate(config.gate, model, self._held_out, seed=self._seed, metrics=self.metrics)
        self._learner = RewardLearner(
            verify_rm=model,
            optimizer=optimizer,
            rule=rule,
            judge=judge,
            pairs=pairs,
            gate=gate,
            anchors=anchors,
            replay=self._replay,
            config=config,
            seed=self._seed if config.seed is None else config.seed,
        )

    def _meet(self, log_metric: Any) -> Ranks:
        """The processes that call together; at a trainer's first call its checkpoints are followed."""
        if self._ranks is None:
            self._ranks = join_processes()
        trainer = trl.trainer_of(log_metric)
        if trainer is not None and trainer is not self._trainer:
            self._trainer = trainer
            trl.follow(self, trainer, has_folder=self._has_folder)
            self._ranks.first(lambda: trl.resume(self, trainer))
        return self._ranks

    def _find_references(
        self, reference_answers: Sequence[str] | None, columns: Mapping[str, Any]
    ) -> Sequence[str]:
        found = columns.get(self._reference_column) if reference_answers is None else reference_answers
        if found is None:
            given = sorted(name for name, values in columns.items() if isinstance(values, list))
            raise DataError(
                f"no reference answers: the data set has no column {self._reference_column!r} (passed: "
                f"{', '.join(given) or 'none'}); name it with reference_column=..."
            )
        return found

    def _take_step(self, rows: Sequence[Row], *, is_training: bool) -> tuple[list[float], dict[str, float]]:
        """On the first process: rewards in the order of the rows, and the step's metrics."""
        learner, config = self._own, self._config
        groups = group_rows(rows)
        step = self.step + 1
        monitor = config.active_monitor
        if is_training and monitor is not None and not self.metrics and monitor.num_anchors:
            # At the first step the policy is the starting policy, whose completions are the anchors.
            learner = self._learner = replace(learner, anchors=_draw_anchors(groups, monitor.num_anchors))
        falls_back = (
            monitor is not None and monitor.action == "rule" and first_alarm(self.metrics) is not None
        )
        rewarded = learner.score(groups, falls_back_to_rule=falls_back)
        rewards = [0.0] * len(rows)
        places = (index for group in groups for index in group.indices)
        for index, reward in zip(places, rewarded.rewards, strict=True):
            rewards[index] = reward
        if not is_training:
            return rewards, rewarded.metrics
        # Trainers call rewards without gradients, some in inference mode.
        with torch.inference_mode(False), torch.enable_grad():
            learner.begin_pairs(groups, rewarded.scores, step=step)
            learned = learner.learn(step=step)
        row = {"step": float(step)} | rewarded.metrics | learned.metrics
        self.step = step
        self.metrics.append(row)
        self.pairs.extend(learned.pairs)
        is_alarmed = self._watch(row)
        if self._store is not None and (is_alarmed or step % config.checkpoint_every == 0):
            self._save(self._store)
        if is_alarmed and monitor is not None and monitor.action == "stop":
            raise HackingError(
                f"the monitor found reward hacking at step {step}; look at the policy's completions, and "
                "train with other settings or with monitor.action=rule or warn"
            )
        return rewards, row

    def _watch(self, row: dict[str, float]) -> bool:
        """Ask the monitor; whether this is its first alarm."""
        monitor = self._config.active_monitor
        reading = watch(self.metrics, monitor) if monitor is not None else None
        if monitor is None or reading is None:
            return False
        is_first = reading.is_hacking and first_alarm(self.metrics) is None
        row |= {"monitor/gap_rise": reading.gap_rise, ALARM: float(reading.is_hacking)}
        if is_first:
            logger.warning(
                "step %d: reward hacking: since step %d VerifyRM's reward rose by %.3f and rule accuracy "
                "fell by %.3f; monitor.action=%s",
                self.step,
                reading.since_step,
                reading.reward_change,
                -reading.rule_change,
                monitor.action,
            )
        return is_first


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
