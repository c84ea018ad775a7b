"""The wheel holds the repository's `components/` and `pipelines/` too, inside the package.

At the top level of site-packages their names would collide with other people's. `cooper-rl-pipelines` puts
their folder before the other places that Python imports from (`cli/pipelines.py`). All else is in
pyproject.toml. The images are built without this file, and hold no pipelines.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TARGET = Path("cooper_rl/kubeflow")


class BuildWithPipelines(build_py):
    """Copies both folders; an editable installation finds them in the repository."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for name in ("components", "pipelines"):
            target = Path(self.build_lib) / TARGET / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(name, target, ignore=shutil.ignore_patterns("__pycache__"))


setup(cmdclass={"build_py": BuildWithPipelines})
