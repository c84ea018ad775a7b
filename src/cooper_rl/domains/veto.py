"""The veto: a completion that the domain's rules find wrong has the score 0, whatever the model says of it.

No text can talk to rules. In mathematics they refute a completion that states another answer, one in which
the reference answer is a number and stands nowhere, and one that lists answers (`Domain.refutes`); everything
else is left to the model. docs/how-to/red_team.md says what that costs and what remains.
"""

from typing import Any

from cooper_rl.domains.base import Refutes
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import ConfigError, ModelError

KEY = "verify_rm_veto"
"""The key in a model's `config.json`: the name of the domain whose rules decide. None or absent: no veto."""


def note_veto(model: Any, *, domain: str | None) -> None:
    """Note in a model's configuration whose rules can veto its scores; None: nobody's.

    To be called before the model's first score, since `VerifyRM.veto` reads the note once.

    Raises:
        ConfigError: no such domain is registered, or it has no rules for a veto.
    """
    if domain is not None and find_domain(domain).refutes is None:
        raise ConfigError(
            f"verify_rm.veto=true: problems.domain={domain!r} has no rules that refute a completion "
            "(Domain.refutes); set verify_rm.veto=false"
        )
    setattr(model.config, KEY, domain)


def veto_of(model: Any) -> Refutes | None:
    """The rules that can veto a model's scores; None: no veto, as in the paper.

    Raises:
        ModelError: its configuration names a domain that is not registered, or has no such rules.
    """
    name = getattr(model.config, KEY, None)
    if name is None:
        return None
    try:
        refutes = find_domain(name).refutes
    except ConfigError as error:
        raise ModelError(
            f"{model.name_or_path}: the rules of problems.domain={name!r} can veto this VerifyRM's scores "
            f"({KEY} in config.json), and {error}"
        ) from error
    if refutes is None:
        raise ModelError(
            f"{model.name_or_path}: {KEY} in config.json is {name!r}, a domain without rules for a veto; "
            "remove the key"
        )
    return refutes
