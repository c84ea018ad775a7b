"""An iteration that is not finished, trained on this rank and the others (rows 6 to 13)."""

from collections.abc import Sequence
from contextlib import ExitStack, closing

import torch

from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.config.root import Config
from cooper_rl.distributed.ranks import Ranks
from cooper_rl.machine.command import known_command
from cooper_rl.method.monitor import denied_alarms, first_alarm
from cooper_rl.records.live import LiveFile, LiveHeader
from cooper_rl.report.page import settings
from cooper_rl.run.build import make_trainer
from cooper_rl.run.evaluator import make_evaluator
from cooper_rl.run.loop import CoTraining
from cooper_rl.run.plan import Inputs, Lead, Plan, Standing, starting_state
from cooper_rl.run.recorder import Books
from cooper_rl.run.stopping import StopRequest
from cooper_rl.run.tracker import Tracker
from cooper_rl.schema.reports import CooperReport
from cooper_rl.schema.step_metrics import StepMetrics


def train(
    config: Config, inputs: Inputs, standing: Standing, stack: ExitStack, *, ranks: Ranks, stop: StopRequest
) -> None:
    """All steps that are left. Collective.

    Raises:
        CooperError: see `stages.train_cooper.run`.
    """
    plan, lead = standing.plan, standing.lead
    if lead is not None:
        assert lead.state is not None, "the first rank read it when it decided"
        state, place = lead.state, str(inputs.start or inputs.verify_rm)
        books = _open_books(config, inputs, lead, stack, plan=plan, step=state.step)
    else:
        state, place, books = _follow(config, inputs, plan), "the first rank", None
    trainer = make_trainer(
        config, state, standing.problems, standing.side, stack, models=inputs.models, place=place, ranks=ranks
    )
    state.policy_optimizer, state.verify_rm_optimizer = {}, {}  # the optimisers have them now
    evaluator = None
    if config.cooper.evaluate_every is not None:
        side = standing.side
        evaluator = make_evaluator(
            config, side.held_out, side.examples, trainer.reward.rule, attacks=side.attacks, ranks=ranks
        )
    CoTraining(
        config=config,
        trainer=trainer,
        state=state,
        problems=standing.problems,
        evaluator=evaluator,
        stop=stop,
        books=books,
        ranks=ranks,
    ).run(plan.last_step)
    if books is not None:
        books.writer.finish()


def summarise(metrics: Sequence[StepMetrics], *, first_step: int, seconds: float) -> CooperReport:
    """The report of an iteration: of its own steps, with means over their last tenth."""
    own = [row for row in metrics if row.step >= first_step]
    tail = own[-max(1, len(own) // 10) :]
    return CooperReport(
        first_step=first_step,
        last_step=own[-1].step,
        verify_rm_reward=sum(row.rollout.verify_rm_reward for row in tail) / len(tail),
        rule_accuracy=sum(row.rollout.rule_accuracy for row in tail) / len(tail),
        num_pairs=sum(row.pairs.count or 0 for row in own),
        num_skipped_reward_updates=sum(row.pairs.count == 0 for row in own),
        num_rolled_back_reward_updates=sum(row.gate.rolled_back is True for row in own),
        first_alarm_step=first_alarm(own),
        denied_alarm_steps=denied_alarms(own),
        seconds=seconds,
    )


def _open_books(
    config: Config, inputs: Inputs, lead: Lead, stack: ExitStack, *, plan: Plan, step: int
) -> Books:
    shown = dict(settings(config))
    header = LiveHeader(
        arm=config.storage.arm, last_step=plan.last_step, settings=shown, command=known_command()
    )
    name = config.storage.run_name() or "cooper-rl"
    return Books(
        lead.checkpoints,
        writer=stack.enter_context(CheckpointWriter(lead.checkpoints, inputs.checkpoint)),
        tracker=stack.enter_context(Tracker(config.tracker, run=name, settings=shown)),
        live=stack.enter_context(closing(LiveFile(inputs.checkpoint, header, step=step))),
        # Read only when an alarm goes back so far; onto the CPU, since the device holds both models.
        first=lambda: starting_state(
            config, inputs, lead.begun, device=torch.device("cpu"), precision=plan.precision
        ),
        prompt_template=config.prompt_template,
    )


def _follow(config: Config, inputs: Inputs, plan: Plan) -> TrainingState:
    """The state on another rank: the first one's numbers. Its weights come when the trainer is made."""
    # The starting models and not the checkpoint: their shapes are all that is needed, and eight ranks that
    # fetch the same gigabytes would share one network.
    state = starting_state(config, inputs, None, precision=plan.precision)
    state.step, state.run = plan.step, plan.run
    return state
