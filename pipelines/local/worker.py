"""The process in which kfp.local runs a compiled pipeline.

`pipelines/local/run.py` starts it and reads its output. A process of its own, because kfp.local keeps its
settings in a process-wide singleton, rewires the root logger and prints: here it may.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import yaml
from kfp import components, local


def run(request: dict[str, Any]) -> None:
    """Run `pipeline` with `arguments` under `root`.

    Stages run in containers of `image` where `containers` has options for them, else as processes.
    """
    # kfp reports a cache hit through the root logger, everything else through one of its own making.
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    containers = request["containers"]
    local.init(
        runner=local.DockerRunner(**containers) if containers else local.SubprocessRunner(use_venv=False),
        pipeline_root=request["root"],
        enable_caching=True,
        cache_root=request["cache"],
    )
    pipeline = components.load_component_from_text(
        _read_pipeline(Path(request["pipeline"]), request["image"])
    )
    pipeline(**request["arguments"])


def _read_pipeline(path: Path, image: str | None) -> str:
    """The compiled pipeline, with every stage in `image` where one is given."""
    text = path.read_text(encoding="utf-8")
    if image is None:
        return text
    pipeline, *platforms = yaml.safe_load_all(text)
    for executor in pipeline["deploymentSpec"]["executors"].values():
        if "container" in executor:  # an importer has none
            executor["container"]["image"] = image
    return yaml.safe_dump_all([pipeline, *platforms], sort_keys=False)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
