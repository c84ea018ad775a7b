"""Parts that a configuration key chooses by name: those that ship, and those that a program registers.

`Names` are declared before any part is imported, so that the configuration checks a name without importing
torch. The module that owns the parts makes the `Registry` over them. See `docs/how-to/extending.md`.
"""

from typing import Generic, TypeVar

from cooper_rl.errors import ConfigError

T = TypeVar("T")


class Names:
    """The names that one configuration key takes."""

    def __init__(self, key: str, *shipped: str) -> None:
        """`key` is the dotted configuration key; `shipped` are the names that need no registration."""
        self.key = key
        self._names = list(shipped)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that the key takes, shipped ones first."""
        return tuple(self._names)

    def add(self, name: str) -> None:
        """Take one more."""
        if name not in self._names:
            self._names.append(name)

    def check(self, name: str) -> str:
        """The name itself, for a validator of the configuration.

        Raises:
            ValueError: there is no such part.
        """
        if name not in self._names:
            raise ValueError(
                f"{self.key}={name}: use one of {', '.join(self._names)}, or register a part of your own "
                "before the configuration is read (docs/how-to/extending.md)"
            )
        return name


class Registry(Generic[T]):
    """Name -> part, for one configuration key."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._parts: dict[str, T] = {}

    def register(self, name: str, part: T) -> None:
        """Add a part under a new name.

        Raises:
            ConfigError: the name has a part already.
        """
        if name in self._parts:
            raise ConfigError(
                f"{self._names.key}={name} is registered already: {self._parts[name]}; choose another name"
            )
        self._names.add(name)
        self._parts[name] = part

    def __getitem__(self, name: str) -> T:
        """The part of this name.

        Raises:
            ConfigError: none was registered.
        """
        if name not in self._parts:
            raise ConfigError(f"{self._names.key}={name}: nothing is registered under this name")
        return self._parts[name]
