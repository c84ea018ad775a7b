"""Compiling a pipeline takes no longer below pytest than elsewhere."""

import sys
from collections.abc import Generator
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def _short_stack() -> Generator[None]:
    """KFP asks `inspect.stack` for its caller's name at every setting of a task.

    That looks up the source of a hundred frames of pytest in thousands of modules: seconds for a pipeline
    that compiles in a tenth of one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kfp.dsl.pipeline_task.inspect", SimpleNamespace(stack=_stack))
        yield


def _stack() -> list[tuple[None, None, None, str]]:
    """Of the caller and its caller, the fourth field alone."""
    return [(None, None, None, sys._getframe(depth).f_code.co_name) for depth in (1, 2)]
