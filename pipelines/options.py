"""Options that several commands share."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cooper_rl.addresses import addresses_in, redact
from cooper_rl.cli.options import add_overrides
from cooper_rl.config.kubernetes import Namespace
from cooper_rl.config.load import preset_names
from cooper_rl.errors import ConfigError
from cooper_rl.schema.texts import has_surrogates

NAMES = ("end_to_end", "verify_rm", "cooper", "retrain", "experiment")
"""Names of the pipelines. `compile.py` finds a graph by its name; `--help` needs the names and imports no
kfp."""

OPTIONS = {"preset": "--preset NAME", "overrides": "--set KEY=VALUE"}
"""Parameters of every pipeline that are no `--param`."""


def profile_names() -> list[str]:
    """The shipped profiles, without the packages that read one."""
    return sorted(path.stem for path in (Path(__file__).parent / "profiles").glob("*.toml"))


def add_pipeline(command: argparse.ArgumentParser, *, profile: str) -> None:
    """Add the options that choose a pipeline and how it is built."""
    command.add_argument(
        "pipeline", nargs="?", default="end_to_end", choices=NAMES, help="which one (default: end_to_end)"
    )
    add_build(command, profile=profile)


def add_build(command: argparse.ArgumentParser, *, profile: str) -> None:
    """Profile and iterations."""
    command.add_argument(
        "--profile",
        default=profile,
        help="what it is compiled for: local, cluster, or the path of a .toml file like those in "
        f"pipelines/profiles (default: {profile})",
    )
    command.add_argument(
        "--iterations",
        type=int,
        default=2,
        metavar="K",
        help="iterations of co-training, each one task of cooper.steps steps (default: 2, at most 5)",
    )


def add_arguments(command: argparse.ArgumentParser, *, preset: str | None) -> None:
    """The parameters of a run."""
    default = f" (default: {preset})" if preset else " (default: the profile's)"
    command.add_argument(
        "--preset",
        default=preset,
        help=f"one of {', '.join(preset_names())}, or the path of a .toml file{default}",
    )
    add_overrides(command)
    command.add_argument(
        "--param",
        dest="parameters",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="another parameter of the pipeline, e.g. --param run_key=monday; may be given more than once",
    )


def read_parameters(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a dict.

    Raises:
        ConfigError: one is not of that form, has an option of its own, or is given with two values.
    """
    pairs = [text.partition("=") for text in texts]
    for name, separator, _ in pairs:
        if not separator or not name:
            raise ConfigError(f"--param {name!r} is not NAME=VALUE, e.g. --param run_key=monday")
        if name in OPTIONS:
            raise ConfigError(f"--param {name}: give it as {OPTIONS[name]}, which is checked before the run")
    given: dict[str, str] = {}
    for name, _, value in pairs:
        if given.setdefault(name, value) != value:
            raise ConfigError(f"--param {name} is given as {given[name]!r} and as {value!r}; give it once")
    return given


def check_text(text: str, *, place: str) -> None:
    """Refuse what Kubeflow's files cannot hold: names of files may be any bytes, a pipeline is UTF-8.

    Raises:
        ConfigError: the text is not UTF-8.
    """
    if has_surrogates(text):
        raise ConfigError(f"{place} {text!r}: is not UTF-8, which every text of a pipeline is; rename it")


def check_namespace(name: str) -> None:
    """Refuse what Kubernetes takes for no namespace's name.

    Raises:
        ConfigError: it is none.
    """
    try:
        TypeAdapter(Namespace).validate_python(name)
    except ValidationError as error:
        text = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--namespace {name!r}: {text}") from error


def check_no_secret(given: Any, *, place: str) -> None:
    """Refuse a password or signature in what Kubeflow shows to all who see its runs.

    Raises:
        ConfigError: an address in the parameters or settings holds one.
    """
    for address in addresses_in(given):
        if redact(address) != address:
            raise ConfigError(
                f"{place} {redact(address)}: holds a password or a signature, which Kubeflow keeps and "
                "shows with the run and in its pods' logs; use s3:// with storage.credentials, a secret's "
                "variable with api_key_env, or a preset in the image"
            )
