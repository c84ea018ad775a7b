"""Runs the stages of a local run in containers, with kfp's DockerRunner and what that leaves undone.

A container may write to the run's folder and to /tmp, and to nothing else; it runs as the owner of the run's
folder, without capabilities. The images come from `images/` and are never pulled.
"""

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound
from docker.types import Mount

from cooper_rl.config.root import Config
from cooper_rl.config.section import flatten
from cooper_rl.errors import ConfigError

LABEL = "cooper-rl.run"
PASSED_ON = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "OMP_NUM_THREADS")
"""Environment variables that a container gets where they are set, beside the chat servers' keys."""


def find_image(image: str) -> str:
    """The id of an image on this machine's Docker engine.

    Raises:
        ConfigError: no engine answers, or it does not hold the image.
    """
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise ConfigError(
            f"--runner docker: no Docker engine answers ({error}); start one, point DOCKER_HOST at one, or "
            "leave --runner out to run without containers"
        ) from error
    try:
        return str(client.images.get(image).id)
    except ImageNotFound as error:
        raise ConfigError(
            f"--image {image}: the Docker engine does not hold it; build it with `make images`, or "
            f"fetch it with `docker pull {image}`"
        ) from error
    finally:
        client.close()


@contextmanager
def removed_at_the_end(run: str) -> Generator[None]:
    """The block runs containers with this label; those that are still there at its end are removed."""
    try:
        yield
    finally:
        remove_containers(run)


def remove_containers(run: str) -> list[str]:
    """Remove the containers with a run's label; returns their names.

    Raises:
        ConfigError: no engine answers.
    """
    try:
        client = docker.from_env()
        found = client.containers.list(all=True, filters={"label": f"{LABEL}={run}"})
        for container in found:
            container.remove(force=True)
        client.close()
    except DockerException as error:
        raise ConfigError(
            f"containers of a run that was killed may still be there, and no Docker engine answers "
            f"({error}); start it, or remove them: docker rm -f $(docker ps -aq --filter label={LABEL}={run})"
        ) from error
    return [str(container.name) for container in found]


def container_options(run: str, config: Config, *, root: Path, files: Iterable[Path]) -> dict[str, Any]:
    """Arguments of `docker.containers.run` for each task; kfp itself mounts `root`.

    Files keep their paths inside the container, and it starts where this process was started, so that
    a path in the configuration means the same on both sides.
    """
    owner = root.stat()
    keys = {value for key, value in flatten(config.model_dump()) if key.endswith(".api_key_env") and value}
    names = sorted({*PASSED_ON, *keys} & set(os.environ))
    return {
        "user": f"{owner.st_uid}:{owner.st_gid}",
        "read_only": True,
        "tmpfs": {"/tmp": "exec,mode=1777"},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "init": True,
        "mounts": [Mount(str(path), str(path), type="bind", read_only=True) for path in files],
        "working_dir": str(Path.cwd()),
        "environment": {name: os.environ[name] for name in names},
        "labels": {LABEL: run},
    }
