"""The files and folders of this machine that a local run reads, and the state of them and of the code.

kfp's cache looks at a task's texts alone: `pipelines/local/run.py` keeps what has finished for one state.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.machine.sources import meaning
from pipelines.compile import OF_ARTIFACTS

_PACKAGE = Path(str(resources.files("cooper_rl")))


def fingerprint(
    preset: str,
    overrides: Sequence[str],
    *,
    image_id: str,
    artifacts: Sequence[Path] = (),
    package: Path = _PACKAGE,
) -> str:
    """Names the state of everything that kfp's own cache key leaves out; see `run_local`."""
    digest = hashlib.sha256(image_id.encode())
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.toml"), *package.rglob("*.jinja")]):
        # A comment changes no result: what has finished stays finished.
        digest.update(str(path.relative_to(package)).encode() + b"\0" + meaning(path))
    for path in input_files(preset, overrides):
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    for place in [*_model_folders(preset, overrides), *artifacts]:
        # Models have gigabytes: who exchanges one leaves another size or time.
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            digest.update(os.fsencode(path.relative_to(place)) + b"\0")
            with suppress(OSError):  # of a link to nowhere the name is all; a stage says if it needs the file
                state = path.stat()
                digest.update(f"{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def input_files(preset: str, overrides: Sequence[str]) -> list[Path]:
    """Files of this machine that the configuration names."""
    problems = load(preset, overrides).problems
    named = [preset] if preset.endswith(".toml") else []
    named += [*problems.sources, *problems.held_out_sources]
    found = [Path(name) for name in dict.fromkeys(named)]
    return [path.resolve() for path in found if _is_there(path) and path.is_file()]


def _model_folders(preset: str, overrides: Sequence[str]) -> list[Path]:
    """Models of this machine that the configuration names."""
    models = load(preset, overrides).models
    named = [models.policy, models.backbone, *models.samplers.values()]
    found: list[Path] = []
    for name in dict.fromkeys(filter(None, named)):
        with suppress(RuntimeError):  # ~name of nobody, of which the stage that loads it says so
            found.append(Path(name).expanduser())
    return [path for path in found if _is_there(path) and path.is_dir()]


def find_artifacts(parameters: Mapping[str, str], *, is_inside_image: bool) -> dict[str, Path]:
    """Parameter -> the artifact of an earlier run that it names on this machine.

    Raises:
        ConfigError: one is not there, and the stages run here too.
    """
    found: dict[str, Path] = {}
    for name in sorted(OF_ARTIFACTS & parameters.keys()):
        path = parameters[name]
        if path and _is_there(Path(path)):
            found[name] = Path(path).absolute()
        elif not is_inside_image:
            raise ConfigError(
                f"--param {name}={path}: no such file or folder on this machine; give the path of what an "
                "earlier run wrote here"
            )
    return found


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False
