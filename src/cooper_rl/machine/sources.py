"""Digests of our own code, which name the state of it where a version's number does not change."""

import ast
import hashlib
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from cooper_rl.machine.parsing import parse_python

NUM_DIGITS = 12


@cache
def source_digest(*modules: str) -> str:
    """Digest of packages and modules of `cooper_rl`, such as "verdicts" or "randomness.py".

    Comments, docstrings and layout do not count; data files beside the code do.

    Raises:
        FileNotFoundError: there is no such package or module.
    """
    return folder_digest(Path(str(resources.files("cooper_rl"))), *modules)


def folder_digest(folder: Path, *modules: str) -> str:
    """The same for the packages and modules of a folder."""
    digest = hashlib.sha256()
    for path in sorted({file for module in modules for file in _files(folder / module)}):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(meaning(path) + b"\0")
    return digest.hexdigest()[:NUM_DIGITS]


def _files(place: Path) -> list[Path]:
    if not place.exists():
        raise FileNotFoundError(f"{place}: no package or module of Cooper-RL; name one that is there")
    if place.is_file():
        return [place]
    return [path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def meaning(path: Path) -> bytes:
    """A module as the interpreter reads it; the bytes of any other file."""
    if path.suffix != ".py":
        return path.read_bytes()
    tree = parse_python(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # pyright: ignore[reportAttributeAccessIssue] nodes that have one
        _respell(node)
    return ast.dump(tree, **_AS_IN_3_11).encode()


_AS_IN_3_11: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}


def _respell(node: Any) -> None:
    """Undo what a later Python than 3.11 writes into the tree of the same code: one state, one digest."""
    if getattr(node, "type_params", None) == []:
        del node.type_params  # since 3.12, of functions and classes
    if isinstance(node, ast.JoinedStr):  # 3.12.0 ends a nested format with an empty text
        node.values = [each for each in node.values if getattr(each, "value", None) != ""]


def _is_text(node: object) -> bool:
    """A docstring, of whatever it stands in or below."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
