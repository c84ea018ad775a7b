"""Finds a domain by its name; the shipped ones are registered here."""

from cooper_rl.config.data import ProblemsConfig
from cooper_rl.domains.base import DOMAINS, Domain
from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.domains.programs import PROGRAMS

DOMAINS.register(MATHEMATICS.name, MATHEMATICS)
DOMAINS.register(PROGRAMS.name, PROGRAMS)


def find_domain(name: str) -> Domain:
    """The domain of this name.

    Raises:
        ConfigError: none is registered.
    """
    return DOMAINS[name]


def default_domain() -> Domain:
    """The domain of a configuration that names none."""
    return find_domain(ProblemsConfig.model_fields["domain"].default)
