"""The veto: a completion that is certainly wrong has the score 0, whatever the model says of it.

The domain's rules decide, and no text can talk to them. They are certain of two completions:

- The reference answer can be looked for by its value, and stands nowhere in what VerifyRM reads of the
  completion. A universal text then has to name the right answer of every problem.
- The completion states another answer, which is compared without algebra.

Everything else is left to the model. docs/how-to/red_team.md says what that costs and what remains.
"""

from typing import Any

from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import find_domain
from cooper_rl.errors import ConfigError, ModelError

KEY = "verify_rm_veto"
"""The key in a model's `config.json`: the name of the domain whose rules decide. None or absent: no veto."""


def note_veto(model: Any, *, domain: str | None) -> None:
    """Note in a model's configuration whose rules can veto its scores; None: nobody's.

    To be called before the model's first score, since `VerifyRM.veto` reads the note once.
    """
    setattr(model.config, KEY, domain)


def veto_of(model: Any) -> Domain | None:
    """The domain whose rules can veto a model's scores; None: no veto, as in the paper.

    Raises:
        ModelError: its configuration names a domain that is not registered.
    """
    name = getattr(model.config, KEY, None)
    if name is None:
        return None
    try:
        return find_domain(name)
    except ConfigError as error:
        raise ModelError(
            f"{model.name_or_path}: the rules of problems.domain={name!r} can veto this VerifyRM's scores "
            f"({KEY} in config.json), and {error}"
        ) from error


def is_vetoed(domain: Domain, question: str, reference_answer: str, completion: str, *, read: str) -> bool:
    """True if the domain's rules are certain that a completion is wrong.

    Args:
        domain: Decides.
        question: Tells in which other forms the answer may be stated.
        reference_answer: Of the question.
        completion: All of it: what it states may stand where VerifyRM does not read.
        read: The parts of it that VerifyRM reads. An answer elsewhere is no reason to pay what stands here.
    """
    given = (question, reference_answer)
    if domain.check_mention(*given, read) == "incorrect" and not domain.holds_answer(*given, read):
        return True
    return domain.find_contradiction is not None and domain.find_contradiction(*given, completion) is not None
