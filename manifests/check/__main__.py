"""`python -m manifests.check FOLDER...`: render kustomizations and hold them to every rule, offline."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from manifests.check.network import check_network
from manifests.check.pods import check_installable, check_no_secret, check_pod
from manifests.check.references import Expected, check_references, read_expected
from manifests.check.resources import Problem, RenderError, Resource, pods_of, render
from manifests.check.schemas import check_schema

PSS = "pod-security.kubernetes.io/enforce"


def check(resources: list[Resource], expected: Expected, *, for_installation: bool = False) -> list[Problem]:
    """Every broken rule of a render."""
    pods = pods_of(resources)
    problems: list[Problem] = []
    for resource in resources:
        problems += check_schema(resource)
        problems += check_no_secret(resource)
        if (
            resource.kind == "Namespace"
            and resource.body["metadata"].get("labels", {}).get(PSS) != "restricted"
        ):
            problems.append(Problem(resource.place, f"is not labelled {PSS}=restricted"))
    if problems:
        return problems  # what has the wrong form cannot be asked further
    for pod in pods:
        problems += check_pod(pod)
    problems += check_references(resources, pods, expected)
    problems += check_network(resources, pods, expected)
    if for_installation:
        problems += check_installable(resources, pods)
    return problems


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 for a broken rule, 2 for a folder that cannot be rendered."""
    parser = argparse.ArgumentParser(prog="python -m manifests.check", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument(
        "--for-installation",
        action="store_true",
        help="also refuse what a site has to fill in: placeholders, and images without a digest",
    )
    options = parser.parse_args(arguments)
    num_problems = 0
    for folder in options.folders:
        try:
            resources = render(folder)
            problems = check(resources, read_expected(folder), for_installation=options.for_installation)
        except (RenderError, FileNotFoundError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        num_problems += len(problems)
        sys.stdout.writelines(f"{folder}: {problem}\n" for problem in problems)
        if not problems:
            sys.stdout.write(f"{folder}: {len(resources)} objects, every rule holds\n")
    return 1 if num_problems else 0


if __name__ == "__main__":
    sys.exit(main())
