"""`torchrun -m cooper_rl.cli.in_job CONFIG INPUTS`: what the processes of a TrainJob run.

Fetches the inputs that `run/launching.py` stored, then trains like any other start. The checkpoints in the
store are what stays; the process that follows the job writes the report from them.
"""

import logging
import sys
from collections.abc import Sequence

from cooper_rl.addresses import redact_all
from cooper_rl.config.root import Config
from cooper_rl.errors import EXIT_USER_ERROR, CooperError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.progress import show_log
from cooper_rl.run.launching import StagedInputs, fetch_inputs
from cooper_rl.stages import train_cooper
from cooper_rl.storage.open import open_store


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0, or 2 with one line of error."""
    show_log()
    config = Config.model_validate_json(arguments[0])
    staged = StagedInputs.model_validate_json(arguments[1])
    try:
        with scratch_folder() as place:
            inputs = fetch_inputs(open_store(config.storage, staged.uri), staged, place / "inputs")
            report = train_cooper.run(
                config, **inputs, checkpoint=place / "checkpoint", report=place / "report.json"
            )
    except CooperError as error:
        sys.stderr.write(f"train-cooper: {redact_all(str(error))}\n")
        return EXIT_USER_ERROR
    logging.getLogger(__name__).info("trained to step %d", report.last_step)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
