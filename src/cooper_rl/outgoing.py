"""HTTP clients by the environment's variables for proxies and certificates, and errors that name these."""

import errno
import os
import ssl
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import (
    getproxies_environment,
    proxy_bypass_environment,  # pyright: ignore[reportAttributeAccessIssue] not in its stubs
)

import certifi
import httpx

from cooper_rl.addresses import redact
from cooper_rl.errors import ConfigError

_WRONG_TIMES = (9, 10)
"""OpenSSL's codes of certificates that are not valid yet, or no more."""
CONNECT_SECONDS = 10.0
"""A server that is there takes a connection at once, however long it thinks about its answer."""
ACCEPTED = {"accept-encoding": "gzip"}
"""Headers that ask for what `unpack` reads. httpx asks for more where more is installed, and unpacks it
without a bound."""
PIECE_BYTES = 1 << 20
_PACKED_BYTES = 1 << 16
"""Unpacked at a time: at the end of each gzip file zlib copies what follows it."""
_GZIP_HEADER = zlib.MAX_WBITS | 16


def basic_authorization(user: str) -> dict[str, str]:
    """The header that gives a `user:password`."""
    return {"Authorization": f"Basic {b64encode(user.encode()).decode()}"}


def can_be_asked(address: str) -> bool:
    """False for an address at which httpx or the system would raise: its faults are found in three places."""
    try:
        url = httpx.URL(address)
        # A host in Punycode is read first here. The system asks for it by this codec, which bounds its parts.
        return bool(url.host and url.raw_host.decode().encode("idna"))
    except (httpx.InvalidURL, TypeError, UnicodeError):
        return False


def open_client(seconds: float, *, headers: Mapping[str, str] | None = None, **options: Any) -> httpx.Client:
    """A client whose server may be silent for so long; `unpack` reads the bodies that it gets.

    Raises:
        ConfigError: a variable of the environment cannot be used.
    """
    try:
        return httpx.Client(
            timeout=time_limits(seconds),
            headers=ACCEPTED | dict(headers or {}),
            cookies=CookieJar(_SendableCookies()),
            **options,
        )
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"no HTTP client can be made ({error}); correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY, "
            "SSL_CERT_FILE and SSL_CERT_DIR"
        ) from error


class _SendableCookies(DefaultCookiePolicy):
    """Cookies outside ASCII are not kept: httpx ends in a UnicodeEncodeError when it sends one back."""

    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        return super().set_ok(cookie, request) and f"{cookie.name}{cookie.value}".isascii()


def unpack(parts: Iterable[bytes], headers: Mapping[str, str]) -> Iterator[bytes]:
    """The parts of an answer's body, unpacked as its headers say, in pieces of at most `PIECE_BYTES`.

    Raises:
        httpx.DecodingError: it is packed in another way than was asked for, damaged, or cut short.
    """
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        yield from parts
        return
    if encoding not in ("gzip", "x-gzip"):  # the same, RFC 9110
        raise httpx.DecodingError(f"the answer is packed as {encoding[:50]!r}, which was not asked for")
    unpacker = zlib.decompressobj(_GZIP_HEADER)
    try:
        for packed in _cut(parts):
            while packed:
                if unpacker.eof:  # several gzip files in a row are one, and zeros may follow
                    packed = packed.lstrip(b"\0")
                    if not packed:
                        break
                    unpacker = zlib.decompressobj(_GZIP_HEADER)
                yield unpacker.decompress(packed, PIECE_BYTES)
                packed = unpacker.unconsumed_tail or unpacker.unused_data
        yield unpacker.flush()
    except zlib.error as error:
        raise httpx.DecodingError(f"the answer is no gzip: {error}") from error
    if not unpacker.eof:
        raise httpx.DecodingError("the answer ends in the middle of its gzip")


def _cut(parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        for start in range(0, len(part), _PACKED_BYTES):
            yield part[start : start + _PACKED_BYTES]


def time_limits(seconds: float) -> httpx.Timeout:
    """Limits of a request whose server may be silent for so long."""
    return httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))


def authorities() -> str:
    """PEM file of the authorities to trust: that of SSL_CERT_FILE, as in httpx, or the public ones."""
    return os.environ.get("SSL_CERT_FILE") or certifi.where()


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


class Obstacle(NamedTuple):
    """The reason why something of the Hugging Face hub did not come to this machine."""

    reason: str
    remedy: str


def hub_obstacle(error: BaseException) -> Obstacle | None:
    """The cause of an error of the hub's libraries; None: none that is known.

    They wrap an error several times, and the last one often blames something else: a repository that needs
    a licence does not exist there, and a full disk is a lost connection.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    chain = list(_chain(error))
    for cause in chain:
        code = cause.errno if isinstance(cause, OSError) else None
        if code in (errno.ENOSPC, errno.EDQUOT) or any(text in str(cause) for text in _FULL):
            return Obstacle(
                f"the disk is full ({_line(cause)})",
                f"free space below {constants.HF_HOME}, or name a larger place in HF_HOME",
            )
    for cause in chain:
        # `datasets` drops the hub's error from the chain, and keeps its meaning in the text of its own.
        of_data = type(cause).__name__ == "DatasetNotFoundError"
        if isinstance(cause, GatedRepoError) or (of_data and "gated dataset" in str(cause)):
            return Obstacle(
                "its owner lets in only who accepted its conditions",
                "accept them on its page of the hub, and give your token (HF_TOKEN, or hf auth login)",
            )
        if isinstance(cause, RepositoryNotFoundError) or of_data:
            return Obstacle(
                "the hub has no such repository, or shows it to nobody without a right to it",
                "check owner/name, or give a token that may read it (HF_TOKEN, or hf auth login)",
            )
        if isinstance(cause, HfHubHTTPError) and (status := cause.response.status_code) in (401, 403):
            return Obstacle(
                f"the hub refuses it ({status})",
                "give a token that may read it (HF_TOKEN, or hf auth login)",
            )
    return None


_FULL = ("No space left on device", "Not enough disk space")
"""Of libraries that give no number of the system's."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those before it, also where one was raised `from None`."""
    seen: set[int] = set()
    following = [error]
    while following:
        found = following.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        following += [each for each in (found.__context__, found.__cause__) if each is not None]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


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
