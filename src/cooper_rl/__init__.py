"""Cooper-RL: a verifier of answers, a reward model that reads the reference answer, a reward that learns.

The names in `__all__` are the public API; every other module is private and may change in any release.
A name is imported when it is first used, so that `import cooper_rl` loads neither torch nor transformers.

    >>> from cooper_rl import verify
    >>> verify("1/2", r"The answer is \\boxed{0.5}.").verdict
    'correct'

Documentation: docs/reference/python_api.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cooper_rl.api.client import RewardClient
    from cooper_rl.api.labels import Labelled, label
    from cooper_rl.api.models import load_verify_rm, train_verify_rm
    from cooper_rl.api.reward import CooperReward
    from cooper_rl.api.verify import verify, verify_many
    from cooper_rl.config.cooper import CooperConfig
    from cooper_rl.config.data import AnswerPolicy, LabelingConfig, RuleConfig
    from cooper_rl.config.models import VerifyRMConfig
    from cooper_rl.errors import CooperError
    from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, save_verify_rm
    from cooper_rl.schema.data import PreferencePair, VerifyExample
    from cooper_rl.verdicts.answers.verify import AnswerCheck
    from cooper_rl.verdicts.rule import RuleVerifier

__all__ = [
    "AnswerCheck",
    "AnswerPolicy",
    "CooperConfig",
    "CooperError",
    "CooperReward",
    "LabelingConfig",
    "Labelled",
    "PreferencePair",
    "RewardClient",
    "RuleConfig",
    "RuleVerifier",
    "VerifyExample",
    "VerifyItem",
    "VerifyRM",
    "VerifyRMConfig",
    "label",
    "load_verify_rm",
    "save_verify_rm",
    "train_verify_rm",
    "verify",
    "verify_many",
]

_MODULES = {
    "AnswerCheck": "verdicts.answers.verify",
    "AnswerPolicy": "config.data",
    "CooperConfig": "config.cooper",
    "CooperError": "errors",
    "CooperReward": "api.reward",
    "Labelled": "api.labels",
    "LabelingConfig": "config.data",
    "PreferencePair": "schema.data",
    "RewardClient": "api.client",
    "RuleConfig": "config.data",
    "RuleVerifier": "verdicts.rule",
    "VerifyExample": "schema.data",
    "VerifyItem": "models.verify_rm",
    "VerifyRM": "models.verify_rm",
    "VerifyRMConfig": "config.models",
    "label": "api.labels",
    "load_verify_rm": "api.models",
    "save_verify_rm": "models.verify_rm",
    "train_verify_rm": "api.models",
    "verify": "api.verify",
    "verify_many": "api.verify",
}
"""Public name -> the module that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'cooper_rl' has no attribute {name!r}; public are {', '.join(__all__)}")
    value = getattr(import_module(f"cooper_rl.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
