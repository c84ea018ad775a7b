"""Faults of a model on the Hugging Face hub, found before a run starts and without fetching a weight (row 6).

The hub is asked which files the model has. What lies in this machine's cache is judged as a folder is
(`folder_check.py`), where the hub cannot be reached or must not be asked (HF_HUB_OFFLINE=1).
"""

from collections.abc import Collection
from pathlib import Path

from huggingface_hub import HfApi, constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]

from cooper_rl.errors import ModelError
from cooper_rl.models.folder_check import INDEX, WEIGHTS, check_weights, read_index, without_weights
from cooper_rl.models.hub import FETCH, TIMEOUT_SECONDS, ask_hub, explain_missing
from cooper_rl.outgoing import Obstacle


def check_hub_weights(name: str) -> None:
    """Refuse a hub name whose safetensors files are missing there, and in this machine's cache.

    Raises:
        ModelError: naming the file and what to do; or the hub cannot be asked, and the cache has no weights.
    """
    if why := ask_hub():
        _check_cached(name, Obstacle(why, FETCH))
        return
    try:
        siblings = HfApi().model_info(name, timeout=TIMEOUT_SECONDS).siblings or ()
        files = {sibling.rfilename for sibling in siblings}
        index = Path(hf_hub_download(name, INDEX)) if INDEX in files and WEIGHTS not in files else None
    except (OSError, HTTPError) as error:
        _check_cached(name, explain_missing(error))
        return
    if index is not None:
        _check_shards(name, index, files)
    elif WEIGHTS not in files:
        absent = f"no weights on the hub, neither {WEIGHTS} nor {INDEX}; take a model that has them"
        raise without_weights(name, files, absent=absent)


def _check_cached(name: str, obstacle: Obstacle) -> None:
    found = try_to_load_from_cache(name, "config.json")
    folder = Path(found).parent if isinstance(found, str) else None
    has_weights = folder is not None and any((folder / file).is_file() for file in (WEIGHTS, INDEX))
    if folder is None or not has_weights:
        raise ModelError(
            f"{name}: {obstacle.reason}, and the cache of this machine ({constants.HF_HUB_CACHE}) has no "
            f"weights of it; {obstacle.remedy}, or give a folder, or s3://bucket/prefix in the object store"
        )
    check_weights(folder)


def _check_shards(name: str, index: Path, files: Collection[str]) -> None:
    try:
        absent = [shard for shard in sorted(read_index(index)) if shard not in files]
    except ValueError as error:
        raise ModelError(
            f"{name}: {INDEX} there is not an index of weights ({error}); take another version of the model"
        ) from error
    if absent:
        raise ModelError(
            f"{name}: {absent[0]} is missing on the hub, and {INDEX} names it; take another version of the "
            "model, or ask its owner to upload the file"
        )
