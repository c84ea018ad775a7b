"""Rules of form: each object fits the schema of its kind, with no key that the cluster does not know."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import kubernetes_validate

from manifests.check.resources import Problem, Resource

KUBERNETES = ("1.31", "1.37")
"""Oldest and newest version that the manifests are for."""
SCHEMAS = Path(__file__).parent / "schemas"


def check_schema(resource: Resource) -> Iterator[Problem]:
    """Kubernetes' own kinds strictly, in both versions; others against `schemas/`."""
    version = resource.body["apiVersion"]
    if re.search(r"\.(k8s-?\.)?x-k8s\.io/|kubeflow\.org/|monitoring\.coreos\.com/", version):
        yield from _check_custom(resource, version)
        return
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
