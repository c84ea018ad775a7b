"""Servers for the tests of this folder."""

from tests.servers.fixtures import bucket, gateway, s3_server

__all__ = ["bucket", "gateway", "s3_server"]
