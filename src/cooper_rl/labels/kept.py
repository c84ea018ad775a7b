"""Verdicts in an object store, so that a pod with a new, empty disk asks nobody twice (row 3).

    <storage.uri>/_verdicts/<domain>/9f3c...-000000.jsonl        a segment: lines of a journal

Lines are found by what a verdict depends on: texts, model, prompt. Where a judge is reached, which run asked
and which shard is labelled plays no part, so all runs share the segments. A process writes segments of its
own name; the one that it fills is written again as it grows.
"""

import logging
import re
import secrets
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DamagedObjectError, StorageError
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.open import open_store

logger = logging.getLogger(__name__)

FOLDER = "_verdicts"
"""Below storage.uri, beside the runs, none of which can have a name that begins so."""
_SEGMENT = re.compile(r"[0-9a-f]{16}-[0-9]{6,}\.jsonl")
SEGMENT_BYTES = 256 * 1024
"""A segment that has reached it is never written again."""


def open_segments(config: StorageConfig, domain: str) -> "Segments | None":
    """The verdicts of a domain below `storage.uri`; None where there is no such address.

    Raises:
        StorageError: the address or its credentials cannot be used.
    """
    if config.uri is None:
        return None
    store = open_store(config, f"{config.uri.rstrip('/')}/{FOLDER}/{domain}")
    return Segments(store, seconds=config.verdict_seconds)


class Segments:
    """Implements `verdicts.journal.Mirror`. Inside its block, lines reach the store within `seconds`."""

    def __init__(self, store: ObjectStore, *, seconds: float) -> None:
        """`seconds` 0: with every line, before `add` returns."""
        self._store = store
        self._seconds = seconds
        self._writer = secrets.token_hex(8)
        self._number = 0
        self._tag: str | None = None
        self._segment = bytearray()
        self._is_stored = True
        self._lock = threading.Lock()
        self._failure: StorageError | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._store_often, name="verdict-segments", daemon=True)

    def __enter__(self) -> Self:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        if self._seconds:
            self._thread.join()
        with self._lock:
            self._store_segment()

    def lines(self) -> Iterator[bytes]:
        """Every line in the store, of all processes."""
        # Other objects are somebody's: a console marks a folder with one, and a name may be none of ours.
        keys = list(filter(_SEGMENT.fullmatch, self._store.keys("")))
        logger.info("%s: %d segments of verdicts", self._store.uri, len(keys))
        for key in keys:
            try:
                content = self._store.read(key)
            except DamagedObjectError as error:
                logger.warning("%s; its verdicts are asked for again", error)
                continue
            if content is not None:
                # Bytes are split at \n and \r alone; a string would also be, inside a text, at U+2028.
                yield from content.data.splitlines()

    def add(self, line: bytes) -> None:
        """Take a line on its way to the store.

        Raises:
            StorageError: the store cannot be used.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._segment += line + b"\n"
            self._is_stored = False
            if not self._seconds or len(self._segment) >= SEGMENT_BYTES:
                self._store_segment()

    def _store_often(self) -> None:
        while not self._ending.wait(self._seconds):
            # Held while the segment is sent: a line that came in between would count as stored.
            with self._lock:
                try:
                    self._store_segment()
                except StorageError as error:  # raised where somebody hears it
                    self._failure = error
                    return

    def _store_segment(self) -> None:
        """Write what is new; the lock is held."""
        if self._is_stored:
            return
        key = f"{self._writer}-{self._number:06}.jsonl"
        self._tag = self._store.write(key, bytes(self._segment), replaces=self._tag)
        self._is_stored = True
        if len(self._segment) >= SEGMENT_BYTES:
            self._number, self._tag = self._number + 1, None
            self._segment.clear()
