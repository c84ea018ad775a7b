"""Which judge and which assistant a configuration means; shared by the stages that need one.

The laptop's own are imported only when asked for. Deliberately left out: models, which the stages load.
"""

from cooper_rl.config import AssistantConfig, JudgeConfig
from cooper_rl.core.labeling import Judge
from cooper_rl.core.pairs import Assistant


def open_judge(config: JudgeConfig, seed: int) -> Judge:
    """The judge of the configuration; `seed` decides which verdicts the laptop's judge gets wrong."""
    if config.server is not None:
        from cooper_rl.backends.chat import ChatJudge

        return ChatJudge(config.server)
    from cooper_rl.tiny.judge import TinyJudge

    return TinyJudge(config.tiny_error_rate or 0.0, seed)


def open_assistant(config: AssistantConfig) -> Assistant:
    """The assistant of the configuration."""
    if config.server is not None:
        from cooper_rl.backends.chat import ChatAssistant

        return ChatAssistant(config.server)
    from cooper_rl.tiny.assistant import TinyAssistant

    return TinyAssistant()
