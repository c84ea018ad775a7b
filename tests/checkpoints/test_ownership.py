"""Nothing of anybody else's is removed or overwritten, whatever it is called and wherever it lies."""

import hashlib
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cooper_rl.checkpoints.identity import RunIdentity
from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.manifest import CheckpointManifest, dump_manifest
from cooper_rl.checkpoints.ownership import claim, mark
from cooper_rl.checkpoints.reference import check_reference_folder, write_reference
from cooper_rl.checkpoints.registry import Registry
from cooper_rl.checkpoints.store import CheckpointStore
from cooper_rl.checkpoints.writer import staging_folders
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import ConfigError, CooperWarning, StorageError
from cooper_rl.storage.base import ObjectStore, content_sha256
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.open import open_store
from tests.checkpoints.test_registry import make_record
from tests.stand_ins.fixtures import make_client, storage_config

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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=life, options=kept, links=st.booleans())
def test_whatever_lies_in_a_folder_stays(
    operations: list[tuple[str, dict[str, bytes] | None]], options: dict[str, int | None], links: bool
) -> None:
    """About 20 things an example; some are links to files elsewhere."""
    with quietly() as scratch:
        root, elsewhere = scratch / "place", scratch / "elsewhere"
        store = LocalStore(root)

        def plant(name: str, data: bytes) -> bool:
            place = root / name
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                if os.path.lexists(place):
                    return False
                if links and data[:1] > b"\x7f":
                    target = elsewhere / secrets.token_hex(4)
                    target.parent.mkdir(exist_ok=True)
                    target.write_bytes(data)
                    place.symlink_to(target)
                else:
                    place.write_bytes(data)
            except (NotADirectoryError, FileExistsError):  # something else of that name is there
                return False
            return True

        def read(name: str) -> bytes | None:
            try:
                return (root / name).read_bytes()
            except OSError:
                return None

        live(Run(store, scratch / "work", StorageConfig.model_validate(options)), operations, plant, read)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=life, options=kept)
def test_whatever_lies_below_a_prefix_stays(
    s3_server, operations: list[tuple[str, dict[str, bytes] | None]], options: dict[str, int | None]
) -> None:
    """With an unfinished upload of everything that is planted, and one of a run's that was killed."""
    client = make_client(s3_server.port, s3_server.account)
    name = f"own-{secrets.token_hex(8)}"
    client.make_bucket(name)
    with quietly() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", s3_server.account.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.account.secret_key)
        config = storage_config(s3_server.endpoint, name).model_copy(update=options)
        store = open_store(config, f"{config.uri}/test")
        uploads: set[str] = set()

        def plant(key: str, data: bytes) -> bool:
            import io

            full = f"runs/test/{key}"
            if store.read(key) is not None:
                return False
            client.put_object(name, full, io.BytesIO(data), len(data))
            uploads.add(client._create_multipart_upload(name, f"{full}.large", {}))
            return True

        def read(key: str) -> bytes | None:
            content = store.read(key)
            return None if content is None else content.data

        run = Run(store, scratch / "work", config)
        left = run.interrupted()
        killed = client._create_multipart_upload(name, f"runs/test/{left}/policy/model.safetensors", {})
        live(run, operations, plant, read)
        found = {upload.upload_id for upload in client._list_multipart_uploads(name).uploads}
        assert found == uploads
        assert killed not in found


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


def test_checkpoints_of_a_version_without_claims_are_found_and_removed_as_far_as_their_manifests_go(
    tmp_path: Path,
) -> None:
    """Their `writer` holds eight characters, and there is no marker."""
    store = LocalStore(tmp_path / "place")
    run = Run(store, tmp_path / "work", StorageConfig(keep_last=2))
    for _ in range(2):
        run.publish()
    for step in (1, 2):
        (tmp_path / "place" / f"step-{step:06d}" / "writer").write_text("0123abcd")
    (tmp_path / "place" / ".cooper-rl").unlink()
    (tmp_path / "place" / "step-000001" / "note.txt").write_text("mine")
    leftover = tmp_path / "place" / "step-000007" / "policy"
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_text("of a killed run, which no manifest names")
    run.start()
    for _ in range(2):
        run.publish()
    found = sorted(path.name for path in (tmp_path / "place").glob("step-*"))
    assert found == ["step-000001", "step-000003", "step-000004", "step-000007"]
    assert [path.name for path in (tmp_path / "place" / "step-000001").iterdir()] == ["note.txt"]
    assert (leftover / "model.safetensors").is_file()


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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(things=foreign)
def test_whatever_lies_in_a_registry_stays(things: dict[str, bytes]) -> None:
    with quietly() as scratch:
        root = scratch / "registry"
        planted: dict[str, bytes] = {}
        versions = [f"v-{hashlib.sha256(bytes([number])).hexdigest()[:12]}" for number in range(2)]
        for name, data in [*things.items(), (f"{versions[1]}/thesis.txt", b"mine")]:
            if any((root / parent).is_file() for parent in Path(name).parents) or (root / name).exists():
                continue
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
            planted[name] = data
        weights = scratch / "model.safetensors"
        weights.write_bytes(b"weights")
        registry = Registry(LocalStore(root))
        for name in versions:
            registry.promote(
                name, {"policy/model.safetensors": weights}, make_record(), replaces=registry.champion()
            )
        assert all((root / name).read_bytes() == data for name, data in planted.items())
