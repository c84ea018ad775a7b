"""The model card (README.md) of a VerifyRM folder."""

from pathlib import Path
from typing import Any

from cooper_rl.domains.veto import KEY as VETO_KEY
from cooper_rl.errors import DataError
from cooper_rl.models.decoys import KEY as DECOYS
from cooper_rl.models.template import KEY, noted_domain
from cooper_rl.records.written import rewrite
from cooper_rl.schema.reports import BinaryScores

NAME = "README.md"
CARD = """---
library_name: cooper-rl
pipeline_tag: text-classification
tags: [reward-model, verifier, cooper]
---
# VerifyRM

A reference-based reward model: it reads a question, a reference answer and a completion, and its one logit
(label `correct`, through a sigmoid) says how likely the completion's final answer means the reference answer.

## Use

```python
from cooper_rl import VerifyItem, load_verify_rm

verify_rm = load_verify_rm("{folder}", device="cpu")
print(verify_rm.score([VerifyItem("1+1?", "2", "It is 2.")]))
```

or over HTTP: `cooper-rl serve-verify-rm --verify-rm {folder}`.

## What plain transformers calls cannot do

The three fields stand between separators: token ids ({key} in `config.json`) that
the tokenizer does not have, so that no completion can write them. `pipeline("text-classification")` and
`tokenizer(text)` therefore cannot make this model's input: a text with tags in it is plain text here, and
its score means nothing. Fields over 1,500 characters keep the first 500 and the last 1,000, with a separator
where they are cut. Special tokens are not recognised in a field.{domain}

Where `config.json` has decoys (`{decoys}`), a score is not the logit's sigmoid: the completion is also scored
against other reference answers, the one that it states among them, and against no completion at all. The log
odds of the right reference answer with the completion count where they are lower.{veto}

## Numbers

{numbers}

Scores above 0.5 count as accepted. It was trained and measured on one kind of problems; measure it on yours
with `cooper-rl evaluate-verify-rm`, which also says how it can be fooled.
"""


DOMAIN = """

It was trained for `problems.domain={name}`: of a completion it reads what that domain takes out of it
(`Domain.cut_completion`), before anything is cut."""


VETO = """

Its scores have a veto (`{key}` in `config.json`): a completion that the rules of
`problems.domain={name}` find wrong has the score 0, whatever the logit is: it states another answer, or what
is read of it holds no number that is the reference answer, or lists answers and states none that is right."""


def write_card(folder: Path, model: Any, validation: BinaryScores | None = None) -> None:
    """Write the card beside the weights, with what these very weights reach on validation examples.

    Without `validation` the card says that nothing was recorded: so it is while co-training changes them.

    Raises:
        DataError: the disk refuses.
    """
    numbers = "None were recorded." if validation is None else _tabulate(validation)
    domain, veto = noted_domain(model), getattr(model.config, VETO_KEY, None)
    text = CARD.format(
        folder=folder.name,
        key=f"`{KEY}`",
        domain=DOMAIN.format(name=domain) if domain else "",
        decoys=DECOYS,
        veto="" if veto is None else VETO.format(key=VETO_KEY, name=veto),
        numbers=numbers,
    )
    try:
        rewrite(folder, NAME, text)
    except OSError as error:
        raise DataError(f"{folder}: the model card cannot be written ({error}); free space there") from error


def _tabulate(found: BinaryScores) -> str:
    accuracy = found.accuracy
    rows = {
        "accuracy": f"{accuracy.value:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}]",
        "accuracy of always giving the more frequent label": f"{found.majority_accuracy:.3f}",
        "AUROC": _show(found.auroc),
        "F1": _show(found.f1),
        "expected calibration error": _show(found.ece),
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    said = (
        f"On the {found.num_examples} validation examples of its training, of {accuracy.count} problems that "
        "it was not trained on; they chose its weights. In brackets: 95 % intervals over problems."
    )
    return "\n".join([said, "", "| measure | value |", "|---|---|", *lines])


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
