"""The steps of one process (rows 6 to 14): train, probe, evaluate, watch, save; and what an alarm does."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.config.root import Config
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.errors import ServerError, StoppedError, TrainingError
from cooper_rl.method.monitor import is_denied
from cooper_rl.method.shortcuts import pair_shortcut_auroc
from cooper_rl.progress import Progress
from cooper_rl.run.alarms import (
    ask_monitor,
    check_hacked,
    find_drop,
    has_fallen_back,
    regular_step,
    rollback_steps,
)
from cooper_rl.run.evaluator import Evaluator
from cooper_rl.run.identity import conditions_sha256
from cooper_rl.run.recorder import NOTHING, Books
from cooper_rl.run.stopping import StopRequest
from cooper_rl.schema.data import DrawnStep, Problem
from cooper_rl.schema.reports import EvalReport, Interval
from cooper_rl.schema.step_metrics import EvalMetrics, StepMetrics
from cooper_rl.training.optimizer import TrainedTensors, read_tensors, write_tensors
from cooper_rl.training.step import Trainer, run_step, step_problems

logger = logging.getLogger(__name__)


@dataclass
class CoTraining:
    """One process's share of an iteration."""

    config: Config
    trainer: Trainer
    state: TrainingState
    problems: Sequence[Problem]
    evaluator: Evaluator | None
    stop: StopRequest
    books: Books | None
    """None on all ranks but the first."""
    ranks: Ranks = ALONE
    _saved_step: int = field(init=False)
    _held_up: float = field(default=0.0, init=False)
    """Seconds for which the last checkpoint held up training; the next step tells them."""

    def __post_init__(self) -> None:
        self._saved_step = self.state.step

    def run(self, last_step: int) -> None:
        """All steps that are left, with a checkpoint where one is due."""
        state, every = self.state, self.config.cooper.checkpoint_every
        progress = Progress("train_cooper", last_step - state.step, logger)
        for step in range(state.step + 1, last_step + 1):
            if self.books is not None:
                # Before the step: a full disk should end the run now, not after the hours until the next
                # checkpoint.
                self.books.writer.check()
            is_alarmed = False
            # Kubernetes sends SIGTERM to every pod at a time of its own: one rank may know of it a step
            # before another, and a step that only some ranks take would wait for the rest for ever.
            if not self.ranks.any(self.stop.is_made):
                is_alarmed = self._try_step(step)
                self._tell(progress)
            # Asked again: the signal may have come while the step ran, and then the step is worth a
            # checkpoint.
            is_stopping = self.ranks.any(self.stop.is_made)
            if is_alarmed or is_stopping or step == last_step or step % every == 0:
                self._save()
            if is_alarmed:
                self._finish()
                check_hacked(self.config, is_hacked=state.run.is_hacked, step=state.step)
            if is_stopping and state.step < last_step:
                self._finish()
                done = (
                    f"stopped after step {state.step} of {last_step}, which is saved"
                    if state.step
                    else "stopped before the first step; nothing is lost"
                )
                raise StoppedError(f"SIGTERM: {done}; start again with the same arguments to continue")

    def _try_step(self, step: int) -> bool:
        """`_step`, whose errors say what is saved."""
        try:
            with self.stop.step():
                return self._step(step)
        except TrainingError as error:
            kept = (
                f"the checkpoint of step {self._saved_step} stays"
                if self._saved_step
                else "no checkpoint yet"
            )
            raise TrainingError(f"step {step}: {error}; {kept}") from error
        except ServerError as error:
            # The reward's judge, which speaks before anything is trained.
            self._save()
            self._finish()
            raise ServerError(f"step {step}: {error}; what was done before is saved") from error

    def _tell(self, progress: Progress) -> None:
        row = self.state.metrics[-1]
        if self.books is not None:
            self.books.live.append(row)
            self.books.tracker.write(row, [each for each in self.state.rollouts if each.step == row.step])
        progress.advance(
            step=self.state.step,
            verify_rm_reward=row.rollout.verify_rm_reward,
            rule_accuracy=row.rollout.rule_accuracy,
            pairs=row.pairs.count or 0,
        )

    def _step(self, step: int) -> bool:
        """Do one step and report it; True if the monitor raises its first alarm."""
        state, cooper = self.state, self.config.cooper
        batch, *ahead = (
            step_problems(self.problems, number, count=cooper.problems_per_step, seed=self.trainer.seed)
            for number in range(step, step + cooper.max_rollout_staleness + 1)
        )
        result = run_step(
            self.trainer, step, batch, ahead=ahead, falls_back_to_rule=has_fallen_back(self.config, state.run)
        )
        row = result.metrics
        row.seconds["checkpoint"] = self._held_up
        state.step, self._held_up = step, 0.0
        state.metrics.append(row)
        state.pairs.extend(result.pairs)
        state.rollouts.extend(result.rollouts)
        state.run = state.run.with_pairs(result.pairs)
        row.pairs.shortcut_auroc = self._probe_pairs()
        monitor, alarm = ask_monitor(
            self.config.cooper.active_monitor, self.state.run, row, key="cooper.monitor.action"
        )
        is_due = cooper.evaluate_every is not None and step % cooper.evaluate_every == 0
        evaluated: tuple[float, ...] = ()
        if self.evaluator is not None and (is_due or alarm):
            report = self._evaluate(self.evaluator, row)
            judged = report.judge_accuracy
            state.run = state.run.evaluating_under(conditions_sha256(self.config))
            evaluated = report.judged_by_problem
            if dropped := find_drop(cooper.active_monitor, state.run, row, report):
                alarm = alarm or dropped
            elif alarm and alarm.is_deniable and self._deny(judged, row):
                alarm = None
        if alarm and cooper.monitor and cooper.monitor.action == "rollback":
            self._roll_back(alarm.since_step)
        state.run = state.run.after(row, monitor, evaluated)
        if alarm and has_fallen_back(self.config, state.run):
            # They were drawn by a policy that was taken back, or that learned from the reward given up.
            self.trainer.rollouts.discard()
        return alarm is not None

    def _probe_pairs(self) -> float | None:
        """The leak guard: can the last pairs be told apart without reading their answers?"""
        found = pair_shortcut_auroc(self.state.run.recent_pairs)
        if found is None:
            return None
        bound = self.config.cooper.pairs.max_shortcut_auroc
        last = self.state.run.shortcut_auroc
        if found > bound and (last is None or last <= bound):
            logger.warning(
                "step %d: a probe that reads no answer tells positives from negatives with an AUROC of %.2f "
                "(cooper.pairs.max_shortcut_auroc=%g): VerifyRM may learn their form; mix other negatives",
                self.state.step,
                found,
                bound,
            )
        return found

    def _evaluate(self, evaluator: Evaluator, row: StepMetrics) -> EvalReport:
        """Evaluate both models as they are; the numbers go into the step's row."""
        trainer = self.trainer
        started = time.perf_counter()
        with trainer.policy_optimizer.gather():
            report = evaluator.evaluate(
                trainer.engine,
                trainer.policy,
                trainer.reward.verify_rm,
                step=self.state.step,
                needs_judge=False,
            ).report
        row.eval = EvalMetrics(
            rule_accuracy=report.rule_accuracy.value,
            judge_accuracy=None if report.judge_accuracy is None else report.judge_accuracy.value,
            verify_rm_reward=report.verify_rm_reward.value,
            verify_rm_accuracy=report.verify_rm.accuracy.value,
            verify_rm_auroc=report.verify_rm.auroc,
            canary_rate=report.canary_false_positive_rate,
            worst_canary_rate=max(report.canaries.values(), default=None),
            canary_rates=report.canaries,
            canary_highs={attack: rate.high for attack, rate in report.canary_intervals.items()},
            cut_fraction=report.cut_fraction,
        )
        row.seconds["evaluation"] = time.perf_counter() - started
        return report

    def _deny(self, judged: Interval | None, row: StepMetrics) -> bool:
        """Ask the judge, where there is one, whether the alarm is false."""
        monitor = self.config.cooper.active_monitor
        if monitor is None or judged is None or not is_denied(self.state.run.best_judged, judged, monitor):
            return False
        row.monitor.denied = True
        logger.warning(
            "step %d: the judge denies it: accuracy on held-out problems is %.3f [%.3f, %.3f], at most %g "
            "below its best; the rule verifier may not read what the policy writes now",
            self.state.step,
            judged.value,
            judged.low,
            judged.high,
            monitor.max_gap_rise,
        )
        return True

    def _roll_back(self, step: int) -> None:
        """Both models and optimisers as of the newest checkpoint up to a step; steps are not repeated."""
        regular = regular_step(self.config, step)
        earlier = NOTHING if self.books is None else self.books.earlier(regular)
        # The first rank alone reads checkpoints; the others learn which one it found.
        since_step, step = step, self.ranks.first(lambda: earlier.step)
        trainer = self.trainer
        for model, optimizer, tensors in (
            (trainer.policy, trainer.policy_optimizer, earlier.policy),
            (trainer.reward.verify_rm, trainer.reward.optimizer, earlier.verify_rm),
        ):
            write_tensors(model.model, optimizer, tensors, place=f"step {step}")
        with trainer.policy_optimizer.gather():
            # The engine has weights of its own, which would go on drawing as the policy that was taken
            # back.
            trainer.engine.load_weights(trainer.policy.weights())
        self.state.metrics[-1].monitor.rolled_back_to = step
        logger.warning("policy and VerifyRM are those of step %d again", step)
        if step > since_step:
            logger.warning(
                "the reward rose since step %d already, of which this iteration has no checkpoint", since_step
            )

    def _save(self) -> None:
        """Begin a checkpoint, unless the last one is of this step."""
        state, trainer = self.state, self.trainer
        # All ranks have the same steps, so that all of them return here or none does.
        if state.step == self._saved_step:
            return
        self._saved_step = state.step
        # Collective, and so outside of the condition below: every rank gathers its part, one writes.
        policy = read_tensors(trainer.policy.model, trainer.policy_optimizer)
        verify_rm = read_tensors(trainer.reward.verify_rm.model, trainer.reward.optimizer)
        is_ahead = self.config.cooper.max_rollout_staleness > 0
        # Collective too. A step that the judge broke off is among them: its rollouts are drawn already.
        drawn = trainer.rollouts.pending(after=state.step) if is_ahead else []
        if self.books is not None:
            self._begin_checkpoint(self.books, policy, verify_rm, drawn)
        # What was logged is written once, by the checkpoint under way.
        state.metrics, state.pairs, state.rollouts, state.earlier = [], [], [], {}

    def _begin_checkpoint(
        self, books: Books, policy: TrainedTensors, verify_rm: TrainedTensors, drawn: list[DrawnStep]
    ) -> None:
        state, pairs = self.state, self.trainer.reward.pairs
        saved = replace(
            state,
            weights={"policy": policy.weights, "verify_rm": verify_rm.weights},
            policy_optimizer=policy.optimizer,
            verify_rm_optimizer=verify_rm.optimizer,
            pending=pairs.pending() if pairs is not None else [],
            drawn=drawn,
        )
        accuracies = [row.rollout.rule_accuracy for row in state.metrics]
        self._held_up = books.writer.save(
            saved,
            score=sum(accuracies) / len(accuracies),
            is_copy=policy.is_copy and verify_rm.is_copy,
            back_to=rollback_steps(self.config, state.run, step=state.step),
        )

    def _finish(self) -> None:
        """Wait on all ranks until the last checkpoint is visible: one that ends takes the others down."""
        books = self.books
        self.ranks.first(lambda: None if books is None else books.writer.finish())
