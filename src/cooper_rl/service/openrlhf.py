"""The protocol of OpenRLHF's `--reward.remote_url` (0.11.2, `openrlhf/utils/agent.py`; older:
`--remote_rm_url`).

It posts lists `query` (prompt and completion, with special tokens), `prompts` and `labels`, mostly of one
completion, and reads `rewards` and `scores`. It sends no request id: a request that it sends again after a
lost answer counts twice.
"""

import re
from unicodedata import normalize

from pydantic import BaseModel, ConfigDict

from cooper_rl.api.rows import Row
from cooper_rl.config.serve import LearnConfig
from cooper_rl.errors import DataError
from cooper_rl.records.answer_text import answer_text
from cooper_rl.schema.texts import has_surrogates


class OpenRLHFRequest(BaseModel):
    """Completions to reward, one per index."""

    model_config = ConfigDict(extra="ignore", strict=True)

    query: list[str]
    """Prompt and completion."""
    prompts: list[str]
    labels: list[str | int | float]
    """Reference answers: the data set's column that `--data.label_key` names, which may hold numbers."""


class OpenRLHFResponse(BaseModel):
    """In the order of the request."""

    rewards: list[float]
    scores: list[float]
    """The same; OpenRLHF filters groups by them."""


def read_openrlhf(request: OpenRLHFRequest, config: LearnConfig) -> tuple[Row, ...]:
    """Questions, reference answers and completions.

    Raises:
        DataError: the lists are of different lengths, a query does not begin with its prompt, or a text is
            too long or holds half a surrogate pair.
    """
    lengths = {len(request.query), len(request.prompts), len(request.labels)}
    if len(lengths) > 1 or 0 in lengths:
        raise DataError(
            f"query, prompts and labels have {len(request.query)}, {len(request.prompts)} and "
            f"{len(request.labels)} values; each completion needs one of each (OpenRLHF: --data.label_key)"
        )
    rows: list[Row] = []
    columns = zip(request.query, request.prompts, request.labels, strict=True)
    for index, (query, prompt, answer) in enumerate(columns):
        label = answer_text(answer, place=f"labels: value {index}")
        if not query.startswith(prompt):
            # The query was decoded from tokens, and a tokenizer such as Qwen's composes characters first.
            prompt = normalize("NFC", prompt)
        if not query.startswith(prompt):
            raise DataError(f"query: value {index} does not begin with its prompt: {query[:80]!r}")
        # Before the pattern, which may take long on a long text.
        if (longest := max(len(prompt), len(query) - len(prompt), len(label))) > config.max_chars_per_field:
            raise DataError(
                f"value {index} has {longest} characters, and prompt, completion and label may have "
                f"max_chars_per_field={config.max_chars_per_field}"
            )
        question = _find_question(prompt, config.question_pattern, index=index)
        if not question or not label:
            raise DataError(f"value {index} has an empty question or label; OpenRLHF: --data.label_key")
        if has_surrogates(query + label):
            raise DataError(f"value {index} holds half a surrogate pair, which is no character; send U+FFFD")
        rows.append(Row(question, label, _cut_end(query[len(prompt) :], config.end_tokens), None))
    return tuple(rows)


def _find_question(prompt: str, pattern: str | None, *, index: int) -> str:
    if pattern is None:
        return prompt
    found = re.search(pattern, prompt)
    if found is None:
        raise DataError(
            f"prompts: value {index} does not match question_pattern={pattern!r}: {prompt[:80]!r}; start the "
            "server with a pattern that fits the policy's chat template"
        )
    return found[1]


def _cut_end(completion: str, tokens: tuple[str, ...]) -> str:
    end = len(completion)
    # By places: a policy that writes nothing but end tokens would have the rest copied for each of them.
    while True:
        last = end
        while last and completion[last - 1].isspace():
            last -= 1
        found = next((token for token in tokens if completion.endswith(token, 0, last)), None)
        if found is None:
            return completion[:end]
        end = last - len(found)
