"""`cooper-rl-pipelines`: the program `python -m pipelines` for those who installed the wheel.

The wheel holds `pipelines` and `components` in `cooper_rl/kubeflow/`, because at the top level of
site-packages these names would collide with other people's. This program puts their folder first among the
places that it imports from.
"""

import sys
from importlib import import_module
from pathlib import Path

import cooper_rl
from cooper_rl.cli.starting import ending_at_ctrl_c
from cooper_rl.errors import EXIT_USER_ERROR, ConfigError

PROGRAM = "cooper-rl-pipelines"


def main() -> int:
    """Run the program on the command line's arguments; returns its exit status."""
    try:
        sys.path.insert(0, str(find_pipelines(Path(cooper_rl.__file__).parent)))
        with ending_at_ctrl_c(PROGRAM):
            program = import_module("pipelines.__main__")
        return program.main(program=PROGRAM)
    except ConfigError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"{PROGRAM}: {error}; install the extra `pipelines` of the wheel (docs/how-to/usage.md)\n"
        )
    return EXIT_USER_ERROR


def find_pipelines(package: Path) -> Path:
    """The folder with `pipelines`: in the wheel's package, or the clone that the package lies in.

    Raises:
        ConfigError: it is in neither, as in the images.
    """
    places = (package / "kubeflow", package.parents[1])
    for place in places:
        if (place / "pipelines" / "__main__.py").is_file():
            return place
    raise ConfigError(
        f"no pipelines in {places[0]} or {places[1]}: this installation was built without them; install the "
        "wheel that `make wheel` builds in a clone"
    )
