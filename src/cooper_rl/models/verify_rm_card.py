"""The model card (README.md) of a VerifyRM folder."""

from collections.abc import Mapping
from pathlib import Path

from cooper_rl.errors import DataError
from cooper_rl.models.template import KEY, VERSION

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
import torch

from cooper_rl.models.verify_rm import VerifyItem, load_verify_rm

verify_rm = load_verify_rm("{folder}", device=torch.device("cpu"))
print(verify_rm.score([VerifyItem("1+1?", "2", "It is 2.")]))
```

or over HTTP: `cooper-rl serve-verify-rm --verify-rm {folder}`.

## What plain transformers calls cannot do

The three fields stand between separators: token ids ({key} in `config.json`, version {version}) that
the tokenizer does not have, so that no completion can write them. `pipeline("text-classification")` and
`tokenizer(text)` therefore cannot make this model's input: a text with tags in it is plain text here, and
its score means nothing. Fields over 1,500 characters keep the first 500 and the last 1,000, with a separator
where they are cut. Special tokens are not recognised in a field.

## Numbers

{numbers}

Scores above 0.5 count as accepted. It was trained and measured on one kind of problems; measure it on yours
with `cooper-rl evaluate-verify-rm`, which also says how it can be fooled.
"""


def write_card(folder: Path, numbers: Mapping[str, str] | None = None) -> None:
    """Write the card beside the weights; `numbers` are what is known of the model, by name.

    Raises:
        DataError: the disk refuses.
    """
    rows = [f"| {name} | {value} |" for name, value in (numbers or {}).items()]
    table = "\n".join(["| measure | value |", "|---|---|", *rows]) if rows else "None were recorded."
    text = CARD.format(folder=folder.name, key=f"`{KEY}`", version=VERSION, numbers=table)
    try:
        (folder / "README.md").write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder}: the model card cannot be written ({error}); free space there") from error
