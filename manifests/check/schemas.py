"""Rules of form: each object fits the schema of its kind, with no key that the cluster does not know."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import kubernetes_validate

from manifests.check.resources import Problem, Resource, deployment_of

KUBERNETES = ("1.31", "1.37")
"""Oldest and newest version that the manifests are for."""
CUSTOM = r"\.(k8s-?\.)?x-k8s\.io/|kubeflow\.org/|monitoring\.coreos\.com/|serving\.kserve\.io/"
"""Kinds that Kubernetes does not bring."""
SCHEMAS = Path(__file__).parent / "schemas"


def check_schema(resource: Resource) -> Iterator[Problem]:
    """Kubernetes' own kinds strictly, in both versions; others against `schemas/`. Of an InferenceService the
    Deployment that KServe makes of it, too."""
    version = resource.body["apiVersion"]
    if not re.search(CUSTOM, version):
        yield from _check_own(resource)
        return
    problems = list(_check_custom(resource, version))
    yield from problems
    if resource.kind == "InferenceService" and not problems:
        yield from _check_own(Resource(deployment_of(resource)))


def _check_own(resource: Resource) -> Iterator[Problem]:
    for kubernetes in KUBERNETES:
        try:
            kubernetes_validate.validate(dict(resource.body), kubernetes, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            yield Problem(resource.place, f"Kubernetes {kubernetes}: {' '.join(str(error).split())[:300]}")


def _check_custom(resource: Resource, version: str) -> Iterator[Problem]:
    path = SCHEMAS / f"{version.replace('/', '_')}_{resource.kind}.json"
    if not path.is_file():
        yield Problem(resource.place, f"no schema for {version} {resource.kind}: write {path.name}")
        return
    schema = json.loads(path.read_text(encoding="utf-8"))
    for error in jsonschema.Draft202012Validator(schema).iter_errors(resource.body):
        yield Problem(resource.place, f"{error.json_path}: {error.message[:300]}")
