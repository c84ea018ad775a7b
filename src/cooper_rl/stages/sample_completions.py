"""Stage: completions of every sampler for the problems (row 2), which VerifyRM will learn from.

Outer order = problems, then samplers, then samples. A sampler's completions wait on disk for those of the
others, so that memory holds those of one call. `label_completions.py` labels them.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.root import Config
from cooper_rl.engines.open import open_engine
from cooper_rl.errors import ConfigError
from cooper_rl.labels.spool import Spool
from cooper_rl.machine.device import pick_device
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.models.packed.forward import use_packed
from cooper_rl.models.policy import load_policy
from cooper_rl.progress import Progress
from cooper_rl.randomness import derive_seed
from cooper_rl.records.batches import in_batches_of
from cooper_rl.records.files import check_output, check_unique, read_records, write_records, write_report
from cooper_rl.records.model_set import read_models
from cooper_rl.schema.data import Completion, Problem
from cooper_rl.schema.paths import Input, OutputFile
from cooper_rl.schema.reports import SampleReport
from cooper_rl.storage.models import at_hand
from cooper_rl.training.rollout import begin_rollouts

logger = logging.getLogger(__name__)

COMPLETIONS_PER_CALL = 512
"""Between two progress values; not the engine's batch size, on which no draw may depend."""


def run(
    config: Config,
    *,
    models: Annotated[Path, Input("Folder that prepare_models wrote")],
    problems: Annotated[Path, Input("Problems to sample for")],
    completions: Annotated[Path, OutputFile("Where to write the completions")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
) -> SampleReport:
    """Draw completions from every sampler.

    Raises:
        DataError: no problems, or two with the same id.
        ModelError: a sampler cannot be loaded.
        TrainingError: a sampler's weights are damaged.
        ConfigError: a temperature is given for a sampler that does not exist, or the engine cannot be started
            as configured.
    """
    started = time.monotonic()
    sampling = config.sampling
    asked = read_records(problems, Problem)
    check_unique(asked, field="id", path=problems)
    asked = asked[: sampling.max_problems]
    samplers = read_models(models).samplers
    unknown = sorted(set(sampling.temperatures) - set(samplers))
    if unknown:
        raise ConfigError(
            f"sampling.temperatures.{unknown[0]}: no such sampler in {models}; there are {sorted(samplers)}"
        )
    check_output(completions)  # now, and not after all that is drawn
    counts: Counter[str] = Counter()
    with scratch_folder() as folder, ExitStack() as stack:
        drawn: list[Spool[Completion]] = []
        for place, (name, model) in enumerate(samplers.items()):
            temperature = sampling.temperatures.get(name, sampling.generation.temperature)
            generation = sampling.generation.model_copy(update={"temperature": temperature})
            spool = stack.enter_context(Spool(folder / f"{place}.jsonl", Completion))
            _draw(config, asked, generation, spool, counts, name=name, model=model)
            drawn.append(spool)
        num_completions = write_records(completions, _in_order(drawn, sampling.completions_per_problem))
    result = SampleReport(
        num_completions=num_completions,
        num_cut=counts["cut"],
        num_tokens=counts["tokens"],
        seconds=time.monotonic() - started,
    )
    write_report(report, result)
    return result


def _in_order(drawn: Sequence[Spool[Completion]], num_samples: int) -> Iterator[Completion]:
    """All completions: problems in the outer order, then samplers, then samples."""
    samplers = [in_batches_of(spool, num_samples) for spool in drawn]
    for of_problem in zip(*samplers, strict=True):
        for batch in of_problem:
            yield from batch


def _draw(
    config: Config,
    problems: Sequence[Problem],
    generation: GenerationConfig,
    spool: Spool[Completion],
    counts: Counter[str],
    *,
    name: str,
    model: str,
) -> None:
    """Draw one sampler's completions into its spool; `counts` learns of cut ones and of tokens."""
    samples = config.sampling.completions_per_problem
    policy = load_policy(
        at_hand(config.storage, model),
        device=pick_device(),
        is_trained=False,
        prompt_template=config.prompt_template,
    )
    use_packed(policy.model, is_on=config.packed_forward)
    progress = Progress(f"sample_completions {name}", len(problems) * samples, logger)
    size = max(1, COMPLETIONS_PER_CALL // samples)
    with closing(open_engine(policy, config.engine)) as engine:
        for start in range(0, len(problems), size):
            wait = begin_rollouts(
                engine,
                policy,
                problems[start : start + size],
                generation,
                group_size=samples,
                instruction=config.instruction,
                seed=derive_seed(config.seed, "sample_completions", name, start),
            )
            groups = wait()
            for group in groups:
                for sample, (text, generated) in enumerate(zip(group.texts, group.generations, strict=True)):
                    spool.append(
                        Completion(
                            id=f"{group.problem.id}/{name}/{sample}",
                            problem_id=group.problem.id,
                            model=name,
                            text=text,
                            finish_reason=generated.finish_reason,
                        )
                    )
                    counts["cut"] += generated.finish_reason == "length"
                    counts["tokens"] += len(generated.token_ids)
            progress.advance(len(groups) * samples)
