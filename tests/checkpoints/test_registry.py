"""The registry in a folder and on an S3 server: one champion, whole or none, and one winner of a race."""

import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.checkpoints.manifest import CheckpointManifest
from cooper_rl.checkpoints.registry import ATTACKS, CHAMPION, RECORD, Champion, Registry, version_name
from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DamagedObjectError, StorageError, WriteConflictError
from cooper_rl.run.promotion import Evaluated, decide
from cooper_rl.schema.red_team import AttackText
from cooper_rl.schema.runs import ChampionRecord
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.local import LocalStore
from cooper_rl.storage.open import open_store
from tests.stages.champions import HELD_OUT, make_completions, make_evaluation
from tests.stand_ins.fixtures import storage_config

MOMENTS = (f"2026-11-21T02:{number // 60:02}:{number % 60:02}+00:00" for number in count())
"""No two promotions are of one moment."""


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store(StorageConfig(), tmp_path / "registry")
    config = storage_config(request.getfixturevalue("s3_server").endpoint, request.getfixturevalue("bucket"))
    return open_store(config, f"{config.uri}/registry")


def make_record(previous: str | None = None) -> ChampionRecord:
    evaluation = make_evaluation([1] * 8)
    decision = decide(
        Evaluated("v", evaluation, make_completions([1] * 8, HELD_OUT)),
        None,
        max_canary_rate=1,
    )
    return ChampionRecord(
        run="monday",
        checkpoint="s3://cooper-rl/checkpoints/monday/from-000001/step-000003",
        previous=previous,
        promoted_at="2026-11-21T02:00:00+00:00",
        conditions={"seed": "0"},
        num_known_problems=3,
        evaluation=evaluation,
        decision=decision,
    )


def add(registry: Registry, folder: Path, name: str, *, replaces: Champion | None) -> None:
    path = folder / f"{name}.weights"
    path.write_text(f"weights of {name}")
    record = make_record(replaces.name if replaces else None)
    registry.promote(
        name,
        {"policy/model.safetensors": path, "verify_rm/model.safetensors": path},
        record.model_copy(update={"promoted_at": next(MOMENTS)}),
        replaces=replaces,
    )


def test_a_champion_comes_back_as_it_went(store: ObjectStore, tmp_path: Path) -> None:
    registry = Registry(store)
    assert registry.champion() is None
    add(registry, tmp_path, "v-one", replaces=None)
    first = registry.champion()
    assert first is not None
    add(registry, tmp_path, "v-two", replaces=first)
    second = registry.champion()
    assert second is not None
    moment = {"promoted_at": second.record.promoted_at}
    assert (second.name, second.record) == ("v-two", make_record("v-one").model_copy(update=moment))
    assert (second.manifest.step, second.manifest.score) == (3, 1.0)
    folder = registry.fetch(second, tmp_path / "fetched", starting_with=("policy/",))
    assert (folder / "policy" / "model.safetensors").read_text() == "weights of v-two"


def test_of_two_promoters_that_saw_the_same_champion_one_wins(store: ObjectStore, tmp_path: Path) -> None:
    """Eight at once, each with a version of its own and the same view of the registry."""
    add(Registry(store), tmp_path, "v-start", replaces=None)
    seen = Registry(store).champion()
    outcomes: dict[str, str] = {}

    def race(name: str) -> None:
        try:
            add(Registry(store), tmp_path, name, replaces=seen)
            outcomes[name] = "won"
        except WriteConflictError:
            outcomes[name] = "lost"

    racers = [threading.Thread(target=race, args=(f"v-{number}",)) for number in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(outcomes.values()) == ["lost"] * 7 + ["won"]
    champion = Registry(store).champion()
    assert champion is not None
    assert outcomes[champion.name] == "won"


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("last", ["verify_rm/model.safetensors", RECORD])
def test_of_two_tries_of_one_promotion_neither_damages_the_champion(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, is_killed: bool
) -> None:
    """The second one ends well after the first, which is slow, or is killed soon, has written a file."""
    add(Registry(store), tmp_path, "v-start", replaces=None)
    seen = Registry(store).champion()
    done: list[str] = []
    others: list[str] = []

    def note(write: Callable[..., object]) -> Callable[..., object]:
        def noting(key: str, *arguments: object, **options: object) -> object:
            found = write(key, *arguments, **options)
            if others[-1:] == ["begun"]:  # the second try's own
                return found
            done.append(key.removeprefix("v-next/"))
            if done[-1] == last:
                others.append("begun")
                add(Registry(store), tmp_path, "v-next", replaces=seen)
                others.append("ended")
            if is_killed and others and done[-1] == RECORD:
                raise KeyboardInterrupt
            return found

        return noting

    for name in ("put_file", "write"):
        monkeypatch.setattr(store, name, note(getattr(store, name)))
    with suppress(WriteConflictError, KeyboardInterrupt):  # or it finds that all it wanted is there
        add(Registry(store), tmp_path, "v-next", replaces=seen)
    assert others == ["begun", "ended"]
    champion = Registry(store).champion()
    assert champion is not None
    assert champion.name == "v-next"


def test_versions_without_a_pointer_are_refused_and_no_candidate_goes_unopposed(
    store: ObjectStore, tmp_path: Path
) -> None:
    """All but the candidate itself, whose first promotion may have ended before the pointer was written."""
    registry = Registry(store)
    store.write("v-0123456789ab/manifest.json", b"somebody else's", replaces=None)
    assert registry.champion() is None
    add(registry, tmp_path, "v-one", replaces=None)
    store.delete([CHAMPION])
    with pytest.raises(
        DamagedObjectError,
        match=r"registry: CHAMPION is missing, and there is a version v-one; write the name of the "
        "champion's version into CHAMPION, or move the versions away to begin with none",
    ):
        registry.champion(candidate="v-two")
    assert registry.champion(candidate="v-one") is None
    store.write(CHAMPION, b"v-one\n", replaces=None)
    found = registry.champion()
    assert found is not None
    assert found.name == "v-one"


def test_an_earlier_champion_comes_back_when_its_name_is_written(store: ObjectStore, tmp_path: Path) -> None:
    registry = Registry(store)
    add(registry, tmp_path, "v-one", replaces=None)
    add(registry, tmp_path, "v-two", replaces=registry.champion())
    pointer = store.read(CHAMPION)
    assert pointer is not None
    store.write(CHAMPION, b"v-one\n", replaces=pointer.tag)
    found = registry.champion()
    assert found is not None
    assert found.name == "v-one"


@pytest.mark.parametrize("file", ["champion.json", "manifest.json", "policy/model.safetensors"])
@pytest.mark.parametrize("harm", ["changed", "removed"])
def test_a_damaged_champion_is_refused_with_the_way_back(tmp_path: Path, file: str, harm: str) -> None:
    registry = Registry(open_store(StorageConfig(), tmp_path / "registry"))
    add(registry, tmp_path, "v-one", replaces=None)
    found = registry.champion()
    assert found is not None
    place = tmp_path / "registry" / "v-one" / file
    text = place.read_text()
    place.unlink()
    if harm == "changed":
        place.write_text(text.replace("monday", "sunday") if "monday" in text else text + " ")
        if file == "manifest.json":
            place.write_text(text.replace('"step": 3', '"step": 4'))

    def look() -> None:
        champion = registry.champion()
        if file.startswith("policy/"):  # what is no model is read with the pointer
            registry.fetch(champion or found, tmp_path / "fetched", starting_with=("",))

    with pytest.raises(
        DamagedObjectError,
        match=rf"registry: champion v-one cannot be read \(.*{file}.*\); restore its objects, or write the "
        "name of an earlier version into CHAMPION",
    ):
        look()


def test_a_store_that_ignores_conditions_is_refused(store: ObjectStore, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(store, "write", lambda *_, **__: "tag")
    with pytest.raises(StorageError, match="the server ignores If-None-Match"):
        add(Registry(store), tmp_path, "v-one", replaces=None)


def test_a_pointer_that_leads_out_of_the_registry_is_refused(tmp_path: Path) -> None:
    store = open_store(StorageConfig(), tmp_path / "registry")
    store.write(CHAMPION, b"../elsewhere\n", replaces=None)
    with pytest.raises(StorageError, match=r"champion '../elsewhere' cannot be read .*write the name"):
        Registry(store).champion()


def test_a_version_is_named_by_its_weights_alone() -> None:
    def manifest(**sha256: str) -> CheckpointManifest:
        files: Any = {name.replace("__", "/"): value for name, value in sha256.items()}
        return CheckpointManifest(step=1, score=None, identity={}, versions={}, history=(), sha256=files)

    one = manifest(policy__model="a", verify_rm__model="b", metrics="c", policy_optimizer="d")
    assert version_name(one) == version_name(manifest(verify_rm__model="b", policy__model="a", metrics="e"))
    assert version_name(one) != version_name(manifest(policy__model="a", verify_rm__model="c"))


def test_a_registry_on_a_server_needs_its_address() -> None:
    with pytest.raises(
        ConfigError, match=r"registry.uri=s3://... needs storage.endpoint, e.g. https://minio"
    ):
        load("laptop", ["registry.uri=s3://cooper-rl/registry"])


def test_a_file_that_is_edited_in_place_after_its_promotion_does_not_change_the_champion(
    tmp_path: Path,
) -> None:
    """A hard link would: the registry's file and the run's would be one."""
    registry = Registry(LocalStore(tmp_path / "registry"))
    add(registry, tmp_path, "v-1", replaces=None)
    with (tmp_path / "v-1.weights").open("r+b") as opened:
        opened.write(b"WEIGHTS")
    champion = registry.champion()
    assert champion is not None
    folder = registry.fetch(champion, tmp_path / "fetched", starting_with=("policy/", "verify_rm/"))
    for model in ("policy", "verify_rm"):
        assert (folder / model / "model.safetensors").read_text() == "weights of v-1"


def attack(text: str) -> AttackText:
    return AttackText(
        aim="universal", text=text, method="seed", origin="library", num_queries=1, search_rate=1.0
    )


def test_an_attack_that_was_found_once_stays_and_is_added_once(store: ObjectStore) -> None:
    registry = Registry(store)
    assert registry.attacks() == []
    assert registry.add_attacks([]) == 0
    assert store.read(ATTACKS) is None
    first = [attack("000\u2028000\n"), attack("aaa")]
    assert registry.add_attacks([*first, attack("aaa")]) == 2
    assert registry.add_attacks(first) == 0
    assert Registry(store).add_attacks([attack("aaa"), attack("bbb")]) == 1
    assert registry.attacks() == [*first, attack("bbb")]


def test_of_eight_red_teams_at_once_none_loses_its_finds(store: ObjectStore) -> None:
    """Each adds two texts of its own and one that all have found: 2 * 8 + 1."""
    found: list[int] = []

    def work(number: int) -> None:
        texts = [attack(f"{number} {letter}") for letter in "ab"]
        found.append(Registry(store).add_attacks([attack("common"), *texts]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = {row.text for row in Registry(store).attacks()}
    assert known == {"common", *(f"{number} {letter}" for number in range(8) for letter in "ab")}
    assert sum(found) == 17


def test_attacks_that_are_damaged_are_left_as_they_are(store: ObjectStore) -> None:
    store.write(ATTACKS, b"not a record\n", replaces=None)
    for use in (lambda: Registry(store).attacks(), lambda: Registry(store).add_attacks([attack("a")])):
        with pytest.raises(
            DamagedObjectError, match=r"(?s)not what a red team wrote .* or remove it to start"
        ):
            use()
    content = store.read(ATTACKS)
    assert content is not None
    assert content.data == b"not a record\n"
