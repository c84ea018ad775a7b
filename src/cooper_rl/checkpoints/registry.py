"""The registry of champions in an object store: what was promoted, with the evidence (rows 13 and 14).

    CHAMPION                   name of the champion's version; written last, only if it is as we saw it
    attacks.jsonl              texts that a red team found a VerifyRM to pay; only ever grows
    v-0123456789ab/            named by the hash of its weights; never changed once it was champion
        champion.json          which run, which numbers, under which settings, and the decision
        held_out.jsonl         the frozen problems, and
        examples.jsonl         the frozen labelled examples, which a champion hands on to the next
        evaluated.jsonl        what its policy wrote on the problems, with every verdict
        known.jsonl            fingerprints of all problems that it, or a champion before it, learned from
        policy/ verify_rm/     plain Hugging Face folders
        manifest.json          hash of every file; written when all of them are there
        writer-89abcdef        claim of a promotion, which names its files; gone when that has ended well

Attacks outlive champions and runs: a VerifyRM is trained on them and attacked with them from then on. A
version has the form of a checkpoint and is read by the same code, hash by hash. Of two promoters that saw the
same champion, one finds CHAMPION changed. `run/promotion.py` decides who deserves it.
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from cooper_rl.checkpoints.manifest import MANIFEST, CheckpointManifest, dump_manifest
from cooper_rl.checkpoints.ownership import claim_again
from cooper_rl.checkpoints.reading import fetch, read_manifest
from cooper_rl.config.root import Config
from cooper_rl.errors import DamagedObjectError, StorageError, WriteConflictError
from cooper_rl.schema.red_team import AttackText
from cooper_rl.schema.runs import ChampionRecord
from cooper_rl.storage.base import ObjectStore, check_key, content_sha256
from cooper_rl.storage.open import open_store
from cooper_rl.storage.probe import check_conditional_writes

logger = logging.getLogger(__name__)

CHAMPION = "CHAMPION"
ATTACKS = "attacks.jsonl"
RECORD = "champion.json"
HELD_OUT = "held_out.jsonl"
EXAMPLES = "examples.jsonl"
EVALUATED = "evaluated.jsonl"
KNOWN = "known.jsonl"
LISTS = (HELD_OUT, EXAMPLES, EVALUATED, KNOWN)
MODELS = ("policy/", "verify_rm/")
MAX_LOST_RACES = 20
"""Writers of attacks that may come first, one after the other."""


class Champion(NamedTuple):
    """The champion as it was seen."""

    name: str
    record: ChampionRecord
    manifest: CheckpointManifest
    tag: str
    """Tag of the pointer; see `Registry.promote`."""


class Registry:
    """Champions below one address."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def uri(self) -> str:
        """Address without credentials."""
        return self._store.uri

    def champion(self, *, candidate: str | None = None) -> Champion | None:
        """The champion, or None where nothing was promoted yet.

        Args:
            candidate: name of a version whose first promotion may have been interrupted.

        Raises:
            DamagedObjectError: it is missing or not what was written, or CHAMPION is missing beside versions.
            StorageError: the store cannot be used.
        """
        pointer = self._store.read(CHAMPION)
        if pointer is None:
            self._check_empty(candidate)
            return None
        name = pointer.name
        try:
            check_key(name)
        except StorageError as error:
            raise self._damaged(repr(name[:100]), error) from error
        try:
            manifest = read_manifest(self._store, name)
            record = self._record(name, manifest)
        except (DamagedObjectError, ValidationError) as error:
            raise self._damaged(name, error) from error
        return Champion(name, record, manifest, pointer.tag)

    def fetch(self, champion: Champion, folder: Path, *, starting_with: tuple[str, ...]) -> Path:
        """A champion's verified files whose path starts so: in place, or below `folder`.

        Raises:
            DamagedObjectError: one is missing or changed; names it.
            StorageError: the store cannot be used.
        """
        try:
            return fetch(
                self._store, champion.name, champion.manifest, folder=folder, starting_with=starting_with
            ).folder
        except DamagedObjectError as error:
            raise self._damaged(champion.name, error) from error

    def promote(
        self, name: str, files: Mapping[str, Path], record: ChampionRecord, *, replaces: Champion | None
    ) -> None:
        """Store a version, then make it the champion in place of the one that was seen.

        Args:
            name: of the version (`version_name`).
            files: path inside the version -> file on this machine, all but the record.
            record: what is said of it.
            replaces: the champion as it was seen; None: there was none.

        Raises:
            WriteConflictError: another one was promoted meanwhile; it stays champion.
            StorageError: the store cannot be used, or files of others have the version's names; the champion
                stays.
        """
        check_conditional_writes(self._store)
        hashes = {file: content_sha256(path) for file, path in files.items()}
        kept, tag = self._kept_record(name, record)
        small = _small_files(kept, hashes)
        claimed = hashes | _sha256_of(small)
        own_claim, earlier = claim_again(self._store, name, claimed, manifests_name=RECORD)
        for file, sha256 in hashes.items():
            self._store.put_file(f"{name}/{file}", files[file], sha256=sha256)
        # Two tries of one promotion differ by the moment alone: the first record stays, or a manifest would
        # name one of them beside the other.
        try:
            self._store.write(f"{name}/{RECORD}", small[RECORD], replaces=tag)
        except WriteConflictError:
            kept, _ = self._kept_record(name, record)
            if kept is record:
                raise
            small = _small_files(kept, hashes)
        self._replace(f"{name}/{MANIFEST}", small[MANIFEST])
        # Last: nobody is led to the version before. Where a rival was promoted meanwhile, the tag is another
        # one.
        self._store.write(CHAMPION, f"{name}\n".encode(), replaces=replaces.tag if replaces else None)
        # Parts that a killed attempt sent are stored until somebody removes them.
        self._store.remove_unfinished(
            (f"{name}/{file}", sha256) for each in earlier for file, sha256 in each.items()
        )
        self._store.delete([own_claim])  # the manifest claims the same now

    def attacks(self) -> list[AttackText]:
        """Every text that was added, in the order in which they came.

        Raises:
            DamagedObjectError: the object is not what was written.
            StorageError: the store cannot be used.
        """
        return self._attacks()[0]

    def add_attacks(self, found: Sequence[AttackText]) -> int:
        """Add texts that are not there yet; returns how many. The same call again adds none.

        Concurrent writers each add their own: on a conflict the object is read and appended to again.

        Raises:
            DamagedObjectError: the object is not what was written; it is left as it is.
            StorageError: the store cannot be used, or so many others wrote first.
        """
        for _ in range(MAX_LOST_RACES):
            known, tag = self._attacks()
            texts = {attack.text for attack in known}
            new = list({attack.text: attack for attack in found if attack.text not in texts}.values())
            if not new:
                return 0
            # Whoever wrote the object that is there has found it out.
            if tag is None:
                check_conditional_writes(self._store)
            lines = [f"{attack.model_dump_json()}\n" for attack in (*known, *new)]
            try:
                self._store.write(ATTACKS, "".join(lines).encode(), replaces=tag)
            except WriteConflictError:
                logger.info("%s/%s: another run added attacks; adding to those", self.uri, ATTACKS)
            else:
                return len(new)
        raise WriteConflictError(
            f"{self.uri}/{ATTACKS}: {MAX_LOST_RACES} other writers came first; run the same command again"
        )

    def _attacks(self) -> tuple[list[AttackText], str | None]:
        """The texts, and the object's tag; None where there is no object."""
        content = self._store.read(ATTACKS)
        if content is None:
            return [], None
        try:
            # Not splitlines(), which also splits at U+2028: an attack may hold it, and JSON leaves it.
            rows = content.data.decode().split("\n")
            return [AttackText.model_validate_json(row) for row in rows if row], content.tag
        except ValueError as error:
            raise DamagedObjectError(
                f"{self.uri}/{ATTACKS}: not what a red team wrote ({error}); restore the object, or remove "
                "it to start with no known attacks"
            ) from error

    def _check_empty(self, candidate: str | None) -> None:
        """Refuse versions without a pointer, beside which the next candidate would have no rival."""
        for key in self._store.keys("v-"):
            name, _, file = key.partition("/")
            if file != MANIFEST or name == candidate:
                continue
            try:
                is_version = RECORD in read_manifest(self._store, name).sha256
            except DamagedObjectError:  # somebody else's
                continue
            if is_version:
                raise DamagedObjectError(
                    f"{self.uri}: {CHAMPION} is missing, and there is a version {name}; write the name of "
                    f"the champion's version into {CHAMPION}, or move the versions away to begin with none"
                )

    def _record(self, name: str, manifest: CheckpointManifest) -> ChampionRecord:
        content = self._store.read(f"{name}/{RECORD}")
        if content is None or hashlib.sha256(content.data).hexdigest() != manifest.sha256.get(RECORD):
            raise DamagedObjectError(f"{self.uri}/{name}/{RECORD}: missing or changed")
        return ChampionRecord.model_validate_json(content.data)

    def _kept_record(self, name: str, record: ChampionRecord) -> tuple[ChampionRecord, str | None]:
        """The record that another try of the same promotion has stored, else the given one; and the tag of
        the object that is there."""
        found = self._store.read(f"{name}/{RECORD}")
        if found is None:
            return record, None
        try:
            kept = ChampionRecord.model_validate_json(found.data)
        except ValidationError:
            return record, found.tag
        is_same = kept == record.model_copy(update={"promoted_at": kept.promoted_at})
        return kept if is_same else record, found.tag

    def _replace(self, key: str, data: bytes) -> None:
        """An attempt that ended before the pointer was written may have left the object."""
        found = self._store.read(key)
        self._store.write(key, data, replaces=found.tag if found else None)

    def _damaged(self, name: str, error: Exception) -> DamagedObjectError:
        return DamagedObjectError(
            f"{self.uri}: champion {name} cannot be read ({error}); restore its objects, or write the name "
            f"of an earlier version into {CHAMPION}"
        )


def _manifest(record: ChampionRecord, sha256: dict[str, str]) -> bytes:
    """The manifest of a version, as it is stored."""
    manifest = CheckpointManifest(
        step=record.evaluation.step,
        score=record.decision.accuracy.value,
        identity=record.conditions,
        versions={},
        history=(),
        sha256=sha256,
    )
    return dump_manifest(manifest.sealed())


def _small_files(record: ChampionRecord, hashes: Mapping[str, str]) -> dict[str, bytes]:
    small = {RECORD: record.model_dump_json(indent=2).encode()}
    return small | {MANIFEST: _manifest(record, {**hashes, **_sha256_of(small)})}


def _sha256_of(small: Mapping[str, bytes]) -> dict[str, str]:
    return {file: hashlib.sha256(data).hexdigest() for file, data in small.items()}


def open_registry(config: Config) -> Registry:
    """The registry of the configuration.

    Raises:
        ConfigError: it names none.
        StorageError: address or credentials cannot be used.
    """
    return Registry(open_store(config.storage, config.registry.needed_uri()))


def version_name(manifest: CheckpointManifest) -> str:
    """The version of a checkpoint's models: the same weights are one version, however often they are
    promoted."""
    weights = sorted((file, sha256) for file, sha256 in manifest.sha256.items() if file.startswith(MODELS))
    return f"v-{hashlib.sha256(json.dumps(weights).encode()).hexdigest()[:12]}"
