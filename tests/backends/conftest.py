"""Servers for the tests of this folder."""

from tests.servers.fixtures import bucket, gateway, s3_server
from tests.servers.verify_rm import serve

__all__ = ["bucket", "gateway", "s3_server", "serve"]
