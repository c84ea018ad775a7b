"""Compiling a pipeline takes no longer below pytest than elsewhere."""

import inspect
from collections.abc import Generator
from types import FrameType, SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def short_stack() -> Generator[None]:
    """KFP asks `inspect.stack` for its caller's name at every setting of a task.

    That looks up the source of a hundred frames of pytest in thousands of modules: seconds for a pipeline
    that compiles in a tenth of one. Rooms that compile import this into their conftest.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kfp.dsl.pipeline_task.inspect", SimpleNamespace(stack=_stack))
        yield


def _stack() -> list[tuple[FrameType, None, None, str]]:
    """As `inspect.stack` begins, from the caller on. Files, lines and sources are left out."""
    frames: list[tuple[FrameType, None, None, str]] = []
    frame = inspect.currentframe()
    while frame := frame and frame.f_back:
        frames.append((frame, None, None, frame.f_code.co_name))
    return frames
