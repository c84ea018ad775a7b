"""Random lives of a retraining (`take-champion`, `--start`, promotion): every foreign byte stays."""

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cooper_rl.checkpoints.logs import METRICS
from cooper_rl.checkpoints.reference import open_checkpoint, write_reference
from cooper_rl.checkpoints.registry import EXAMPLES as EXAMPLES_LIST
from cooper_rl.checkpoints.registry import HELD_OUT as HELD_OUT_LIST
from cooper_rl.checkpoints.registry import KNOWN, Registry
from cooper_rl.config.infrastructure import StorageConfig, is_stored
from cooper_rl.config.root import Config
from cooper_rl.errors import DataError, StorageError
from cooper_rl.method.questions import fingerprint
from cooper_rl.records.files import write_records, write_report
from cooper_rl.records.model_set import MANIFEST
from cooper_rl.run.identity import evaluation_conditions
from cooper_rl.schema.reports import ModelSet
from cooper_rl.schema.runs import KnownProblem
from cooper_rl.stages import take_champion
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.open import open_store
from tests.checkpoints.test_ownership import (
    FEW,
    LOOSE,
    MANY,
    NAMES,
    Run,
    begin_upload,
    on_a_server,
    put,
    quietly,
    unfinished,
)
from tests.checkpoints.test_registry import make_record
from tests.stages.champions import EXAMPLES, HELD_OUT, LATER, TRAINING, configured

RECORD = make_record()
FOLDERS = (
    "policy",
    "verify_rm",
    "start",
    "models",
    "models/policy",
    "models/start",
    "v-000000000001",
    "step-000002",
)
OUTPUTS = ("problems", "held_out", "examples", "attacks", "summary", "report")

name = st.one_of(
    st.builds(
        "{}/{}".format, st.sampled_from(FOLDERS), st.sampled_from((*NAMES, "config.json", "models.json"))
    ),
    st.sampled_from(
        (*LOOSE, "champion.json", "models.json", "problems.0123abcd.partial", ".cooper-rl-0123abcd.draft")
    ),
)
event = st.one_of(
    st.tuples(
        st.sampled_from(["registry", "taken", "start", "next"]),
        st.dictionaries(name, st.binary(max_size=20), max_size=4),
    ),
    st.tuples(st.sampled_from(["take champion", "continue", "promote"]), st.none()),
)


class Retraining:
    """A registry with a champion, what was prepared and collected, and a run whose checkpoint starts it."""

    def __init__(self, scratch: Path, config: Config, open_place: Callable[[str], ObjectStore]) -> None:
        """`open_place`: the store of `registry`, `start` or `next`."""
        self.scratch, self.config, self.open_place = scratch, config, open_place
        self.num_versions = self.num_iterations = self.num_taken = 0
        for folder in ("prepared/start", "prepared/backbone"):
            (scratch / folder).mkdir(parents=True)
            (scratch / folder / "config.json").write_text(folder)
        write_report(
            scratch / "prepared" / MANIFEST, ModelSet(policy="start", samplers={}, backbone="backbone")
        )
        write_records(scratch / "collected.jsonl", LATER)
        write_records(scratch / "apart.jsonl", HELD_OUT)
        self.promote()
        self.run = Run(open_place("start"), scratch / "work", StorageConfig(keep_last=1))
        self.run.publish()

    def promote(self) -> None:
        self.num_versions += 1
        made = self.scratch / "made"
        made.mkdir(exist_ok=True)
        write_records(made / HELD_OUT_LIST, HELD_OUT)
        write_records(made / EXAMPLES_LIST, EXAMPLES)
        known = [KnownProblem(fingerprint=fingerprint(problem)) for problem in TRAINING]
        write_records(made / KNOWN, known)
        (made / "config.json").write_text(f"of version {self.num_versions}")
        files = {each: made / each for each in (HELD_OUT_LIST, EXAMPLES_LIST, KNOWN)}
        files |= {f"{model}/config.json": made / "config.json" for model in ("policy", "verify_rm")}
        registry = Registry(self.open_place("registry"))
        registry.promote(
            f"v-{self.num_versions:012x}",
            files,
            RECORD.model_copy(update={"conditions": evaluation_conditions(self.config)}),
            replaces=registry.champion(candidate=""),
        )

    def take_champion(self) -> None:
        taken = self.scratch / "taken"
        take_champion.run(
            self.config,
            prepared=self.scratch / "prepared",
            collected=self.scratch / "collected.jsonl",
            collected_held_out=self.scratch / "apart.jsonl",
            models=taken / "models",
            **{each: taken / each for each in OUTPUTS},
        )
        self.num_taken += 1
        assert (taken / "models" / "policy" / "config.json").read_text().startswith("of version")

    def continue_from_it(self) -> None:
        """The next iteration: it reads the run's checkpoint (`--start`) and writes into its own place."""
        self.run.publish()
        start = self.scratch / "start"
        if is_stored(self.run.store.uri):
            start = self.scratch / "reference"
            write_reference(
                start, self.run.opened.published(self.scratch / "fetched"), uri=self.run.store.uri
            )
        with open_checkpoint(start, self.config.storage, logs=(METRICS,)) as found:
            assert found.manifest.step == self.run.step
        self.num_iterations += 1
        if self.num_iterations == 1:
            self.next = Run(self.open_place("next"), self.scratch / "work", StorageConfig(keep_last=1))
        for _ in range(2):
            self.next.publish()


@settings(max_examples=MANY // 5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=st.lists(event, min_size=3, max_size=10), links=st.booleans())
def test_whatever_lies_in_the_way_of_a_retraining_stays(
    events: list[tuple[str, dict[str, bytes] | None]], links: bool
) -> None:
    with quietly() as scratch:

        def plant(key: str, data: bytes) -> bool:
            return put(scratch / key, data, scratch, links)

        config = configured(scratch / "registry")
        retraining = Retraining(scratch, config, lambda place: LocalStore(scratch / place))
        live(retraining, events, plant, lambda key: (scratch / key).read_bytes())


@settings(max_examples=FEW, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=st.lists(event, min_size=3, max_size=6))
def test_whatever_lies_in_the_way_of_a_retraining_on_a_server_stays(
    s3_server, events: list[tuple[str, dict[str, bytes] | None]]
) -> None:
    """With an unfinished upload of everything that is planted; the models' folders are on this machine."""
    with on_a_server(s3_server) as (_, client, bucket), quietly() as scratch:
        store = [f"storage.uri=s3://{bucket}", "storage.run_key=start"]
        config = configured(f"s3://{bucket}/registry", *store, f"storage.endpoint={s3_server.endpoint}")
        uploads: set[str] = set()

        def plant(key: str, data: bytes) -> bool:
            if key.startswith("taken/"):
                return put(scratch / key, data, scratch, links=False)
            if any(each.object_name == key for each in client.list_objects(bucket, key)):
                return False
            client.put_object(bucket, key, io.BytesIO(data), len(data))
            uploads.add(begin_upload(client, bucket, f"{key}.large"))
            return True

        def read(key: str) -> bytes:
            taken = scratch / key
            return taken.read_bytes() if key.startswith("taken/") else client.get_object(bucket, key).data

        retraining = Retraining(
            scratch, config, lambda place: open_store(config.storage, f"s3://{bucket}/{place}")
        )
        live(retraining, events, plant, read)
        assert unfinished(client, bucket) == uploads


def live(
    retraining: Retraining,
    events: list[tuple[str, dict[str, bytes] | None]],
    plant: Callable[[str, bytes], bool],
    read: Callable[[str], bytes],
) -> None:
    """Do everything, and look for every foreign byte after each event."""
    planted: dict[str, bytes] = {}
    for kind, things in [*events, ("take champion", None), ("continue", None)]:
        planted |= {
            f"{kind}/{each}": data for each, data in (things or {}).items() if plant(f"{kind}/{each}", data)
        }
        with suppress(DataError, StorageError):  # something is in the way, which the error names
            if kind == "take champion":
                retraining.take_champion()
            elif kind == "continue":
                retraining.continue_from_it()
            elif kind == "promote":
                retraining.promote()
        for key, data in planted.items():
            assert read(key) == data, (kind, key)
    assert planted or (retraining.num_taken and retraining.num_iterations)
