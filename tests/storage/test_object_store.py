"""One contract for both stores: a folder, and an S3 server (Ceph's gateway where it is installed)."""

import errno
import hashlib
import multiprocessing
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import DamagedObjectError, StorageError, WriteConflictError
from cooper_rl.records.written import file_sha256
from cooper_rl.storage import local as local_store
from cooper_rl.storage.base import PIECE_BYTES, Content, ObjectStore, content_sha256
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.open import open_store
from tests.stand_ins.fixtures import storage_config
from tests.storage.objects import MIB, make_file
from tests.waiting import within

RACES = 20


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store(StorageConfig(), tmp_path / "store")
    name = request.getfixturevalue("bucket")
    config = storage_config(request.getfixturevalue("s3_server").endpoint, name)
    return open_store(config, f"{config.uri}/test")


@pytest.mark.parametrize(
    "size", [0, 1, 5 * MIB, 5 * MIB + 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + MIB]
)
def test_a_file_comes_back_as_it_went(store: ObjectStore, tmp_path: Path, size: int) -> None:
    """Sizes around one part of an upload and one piece of a download, and several of both with a rest."""
    path, sha256 = make_file(tmp_path, size)
    store.put_file("step/file.bin", path, sha256=sha256)
    store.get_file("step/file.bin", tmp_path / "back" / "file.bin", sha256=sha256)
    assert (tmp_path / "back" / "file.bin").read_bytes() == path.read_bytes()
    assert [entry.name for entry in (tmp_path / "back").iterdir()] == ["file.bin"]


def test_a_pipe_in_the_place_of_an_object_is_named(tmp_path: Path) -> None:
    """It was waited for: by every read, and by every write under the lock of the folder."""
    store = LocalStore(tmp_path)
    os.mkfifo(tmp_path / "LATEST")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with within(20):
        for key in ("LATEST", "zero"):
            with pytest.raises(StorageError, match=f"{tmp_path}/{key}: is no regular file; move it away"):
                store.read(key)
            with pytest.raises(StorageError, match="is no regular file"):
                store.write(key, b"new", replaces=None)
    assert (tmp_path / "LATEST").is_fifo()


def test_putting_again_replaces(store: ObjectStore, tmp_path: Path) -> None:
    for size in (10, 20):
        path, sha256 = make_file(tmp_path, size)
        store.put_file("file", path, sha256=sha256)
    store.get_file("file", tmp_path / "back", sha256=sha256)
    assert (tmp_path / "back").stat().st_size == 20


@pytest.mark.parametrize("size", [100, 11 * MIB])
def test_an_object_of_another_hash_is_refused_and_named(
    store: ObjectStore, tmp_path: Path, size: int
) -> None:
    path, _ = make_file(tmp_path, size)
    store.put_file("step/file.bin", path, sha256=hashlib.sha256(b"another").hexdigest())
    with pytest.raises(DamagedObjectError, match=r"step/file\.bin: changed since it was written"):
        store.get_file("step/file.bin", tmp_path / "back", sha256=hashlib.sha256(b"another").hexdigest())
    assert not (tmp_path / "back").exists()
    assert not list(tmp_path.glob("back*"))


def test_the_hash_of_a_large_file_is_that_of_its_pieces_hashes(tmp_path: Path) -> None:
    """Worked out by hand: 32 MiB of zeros and one more byte."""
    path = tmp_path / "file"
    path.write_bytes(bytes(32 * MIB))
    assert content_sha256(path) == file_sha256(path) == hashlib.sha256(bytes(32 * MIB)).hexdigest()
    path.write_bytes(bytes(32 * MIB + 1))
    pieces = hashlib.sha256(bytes(32 * MIB)).digest() + hashlib.sha256(bytes(1)).digest()
    assert content_sha256(path) == hashlib.sha256(pieces).hexdigest() + "-2"


def test_a_large_object_may_be_known_by_what_sha256sum_says(store: ObjectStore, tmp_path: Path) -> None:
    """As models that somebody else put there are."""
    path, _ = make_file(tmp_path, PIECE_BYTES + MIB)
    whole = hashlib.sha256(path.read_bytes()).hexdigest()
    store.put_file("model", path, sha256=whole)
    store.get_file("model", tmp_path / "back", sha256=whole)
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    with pytest.raises(DamagedObjectError, match="model: changed since it was written"):
        store.get_file("model", tmp_path / "back", sha256="0" * 64)


def test_the_list_of_a_large_objects_hashes_is_not_taken_for_it(store: ObjectStore, tmp_path: Path) -> None:
    """Its sha256 is the large object's but for the number of pieces."""
    path, sha256 = make_file(tmp_path, PIECE_BYTES + MIB)
    data = path.read_bytes()
    pieces = [data[:PIECE_BYTES], data[PIECE_BYTES:]]
    path.write_bytes(b"".join(hashlib.sha256(piece).digest() for piece in pieces))
    assert sha256 == file_sha256(path) + "-2"
    store.put_file("weights", path, sha256=sha256)
    with pytest.raises(DamagedObjectError, match="weights: changed since it was written"):
        store.get_file("weights", tmp_path / "back", sha256=sha256)


def test_a_missing_object_is_named(store: ObjectStore, tmp_path: Path) -> None:
    assert store.read("nothing") is None
    with pytest.raises(DamagedObjectError, match="nothing: missing since it was written"):
        store.get_file("nothing", tmp_path / "back", sha256="0")


def test_keys_are_sorted_and_below_their_prefix(store: ObjectStore, tmp_path: Path) -> None:
    path, sha256 = make_file(tmp_path, 1)
    for key in ("b/2", "a/x/y", "b/1", "bc"):
        store.put_file(key, path, sha256=sha256)
    assert store.keys("") == ["a/x/y", "b/1", "b/2", "bc"]
    assert store.keys("b/") == ["b/1", "b/2"]
    store.delete(["b/1", "b/2", "never-there"])
    assert store.keys("") == ["a/x/y", "bc"]


def test_a_conditional_write_sees_what_it_replaces(store: ObjectStore) -> None:
    first = store.write("LATEST", b"one", replaces=None)
    assert store.read("LATEST") == Content(b"one", first)
    second = store.write("LATEST", b"two", replaces=first)
    for stale in (None, first, "nonsense"):
        with pytest.raises(WriteConflictError, match="LATEST: somebody else wrote it"):
            store.write("LATEST", b"three", replaces=stale)
    assert store.read("LATEST") == Content(b"two", second)


def test_of_many_conditional_writers_one_wins(store: ObjectStore) -> None:
    """Twelve at the same moment, many times, over an absent object and over a present one."""
    num_writers, tag = 12, None
    with ThreadPoolExecutor(num_writers) as pool:
        for race in range(RACES):
            barrier = threading.Barrier(num_writers)

            def write(number: int, race: int = race, tag: str | None = tag, barrier=barrier) -> str | None:
                barrier.wait()
                try:
                    return store.write("LATEST", f"{race} {number}".encode(), replaces=tag)
                except WriteConflictError:
                    return None

            winners = [won for won in pool.map(write, range(num_writers)) if won]
            assert len(winners) == 1
            tag = winners[0]


def write_once(folder: Path, number: int) -> int:
    try:
        LocalStore(folder).write("LATEST", str(number).encode(), replaces=None)
    except WriteConflictError:
        return 0
    return 1


def test_of_many_processes_one_wins_in_a_folder(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        jobs = [(tmp_path / f"race{race}", number) for race in range(RACES) for number in range(2)]
        assert sum(pool.starmap(write_once, jobs, chunksize=1)) == RACES


@pytest.mark.parametrize(
    "key", ["../up", "/etc/passwd", "a//b", "a/./b", "", "a/..", "a\\..\\b", "a\nb", "C:x"]
)
def test_an_object_name_that_leaves_the_store_is_refused(
    store: ObjectStore, tmp_path: Path, key: str
) -> None:
    path, sha256 = make_file(tmp_path, 1)
    with pytest.raises(StorageError, match=r"object name .* is refused"):
        store.put_file(key, path, sha256=sha256)
    with pytest.raises(StorageError, match=r"object name .* is refused"):
        store.get_file(key, tmp_path / "back", sha256=sha256)
    with pytest.raises(StorageError, match=r"object name .* is refused"):
        store.read(key)


def test_what_interrupted_writes_left_in_a_folder_is_removed_and_never_listed(tmp_path: Path) -> None:
    """A draft is told from other files by the hash of what was being written."""
    path, sha256 = make_file(tmp_path, 10)
    folder = tmp_path / "store"
    (folder / "step-1").mkdir(parents=True)
    (folder / "step-1" / f"weights.{sha256[:16]}-0123abcd.partial").write_bytes(b"half")
    others = [
        "weights.partial",
        f"weights.{'0' * 16}-0123abcd.partial",
        f"other.{sha256[:16]}-0123abcd.partial",
    ]
    store = LocalStore(folder)
    assert store.keys("") == []
    for name in others:
        (folder / "step-1" / name).write_bytes(path.read_bytes())
    assert store.keys("") == ["step-1/weights.partial"]
    assert store.remove_unfinished([("step-1/weights", sha256)]) == 1
    assert store.remove_unfinished([("step-1/weights", sha256), ("step-2/weights", sha256)]) == 0
    assert sorted(entry.name for entry in (folder / "step-1").iterdir()) == sorted(others)


def test_a_write_removes_the_draft_that_a_killed_writer_left_and_no_other_file(tmp_path: Path) -> None:
    begun = hashlib.sha256(b"begun").hexdigest()[:16]
    (tmp_path / f"LATEST.{begun}-0123abcd.partial").write_bytes(b"begun")
    others = {
        f"LATEST.{begun}-4567abcd.partial": b"changed",
        f"LATEST.old.{begun}-0123abcd.partial": b"begun",
    }
    for name, data in others.items():
        (tmp_path / name).write_bytes(data)
    LocalStore(tmp_path).write("LATEST", b"new", replaces=None)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"LATEST": b"new", **others}


def test_a_folder_on_another_file_system_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "no link between file systems")

    monkeypatch.setattr(os, "link", refuse)
    path, sha256 = make_file(tmp_path, 10)
    store = LocalStore(tmp_path / "store")
    store.put_file("weights", path, sha256=sha256)
    store.get_file("weights", tmp_path / "back", sha256=sha256)
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_a_folder_that_another_run_removes_is_passed_over_where_keys_are_listed(
    tmp_path: Path, monkeypatch
) -> None:
    store, scandir = LocalStore(tmp_path), os.scandir
    for name in ("step-1", "step-2"):
        store.write(f"{name}/manifest.json", b"x", replaces=None)

    def remove_first(folder):
        if str(folder).endswith("step-1"):
            shutil.rmtree(folder, ignore_errors=True)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", remove_first)
    assert store.keys("step-") == ["step-2/manifest.json"]


@pytest.mark.parametrize("other", ["writes into", "removes"])
def test_a_folder_that_another_run_changes_meanwhile_stops_no_deletion(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to be deleted is gone by then; whether its folder stays is no matter."""
    store, remove = LocalStore(tmp_path), Path.rmdir
    store.write("step/mine", b"1", replaces=None)

    def remove_late(folder: Path) -> None:
        if other == "removes":
            remove(folder)
        else:
            (folder / "theirs").write_bytes(b"2")
        remove(folder)

    monkeypatch.setattr(Path, "rmdir", remove_late)
    store.delete(["step/mine"])
    assert store.keys("") == (["step/theirs"] if other == "writes into" else [])


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_file_that_another_run_removes_half_written_says_that_there_are_two(
    tmp_path: Path, monkeypatch, is_flushed: bool
) -> None:
    path, sha256 = make_file(tmp_path, 10)
    store, flush = LocalStore(tmp_path / "store"), local_store.flush

    def remove(draft: Path) -> None:
        store.remove_unfinished([("step-1/weights", sha256)])
        if not is_flushed:
            flush(draft)

    monkeypatch.setattr(local_store, "flush", remove)
    with pytest.raises(
        WriteConflictError, match="step-1/weights: somebody else removed it; two runs use this"
    ):
        store.put_file("step-1/weights", path, sha256=sha256)


def test_nothing_is_written_through_a_link_in_a_folder(tmp_path: Path) -> None:
    """Listing the store does not follow it, so nobody knows what lies there."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").write_text("mine")
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "step-1").symlink_to(tmp_path / "theirs")
    store = LocalStore(tmp_path / "place")
    with pytest.raises(
        StorageError, match=r"step-1: is a link, behind which .* may lie; move it away, or use"
    ):
        store.write("step-1/new.txt", b"ours", replaces=None)
    with pytest.raises(StorageError, match="is a link"):
        store.put_file("step-1/a/b.txt", tmp_path / "theirs" / "thesis.txt", sha256="0" * 64)
    assert (tmp_path / "theirs" / "thesis.txt").read_text() == "mine"
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["thesis.txt"]


def test_no_draft_is_removed_behind_a_link(tmp_path: Path) -> None:
    """It may be one that another store is writing right now, under a lock of its own."""
    theirs = LocalStore(tmp_path / "theirs")
    theirs.write("LATEST", b"step-1", replaces=None)
    draft = tmp_path / "theirs" / f"LATEST.{hashlib.sha256(b'step-2').hexdigest()[:16]}-00c0ffee.partial"
    draft.write_bytes(b"step-2")
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "run").symlink_to(tmp_path / "theirs")
    store = LocalStore(tmp_path / "place")
    found = store.read("run/LATEST")
    with pytest.raises(StorageError, match="is a link"):
        store.write("run/LATEST", b"step-3", replaces=found and found.tag)
    assert draft.exists()


def test_a_draft_that_cannot_be_read_stops_no_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, draft = LocalStore(tmp_path), tmp_path / f"LATEST.{'0' * 16}-00c0ffee.partial"
    draft.write_bytes(b"of another user")

    def refuse(path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(local_store, "file_sha256", refuse)
    store.write("LATEST", b"step-1", replaces=None)
    assert store.read("LATEST") == Content(b"step-1", hashlib.sha256(b"step-1").hexdigest())
    assert draft.exists()
