"""The first rank's files beside the training (row 14): checkpoints, tracker, live steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from cooper_rl.checkpoints.state import TrainingState, read_state
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.writer import CheckpointWriter
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.records.live import LiveFile
from cooper_rl.run.tracker import Tracker
from cooper_rl.training.optimizer import TrainedTensors


class Earlier(NamedTuple):
    """The state that a rollback puts back."""

    step: int
    policy: TrainedTensors
    verify_rm: TrainedTensors


NOTHING = Earlier(0, TrainedTensors({}, {}), TrainedTensors({}, {}))
"""The value on all ranks but the first, which sends them theirs."""


@dataclass(frozen=True)
class Books:
    """The recorder of one iteration: its checkpoints, tracker and live file."""

    checkpoints: CheckpointStore
    writer: CheckpointWriter
    tracker: Tracker
    live: LiveFile
    first: Callable[[], TrainingState]
    """The state that the iteration started from."""
    prompt_template: str | None = None
    """See `Config.prompt_template`: a policy without a chat template is refused without it."""

    def earlier(self, step: int) -> Earlier:
        """The newest checkpoint up to a step, or what the iteration started from."""
        # The checkpoint to go back to may be the one under way.
        self.writer.finish()
        with scratch_folder() as folder:
            found = self.checkpoints.newest_until(folder, step=step)
            state = (
                self.first()
                if found is None
                else read_state(
                    found.folder,
                    step=found.manifest.step,
                    device=torch.device("cpu"),
                    prompt_template=self.prompt_template,
                )
            )
        return Earlier(
            state.step,
            TrainedTensors(state.policy.model.state_dict(), state.policy_optimizer),
            TrainedTensors(state.verify_rm.model.state_dict(), state.verify_rm_optimizer),
        )
