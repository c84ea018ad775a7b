"""Compiles the pipelines to KFP's intermediate representation (YAML), and to manifests of its operator.

The same pipeline, profile and iterations always give the same bytes. `pipelines/remote/submit.py` uploads
them.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from kfp import compiler
from kfp.compiler.compiler_utils import KubernetesManifestOptions
from kfp.dsl.base_component import BaseComponent

from cooper_rl.cluster.task import with_run_key
from cooper_rl.comparison.arms import check_arms, check_free
from cooper_rl.config.load import changed, load
from cooper_rl.config.root import Config
from cooper_rl.errors import ConfigError
from pipelines.options import NAMES
from pipelines.profile import Profile

Build = Callable[[Profile, int], BaseComponent]


def _builder(name: str) -> Build:
    return getattr(import_module(f"pipelines.graphs.{name}"), f"build_{name}")


PIPELINES: dict[str, Build] = {name: _builder(name) for name in NAMES}
"""Name on the command line -> pipeline; all take a profile and a number of iterations."""

WITH_REGISTRY = frozenset({"retrain"})
"""Pipelines that keep a champion."""


OF_ARTIFACTS = frozenset({"verify_rm", "examples"})
"""Parameters that name artifacts of earlier runs."""

WITH_ARMS = frozenset({"experiment"})
"""Pipelines that train the arms of the profile."""


OF_ARMS = {
    "cooper.seed": "the profile's `seeds`",
    "storage.arm": "the profile's `arms` and `seeds`",
    "experiment.runs": "the profile's `arms` and `seeds`",
    "experiment.steps": "`cooper.steps`",
    "experiment.evaluate_every": "`cooper.evaluate_every`",
}
"""Key that these pipelines do not take from a run's settings -> what they take in its place."""


def check_settings(
    name: str, preset: str, overrides: Sequence[str], parameters: Mapping[str, str], *, profile: Profile
) -> Config:
    """The configuration of the stages, as they will read it.

    Raises:
        ConfigError: a setting is wrong, or one is missing that the pipeline needs.
    """
    run_key = parameters.get("run_key") or ""
    changes = [*profile.overrides, *overrides]
    config = load(preset, with_run_key(changes, run_key=run_key, run_id=""))
    if name in WITH_REGISTRY:
        config.registry.needed_uri()
    if name in WITH_ARMS:
        check_free(overrides, profile.arms, taken=OF_ARMS, by=f"the pipeline {name}")
        check_arms(changed(config, [profile.runs_setting]))
    return config


def compile_pipeline(name: str, folder: Path, *, profile: Profile, iterations: int) -> Path:
    """Write `<name>.yaml` into `folder`; returns its path.

    Raises:
        ConfigError: an unknown name, `iterations` out of range, or a folder that cannot be written to.
    """
    path = folder / f"{name}.yaml"
    pipeline = _build(name, profile, iterations)
    with _writing(path):
        compiler.Compiler().compile(pipeline, str(path))
    return path


def compile_manifests(
    name: str, folder: Path, *, profile: Profile, iterations: int, namespace: str | None
) -> Path:
    """Write a Pipeline and a PipelineVersion (pipelines.kubeflow.org/v2beta1) as `<name>.manifests.yaml`.

    For clusters whose KFP keeps pipelines in the Kubernetes API; the version's name holds the content's hash.

    Raises:
        ConfigError: an unknown name, `iterations` out of range, or a folder that cannot be written to.
    """
    digest = content_hash(compile_pipeline(name, folder, profile=profile, iterations=iterations))
    path = folder / f"{name}.manifests.yaml"
    kubernetes_name = name.replace("_", "-")
    options = KubernetesManifestOptions(
        pipeline_name=kubernetes_name,
        pipeline_version_name=f"{kubernetes_name}-{digest}",
        namespace=namespace,
        include_pipeline_manifest=True,
    )
    with _writing(path):
        compiler.Compiler().compile(
            _build(name, profile, iterations),
            str(path),
            kubernetes_manifest_options=options,
            kubernetes_manifest_format=True,
        )
    return path


@contextmanager
def _writing(path: Path) -> Generator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; give another folder") from error


def content_hash(pipeline: Path) -> str:
    """Names the content of a compiled pipeline: the same bytes, the same version."""
    return hashlib.sha256(pipeline.read_bytes()).hexdigest()[:12]


def read_compiled(pipeline: Path) -> dict[str, Any]:
    """The pipeline's specification, without what belongs to the platform."""
    # libyaml reads in a tenth of the time, and may not have been built.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return next(yaml.load_all(pipeline.read_text(encoding="utf-8"), loader))


def count_tasks(specification: Mapping[str, Any]) -> int:
    """The number of tasks of a run, with those inside an exit handler and in every turn of a loop."""

    def count(dag: Mapping[str, Any]) -> int:
        return sum(_turns(task) * count_task(task) for task in dag["tasks"].values())

    def count_task(task: Mapping[str, Any]) -> int:
        inner = specification["components"][task["componentRef"]["name"]].get("dag")
        return 1 if inner is None else count(inner)

    return count(specification["root"]["dag"])


def _turns(task: Mapping[str, Any]) -> int:
    """The number of turns of a loop, whose items are fixed at compilation; 1 of any other task."""
    loop = task.get("parameterIterator")
    return 1 if loop is None else len(json.loads(loop["items"]["raw"]))


def check_parameters(
    specification: Mapping[str, Any], given: Mapping[str, Any], *, name: str
) -> dict[str, Any]:
    """The arguments of a run.

    Raises:
        ConfigError: one that the pipeline does not have, or a missing one without a default.
    """
    known = specification["root"].get("inputDefinitions", {}).get("parameters", {})
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ConfigError(f"parameter {unknown[0]!r}: {name} has {', '.join(known)}")
    missing = sorted(key for key, kind in known.items() if not kind.get("isOptional") and key not in given)
    if missing:
        text = known[missing[0]].get("description", "")
        raise ConfigError(
            f"parameter {missing[0]!r} of {name} is missing: {text} Give --param {missing[0]}=VALUE"
        )
    return dict(given)


def _build(name: str, profile: Profile, iterations: int) -> BaseComponent:
    if name not in PIPELINES:
        raise ConfigError(f"pipeline {name!r}: use one of {', '.join(PIPELINES)}")
    return PIPELINES[name](profile, iterations)
