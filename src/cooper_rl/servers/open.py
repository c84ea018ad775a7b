"""The judge and the assistant that a configuration means; shared by the stages that need one.

The laptop's own are imported only when asked for. Stages load models.
"""

from collections.abc import Iterable

from cooper_rl.config.data import AssistantConfig, JudgeConfig
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import ConfigError
from cooper_rl.negatives.pairs import Assistant
from cooper_rl.schema.data import Problem
from cooper_rl.verdicts.hybrid import Judge

TINY_SOURCES = ("tiny", "tiny-blind")
"""`Problem.source` in the laptop world (`tiny/problems.py`)."""


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
