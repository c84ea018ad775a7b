"""Standard output and standard error where they may be full, closed, or read by nobody.

Python ends such a program with a traceback or, as late as at its exit, with a status of its own (120).
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

from cooper_rl.errors import CooperError


class ScreenError(CooperError):
    """Standard output cannot be written."""


class UnreadError(ScreenError):
    """Nobody reads standard output any more, as after `| head`."""


@contextmanager
def standard_output() -> Generator[None]:
    """Standard output in the block, all of it written at its end; closed from the start, it takes everything.

    Raises:
        ScreenError: it cannot be written (UnreadError: it is a pipe that nobody reads).
    """
    if sys.stdout is None:
        with Path(os.devnull).open("w", encoding="utf-8") as nothing, redirect_stdout(nothing):
            yield
        return
    screen: Any = _Screen(sys.stdout)
    with redirect_stdout(screen):
        try:
            yield
        except SystemExit:  # after --help and --version
            screen.flush()
            raise
        except BaseException:
            with suppress(ScreenError):  # what ended the block says more
                screen.flush()
            raise
        finally:
            tell("")  # what argparse has said
        screen.flush()


def tell(text: str) -> None:
    """Write to standard error, if that is possible."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Let what is still in the buffer go: the interpreter writes it at its end, which would fail again."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Screen:
    """A text stream that names its own errors: those of files that the program writes are others."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._named_errors():
            try:
                return self._stream.write(text)
            except UnicodeEncodeError as error:
                # As standard error does: a locale such as C has not all that data and presets hold.
                return self._stream.write(
                    text.encode(error.encoding, "backslashreplace").decode(error.encoding)
                )

    def flush(self) -> None:
        with self._named_errors():
            self._stream.flush()

    @contextmanager
    def _named_errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            _give_up(self._stream)
            if isinstance(error, BrokenPipeError):
                raise UnreadError("nobody reads standard output any more") from error
            raise ScreenError(
                f"standard output cannot be written ({error.strerror}); free space there or redirect it "
                "elsewhere, and give the same command again: files that were complete stay"
            ) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
