"""The judge and the assistant that a configuration means, and a trial of their servers.

The laptop's own are imported only when asked for, and so is the client of a server. Stages load models.

A trial is one small request to each server before anything is trained or paid for: `check_settings` asks. A
judge that is down is found in seconds there, instead of after hours in a GPU's pod.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence

from cooper_rl.addresses import redact
from cooper_rl.config.data import AssistantConfig, JudgeConfig, ServerConfig
from cooper_rl.config.root import Config
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import ConfigError, ServerError
from cooper_rl.machine.daemon_pool import DaemonPool
from cooper_rl.method.prompts import ChatPrompt
from cooper_rl.negatives.pairs import Assistant
from cooper_rl.schema.data import Problem
from cooper_rl.verdicts.hybrid import Judge

logger = logging.getLogger(__name__)

TINY_SOURCES = ("tiny", "tiny-blind")
"""`Problem.source` in the laptop world (`tiny/problems.py`)."""

PROMPT = ChatPrompt("Answer with one word.", "Say yes.")
NUM_TRIES, PAUSE_SECONDS = 2, 1.0
TIMEOUT_SECONDS = 20.0
MAX_TOKENS = 16

Keys = tuple[str, ...]
"""Dotted keys of the sections that name one server."""


def check_fits(
    section: JudgeConfig | AssistantConfig | None, problems: Iterable[Problem], *, key: str
) -> None:
    """Refuse the laptop's judge or assistant for problems that it was not made for; `key` is the section's.

    They read short English solutions of the laptop world only, and a tiny judge may err on purpose.

    Raises:
        ConfigError: naming the first other problem, and the overrides that help.
    """
    if section is None or section.server is not None:
        return
    other = next((problem for problem in problems if problem.source not in TINY_SOURCES), None)
    if other is None:
        return
    server = f"{key}.server.base_url=URL {key}.server.model=NAME"
    if isinstance(section, JudgeConfig):
        who = f"{key}.tiny_error_rate={section.tiny_error_rate:g} is the laptop's judge"
        remedy = f"{key}=null for the rule alone, or {server} {key}.tiny_error_rate=null for a chat server"
    else:
        who = f"{key}.tiny=true is the laptop's assistant"
        remedy = f"{server} {key}.tiny=false for a chat server, or cooper.reward.update_verify_rm=false"
    raise ConfigError(
        f"{who}, which reads the laptop world's problems only (source {TINY_SOURCES[0]!r}), and problem "
        f"{other.id!r} has source {other.source!r}; set {remedy}"
    )


def open_judge(config: JudgeConfig, seed: int, domain: Domain | None = None) -> Judge:
    """The judge of the configuration; `seed` decides which verdicts the laptop's judge gets wrong."""
    if config.server is not None:
        from cooper_rl.servers.judge import ChatJudge

        return ChatJudge(config.server, domain)
    from cooper_rl.tiny.judge import TinyJudge
    from cooper_rl.tiny.world import find_world

    world = find_world((domain or default_domain()).name)
    return TinyJudge(config.tiny_error_rate or 0.0, seed, exact=world.judge)


def open_assistant(config: AssistantConfig, domain: Domain | None = None) -> Assistant:
    """The assistant of the configuration."""
    if config.server is not None:
        from cooper_rl.servers.assistant import ChatAssistant

        return ChatAssistant(config.server, domain)
    from cooper_rl.tiny.world import find_world

    return find_world((domain or default_domain()).name).assistant


def servers_of(config: Config) -> list[tuple[Keys, ServerConfig]]:
    """Every chat server that a run with this configuration asks, once, with the keys that name it."""
    sections = {**config.labeling.judges(), "evaluation.judge": config.evaluation.judge}
    servers = {key: section.server for key, section in sections.items() if section is not None}
    cooper = config.cooper
    if cooper.asks_judge and cooper.judge is not None:
        servers["cooper.judge"] = cooper.judge.server
    pairs = cooper.pairs
    if cooper.trains_verify_rm and pairs.negatives.assistant and pairs.assistant is not None:
        servers["cooper.pairs.assistant"] = pairs.assistant.server
    found: dict[tuple[str, str, str | None], tuple[Keys, ServerConfig]] = {}
    for key, server in servers.items():
        if server is not None:
            same = (server.base_url, server.model, server.api_key_env)
            keys, _ = found.get(same, ((), server))
            found[same] = ((*keys, key), server)
    return list(found.values())


def try_servers(servers: Sequence[tuple[Keys, ServerConfig]]) -> None:
    """Ask each of them for one word, all at once.

    Raises:
        ConfigError: an address or a key cannot be used.
        ServerError: one does not answer, or refuses; the message has the keys that name it.
    """
    with DaemonPool(max_workers=max(1, len(servers))) as pool:
        for found in [pool.submit(_try_server, keys, server) for keys, server in servers]:
            found.result()


def _try_server(keys: Keys, server: ServerConfig) -> None:
    from cooper_rl.servers.chat import ChatClient

    # A profile may give the key to the tasks that work with it alone: then 401 is an answer too.
    lacks_key = server.api_key_env is not None and not os.environ.get(server.api_key_env, "").strip()
    changes = _small(server) | ({"api_key_env": None} if lacks_key else {})
    try:
        reason = _ask_patiently(ChatClient(server.model_copy(update=changes)).probe)
    except ConfigError as error:
        mark = "." if str(error).startswith("server.") else ": "
        raise ConfigError(f"{keys[0]}{mark}{error}") from error
    except ServerError as refusal:
        reason = None if lacks_key else str(refusal)
    if reason is not None:
        raise ServerError(_explain(keys, server, reason))
    logger.info("%s: %s answers", " and ".join(keys), redact(server.base_url))


def _ask_patiently(probe: Callable[[ChatPrompt], str | None]) -> str | None:
    """Why there is no answer, after the last try; None where there is one."""
    reason = probe(PROMPT)
    for _ in range(NUM_TRIES - 1):
        if reason is None:
            break
        time.sleep(PAUSE_SECONDS)
        reason = probe(PROMPT)
    return reason


def _small(server: ServerConfig) -> dict[str, object]:
    """The settings that make a request of a trial small, quick, and free of the run's budgets."""
    return {
        "timeout_seconds": min(server.timeout_seconds, TIMEOUT_SECONDS),
        "max_tokens": min(server.max_tokens, MAX_TOKENS),
        "max_requests": None,
        "max_total_tokens": None,
        "max_cost": None,
    }


def _explain(keys: Keys, server: ServerConfig, reason: str) -> str:
    off = [
        "cooper.reward.update_verify_rm=false" if key == "cooper.pairs.assistant" else f"{key}=null"
        for key in keys
    ]
    return (
        f"{' and '.join(keys)}: {redact(server.base_url)} does not answer as model {server.model!r} "
        f"({reason}); start it and look at its log, or correct {keys[0]}.server.base_url and "
        f"{keys[0]}.server.model. A run that needs no such server leaves it out: {', '.join(off)}"
    )
