"""Stage: one iteration of co-training, many steps long (rows 6 to 13). The step is `training/step.py`.

A run that was stopped, in whatever way, continues from its own checkpoints when it is started again, and
its numbers are those of a run that was not stopped. Checkpoints are in the folder given, or below
`storage.uri`; then the folder holds a reference. With `launch.kind=trainjob` a job on other nodes trains, and
what it left in the store is read here.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.reference import check_reference_folder, write_reference
from cooper_rl.config.root import Config
from cooper_rl.distributed.open import open_ranks
from cooper_rl.distributed.ranks import ALONE
from cooper_rl.method.monitor import first_alarm
from cooper_rl.records.files import write_report
from cooper_rl.records.step_metrics import read_metrics
from cooper_rl.run.alarms import check_hacked
from cooper_rl.run.iteration import summarise, train
from cooper_rl.run.launching import train_in_job
from cooper_rl.run.plan import Inputs, settle
from cooper_rl.run.stopping import StopRequest
from cooper_rl.schema.paths import Input, OutputFile, OutputFolder
from cooper_rl.schema.reports import CooperReport


def run(
    config: Config,
    *,
    models: Annotated[Path, Input("Folder of prepare_models: the starting policy, also the KL reference")],
    verify_rm: Annotated[Path, Input("Folder of train_verify_rm")],
    problems: Annotated[Path, Input("Problems to train on (JSONL or Parquet)")],
    checkpoint: Annotated[
        Path, OutputFolder("Folder for checkpoints; an unfinished iteration in it is continued")
    ],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
    start: Annotated[
        Path | None, Input("Checkpoint folder of the previous iteration; absent: start anew")
    ] = None,
    replay: Annotated[
        Path | None, Input("Labelled examples to replay (cooper.reward.num_replay_examples)")
    ] = None,
    examples: Annotated[
        Path | None, Input("Held-out labelled examples (cooper.gate, cooper.evaluate_every)")
    ] = None,
    held_out: Annotated[Path | None, Input("Held-out problems (cooper.evaluate_every)")] = None,
    test: Annotated[Path | None, Input("Labelled examples that VerifyRM is evaluated on later")] = None,
    attacks: Annotated[
        Path | None, Input("Texts of red_team (cooper.pairs.negatives.red_team); cooper.gate watches them")
    ] = None,
) -> CooperReport:
    """Train policy and VerifyRM together for `cooper.steps` steps.

    Problems with a question of `examples`, `held_out` or `test` are left out: pairs would teach VerifyRM what
    the gate and the evaluations ask.

    Raises:
        ConfigError: no `storage.run_key`, a folder that a reference would clear, checkpoints of a run of
            another configuration or other data, an option needs a file that was not given, or several
            processes without DeepSpeed.
        HackingError: the monitor raised the alarm, and its action is `stop`; what was done is saved.
        LaunchError: the TrainJob cannot be started or followed, or failed.
        DataError: no problems are left, duplicate ids, or no whole checkpoint where there must be one.
        ModelError: a model cannot be used.
        ServerError: the judge that is the reward cannot be used; what was done before is saved.
        StorageError: checkpoints cannot be stored or read; the last visible one stays.
        StoppedError: SIGTERM; what was done is saved.
        TrainingError: a score, loss or gradient is not finite; the last checkpoint stays.
    """
    started = time.monotonic()
    run_uri = config.storage.run_uri()
    if run_uri:
        check_reference_folder(checkpoint)
    side = {"replay": replay, "examples": examples, "held_out": held_out, "test": test, "attacks": attacks}
    inputs = Inputs(models, verify_rm, problems, checkpoint, start, side)
    is_job = config.launch.kind == "trainjob"

    with ExitStack() as stack:
        ranks = ALONE if is_job else stack.enter_context(open_ranks(config.distributed))
        stop = stack.enter_context(StopRequest(config.storage.grace_seconds))
        # Collective: every rank comes here once, and learns the same plan or the same error.
        standing = settle(config, inputs, ranks, stack)
        plan, lead = standing.plan, standing.lead
        found = lead.found if lead else None
        if not plan.is_finished and not is_job:
            train(config, inputs, standing, stack, ranks=ranks, stop=stop)
        if lead is not None and not plan.is_finished and is_job:
            sent = {"models": models, "verify_rm": verify_rm, "start": start, **inputs.data}
            found = train_in_job(
                config,
                sent,
                checkpoints=lead.checkpoints,
                folder=lead.fetched,
                last_step=plan.last_step,
                stop=stop,
            )
        elif lead is not None and not plan.is_finished:
            found = lead.checkpoints.published(lead.fetched)

        def conclude() -> CooperReport | None:
            if lead is None:
                return None
            assert found is not None, "a checkpoint of the last step"
            metrics = read_metrics(*found.log[METRICS])
            result = summarise(metrics, first_step=plan.first_step, seconds=time.monotonic() - started)
            check_hacked(config, is_hacked=first_alarm(metrics) is not None, step=plan.last_step)
            if run_uri:
                write_reference(checkpoint, found, uri=lead.checkpoints.uri)
            write_report(report, result)
            return result

        told = ranks.agree(conclude)
        assert told is not None, "the first rank's"
        return told
