"""Compiling a pipeline takes no longer below pytest than elsewhere."""

from tests.short_stack import short_stack

__all__ = ["short_stack"]
