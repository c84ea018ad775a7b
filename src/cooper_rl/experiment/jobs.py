"""The pieces of an experiment that run in worker processes: the start, and one arm with one seed from there.

Each runs steps of the pipelines' own chain (`run/chain.py`) on files in a folder of its own. A step whose
report is there is not run again, and `train_cooper` continues by itself, so a stopped experiment goes on
where it was.

    FOLDER/train_cooper_1/checkpoint/  report.json        one folder for every step, its outputs by name
"""

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from cooper_rl.comparison.files import Evaluated, Files, RunFiles
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.errors import StoppedError
from cooper_rl.run import chain
from cooper_rl.run.chain import Step
from cooper_rl.schema.stages import Output
from cooper_rl.stages import import_run, read_signature

logger = logging.getLogger(__name__)

START = tuple(chain.before_arms())
"""The pipeline's own steps: one that is added there runs here too."""
ARM = tuple(chain.of_arm())
"""The steps of each arm. The experiment's own page takes the report's place."""


def prepare_start(preset: str, overrides: Sequence[str], folder: Path) -> None:
    """Everything that all runs start from: models, data, VerifyRM, the evaluation at step 0."""
    _configure(folder)
    _run_steps(load(preset, overrides), START, folder, given={})


def train_arm(preset: str, overrides: Sequence[str], start: Path, folder: Path) -> None:
    """Train one arm from the start, and evaluate where it ends."""
    _configure(folder)
    try:
        _run_steps(load(preset, overrides), ARM, folder, given=outputs(START, start))
    except StoppedError:
        logger.exception("stopped")
        os._exit(128 + signal.SIGTERM)  # the worker, which would go on with the next job


def outputs(steps: Sequence[Step], folder: Path) -> dict[Output, Path]:
    """The file or folder of everything that the steps write below a folder."""
    return {
        output: folder / step.name / _file_name(output.name, is_folder)
        for step in steps
        for output, is_folder in _written(step)
    }


def written_files(output: Path, *, arms: Sequence[str], seeds: Sequence[int]) -> Files:
    """The files in an experiment's folder that the comparison reads."""
    runs: list[RunFiles] = []
    for arm in arms:
        for seed in seeds:
            found = outputs(ARM, output / arm / f"seed-{seed}")
            checkpoint = found[Output("train_cooper_1", "checkpoint")]
            runs.append(RunFiles(arm, seed, checkpoint, _evaluated(found, "evaluate_policy_1")))
    return Files(_evaluated(outputs(START, output / "start"), "evaluate_policy_0"), runs)


def _evaluated(found: Mapping[Output, Path], step: str) -> Evaluated:
    return Evaluated(found[Output(step, "report")], found[Output(step, "completions")])


def _written(step: Step) -> list[tuple[Output, bool]]:
    """The outputs of a step, each with whether it is a folder."""
    return [
        (parameter.as_output(step.name), parameter.is_folder)
        for parameter in read_signature(step.stage).parameters
        if parameter.is_output
    ]


def _file_name(output: str, is_folder: bool) -> str:
    if is_folder:
        return output
    return "report.json" if output == "report" else f"{output}.jsonl"


def _run_steps(config: Config, steps: Sequence[Step], folder: Path, *, given: Mapping[Output, Path]) -> None:
    paths = {**given, **outputs(steps, folder)}
    for step in steps:
        if paths[Output(step.name, "report")].is_file():
            continue
        (folder / step.name).mkdir(exist_ok=True)
        written = {output.name: paths[output] for output, _ in _written(step)}
        read = {name: paths[output] for name, output in step.inputs.items()}
        import_run(step.stage)(config, **read, **written)


def _configure(folder: Path) -> None:
    """A log of its own for every job."""
    folder.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=folder / "log.txt",
        level=logging.INFO,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )
    logging.captureWarnings(True)
