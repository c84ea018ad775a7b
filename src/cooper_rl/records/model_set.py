"""Read what `prepare_models` wrote."""

from pathlib import Path

from cooper_rl.records.files import read_report
from cooper_rl.schema.reports import ModelSet

MANIFEST = "models.json"


def read_models(folder: Path) -> ModelSet:
    """The models of a run, with paths inside the folder made absolute.

    Raises:
        DataError: the folder holds no models.json.
    """
    found = read_report(folder / MANIFEST, ModelSet)

    def resolve(model: str) -> str:
        inside = folder / model
        return str(inside.resolve()) if inside.is_dir() else model

    return ModelSet(
        policy=resolve(found.policy),
        samplers={name: resolve(model) for name, model in found.samplers.items()},
        backbone=resolve(found.backbone),
        verify_rm=resolve(found.verify_rm) if found.verify_rm else None,
    )
