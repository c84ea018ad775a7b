"""A listening server: address, TLS and time limits of uvicorn, and its end on SIGTERM."""

import logging
import os
import resource
import signal
import socket
import ssl
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Never

import uvicorn
from fastapi import FastAPI

from cooper_rl.config.serve import HttpConfig
from cooper_rl.errors import ConfigError
from cooper_rl.servers.deadline import with_deadline
from cooper_rl.servers.guard import read_tokens
from cooper_rl.servers.numbers import HttpNumbers

ARRIVAL_SHARE = 0.2
"""Of the grace period: how long requests may go on arriving."""
DRAIN_SHARE = 0.8
"""Likewise: until then requests may finish, afterwards the batch of the moment may."""
CROWD = 2
"""Times `max_connections`: beyond that, connections are closed without an answer."""
BACKLOG = 128
"""Connections that are taken before one of them can be closed."""
SPARE_FILES = 2 * BACKLOG
"""Open files beside connections that may stay: those that are about to be closed, and the process's own."""
EXIT_STUCK = 1
EXIT_NOT_STARTED = 3
"""As uvicorn's own command has it."""


class _Server(uvicorn.Server):
    """Writes down when it was first asked to end, for `rest_of_grace`."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        app = self.config.app
        assert isinstance(app, FastAPI), "`listen` gave it"
        app.state.asked_to_end = getattr(app.state, "asked_to_end", time.monotonic())
        super().handle_exit(sig, frame)


def rest_of_grace(app: FastAPI, config: HttpConfig) -> float:
    """Seconds that are left for the work of the moment once requests are done; at least one."""
    asked = getattr(app.state, "asked_to_end", None)
    if asked is None:
        return max(1.0, config.grace_seconds * (1 - DRAIN_SHARE))
    # Requests may have been done at once: all that they left is the work's.
    return max(1.0, asked + config.grace_seconds - time.monotonic())


def listen(app: FastAPI, config: HttpConfig, numbers: HttpNumbers) -> None:
    """Answer requests until SIGTERM or Ctrl-C, then finish those in progress."""
    max_open = _allow_open(CROWD * config.max_connections)
    # uvicorn drains, then raises the signal again for whoever handled it before: without a handler the
    # process would end as if killed.
    signal.signal(signal.SIGTERM, lambda *_: None)
    settings = uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        http=with_deadline(
            config.request_seconds,
            numbers.aborted.labels("sent").inc,
            shutdown_seconds=config.grace_seconds * ARRIVAL_SHARE,
            max_open=max_open,
            on_crowd=numbers.rejected.labels("connections").inc,
        ),
        backlog=BACKLOG,
        ws="none",
        h11_max_incomplete_event_size=config.max_header_bytes,
        limit_concurrency=config.max_connections,
        timeout_keep_alive=config.idle_seconds,
        timeout_graceful_shutdown=round(config.grace_seconds * DRAIN_SHARE),
        ssl_certfile=config.tls_certificate,
        ssl_keyfile=config.tls_key,
        server_header=False,
        log_config=None,
        access_log=False,
    )
    server = _Server(settings)
    with suppress(KeyboardInterrupt):  # raised again by uvicorn when it has ended
        server.run()
    if not server.started:
        sys.exit(EXIT_NOT_STARTED)


def _allow_open(wanted: int) -> int:
    """The number of connections that may be open: as many as wanted, if the system allows so many open files.

    The limit of this process, usually 1,024, is raised as far as that takes.
    """
    unlimited = resource.RLIM_INFINITY
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_FILES
    if soft != unlimited and soft < needed:
        with suppress(OSError, ValueError):  # macOS allows fewer than its hard limit says
            allowed = needed if hard == unlimited else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == unlimited else min(wanted, max(soft - SPARE_FILES, soft // 2))


def end_at_once() -> Never:
    """End this process although a thread hangs: it may be inside a library whose clean-up waits for it."""
    logging.shutdown()
    os._exit(EXIT_STUCK)


def check_listening(config: HttpConfig) -> None:
    """Find out before a model is loaded whether the server could listen.

    Raises:
        ConfigError: the address, a token, certificate or key cannot be used.
    """
    check_files(config)
    check_address(config)


def check_address(config: HttpConfig) -> None:
    """Find out whether the port is free.

    Raises:
        ConfigError: it is not, or this machine does not have the address.
    """
    try:
        with socket.create_server(
            (config.host, config.port), family=socket.AF_INET6 if ":" in config.host else socket.AF_INET
        ):
            return
    except OSError as error:
        raise ConfigError(
            f"host={config.host}, port={config.port}: cannot be listened on ({error.strerror}); end what "
            "uses the port, or choose another one"
        ) from error


def check_files(config: HttpConfig) -> None:
    """Find out before the model answers whether token, certificate and key can be used.

    Raises:
        ConfigError: naming the file.
    """
    if config.token_file is not None:
        read_tokens(config.token_file)
    if config.tls_certificate is None or config.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.tls_certificate, config.tls_key)
    except OSError as error:  # an SSLError is one
        raise ConfigError(
            f"tls_certificate={config.tls_certificate}, tls_key={config.tls_key}: cannot be used "
            f"({error}); give PEM files that belong together"
        ) from error
