"""VerifyRM from Python: load it, train it from rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from pydantic import ValidationError

from cooper_rl.config.load import describe_faults
from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.domains.open import default_domain, find_domain
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.machine.device import read_device
from cooper_rl.method.questions import with_questions
from cooper_rl.models.precision import Compute
from cooper_rl.models.verify_rm import (
    VerifyRM,
    make_from_backbone,
    make_from_scratch,
    measure,
    save_verify_rm,
)
from cooper_rl.models.verify_rm import (
    load_verify_rm as load,
)
from cooper_rl.models.verify_rm_card import write_card
from cooper_rl.records.written import check_replaceable
from cooper_rl.schema.data import VerifyExample
from cooper_rl.training.fitting.fit_verify_rm import train_in_lessons


def load_verify_rm(
    path: str | Path, *, device: str | torch.device | None = None, precision: Compute = "auto"
) -> VerifyRM:
    """Load a VerifyRM folder or hub id; `VerifyRM.score` then scores completions in batches.

    Scoring applies VerifyRM's own template, cuts long fields as in training, and returns scores in [0, 1).

    Args:
        path: Folder that `train_verify_rm` or `save_verify_rm` wrote.
        device: `cuda`, `cuda:1`, `cpu`, ...; None: this process's CUDA device, else MPS, else the CPU.
        precision: Of the forward pass; weights stay in fp32. `auto`: bf16 where the hardware has it.

    Raises:
        ConfigError: an unknown device or precision.
        ModelError: missing, incomplete, of another architecture, or with more than one logit.

    Examples:
        >>> from cooper_rl import VerifyItem
        >>> verify_rm = load_verify_rm("verify_rm", device="cpu")
        >>> scores = verify_rm.score([VerifyItem("1+1?", reference_answer="2", completion="It is 2.")])
        >>> 0 < scores[0] < 1
        True
    """
    if precision not in get_args(Compute):
        raise ConfigError(f"precision={precision!r}: use one of {', '.join(get_args(Compute))}")
    verify_rm = load(path, device=read_device(device))
    return dataclasses.replace(verify_rm, compute=precision)


def train_verify_rm(
    examples: Sequence[VerifyExample],
    folder: str | Path,
    *,
    backbone: str | Path | None = None,
    validation: Sequence[VerifyExample] = (),
    config: VerifyRMConfig | Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
    domain: str | None = None,
) -> VerifyRM:
    """Train VerifyRM on labelled completions with binary cross-entropy, and save it.

    Args:
        examples: Labelled completions; both labels must be among them.
        folder: Where the trained model is written.
        backbone: Causal LM (folder or hub id) whose head becomes one logit; None: a small model from scratch.
        validation: Examples of other questions; the weights that are best on them are kept.
        config: Section `verify_rm` of the configuration, as an object or a mapping of its keys.
        seed: Of the head, the order of examples and the generated lessons.
        device: As for `load_verify_rm`.
        domain: What the problems are about, as in `problems.domain`; None: mathematics.

    Returns:
        The saved VerifyRM, ready to score.

    Raises:
        ConfigError: an unknown or invalid key, or an unknown domain.
        DataError: a question stands in both sets, or the folder cannot be written or holds files of others.
        ModelError: the backbone cannot be used.
        TrainingError: one class only, a gradient that is not finite, or out of memory.

    Examples:
        >>> from cooper_rl import VerifyExample
        >>> rows = [
        ...     VerifyExample(question="1+1?", reference_answer="2", completion=text, label=label)
        ...     for text, label in (("It is 2.", 1), ("It is 3.", 0))
        ... ]
        >>> small = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_matching_examples": 0}
        >>> config = {"num_epochs": 1, "scratch": small}
        >>> verify_rm = train_verify_rm(rows, "trained", config=config, device="cpu")
    """
    folder = Path(folder)
    check_replaceable(folder)
    section = config if isinstance(config, VerifyRMConfig) else _verify_rm_section(config or {})
    subject = default_domain() if domain is None else find_domain(domain)
    shared = with_questions(list(validation), list(examples))
    if shared:
        raise DataError(
            f"validation: {len(shared)} of its rows have a question of `examples`, e.g. "
            f"{shared[0].question[:80]!r}; split by question, or the validation says nothing"
        )
    place = read_device(device)
    if backbone is None:
        texts = [text for e in examples for text in (e.question, e.reference_answer, e.completion)]
        model = make_from_scratch(texts, section.scratch, seed=seed, device=place)
    else:
        model = make_from_backbone(backbone, seed=seed, device=place)
    model = dataclasses.replace(model, compute=section.precision)
    fit = train_in_lessons(
        model,
        examples,
        config=section,
        is_from_scratch=backbone is None,
        seed=seed,
        domain=subject,
        validation=validation,
        keep=lambda: save_verify_rm(model, folder),
    )
    if fit.validation_scores is None:
        save_verify_rm(model, folder)
        return model
    # The folder holds the best weights, this process the last ones.
    if fit.best_update != fit.num_updates:
        model = load_verify_rm(folder, device=place, precision=section.precision)
    write_card(folder, model.model, measure(validation, fit.validation_scores))
    return model


def _verify_rm_section(values: Mapping[str, Any]) -> VerifyRMConfig:
    try:
        return VerifyRMConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError("config: " + "; ".join(describe_faults(error, VerifyRMConfig))) from error
