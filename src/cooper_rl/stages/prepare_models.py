"""Stage: the models that a run starts from, trained on the laptop or named by the configuration.

Writes `models.json`, which every later stage reads. Named models are checked, not copied: weights travel
by reference, that of an object store with the hash of what was checked. What cannot be trained or prompted is
refused here, before anything is paid for (`models/folder_check.py`, `models/hub_check.py`); the stages that
use them load them.
"""

import logging
from pathlib import Path
from typing import Annotated

from cooper_rl.config.infrastructure import is_stored
from cooper_rl.config.root import Config
from cooper_rl.errors import DataError, ModelError
from cooper_rl.machine.cores import usable_cores
from cooper_rl.records.files import write_report
from cooper_rl.records.model_set import MANIFEST
from cooper_rl.records.written import check_own, check_replaceable, remove_written
from cooper_rl.schema.paths import OutputFile, OutputFolder
from cooper_rl.schema.reports import ModelSet
from cooper_rl.storage.models import find_model

logger = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    models: Annotated[Path, OutputFolder("Folder to write models.json to, and the laptop's models")],
    report: Annotated[Path, OutputFile("Where to write the report (JSON)")],
) -> ModelSet:
    """Prepare policy, samplers and backbone.

    Raises:
        DataError: the folder cannot be written, or holds files of others that would be replaced.
        StorageError: a model named by its address in an object store cannot be read there.
        ModelError: a named model is missing or incomplete, cannot be prompted, or cannot be trained.
    """
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{models}: cannot be made a folder ({error}); choose another path") from error
    tiny = config.models.tiny
    made = ("policy", "backbone", *tiny.snapshots, *tiny.samplers) if tiny else ()
    check_own(models / MANIFEST, ModelSet)
    for name in made:
        check_replaceable(models / name)
    # A manifest of an earlier run must not stand beside half-written models.
    (models / MANIFEST).unlink(missing_ok=True)
    if tiny is None:
        found = _check_named(config)
    else:
        from cooper_rl.tiny.hub import choose_texts, train_tiny_models
        from cooper_rl.tiny.world import find_world

        for name in made:
            remove_written(models / name)
        domain, blind_share = config.problems.domain, config.problems.tiny_blind_share
        find_world(domain, blind_share=blind_share)  # refuses what it has not
        texts = choose_texts(domain, blind_share=blind_share)
        found = train_tiny_models(tiny, models, seed=config.seed, num_processes=usable_cores(), texts=texts)
    write_report(models / MANIFEST, found)
    write_report(report, found)
    return found


def _check_named(config: Config) -> ModelSet:
    names = config.models
    assert names.policy is not None  # the configuration refuses a run without them
    assert names.backbone is not None
    samplers = names.samplers or {"policy": names.policy}
    places = {"models.policy": names.policy, "models.backbone": names.backbone}
    places |= {f"models.samplers.{name}": model for name, model in samplers.items()}
    checked: dict[str, str] = {}
    for place, model in places.items():
        try:
            checked[model] = _check(model, config, place=place)
        except ModelError as error:
            raise ModelError(f"{place}: {error}") from error
        logger.info("%s: %s can be used", place, checked[model])
    return ModelSet(
        policy=checked[names.policy],
        samplers={name: checked[model] for name, model in samplers.items()},
        backbone=checked[names.backbone],
    )


def _check(model: str, config: Config, *, place: str) -> str:
    """The name by which later stages, wherever they run, find the model that was looked at."""
    if not is_stored(model):
        folder = _as_folder(model)
        _look_at(folder, config, place=place)
        _look_at_weights(folder)
        return str(folder)
    found = find_model(config.storage, model)
    with found.without_weights() as folder:  # the weights are held to their hashes when they are fetched
        try:
            _look_at(folder, config, place=place)
        except ModelError as error:
            raise ModelError(str(error).replace(str(folder), model)) from error
    return found.pinned


def _look_at_weights(model: str | Path) -> None:
    if isinstance(model, Path):
        from cooper_rl.models.folder_check import check_weights

        check_weights(model)
        return
    from cooper_rl.models.hub_check import check_hub_weights

    check_hub_weights(model)


def _look_at(model: str | Path, config: Config, *, place: str) -> None:
    from cooper_rl.models.folder_check import check_backbone, check_prompting, check_trainable

    if place == "models.backbone":
        check_backbone(model)
        return
    check_prompting(model, prompt_template=config.prompt_template)
    if place == "models.policy":
        check_trainable(model)


def _as_folder(model: str) -> str | Path:
    """An absolute path where the name is a folder or is written as a path; else a hub id, as it is."""
    is_path = Path(model).is_dir() or model.startswith(("/", "./", "../", "~"))
    if not is_path:
        return model
    try:
        return Path(model).expanduser().resolve()
    except RuntimeError as error:
        raise ModelError(f"{model}: no such home folder; write the whole path") from error
