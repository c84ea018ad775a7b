"""The names of the stages and of what they write: a mistyped one fails the type check.

Tests hold both against the table of stages and the signatures of `run`.
"""

from typing import Literal, NamedTuple

StageName = Literal[
    "check_settings",
    "prepare_models",
    "collect_problems",
    "sample_completions",
    "label_completions",
    "merge_labels",
    "train_verify_rm",
    "evaluate_verify_rm",
    "train_cooper",
    "evaluate_policy",
    "red_team",
    "report",
    "compare_arms",
    "take_champion",
    "promote",
    "summarise_run",
]
OutputName = Literal[
    "attacks",
    "checkpoint",
    "completions",
    "evaluations",
    "examples",
    "held_out",
    "labels",
    "models",
    "page",
    "picture",
    "problems",
    "rejected",
    "report",
    "summary",
    "test",
    "texts",
    "train",
    "validation",
    "verify_rm",
]


class Output(NamedTuple):
    """Something that a step writes, for a later step to read."""

    step: str
    """Its name in a chain."""
    name: OutputName

    def __str__(self) -> str:
        return f"{self.step}.{self.name}"
