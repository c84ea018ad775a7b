"""`CooperReward`: a reward function whose VerifyRM learns while the policy of any trainer learns.

One call is one step: phases 2, 5 and 6 of the method, by the code that `train_cooper` runs
(`training/reward_learner.py`). Of several processes the first one holds VerifyRM; the others send it their
completions and wait for their rewards.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import torch

from cooper_rl.api import trl
from cooper_rl.api.processes import is_first_process, join_processes
from cooper_rl.api.reward_config import Examples, make_settings
from cooper_rl.api.reward_run import RewardRun
from cooper_rl.api.rows import beside_rows, read_rows
from cooper_rl.config.cooper import CooperConfig
from cooper_rl.config.data import RuleConfig
from cooper_rl.distributed.ranks import Ranks
from cooper_rl.errors import CooperError, DataError
from cooper_rl.models.verify_rm import VerifyRM, save_verify_rm
from cooper_rl.schema.data import PreferencePair


class CooperReward:
    """Rewards from a VerifyRM that is co-trained with the policy; a reward function of TRL's GRPOTrainer.

    With TRL it is the whole change: `GRPOTrainer(model, reward_funcs=CooperReward("verify_rm"), ...)`. In a
    loop of one's own, each call is one step on the whole batch.

    Examples:
        >>> reward = CooperReward("verify_rm", device="cpu")
        >>> rewards = reward(
        ...     ["It is 2.", "It is 3."],
        ...     questions=["1+1?"] * 2, reference_answers=["2"] * 2, group_ids=["a"] * 2,
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
        domain: str | None = None,
    ) -> None:
        """Load VerifyRM on the first process.

        Args:
            verify_rm: Folder or hub id, or a loaded model, which is then changed in place.
            config: Keys of the section `cooper`: `reward`, `pairs`, `judge`, `gate`, `monitor` and a few
                more. By default negatives are the policy's own wrong completions and perturbations, which
                need no server, and updates go through the gate where there are held-out examples.
            rule: The rule verifier's settings.
            replay: Labelled completions that VerifyRM keeps training on beside the pairs.
            held_out: Labelled completions for the gate; VerifyRM learns nothing from their questions.
            folder: Where checkpoints are written every `checkpoint_every` steps and by `close`; what is there
                is continued. Not with TRL, whose own checkpoints hold the reward's state.
            reference_column: Data set column with the reference answer, where a trainer passes columns.
            seed: Of positives, sources of negatives, replay and gate.
            device: Where VerifyRM lives; None: this process's CUDA device, else the CPU.
            domain: What the problems are about, as in `problems.domain`; None: mathematics.

        Raises:
            ConfigError: an unknown domain, an unknown, unused or contradictory key, or a folder of another
                configuration.
            DataError: examples that cannot be read, or replayed questions that are held out.
            ModelError: VerifyRM cannot be loaded.
        """
        self.__name__ = "cooper_reward"
        settings = make_settings(
            config,
            rule=rule,
            replay=replay,
            held_out=held_out,
            seed=seed,
            device=device,
            domain=domain,
        )
        self._reference_column = reference_column
        self._has_folder = folder is not None
        # Re-entrant: a trainer's first call resumes the reward inside its own block, through `load`.
        self._lock = threading.RLock()
        self._ranks: Ranks | None = None
        self._trainer: Any = None
        self._may_resume = False
        """Of the trainer: it began, and whether it resumed was not looked at yet."""
        self._run: RewardRun | None = None
        self._is_closed = False
        self.is_learning = True
        """False: calls score, and nothing is learned."""
        if is_first_process():
            # Hydra and others change the working directory later.
            self._run = RewardRun(verify_rm, settings, folder=Path(folder).absolute() if folder else None)

    @property
    def step(self) -> int:
        """Steps that VerifyRM has learned from. On the first process, as everything below."""
        return self._first.step

    @property
    def metrics(self) -> list[dict[str, float]]:
        """One entry for each of the newest 1,024 steps, with the names of metrics.jsonl."""
        return [row.flat() for row in self._first.metrics]

    @property
    def pairs(self) -> list[PreferencePair]:
        """The newest 256 preference pairs."""
        return list(self._first.pairs)

    @property
    def verify_rm(self) -> VerifyRM:
        """The model as it is now."""
        return self._first.verify_rm

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        prompts: Sequence[Any] | None = None,
        questions: Sequence[str] | None = None,
        reference_answers: Sequence[str | None] | None = None,
        group_ids: Sequence[object] | None = None,
        are_cut: Sequence[bool] | None = None,
        log_metric: Any = None,
        **columns: Any,
    ) -> list[float | None]:
        """One reward per completion, in order; then VerifyRM learns from the batch.

        Rewards come from VerifyRM as it was before the call. All processes must call together.

        Args:
            completions: Texts, or chat messages of which the last assistant message is read.
            prompts: Texts, or chat messages whose last user message is the question.
            questions: In place of prompts, where they hold more than the question. A column `question` of a
                trainer's data set is taken too.
            reference_answers: One per completion; absent: the trainer's column `reference_column`. None: the
                completion belongs to another task of the data set. Its reward is None, which TRL leaves out.
            group_ids: Equal for completions of one problem; absent: consecutive equal questions are a group.
            are_cut: Whether each completion reached the limit of its length; absent: TRL's trainer says it.
                A number at the end of such a completion may be half of one, and is not its answer.
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
            # TRL's evaluations call as well: the model's mode alone tells them from training.
            is_training = self.is_learning and (trainer is None or bool(trainer.model.training))
            parts = ranks.collect(
                lambda: read_rows(
                    completions,
                    prompts=prompts,
                    questions=columns.get("question") if questions is None else questions,
                    reference_answers=self._find_references(reference_answers, columns),
                    group_ids=group_ids,
                    has_other_tasks=True,
                    are_cut=trl.find_cut(trainer, columns.get("completion_ids"))
                    if are_cut is None
                    else are_cut,
                ),
            )
            own = parts[ranks.rank]
            joined = [row for part in parts for row in part if row is not None]
            if not joined:
                return beside_rows([], own)
            rewards, metrics = ranks.first(lambda: self._own.take_step(joined, is_training=is_training))
            if is_training and log_metric is not None:
                trl.log(log_metric, metrics)
            before = sum(row is not None for part in parts[: ranks.rank] for row in part)
            return beside_rows(rewards[before:], own)

    def save(self, folder: str | Path) -> None:
        """Write a checkpoint that `load` continues from exactly. On the first process.

        Raises:
            ConfigError: the folder holds checkpoints of another configuration.
            DataError, StorageError: it cannot be written.
        """
        with self._lock:
            self._own.save(Path(folder))

    def load(self, folder: str | Path) -> bool:
        """Go on from the newest checkpoint of a folder; whether there was one. On the first process.

        Raises:
            ConfigError: it belongs to another configuration; names the keys.
            DataError: what is there is damaged.
        """
        with self._lock:
            return self._own.load(Path(folder))

    def save_verify_rm(self, folder: str | Path) -> None:
        """Write VerifyRM as it is now, for `load_verify_rm`. On the first process.

        Raises:
            DataError: the folder cannot be written.
        """
        with self._lock:
            save_verify_rm(self.verify_rm, Path(folder))

    def close(self) -> None:
        """Write the last checkpoint, where there is a folder, and end the worker processes.

        After Ctrl-C in the middle of an update there is nothing to write: the checkpoint before stays.

        Raises:
            DataError: the checkpoint cannot be written. The reward stays open, and can be closed again.
        """
        with self._lock:
            if self._run is not None and not self._is_closed:
                self._run.close()
                self._is_closed = True

    def __reduce__(self) -> NoReturn:
        raise CooperError(
            "CooperReward cannot be copied or sent to another process: its VerifyRM learns in one place. "
            "Make it in the process that trains; for others start `cooper-rl serve --learn` and give them a "
            "RewardClient"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _first(self) -> RewardRun:
        if self._run is None:
            raise CooperError("the first process alone has VerifyRM, its metrics and pairs; ask it there")
        return self._run

    @property
    def _own(self) -> RewardRun:
        if self._is_closed:
            raise CooperError(
                "this CooperReward is closed; make another one, which continues from its folder"
            )
        return self._first

    def _meet(self, log_metric: Any) -> Ranks:
        """The processes that call together; from a trainer's first call on its checkpoints are followed."""
        if self._ranks is None:
            self._ranks = join_processes()
        trainer = trl.trainer_of(log_metric)
        if trainer is not None and trainer is not self._trainer:
            self._trainer = trainer
            trl.follow(self, trainer, has_folder=self._has_folder, begin=self._begin)
            self._begin()
        if trainer is not None and self._may_resume:
            # In a call and not when training begins: all processes are to hear of an error.
            self._ranks.first(lambda: trl.resume(self, trainer))
            self._may_resume = False
        return self._ranks

    def _begin(self) -> None:
        """Training begins, perhaps after evaluations: a checkpoint may have been resumed since."""
        self._may_resume = True

    def _find_references(
        self, reference_answers: Sequence[str | None] | None, columns: Mapping[str, Any]
    ) -> Sequence[str | None]:
        found = columns.get(self._reference_column) if reference_answers is None else reference_answers
        if found is None:
            given = sorted(
                name
                for name, values in columns.items()
                if isinstance(values, list) and name != "completion_ids"
            )
            raise DataError(
                f"no reference answers: the data set has no column {self._reference_column!r} (passed: "
                f"{', '.join(given) or 'none'}); name it with reference_column=..."
            )
        return found
