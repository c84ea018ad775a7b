"""Faults of a model's folder, found before a run starts and without loading a weight (row 6).

A folder's weights are judged by their headers and sizes, prompting by tokenizer and configuration, and the
head by a random model of the same architecture and a few thousand weights.
"""

import copy
import json
import logging
import struct
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GenerationConfig,
)

from cooper_rl.errors import ModelError
from cooper_rl.models.completions import has_plain_head
from cooper_rl.models.policy import check_architecture, find_end_ids, load_tokenizer

logger = logging.getLogger(__name__)

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
MAX_HEADER_BYTES = 100 * 2**20
"""The limit of safetensors itself."""
SMALL = {
    "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64, "max_position_embeddings": 64,
}  # fmt: skip
LOUD = 100.0
"""Times which the small model's head is larger, so that a cap on its logits shows."""


def check_prompting(path: str | Path, *, prompt_template: str | None) -> None:
    """Refuse a policy or sampler that cannot be prompted or cannot end.

    Raises:
        ModelError: of another architecture, without tokenizer, chat template or end token.
    """
    name = check_architecture(path, suffix="ForCausalLM")
    find_end_ids(name, read_generation(name), load_tokenizer(name), prompt_template=prompt_template)


def read_generation(name: str) -> Any:
    """The generation configuration that `from_pretrained` gives the model of a folder or hub id."""
    try:
        return GenerationConfig.from_pretrained(name)
    except OSError:
        return GenerationConfig.from_model_config(AutoConfig.from_pretrained(name, trust_remote_code=False))


def check_trainable(path: str | Path) -> None:
    """Refuse a policy that training would give other log-probabilities than completions are drawn with.

    Raises:
        ModelError: its architecture scales or caps the logits of its head.
    """
    config = AutoConfig.from_pretrained(str(path), trust_remote_code=False)
    model = _make_small(AutoModelForCausalLM, config)
    if model is None:
        logger.warning("%s: %s cannot be tried in small; it is when it is loaded", path, config.model_type)
        return
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(LOUD)
    if not has_plain_head(model, torch.tensor([[5, 6, 7]])):
        raise ModelError(
            f"{path}: {type(model).__name__} scales or caps the logits of its head, which training does not: "
            "take a policy of another architecture, such as Qwen2, Qwen3 or Llama"
        )


def check_backbone(path: str | Path) -> None:
    """Refuse a backbone that VerifyRM cannot be made from.

    Raises:
        ModelError: of another architecture, without tokenizer, or one that transformers has no classifier of.
    """
    name = check_architecture(path, suffix="ForCausalLM")
    load_tokenizer(name)
    config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    # A private name, for want of a public question: `from_config` answers by building the whole model.
    if type(config) not in AutoModelForSequenceClassification._model_mapping:  # pyright: ignore[reportPrivateUsage]
        raise ModelError(
            f"{name}: transformers has no sequence classifier of the architecture {config.model_type}, which "
            "VerifyRM is: take a backbone such as Qwen2, Qwen3 or Llama"
        )


def _make_small(kind: Any, config: Any) -> Any:
    """A random model of this architecture with two narrow layers; None where that cannot be built."""
    config = copy.deepcopy(config)
    for key, size in SMALL.items():
        if getattr(config, key, None) is not None:
            setattr(config, key, size)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: SMALL["num_hidden_layers"]]
    config.pad_token_id = 0  # beyond the small vocabulary otherwise
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return kind.from_config(config, dtype=torch.float32).eval()
        # A modelling file trips over small sizes in its own way; `check_head` then tries the real model.
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return None


def check_weights(folder: Path) -> None:
    """Refuse a folder whose safetensors files are missing, cut short or not those of its index.

    Raises:
        ModelError: naming the file, what is wrong with it and what to do.
    """
    if (folder / WEIGHTS).is_file():
        _check_file(folder / WEIGHTS)
    elif (folder / INDEX).is_file():
        _check_shards(folder)
    else:
        absent = (
            f"no weights there, neither {WEIGHTS} nor {INDEX}; copy the whole folder, or with git fetch what "
            "it left out (git lfs pull)"
        )
        raise without_weights(str(folder), [path.name for path in folder.iterdir()], absent=absent)


def without_weights(name: str, files: Iterable[str], *, absent: str) -> ModelError:
    """The error for a model without safetensors files: its weights are pickled, or what `absent` says."""
    pickled = sorted(file for file in files if any(fnmatch(file, pattern) for pattern in PICKLED))
    if pickled:
        return ModelError(
            f"{name}: its weights are pickled ({pickled[0]}), which runs code when it is loaded; take a "
            "version with safetensors files, or load it where you trust it and save it with save_pretrained"
        )
    return ModelError(f"{name}: {absent}")


def read_index(place: Path) -> dict[str, set[str]]:
    """File -> the weights that an index says it holds.

    Raises:
        ValueError: it is not an index.
    """
    try:
        found = json.loads(place.read_text(encoding="utf-8"))["weight_map"]
        shards: dict[str, set[str]] = {}
        for weight, name in found.items():
            shards.setdefault(_file_name(name), set()).add(weight)
    except (OSError, RecursionError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
    return shards


def _check_shards(folder: Path) -> None:
    place = folder / INDEX
    try:
        shards = read_index(place)
    except ValueError as error:
        raise ModelError(f"{place}: not an index of weights ({error}); copy the file again") from error
    for name, weights in sorted(shards.items()):
        if not (folder / name).is_file():
            raise ModelError(f"{folder / name}: missing, and {INDEX} names it; copy the file there")
        absent = sorted(weights - _check_file(folder / name))
        if absent:
            raise ModelError(
                f"{folder / name}: does not hold {absent[0]}, which {INDEX} says it does; copy the folder "
                "again, index and files from one version"
            )


def _file_name(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no file name")
    # Only files of the folder are checked, and by SHA256SUMS hashed.
    if Path(found).is_absolute() or ".." in Path(found).parts:
        raise ValueError(f"{found!r} leads out of the folder")
    return found


def _check_file(path: Path) -> set[str]:
    """Names of the tensors of a safetensors file that is whole."""
    size = path.stat().st_size
    header, start = _read_header(path, size)
    header.pop("__metadata__", None)
    try:
        spans = sorted(_read_span(entry["data_offsets"]) for entry in header.values())
    except (LookupError, TypeError, ValueError) as error:
        raise _not_safetensors(path, f"its header has no offsets: {error}") from error
    end = max((end for _, end in spans), default=0)
    if start + end != size:
        what = "cut short" if start + end > size else "longer than it should be"
        raise ModelError(
            f"{path}: {what}, {size:,} bytes of {start + end:,} that its header tells of; copy the file again"
        )
    # Tensors begin where the header ends.
    if any(before[1] != after[0] for before, after in pairwise([(0, 0), *spans])):
        raise _not_safetensors(path, "its tensors overlap or leave gaps")
    return set(header)


def _read_span(found: Any) -> tuple[int, int]:
    begin, end = found if isinstance(found, list) and len(found) == 2 else (None, None)
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end:  # JSON's true is an int too
        raise ValueError(f"data_offsets: {found!r} is no pair of numbers, first byte and end")
    return begin, end


def _read_header(path: Path, size: int) -> tuple[dict[str, Mapping[str, Any]], int]:
    """The header, and the byte at which the tensors begin."""
    with path.open("rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 0 < length <= min(MAX_HEADER_BYTES, size - 8):
            pointer = first.startswith(b"version ")  # git-lfs's first line
            raise _not_safetensors(path, "a pointer of git-lfs" if pointer else "its header is cut short")
        try:
            header = json.loads(file.read(length))
        except (RecursionError, ValueError) as error:
            raise _not_safetensors(path, f"its header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise _not_safetensors(path, "its header is no object")
    return header, 8 + length


def _not_safetensors(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path}: not a readable safetensors file ({reason}); copy the file again")
