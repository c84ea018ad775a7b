"""Texts that the page shows: completions by kind, problems before and after, and rollouts to filter."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from markupsafe import escape

from cooper_rl.report.changes import verdict
from cooper_rl.report.numbers import shorten
from cooper_rl.schema.data import EvaluatedCompletion, FinishReason, RolloutSample, Verdict

PAIRS_PER_CHANGE = 2
SAMPLES_PER_GROUP = 3
MAX_ROLLOUTS = 120
MAX_ROLLOUT_BYTES = 150_000
"""Bytes of their escaped texts: Kubeflow's dashboard shows no page above 1 MB."""
SCORE_BINS = 5

Change = tuple[bool, bool]
_CHANGES: dict[Change, str] = {
    (False, True): "wrong before, right after",
    (True, False): "right before, wrong after",
    (False, False): "wrong before and after",
    (True, True): "right before and after",
}


class BeforeAfter(NamedTuple):
    """One problem with what was written for it at several moments."""

    change: str
    question: str
    reference_answer: str
    sides: list[tuple[str, EvaluatedCompletion]]
    """Title of the moment, and its completion."""


class Rollout(NamedTuple):
    """A completion that can be filtered."""

    when: str
    problem_id: str
    question: str
    reference_answer: str
    completion: str
    finish_reason: FinishReason | None
    rule: Verdict
    judge: Verdict | None
    score: float


class SampleGroup(NamedTuple):
    """Completions of one kind: how many there are, and some of them."""

    title: str
    meaning: str
    num_members: int
    samples: list[EvaluatedCompletion]


def before_after(
    start: Sequence[EvaluatedCompletion], ends: Mapping[str, Sequence[EvaluatedCompletion]]
) -> tuple[list[BeforeAfter], str]:
    """A few problems of each change, in the order of the file, and a sentence that counts all of them.

    The first completion of a problem stands for it: evaluations draw with the same seed.

    Args:
        start: before training.
        ends: title of a side -> after training; the first one's verdicts say what changed.
    """
    firsts = _first_of_each(start)
    lasts, *_ = sides = [_first_of_each(rows) for rows in ends.values()]
    # A judge reads what the rule cannot: where one of the two had none, its verdicts alone would look like
    # changes.
    is_judged = all(row.judge is not None for rows in (firsts, lasts) for row in rows.values())
    found: dict[Change, list[BeforeAfter]] = {change: [] for change in _CHANGES}
    for problem, last in lasts.items():
        first = firsts.get(problem)
        if first is None or first.question != last.question:
            continue
        before, now = (verdict(row) if is_judged else row.rule for row in (first, last))
        change = (before == "correct", now == "correct")
        after = [(title, side[problem]) for title, side in zip(ends, sides, strict=True) if problem in side]
        shown = [("before", first), *after]
        found[change].append(BeforeAfter(_CHANGES[change], last.question, last.reference_answer, shown))
    counts = ", ".join(f"{len(pairs)} {_CHANGES[change]}" for change, pairs in found.items())
    total = sum(map(len, found.values()))
    by_rule = "" if is_judged else ", by the rule verifier"
    said = f"The first completion of each of {total} held-out problems{by_rule}: {counts}. Some of each:"
    return [pair for pairs in found.values() for pair in pairs[:PAIRS_PER_CHANGE]], said


def from_evaluation(when: str, rows: Iterable[EvaluatedCompletion]) -> list[Rollout]:
    """Completions on held-out problems."""
    return [
        Rollout(
            when, row.problem_id, row.question, row.reference_answer, row.completion,
            row.finish_reason, row.rule, row.judge, row.score,
        )
        for row in rows
    ]  # fmt: skip


def from_training(rows: Iterable[RolloutSample]) -> list[Rollout]:
    """The best paid rollouts of the training steps, which no judge saw."""
    return [
        Rollout(
            "training", f"step {row.step}, {row.problem_id}", row.question, row.reference_answer,
            row.completion, None, row.rule, None, row.score,
        )
        for row in rows
    ]  # fmt: skip


def choose_rollouts(rows: Sequence[Rollout]) -> list[Rollout]:
    """At most MAX_ROLLOUTS of them: in turns from every combination of moment, verdicts and score, so that
    rare ones are among them; highest score first. The latest of a combination come first."""
    kinds: dict[tuple[object, ...], list[Rollout]] = {}
    for row in reversed(rows):
        bin_of_score = min(int(row.score * SCORE_BINS), SCORE_BINS - 1)
        kinds.setdefault((row.when, row.rule, row.judge, bin_of_score), []).append(row)
    chosen: list[Rollout] = []
    num_bytes = 0
    for turn in zip_longest(*kinds.values()):
        for row in turn:
            if row is None or len(chosen) == MAX_ROLLOUTS:
                continue
            texts = (row.completion, row.question, row.reference_answer)
            size = sum(len(escape(shorten(text)).encode()) for text in texts)
            if num_bytes + size <= MAX_ROLLOUT_BYTES:
                chosen.append(row)
                num_bytes += size
    return sorted(chosen, key=lambda row: -row.score)


def sample_groups(completions: Sequence[EvaluatedCompletion]) -> list[SampleGroup]:
    """Suspicious ones by falling score, also when there are none; then other groups, in file order."""
    found = sorted(
        (c for c in completions if verdict(c) == "incorrect" and c.score > 0.5), key=lambda c: -c.score
    )
    groups = [
        ("Scored high, judged wrong", "what hacking would look like; highest score first", found),
        ("Correct", "judged correct, and VerifyRM agrees",
         [c for c in completions if verdict(c) == "correct" and c.score > 0.5]),
        ("Correct, but VerifyRM refuses it", "judged correct, scored one half or less",
         [c for c in completions if verdict(c) == "correct" and c.score <= 0.5]),
        ("Correct, but the rule does not see it", "judged correct; the rule verifier refuses or abstains",
         [c for c in completions if verdict(c) == "correct" and c.rule != "correct"]),
        ("Wrong", "judged wrong, and VerifyRM agrees",
         [c for c in completions if verdict(c) == "incorrect" and c.score <= 0.5]),
        ("No verdict", "the judge (or the rule, where there is none) abstains",
         [c for c in completions if verdict(c) == "unparsable"]),
    ]  # fmt: skip
    return [
        SampleGroup(title, meaning, len(members), list(_first_of_each(members).values())[:SAMPLES_PER_GROUP])
        for title, meaning, members in groups
        if members or members is found
    ]


def _first_of_each(rows: Iterable[EvaluatedCompletion]) -> dict[str, EvaluatedCompletion]:
    found: dict[str, EvaluatedCompletion] = {}
    for row in rows:
        found.setdefault(row.problem_id, row)
    return found
