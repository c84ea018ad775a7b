"""Configuration of the HTTP servers. Set on the command line; no preset holds it."""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from cooper_rl.config import names
from cooper_rl.config.data import RuleConfig
from cooper_rl.config.section import Section


class HttpConfig(Section):
    """Address, access and limits of any server."""

    host: str = "127.0.0.1"
    """Address to listen on. One that other machines reach, such as 0.0.0.0, needs `token_file` and TLS."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port to listen on; 0: any free port."""
    token_file: Path | None = None
    """File with the bearer tokens that are accepted, one a line, read again for every request: a mounted
    secret can be rotated. All paths but /healthz and /readyz need one. None: everybody may ask."""
    tls_certificate: Path | None = None
    """PEM file of the server's certificate and its chain; needs `tls_key`."""
    tls_key: Path | None = None
    """PEM file of the certificate's private key."""
    unprotected: tuple[Literal["token", "tls"], ...] = ()
    """Protections that this server leaves to something in front of it, for requests of other machines:
    `["tls"]` behind a proxy or mesh that encrypts, `["token", "tls"]` where a network policy decides who may
    ask."""
    max_items_per_request: int = Field(default=256, ge=1)
    """A request with more items is refused."""
    max_chars_per_field: int = Field(default=100_000, ge=1)
    """Longer questions, answers and completions are refused; VerifyRM reads 1,500 characters of each."""
    max_body_bytes: int = Field(default=16_000_000, ge=1)
    """A request with a larger body is refused."""
    max_buffered_bytes: int = Field(default=64_000_000, ge=1)
    """Bytes of all bodies together that arrive or wait for their answer; beyond that, requests are answered
    429."""
    max_header_bytes: int = Field(default=16_384, ge=1)
    """A request with a larger header is refused."""
    max_connections: int = Field(default=2048, ge=1)
    """Open connections; beyond that, requests are answered 503, and beyond twice as many, connections are
    closed."""
    request_seconds: float = Field(default=10.0, gt=0)
    """The time that a client has to send a whole request, header and body."""
    idle_seconds: int = Field(default=5, ge=1)
    """The longest time that a connection may be idle between two requests."""
    max_waiting_items: int = Field(default=4096, ge=1)
    """Items that may wait for their answer, at least `max_items_per_request`; beyond that, requests are
    answered 429."""
    stuck_seconds: float = Field(default=300.0, gt=0)
    """/healthz fails after this long with one batch, so that an orchestrator starts the server again."""
    grace_seconds: float = Field(default=25.0, ge=0)
    """How long requests in progress may take after SIGTERM; orchestrators kill after 30 s by default."""

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        if self.max_waiting_items < self.max_items_per_request:
            raise ValueError(
                f"max_waiting_items={self.max_waiting_items} holds no request of "
                f"max_items_per_request={self.max_items_per_request}; raise the one or lower the other"
            )
        if self.max_buffered_bytes < self.max_body_bytes:
            raise ValueError(
                f"max_buffered_bytes={self.max_buffered_bytes} holds no body of "
                f"max_body_bytes={self.max_body_bytes}; raise the one or lower the other"
            )
        return self

    @model_validator(mode="after")
    def _is_protected(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together; give both files or neither")
        if is_loopback(self.host):
            return self
        if self.token_file is None and "token" not in self.unprotected:
            raise ValueError(
                f"host={self.host} answers other machines, and everybody may ask: set token_file=FILE, or "
                "unprotected='[\"token\"]' where something else decides who may"
            )
        if self.tls_certificate is None and "tls" not in self.unprotected:
            raise ValueError(
                f"host={self.host} answers other machines without TLS: texts and tokens can be read on the "
                "way: set tls_certificate=FILE and tls_key=FILE, or unprotected='[\"tls\"]' where "
                "something else encrypts"
            )
        return self


class ServeConfig(HttpConfig):
    """`serve-verify-rm`: scores for single completions."""

    max_tokens_per_request: int = Field(default=262_144, ge=1)
    """Tokens of all items of a request, counted as VerifyRM reads them; more are refused."""
    max_items_per_batch: int = Field(default=64, ge=1)
    """Most items, from all waiting requests, that are scored in one batch."""
    max_tokens_per_batch: int = Field(default=16_384, ge=1)
    """Most tokens of one batch, which is one forward pass. A new request waits at least until the batch in
    progress is done."""
    max_wait_seconds: float = Field(default=0.005, ge=0)
    """How long the first waiting request waits for others to join its batch."""


def _check_pattern(pattern: str) -> str:
    try:
        num_groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
    if not num_groups:
        raise ValueError(f"{pattern!r} has no group: put parentheses round what is the question")
    return pattern


class LearnConfig(HttpConfig):
    """`serve --learn`: rewards for whole batches, from which VerifyRM learns."""

    max_items_per_request: int = Field(default=8192, ge=1)
    """A request with more completions is refused."""
    max_chars_per_field: int = Field(default=1_000_000, ge=1)
    """A request with a longer question, answer or completion is refused, which ends the training that sent
    it. The rule verifier reads all of a text, VerifyRM 1,500 characters."""
    max_waiting_items: int = Field(default=16_384, ge=1)
    """Completions of a run that may wait; beyond that, requests are answered 429."""
    max_body_bytes: int = Field(default=64_000_000, ge=1)
    """A request with a larger body is refused."""
    max_buffered_bytes: int = Field(default=256_000_000, ge=1)
    """Bytes of all bodies together that arrive or wait for their answer; beyond that, requests are answered
    429."""
    max_runs: int = Field(default=4, ge=1)
    """Runs that the server keeps, each with a VerifyRM of its own; requests of any further run are
    refused."""
    collect_items: int | None = Field(default=None, ge=1)
    """Completions that come one by one (`learn=later`, OpenRLHF, veRL) become one batch to learn from when
    this many have come. Set it to the rollouts of one training step. None: such requests are refused."""
    kept_rewards: int = Field(default=100_000, ge=1)
    """Newest rewards of a run that are kept for repeated requests; a repeated request that is older counts as
    new."""
    question_pattern: Annotated[str, AfterValidator(_check_pattern)] | None = None
    """OpenRLHF sends templated prompts: a regular expression whose first group is the question, such as
    `(?s)<\\|im_start\\|>user\\n(.*?)<\\|im_end\\|>`. None: the whole prompt is the question."""
    end_tokens: tuple[Annotated[str, Field(min_length=1)], ...] = (
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<end_of_turn>",
        "<eos>",
        "</s>",
    )
    """Special tokens of the policy, which OpenRLHF sends too. They are cut off the end of a completion."""
    cooper: Mapping[str, Any] = {}
    """Settings for VerifyRM's learning: keys of `CooperReward(config=...)`, e.g. `cooper.reward.lr=1e-5`."""
    rule: RuleConfig = RuleConfig()
    domain: Annotated[str, AfterValidator(names.DOMAINS.check)] = names.DOMAINS.names[0]
    """The subject of the problems, as in `problems.domain`."""
    seed: int = 0
    """Seed of positives, sources of negatives, replay and gate; the same for all runs."""


def is_loopback(host: str) -> bool:
    """True if only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return False
