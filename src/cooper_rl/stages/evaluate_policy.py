"""Stage: a policy on held-out problems, VerifyRM on held-out examples (row 14).

Accuracy, rule accuracy and the VerifyRM reward stand side by side: a widening gap is reward hacking.
"""

from contextlib import closing
from pathlib import Path
from typing import Annotated, NamedTuple

from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.config.root import Config
from cooper_rl.domains.open import find_domain
from cooper_rl.engines.open import open_engine
from cooper_rl.errors import DataError
from cooper_rl.machine.device import pick_device
from cooper_rl.models.packed.forward import use_packed
from cooper_rl.models.policy import Policy, load_policy
from cooper_rl.models.verify_rm import VerifyRM, load_verify_rm
from cooper_rl.records.files import check_unique, read_records, write_records, write_report
from cooper_rl.records.model_set import read_models
from cooper_rl.redteam.negatives import read_attacks
from cooper_rl.run.evaluator import make_evaluator
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.reports import EvalReport
from cooper_rl.storage.model_reference import model_in
from cooper_rl.storage.models import at_hand


def run(
    config: Config,
    *,
    models: Annotated[Path, Input("Folder of prepare_models: the starting policy")],
    verify_rm: Annotated[Path, Input("Folder of train_verify_rm")],
    problems: Annotated[Path, Input("Held-out problems (JSONL or Parquet)")],
    examples: Annotated[Path, Input("Held-out labelled examples, for VerifyRM's own accuracy")],
    evaluations: Annotated[Path, OutputFile("Where to write the evaluations so far and this one (JSONL)")],
    completions: Annotated[Path, OutputFile("Where to write the evaluated completions (JSONL)")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
    checkpoint: Annotated[Path | None, Input("Checkpoint to evaluate; absent: the starting models")] = None,
    previous: Annotated[Path | None, Input("Evaluations of earlier points, kept in front")] = None,
    attacks: Annotated[Path | None, Input("Texts of red_team, each scored as canaries are")] = None,
) -> EvalReport:
    """Draw completions for held-out problems and evaluate them with every verifier.

    Raises:
        ConfigError: the laptop's judge is configured for problems of another source, or the engine cannot be
            started as configured.
        DataError: a file is missing or malformed, or the checkpoint is damaged.
        ModelError: a model cannot be used.
        ServerError: the evaluation judge cannot be used.
    """
    if evaluations.suffix.lower() == ".parquet":
        raise DataError(f"{evaluations}: evaluations have columns of their own each; name it .jsonl")
    earlier = [] if previous is None else read_records(previous, EvalReport)
    with closing(find_domain(config.problems.domain).open_verifier(config.labeling.rule)) as rule:
        held_out, labelled = read_records(problems, Problem), read_records(examples, VerifyExample)
        check_unique(held_out, field="id", path=problems)
        evaluator = make_evaluator(config, held_out, labelled, rule, attacks=read_attacks(attacks))
        subject = _load_subject(config, models=models, verify_rm=verify_rm, checkpoint=checkpoint)
        for model in (subject.policy.model, subject.verify_rm.model):
            use_packed(model, is_on=config.packed_forward)
        with closing(open_engine(subject.policy, config.engine)) as engine:
            found = evaluator.evaluate(engine, subject.policy, subject.verify_rm, step=subject.step)
    result = found.report.model_copy(update={"checkpoint": subject.checkpoint})
    write_records(completions, found.completions)
    write_records(evaluations, [*earlier, result])
    write_report(report, result)
    return result


class _Subject(NamedTuple):
    step: int
    checkpoint: str | None
    policy: Policy
    verify_rm: VerifyRM


def _load_subject(config: Config, *, models: Path, verify_rm: Path, checkpoint: Path | None) -> _Subject:
    device = pick_device()
    if checkpoint is None:
        name = at_hand(config.storage, read_models(models).policy)
        policy = load_policy(name, device=device, is_trained=False, prompt_template=config.prompt_template)
        judge = load_verify_rm(at_hand(config.storage, model_in(verify_rm)), device=device)
        return _Subject(0, None, policy, judge)
    needed = ("policy/", "verify_rm/")
    with open_checkpoint(checkpoint, config.storage, starting_with=needed) as found:
        return _Subject(
            found.manifest.step,
            found.manifest.checksum,
            load_policy(
                found.folder / "policy",
                device=device,
                is_trained=False,
                prompt_template=config.prompt_template,
            ),
            load_verify_rm(found.folder / "verify_rm", device=device),
        )
