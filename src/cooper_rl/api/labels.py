"""Labels from rule verdict and judge verdict, for completions in memory."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple, get_args

from cooper_rl.api.verify import read_tuple
from cooper_rl.config.data import LabelingConfig
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import DataError
from cooper_rl.machine.scratch import scratch_folder
from cooper_rl.schema.data import FinishReason, Verdict
from cooper_rl.schema.texts import replace_surrogates
from cooper_rl.servers.open import open_judge
from cooper_rl.verdicts.hybrid import Judge, JudgeItem
from cooper_rl.verdicts.journal import Journal
from cooper_rl.verdicts.votes import Electorate, collect_votes


class Labelled(NamedTuple):
    """The hybrid decision on one completion."""

    label: int | None
    """1 correct, 0 incorrect, None: dropped, because the verifiers differ or abstain."""
    reason: str
    """The row of the truth table that decided, e.g. `both_agree` or `rule_abstains_judge_decides`."""
    rule: Verdict
    judge: Verdict | None
    """None where no judge was asked."""


def label(
    items: Iterable[tuple[str, str, str]],
    *,
    config: LabelingConfig | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    finish_reasons: Sequence[FinishReason | None] | None = None,
) -> list[Labelled]:
    """Label completions with the rule verifier and, where there is one, an LLM judge.

    Args:
        items: (question, reference answer, completion) of each completion.
        config: Rule verifier, judge server and third vote; by default the rule alone, as `LabelingConfig()`.
        judge: An object with `name`, `identity` and `judge(items)`, in place of `config.judge`.
        seed: Of the laptop world's judge.
        finish_reasons: How each completion ended, in order: one that was cut (`length`) states no answer at
            its very end.

    Returns:
        One label per item, in order.

    Raises:
        DataError: an item is not three strings; names its index. Or not every item has a finish reason.
        ServerError: the judge cannot be used.

    Examples:
        >>> rows = label([("1+1?", "2", "#### 2"), ("1+1?", "2", "#### 3"), ("1+1?", "2", "Hm.")])
        >>> [row.label for row in rows]
        [1, 0, None]
    """
    config = config or LabelingConfig()
    rows: list[JudgeItem] = []
    for index, item in enumerate(items):
        texts = read_tuple(item)
        if len(texts) != 3 or not all(isinstance(text, str) for text in texts):
            raise DataError(
                f"item {index}: {item!r} is not three strings; give (question, reference answer, completion)"
            )
        rows.append(JudgeItem(*map(replace_surrogates, map(str, texts))))
    if finish_reasons is not None and len(finish_reasons) != len(rows):
        raise DataError(
            f"finish_reasons: {len(finish_reasons)} for {len(rows)} items; give one for each, or None for it"
        )
    unknown = set(finish_reasons or ()) - {None, *get_args(FinishReason)}
    if unknown:
        raise DataError(f"finish_reasons: {min(map(str, unknown))!r} is none; write 'stop', 'length' or None")
    if not rows:
        return []
    domain = default_domain()
    third = config.third_vote.judge if config.third_vote else None
    asked = judge or (open_judge(config.judge, seed) if config.judge else None)
    with (
        scratch_folder() as folder,
        # Of this call alone: `collect_votes` keeps verdicts in one, and nothing here is to outlive the call.
        Journal(folder / "journal") as journal,
        closing(domain.open_verifier(config.rule)) as verifier,
    ):
        electorate = Electorate(
            config,
            verifier=verifier,
            verdict_name=domain.name_verdicts(config.rule),
            judge=asked,
            third_judge=open_judge(third, seed) if third else None,
            journal=journal,
            other_judges=[open_judge(other, seed) for other in config.other_judges],
        )
        votes = collect_votes(rows, electorate, finish_reasons=finish_reasons).votes
    labelled: list[Labelled] = []
    for vote in votes:
        judged = vote.judge.verdict if vote.judge else None
        decision = vote.decide(config)
        found = None if decision.is_correct is None else int(decision.is_correct)
        labelled.append(Labelled(found, decision.reason, vote.rule.verdict, judged))
    return labelled
