"""Compiles the pipelines to KFP's intermediate representation (YAML).

The same pipeline and iterations always give the same bytes. Deliberately left out: submitting them.
"""

from pathlib import Path

from kfp import compiler

from pipelines.end_to_end import build_end_to_end


def compile_end_to_end(folder: Path, *, iterations: int) -> Path:
    """Write `end_to_end.yaml` into `folder`; returns its path.

    Raises:
        ConfigError: `iterations` is out of range.
    """
    pipeline = build_end_to_end(iterations)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "end_to_end.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    return path
