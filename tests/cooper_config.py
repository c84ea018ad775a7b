"""`CooperConfig` from dotted keys, as short as a test wants to write them."""

from typing import Any

from cooper_rl.config.cooper import CooperConfig


def cooper_config(**values: Any) -> CooperConfig:
    """The laptop's assistant and the given keys; `policy__lr=1e-3` sets `cooper.policy.lr`."""
    nested: dict[str, Any] = {"pairs": {"assistant": {"tiny": True}}}
    for key, value in values.items():
        *sections, leaf = key.split("__")
        section = nested
        for name in sections:
            section = section.setdefault(name, {})
        section[leaf] = value
    return CooperConfig.model_validate(nested)
