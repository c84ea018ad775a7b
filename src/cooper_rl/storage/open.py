"""Opens the store of an address."""

from pathlib import Path

from cooper_rl.config.infrastructure import StorageConfig, is_stored
from cooper_rl.errors import StorageError
from cooper_rl.storage.base import ObjectStore
from cooper_rl.storage.local import LocalStore


def open_store(config: StorageConfig, folder: str | Path) -> ObjectStore:
    """The store at an address: `s3://bucket/prefix`, or a local folder.

    Raises:
        StorageError: the address or its credentials cannot be used.
    """
    address = str(folder)
    if is_stored(address):
        from cooper_rl.storage.s3 import S3Store  # minio is imported where it is used only

        return S3Store(config, address)
    if "://" in address:
        # The rest is not shown: it may hold a password.
        kind = address.partition("://")[0]
        raise StorageError(f"storage.uri={kind}://...: use s3://bucket/prefix or the path of a folder")
    return LocalStore(Path(address))
