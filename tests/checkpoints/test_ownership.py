"""Nothing of anybody else's is removed or overwritten, whatever it is called and wherever it lies."""

import hashlib
import io
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minio import Minio

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.manifest import CheckpointManifest, dump_manifest
from cooper_rl.checkpoints.ownership import MARKER as MARK
from cooper_rl.checkpoints.ownership import claim, claim_again, mark, staging_folders
from cooper_rl.checkpoints.reference import check_reference_folder, write_reference
from cooper_rl.checkpoints.registry import Registry
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import ConfigError, CooperWarning, DataError, StorageError
from cooper_rl.records.written import MARKER, copy_written
from cooper_rl.storage.base import ObjectStore, content_sha256
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.open import open_store
from tests.checkpoints.test_registry import make_record
from tests.stand_ins.fixtures import make_client, storage_config

MANY, FEW = (1000, 60) if os.environ.get("COOPER_RL_MANY_TREES") else (100, 8)
"""Random trees a test: in a folder, and on a server. COOPER_RL_MANY_TREES=1 asks for thousands (minutes)."""
IDENTITY = {"seed": "0"}
FILES = ("metrics.jsonl", "pairs.jsonl", "rollouts.jsonl", "policy/model.safetensors")
TOPS = (
    "step-by-step", "step-000099", "step-000001", "step-000002", "step-000003", "step-3", "STEP-000002",
    "Step-000001", "step-000002-0123abcd", "step-", ".staging-thesis", "v-0123456789ab", "policy", "a/b",
)  # fmt: skip
NAMES = (
    "thesis.txt", "my.partial", "manifest.json", "MANIFEST.json", "writer", "metrics.jsonl", "LATEST",
    "policy/model.safetensors", "policy/notes/of mine.txt", ".cooper-rl", "champion.json",
    f"metrics.jsonl.{'0' * 16}-0123abcd.partial", "model.safetensors.0123abcd.partial",
)  # fmt: skip
LOOSE = (
    "latest", "LATEST.partial", "LATEST.old", "step-000004", "step-000001.txt", "download.partial", "writer",
    "thesis.txt", "champion", f"LATEST.{'0' * 16}-01234567.partial", ".cooper-rl.partial", "metrics.jsonl",
)  # fmt: skip

named = st.builds("{}/{}".format, st.sampled_from(TOPS), st.sampled_from(NAMES))
key = st.one_of(named, st.sampled_from(LOOSE))
foreign = st.dictionaries(key, st.binary(max_size=20), max_size=12)
operation = st.one_of(
    st.tuples(st.just("plant"), foreign),
    st.tuples(st.sampled_from(["publish", "restart", "interrupted", "other run", "no pointer"]), st.none()),
)
life = st.lists(operation, min_size=3, max_size=10)
kept = st.fixed_dictionaries({"keep_last": st.integers(1, 2), "keep_every": st.sampled_from([None, 2])})


class Run:
    """A run in a place, whose checkpoints hold a few bytes."""

    def __init__(self, store: ObjectStore, folder: Path, retention: StorageConfig) -> None:
        self.store, self.folder, self.retention = store, folder, retention
        self.step = 0
        self.start()

    def start(self) -> None:
        """As a new process does."""
        self.opened = CheckpointStore(self.store, identity=RunIdentity(IDENTITY), retention=self.retention)
        found = self.opened.newest(self.folder / "fetched", last_step=1000)
        assert (0 if found is None else found.manifest.step) == self.step
        self.opened.prepare()

    def publish(self) -> None:
        self.step += 1
        self.opened.publish(self.draft(), step=self.step, score=0.0, versions={})

    def draft(self) -> Path:
        folder = self.folder / secrets.token_hex(4)
        for name in FILES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{name} of step {self.step}")
        return folder

    def interrupted(self) -> str:
        """A process that was killed after its first file."""
        folder = self.draft()
        hashes = {name: content_sha256(folder / name) for name in FILES}
        name = claim(self.store, f"step-{self.step + 1:06d}", hashes, place=mark(self.store))
        self.store.put_file(f"{name}/{FILES[0]}", folder / FILES[0], sha256=hashes[FILES[0]])
        return name

    def num_claims(self) -> int:
        own = [each for each in self.store.keys("step-") if each.endswith("/writer")]
        contents = [self.store.read(each) for each in own]
        place = mark(self.store)
        return sum(content is not None and place.encode() in content.data for content in contents)


def another_runs_manifest() -> bytes:
    manifest = CheckpointManifest(
        step=50, score=1.0, identity={"seed": "1"}, versions={}, history=(), sha256={METRICS: "0" * 64}
    )
    return dump_manifest(manifest.sealed())


def live(
    run: Run,
    operations: list[tuple[str, dict[str, bytes] | None]],
    plant: Callable[[str, bytes], bool],
    read: Callable[[str], bytes | None],
) -> int:
    """Do everything, then look for every foreign byte; returns how many things were planted."""
    planted: dict[str, bytes] = {}
    for kind, things in operations:
        if kind == "plant":
            planted |= {name: data for name, data in (things or {}).items() if plant(name, data)}
        elif kind == "publish":
            run.publish()
        elif kind == "restart":
            run.start()
        elif kind == "interrupted":
            run.interrupted()
        elif kind == "other run" and run.step and plant("step-000050/manifest.json", another_runs_manifest()):
            planted["step-000050/manifest.json"] = another_runs_manifest()
        elif kind == "no pointer" and run.step and "step-000050/manifest.json" not in planted:
            run.store.delete(["LATEST"])
            run.start()
            run.publish()
        for name, data in planted.items():
            assert read(name) == data, (kind, name)
    run.publish()
    assert all(read(name) == data for name, data in planted.items())
    config = run.retention
    expected = {step for step in range(run.step - config.keep_last + 1, run.step + 1) if step > 0}
    if config.keep_every:
        expected |= {step for step in range(1, run.step + 1) if step % config.keep_every == 0}
    assert run.num_claims() == len(expected)
    return len(planted)


@contextmanager
def quietly() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error", CooperWarning)
        yield Path(folder)


def put(place: Path, data: bytes, scratch: Path, links: bool) -> bool:
    """Plant a file, a link to one, or one in a folder that is a link; False where something is there."""
    elsewhere = scratch / "elsewhere" / secrets.token_hex(4)
    try:
        if links and data[:1] > b"\xc0" and not os.path.lexists(place.parent):
            elsewhere.mkdir(parents=True)
            place.parent.parent.mkdir(parents=True, exist_ok=True)
            place.parent.symlink_to(elsewhere)
        place.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(place):
            return False
        if links and data[:1] > b"\x7f":
            elsewhere.parent.mkdir(exist_ok=True)
            target = elsewhere.with_suffix(".txt")
            target.write_bytes(data)
            place.symlink_to(target)
        else:
            place.write_bytes(data)
    except (NotADirectoryError, FileExistsError):  # something else of that name is there
        return False
    return True


def replace(place: Path, data: bytes, scratch: Path, links: bool) -> bool:
    """Plant a file also where there is one."""
    if place.is_file() and not place.is_symlink():
        place.write_bytes(data)
        return True
    return put(place, data, scratch, links)


@contextmanager
def on_a_server(server, **options: object) -> Iterator[tuple[ObjectStore, Minio, str]]:
    """A store in a bucket of its own, with the plain client and the bucket's name."""
    client = make_client(server.port, server.account)
    name = f"own-{secrets.token_hex(8)}"
    client.make_bucket(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", server.account.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", server.account.secret_key)
        config = storage_config(server.endpoint, name).model_copy(update=options)
        yield open_store(config, f"{config.uri}/test"), client, name


def begin_upload(client: Minio, bucket: str, key: str) -> str:
    """Begin an upload in parts that nobody finishes; returns its id."""
    return client._create_multipart_upload(bucket, key, {})


def unfinished(client: Minio, bucket: str) -> set[str]:
    return {upload.upload_id for upload in client._list_multipart_uploads(bucket).uploads}


@settings(max_examples=MANY, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=life, options=kept, links=st.booleans())
def test_whatever_lies_in_a_folder_stays(
    operations: list[tuple[str, dict[str, bytes] | None]], options: dict[str, int | None], links: bool
) -> None:
    """About 20 things an example; some are links to files elsewhere."""
    with quietly() as scratch:
        root = scratch / "place"
        store = LocalStore(root)

        def plant(name: str, data: bytes) -> bool:
            return put(root / name, data, scratch, links)

        def read(name: str) -> bytes | None:
            try:
                return (root / name).read_bytes()
            except OSError:
                return None

        live(Run(store, scratch / "work", StorageConfig.model_validate(options)), operations, plant, read)


@settings(max_examples=FEW, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=life, options=kept)
def test_whatever_lies_below_a_prefix_stays(
    s3_server, operations: list[tuple[str, dict[str, bytes] | None]], options: dict[str, int | None]
) -> None:
    """With an unfinished upload of everything that is planted, and one of a run's that was killed."""
    with on_a_server(s3_server, **options) as (store, client, name), quietly() as scratch:
        uploads: set[str] = set()

        def plant(key: str, data: bytes) -> bool:
            full = f"runs/test/{key}"
            if store.read(key) is not None:
                return False
            client.put_object(name, full, io.BytesIO(data), len(data))
            uploads.add(begin_upload(client, name, f"{full}.large"))
            return True

        def read(key: str) -> bytes | None:
            content = store.read(key)
            return None if content is None else content.data

        run = Run(store, scratch / "work", StorageConfig.model_validate(options))
        left = run.interrupted()
        killed = begin_upload(client, name, f"runs/test/{left}/policy/model.safetensors")
        live(run, operations, plant, read)
        assert unfinished(client, name) == uploads
        assert killed not in uploads


def test_an_empty_folder_and_a_link_of_a_checkpoints_name_stay(tmp_path: Path) -> None:
    (tmp_path / "place" / "step-000001").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "place" / "step-000002").symlink_to(tmp_path / "elsewhere")
    run = Run(LocalStore(tmp_path / "place"), tmp_path / "work", StorageConfig(keep_last=1))
    for _ in range(3):
        run.publish()
    assert (tmp_path / "place" / "step-000001").is_dir()
    assert (tmp_path / "place" / "step-000002").is_symlink()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert run.num_claims() == 1


def test_what_is_put_into_a_checkpoint_stays_when_that_is_removed_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(LocalStore(tmp_path / "place"), tmp_path / "work", StorageConfig(keep_last=1))
    run.publish()
    note = tmp_path / "place" / "step-000001" / "note.txt"
    note.write_text("mine")
    for _ in range(3):
        run.publish()
    assert [path.name for path in note.parent.iterdir()] == ["note.txt"]
    assert note.read_text() == "mine"
    said = [line for line in caplog.messages if "step-000001: it is not of this run, and stays" in line]
    assert len(said) == 1


def test_a_checkpoint_that_was_copied_is_not_removed(tmp_path: Path) -> None:
    """By hand, under another name or into another place: its claim names neither."""
    run = Run(LocalStore(tmp_path / "place"), tmp_path / "work", StorageConfig(keep_last=1))
    run.publish()
    for copy in ("place/step-000090", "other/step-000001"):
        shutil.copytree(tmp_path / "place" / "step-000001", tmp_path / copy)
    shutil.copytree(tmp_path / "place" / "step-000001", tmp_path / "place" / "step-000001-0123abcd")
    other = Run(LocalStore(tmp_path / "new"), tmp_path / "work", StorageConfig(keep_last=1))
    shutil.copytree(tmp_path / "other" / "step-000001", tmp_path / "new" / "step-000001")
    for _ in range(2):
        run.publish()
        other.publish()
    for copy in ("place/step-000090", "place/step-000001-0123abcd", "other/step-000001", "new/step-000001"):
        assert (tmp_path / copy / "policy" / "model.safetensors").is_file(), copy
    assert not (tmp_path / "place" / "step-000001").exists()


def test_a_marker_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".cooper-rl").write_text("my notes")
    with pytest.raises(StorageError, match=r"\.cooper-rl: is not the mark of a place .*move that file away"):
        Run(LocalStore(tmp_path), tmp_path, StorageConfig())
    assert (tmp_path / ".cooper-rl").read_text() == "my notes"


def test_drafts_that_are_not_this_places_stay(tmp_path: Path) -> None:
    for folder in (".staging-0123abcd", ".staging-mine"):
        (tmp_path / folder).mkdir()
    (tmp_path / ".staging-mine" / ".cooper-rl").write_text("another place")
    (tmp_path / ".staging-file").write_text("mine")
    assert staging_folders(tmp_path, "this place") == []


def test_what_appears_in_a_reference_folder_while_a_run_trains_stays(tmp_path: Path) -> None:
    run = Run(LocalStore(tmp_path / "place"), tmp_path / "work", StorageConfig())
    folder = tmp_path / "reference"
    for _ in range(2):
        check_reference_folder(folder)
        run.publish()
        write_reference(folder, run.opened.published(tmp_path / "fetched"), uri=run.opened.uri)
    assert sorted(path.name for path in folder.iterdir()) == ["LATEST", "reference.json", "step-000002"]
    check_reference_folder(folder)
    (folder / "thesis.txt").write_text("mine")
    (folder / "step-000002" / "note.txt").write_text("mine")
    run.publish()
    write_reference(folder, run.opened.published(tmp_path / "fetched"), uri=run.opened.uri)
    assert (folder / "thesis.txt").read_text() == "mine"
    assert [path.name for path in (folder / "step-000002").iterdir()] == ["note.txt"]
    with pytest.raises(ConfigError, match=r"holds 'step-000002', which is no part of a reference"):
        check_reference_folder(folder)


VERSIONS = [f"v-{hashlib.sha256(bytes([number])).hexdigest()[:12]}" for number in range(2)]
in_a_version = st.builds(
    "{}/{}".format,
    st.sampled_from([*VERSIONS, VERSIONS[1].upper(), f"{VERSIONS[1]}-0123abcd"]),
    st.sampled_from((*NAMES, "policy/MODEL.safetensors", "writer-0123abcd", "policy/model.safetensors/x")),
)
in_a_registry = st.dictionaries(
    st.one_of(key, in_a_version, st.sampled_from(["attacks.jsonl", "CHAMPION.old", "Champion"])),
    st.one_of(st.binary(max_size=20), st.just(another_runs_manifest())),
    max_size=8,
)


def promote_all(store: ObjectStore, scratch: Path) -> None:
    """Two versions, the second twice; a refusal must name what is in the way."""
    weights = scratch / "model.safetensors"
    weights.write_bytes(b"weights")
    registry = Registry(store)
    files = {"policy/model.safetensors": weights, "metrics.jsonl": weights}
    refused: list[tuple[str, str]] = []
    for name in (*VERSIONS, VERSIONS[1]):
        try:
            registry.promote(name, files, make_record(), replaces=registry.champion(candidate=name))
        except StorageError as error:
            refused.append((name, str(error)))
    for name, said in refused:
        assert name in said or MARK in said
        assert "move" in said or "cannot be used" in said


@settings(max_examples=MANY, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(things=in_a_registry, links=st.booleans())
def test_whatever_lies_in_a_registry_stays(things: dict[str, bytes], links: bool) -> None:
    with quietly() as scratch:
        root = scratch / "registry"
        planted = {name for name, data in things.items() if put(root / name, data, scratch, links)}
        promote_all(LocalStore(root), scratch)
        assert all((root / name).read_bytes() == things[name] for name in planted)


def test_a_link_to_a_folder_that_has_the_name_of_a_model_is_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "registry" / VERSIONS[0] / "policy" / "model.safetensors"
    (tmp_path / "elsewhere").mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    promote_all(LocalStore(tmp_path / "registry"), tmp_path)
    assert link.is_symlink()


@settings(max_examples=FEW, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(things=in_a_registry)
def test_whatever_lies_in_a_registry_on_a_server_stays(s3_server, things: dict[str, bytes]) -> None:
    """With an unfinished upload of everything that is planted, of the versions' own files and beside them."""
    uploads = [*things, *(f"{version}/policy/model.safetensors" for version in VERSIONS), "attacks.jsonl"]
    with on_a_server(s3_server) as (store, client, name), quietly() as scratch:
        for each, data in things.items():
            client.put_object(name, f"runs/test/{each}", io.BytesIO(data), len(data))
        begun = {begin_upload(client, name, f"runs/test/{each}") for each in uploads}
        begun |= {begin_upload(client, name, f"runs/test/{each}.large") for each in uploads}
        begun |= {begin_upload(client, name, f"runs/test-of-mine/{each}") for each in uploads}
        promote_all(store, scratch)
        for each, data in things.items():
            assert client.get_object(name, f"runs/test/{each}").data == data
        assert unfinished(client, name) == begun


def test_a_promotion_removes_the_uploads_of_its_killed_attempts_and_no_others(
    s3_server, tmp_path: Path
) -> None:
    """The first attempt dies while it sends the weights, which another version sends too."""
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    files = {"policy/model.safetensors": weights}
    with on_a_server(s3_server) as (store, client, name):
        others = {begin_upload(client, name, f"runs/test/{VERSIONS[1]}/policy/model.safetensors")}
        others |= {begin_upload(client, name, f"runs/test/{VERSIONS[0]}/policy/notes.txt")}
        hashes = {file: content_sha256(path) for file, path in files.items()}
        claim_again(store, VERSIONS[0], hashes, manifests_name="champion.json")
        begin_upload(client, name, f"runs/test/{VERSIONS[0]}/policy/model.safetensors")
        for version in VERSIONS:
            registry = Registry(store)
            found = registry.champion(candidate=version)
            registry.promote(version, files, make_record(), replaces=found)
        assert unfinished(client, name) == others


def test_a_promotion_that_was_interrupted_is_done_again_over_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended before its record was written, with one record and with another; then a file is changed."""
    store, registry = LocalStore(tmp_path / "r"), Registry(LocalStore(tmp_path / "r"))
    lists = tmp_path / "evaluated.jsonl"
    for number in range(3):
        lists.write_text(f"attempt {number}")
        with monkeypatch.context() as patch:
            if number < 2:
                patch.setattr(Registry, "_replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with suppress(KeyboardInterrupt):
                registry.promote(VERSIONS[0], {"evaluated.jsonl": lists}, make_record(), replaces=None)
    found = registry.champion()
    assert found is not None
    assert (tmp_path / "r" / VERSIONS[0] / "evaluated.jsonl").read_text() == "attempt 2"
    store.delete([f"{VERSIONS[0]}/champion.json"])
    store.write(f"{VERSIONS[0]}/champion.json", b"mine", replaces=None)
    with pytest.raises(
        StorageError, match=r"champion\.json: was not written by a promotion, .*move it away, or use another"
    ):
        registry.promote(VERSIONS[0], {"evaluated.jsonl": lists}, make_record(), replaces=found)
    assert (tmp_path / "r" / VERSIONS[0] / "champion.json").read_bytes() == b"mine"


def test_a_version_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / VERSIONS[0]).symlink_to(tmp_path / "elsewhere")
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    with pytest.raises(StorageError, match="is a link; put the folder itself there, or move the link away"):
        Registry(LocalStore(tmp_path / "r")).promote(
            VERSIONS[0], {"policy/model.safetensors": weights}, make_record(), replaces=None
        )
    assert list((tmp_path / "elsewhere").iterdir()) == []


below = st.one_of(st.sampled_from(("thesis.txt", "config.json", "model.safetensors", "sub/a.txt", MARKER)))
trees = st.dictionaries(below, st.binary(max_size=20), max_size=5)


@settings(max_examples=MANY, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=trees, after=trees, links=st.booleans())
def test_whatever_lies_in_a_folder_that_would_be_replaced_stays(
    before: dict[str, bytes], after: dict[str, bytes], links: bool
) -> None:
    """Before the first time that we write it, and between that and the next; ours alone is replaced."""
    with quietly() as scratch:
        place, ours = scratch / "policy", scratch / "made"
        for content, things in ((b"first", before), (b"second", after)):
            shutil.rmtree(ours, ignore_errors=True)
            (ours / "sub").mkdir(parents=True)
            for name in ("config.json", "sub/b.txt"):
                (ours / name).write_bytes(content)
            planted = {name for name, data in things.items() if replace(place / name, data, scratch, links)}
            with suppress(DataError):
                copy_written(ours, place)
                assert not planted
            assert all((place / name).read_bytes() == things[name] for name in planted)
