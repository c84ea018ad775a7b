"""HTTP clients by the environment's variables for proxies and certificates, and errors that name these."""

import ssl
from typing import Any
from urllib.parse import urlsplit
from urllib.request import (
    getproxies_environment,
    proxy_bypass_environment,  # pyright: ignore[reportAttributeAccessIssue] not in its stubs
)

import httpx

from cooper_rl.addresses import redact
from cooper_rl.errors import ConfigError

_WRONG_TIMES = (9, 10)
"""OpenSSL's codes of certificates that are not valid yet, or no more."""
CONNECT_SECONDS = 10.0
"""A server that is there takes a connection at once, however long it thinks about its answer."""


def open_client(seconds: float, **options: Any) -> httpx.Client:
    """A client whose server may be silent for so long.

    Raises:
        ConfigError: a variable of the environment cannot be used.
    """
    try:
        return httpx.Client(timeout=time_limits(seconds), **options)
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"no HTTP client can be made ({error}); correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, "
            "SSL_CERT_FILE and SSL_CERT_DIR"
        ) from error


def time_limits(seconds: float) -> httpx.Timeout:
    """Limits of a request whose server may be silent for so long."""
    return httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))


def describe(error: Exception, url: str) -> str:
    """An error of a request in words, and what of this machine's environment may be the reason."""
    remedy = ""
    if (cause := distrust_in(error)) is not None:
        remedy = ", the certificate is not trusted: name a PEM file with its authority in SSL_CERT_FILE"
        if cause.verify_code in _WRONG_TIMES:
            remedy = ", the certificate is not valid now: renew it, or set this machine's clock"
    return f"{type(error).__name__}: {error}{remedy}{through(url)}"


def distrust_in(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """The refusal of a certificate that an error came from, or None."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause


def through(url: str) -> str:
    """The proxy that an address is asked through, in words to append to an error; empty without one."""
    try:
        parts = urlsplit(url)
    except ValueError:  # an address that nobody can ask
        return ""
    proxies = getproxies_environment()
    host = parts.hostname or ""
    if proxy_bypass_environment(host, proxies):
        return ""
    for kind in (parts.scheme, "all"):
        if proxy := proxies.get(kind):
            return (
                f", asked through the proxy {redact(proxy)} of {kind.upper()}_PROXY: if {host} needs none, "
                "name it in NO_PROXY"
            )
    return ""
