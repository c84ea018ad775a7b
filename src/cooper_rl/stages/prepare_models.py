"""Stage: the models that a run starts from, trained on the laptop or named by the configuration.

Writes `models.json`, which every later stage reads. Named models are checked, not copied: weights travel
by reference. Deliberately left out: loading them, which the stages do that use them.
"""

import logging
import shutil
from pathlib import Path
from typing import Annotated

from cooper_rl.backends.cores import usable_cores
from cooper_rl.config.models import ModelsConfig
from cooper_rl.config.root import Config
from cooper_rl.errors import DataError
from cooper_rl.records import write_report
from cooper_rl.schema import ModelSet
from cooper_rl.stages._models import MANIFEST

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    models: Annotated[Path, "Folder to write models.json to, and the laptop's models"],
    report: Annotated[Path, "Where to write the report (JSON)"],
) -> ModelSet:
    """Prepare policy, samplers and backbone.

    Raises:
        DataError: the folder cannot be written.
        ModelError: a named model is missing, has no tokenizer or is no causal language model.
    """
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{models}: cannot be made a folder ({error}); choose another path") from error
    # A manifest of an earlier run must not stand beside half-written models.
    (models / MANIFEST).unlink(missing_ok=True)
    tiny = config.models.tiny
    if tiny is None:
        found = _check_named(config.models)
    else:
        from cooper_rl.tiny.hub import train_tiny_models

        for name in ("policy", "backbone", *tiny.snapshots, *tiny.samplers):
            shutil.rmtree(models / name, ignore_errors=True)
        found = train_tiny_models(tiny, models, seed=config.seed, num_processes=usable_cores())
    write_report(models / MANIFEST, found)
    write_report(report, found)
    return found


def _check_named(names: ModelsConfig) -> ModelSet:
    from cooper_rl.backends.policy import check_architecture, load_tokenizer

    assert names.policy is not None  # the configuration refuses a run without them
    assert names.backbone is not None
    samplers = names.samplers or {"policy": names.policy}
    for place, model in (
        ("models.policy", names.policy),
        ("models.backbone", names.backbone),
        *((f"models.samplers.{name}", model) for name, model in samplers.items()),
    ):
        checked = check_architecture(_as_folder(model), suffix="ForCausalLM")
        load_tokenizer(checked)
        logger.info("%s: %s is a causal language model with a tokenizer", place, checked)
    return ModelSet(
        policy=str(_as_folder(names.policy)),
        samplers={name: str(_as_folder(model)) for name, model in samplers.items()},
        backbone=str(_as_folder(names.backbone)),
    )


def _as_folder(model: str) -> str | Path:
    """An absolute path where the name is a folder or is written as a path; else a hub id, as it is."""
    is_path = Path(model).is_dir() or model.startswith(("/", "./", "../", "~"))
    return Path(model).expanduser().resolve() if is_path else model
