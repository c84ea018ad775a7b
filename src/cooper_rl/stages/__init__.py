"""The stages of the method: one module each, with one public `run(config, *, <paths>, report) -> Report`.

    check_settings     configuration, stores, servers
    prepare_models     models to start from            train_verify_rm      labels to a reward model
    collect_problems   questions with answers          evaluate_verify_rm   its accuracy on unseen problems
    sample_completions several models answer           train_cooper         both models, together
    label_completions  correct or incorrect            evaluate_policy      accuracy and reward, side by side
    merge_labels       labels of several pods          red_team             texts that fool the reward model
    report             the page of a run           compare_arms         the page of several arms
    summarise_run  take_champion  promote              the ending, the registry of champions

A stage's name is its module, its sub-command, its component and its row in the documentation. This table and
the signatures of `run` are what the command line, the components, the pipelines and the experiment are made
from or checked against. Reading them imports no stage.
"""

import ast
from collections.abc import Sequence
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from cooper_rl.config.load import key_of
from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError
from cooper_rl.schema import paths
from cooper_rl.schema.paths import Inputs, OutputFile, OutputFolder, PathKind
from cooper_rl.schema.reports import Report
from cooper_rl.schema.stages import Output, OutputName, StageName

OF_EVALUATION = "max_canary_problems"
"""The key of the section `verify_rm` that is no setting of the training."""

_CONDITIONS = (
    "evaluation",
    "engine.kind",
    "engine.dtype",
    "instruction",
    "prompt_template",
    "problems.domain",
)
"""What `run/identity.py` compares of a champion's evaluation, beside the rule verifier's policy."""
STAGES: dict[StageName, tuple[str, ...]] = {
    "check_settings": (
        "storage",
        "registry",
        "labeling.judge",
        "labeling.other_judges",
        "labeling.third_vote",
        "evaluation.judge",
        "cooper.judge",
        "cooper.pairs.assistant",
    ),
    "prepare_models": (
        "models",
        "problems.domain",
        "problems.tiny_blind_share",
        "storage",
        "prompt_template",
    ),
    "collect_problems": ("problems", "storage"),
    "sample_completions": (
        "sampling",
        "engine",
        "storage",
        "instruction",
        "prompt_template",
        "packed_forward",
    ),
    "label_completions": ("labeling", "problems.domain", "storage"),
    "merge_labels": (
        "labeling.judge",
        "labeling.judge_asked",
        "labeling.validation_fraction",
        "labeling.test_fraction",
        "problems.domain",
    ),
    "train_verify_rm": (
        *(f"verify_rm.{key}" for key in VerifyRMConfig.model_fields if key != OF_EVALUATION),
        "problems.domain",
        "labeling.validation_fraction",
        "storage",
        "packed_forward",
    ),
    "evaluate_verify_rm": (
        f"verify_rm.{OF_EVALUATION}",
        "problems.domain",
        "storage",
        "packed_forward",
    ),
    "train_cooper": (
        "cooper",
        "engine",
        "distributed",
        "evaluation",
        "labeling.rule",
        "storage",
        "tracker",
        "launch",
        "instruction",
        "prompt_template",
        "problems.domain",
        "packed_forward",
    ),
    "evaluate_policy": (
        "evaluation",
        "engine",
        "labeling.rule",
        "cooper.max_tokens_per_batch",
        "storage",
        "instruction",
        "prompt_template",
        "problems.domain",
        "packed_forward",
    ),
    "red_team": ("red_team", "problems.domain", "storage", "registry.uri", "packed_forward"),
    "report": ("registry",),
    "compare_arms": ("experiment", "storage"),
    "take_champion": (
        "registry.uri",
        "registry.min_new_problems",
        "storage",
        *_CONDITIONS,
        "labeling.rule.policy",
    ),
    "promote": (
        "registry.uri",
        "registry.max_canary_rate",
        "registry.max_universal_rate",
        "registry.mlflow",
        "registry.mlflow_model",
        "storage",
        *_CONDITIONS,
        "labeling.rule",
    ),
    "summarise_run": ("storage", "launch", "experiment.runs"),
}
"""Stage -> configuration sections or keys that it reads, in the order of the walk."""


READ_WHOLE: frozenset[StageName] = frozenset({"check_settings", "report", "compare_arms"})
"""Stages that check or show the whole configuration."""


class Parameter(NamedTuple):
    """One path that a stage reads or writes, or several that it reads."""

    name: str
    kind: PathKind
    is_required: bool

    def as_output(self, step: str) -> Output:
        """The output that a step of this stage writes there, for others to read; the parameter must be an
        output."""
        return Output(step, cast(OutputName, self.name))  # a test holds the names against the signatures

    @property
    def is_output(self) -> bool:
        """True if the stage writes it."""
        return isinstance(self.kind, OutputFile | OutputFolder)

    @property
    def is_list(self) -> bool:
        """True if the path is a list of several."""
        return isinstance(self.kind, Inputs)

    @property
    def is_folder(self) -> bool:
        """True if the stage writes a folder."""
        return isinstance(self.kind, OutputFolder)


class Signature(NamedTuple):
    """A stage without its code."""

    summary: str
    """First line of the docstring of `run`."""
    parameters: tuple[Parameter, ...]


@cache
def read_signature(stage: StageName) -> Signature:
    """Summary and paths of a stage, read from its source: no stage, and with it no torch, is imported."""
    source = resources.files("cooper_rl").joinpath("stages", f"{stage}.py").read_text(encoding="utf-8")
    module = ast.parse(source)
    run = next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "run")
    parameters = tuple(
        Parameter(argument.arg, _read_kind(stage, argument), is_required=default is None)
        for argument, default in zip(run.args.kwonlyargs, run.args.kw_defaults, strict=True)
    )
    return Signature((ast.get_docstring(run) or "").partition("\n")[0], parameters)


def check_overrides(stage: StageName, overrides: Sequence[str]) -> None:
    """Refuse a change that would change nothing: its key is none of those that the stage reads.

    Raises:
        ConfigError: naming the key, the stages that read it, and the sections that this one reads.
    """
    if stage in READ_WHOLE:
        return
    for override in overrides:
        key = key_of(override)
        if _reads(stage, key):
            continue
        sections = dict.fromkeys(known.partition(".")[0] for known in STAGES[stage])
        readers = [name.replace("_", "-") for name in STAGES if name not in READ_WHOLE and _reads(name, key)]
        read_by = f" (read by {', '.join(readers)})" if readers else ""
        command = stage.replace("_", "-")
        raise ConfigError(
            f"override {override!r}: {command} does not read {key}{read_by}; leave it out, or change seed or "
            f"a key of {', '.join(sections)} that `cooper-rl {command} --help` shows"
        )


def _reads(stage: StageName, key: str) -> bool:
    """True if the key, a part of it, or a key above it is read."""
    return any(
        f"{key}.".startswith(f"{known}.") or known.startswith(f"{key}.") for known in ("seed", *STAGES[stage])
    )


class Run(Protocol):
    """A stage's work: files in, files out."""

    def __call__(self, config: Config, **paths: Path | list[Path] | None) -> Report:
        """The report, which it has also written."""
        ...


def import_run(stage: StageName) -> Run:
    """A stage's `run`; imports what the stage needs."""
    return import_module(f"cooper_rl.stages.{stage}").run


def _read_kind(stage: StageName, argument: ast.arg) -> PathKind:
    match argument.annotation:
        case ast.Subscript(slice=ast.Tuple(elts=[_, ast.Call(func=ast.Name(id=kind), args=texts)])):
            return getattr(paths, kind)(*map(ast.literal_eval, texts))
        case _:
            raise TypeError(
                f"stages/{stage}.py: {argument.arg} is not Annotated[Path, Input(...)] or an output of "
                "schema/paths.py"
            )
