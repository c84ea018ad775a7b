"""Every error that Cooper-RL raises on purpose.

A message names the value, the place (file:row, dotted key, URL) and the remedy.

    CooperError
    ├── ConfigError      unknown preset or key, wrong type, contradictory values
    ├── DataError        a file or a row: missing, malformed, empty, duplicated
    ├── HackingError     the monitor found that the policy exploits VerifyRM, and is configured to stop
    ├── ModelError       a checkpoint: missing, incomplete, another architecture, no tokenizer
    ├── ServerError      judge or assistant: unreachable, refused, unintelligible
    ├── StorageError     where checkpoints are kept: unreachable, refused, full, misused
    │   ├── DamagedObjectError   an object is missing or is not what was written
    │   └── WriteConflictError   somebody else wrote first
    ├── LaunchError      a job on the cluster that cannot be started or followed, or that failed
    ├── StoppedError     a signal asked the run to end; it can be continued
    └── TrainingError    the numbers: NaN, infinite, single-class data; no memory left
    CooperWarning        something that a person should look at; the run goes on
"""

from cooper_rl.addresses import redact_all

EXIT_USER_ERROR = 2
"""Exit status of a command that ends with a `CooperError`."""
EXIT_NOT_SHOWN = 74
"""Exit status of a command whose words cannot be written to standard output, as sysexits.h has it."""
EXIT_INTERRUPTED = 130
"""Exit status after Ctrl-C, as a shell has it: 128 and the signal's number."""


class CooperError(Exception):
    """Base of every error that a user can mend; the CLI prints its message without a traceback.

    Its message shows addresses without what opens them, wherever it is logged or printed.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(redact_all(each) if isinstance(each, str) else each for each in arguments))


class ConfigError(CooperError):
    """A preset, an override or a combination of values that cannot be run."""


class DataError(CooperError):
    """A file or a row that cannot be used."""


class HackingError(CooperError):
    """A run that the hacking monitor ended; what was done is saved."""


class LaunchError(CooperError):
    """A job on the cluster that cannot be started or followed, or that failed; its checkpoints stay."""


class ModelError(CooperError):
    """A checkpoint that cannot be loaded for the role it was given."""


class ServerError(CooperError):
    """A judge or assistant server that cannot be used."""


class StorageError(CooperError):
    """A store of checkpoints that cannot be used; what was visible there stays."""


class DamagedObjectError(StorageError):
    """An object that is missing, or that is not what was written."""


class WriteConflictError(StorageError):
    """A conditional write that came second."""


class StoppedError(CooperError):
    """A run that ended because it was asked to; starting it again continues it."""


class TrainingError(CooperError):
    """Training that cannot go on; what was saved before stays valid."""


class CooperWarning(UserWarning):
    """Something that a person should look at; the run goes on."""


def how_to_install(extra: str) -> str:
    """The remedy where an extra is missing; the name on the package index is not ours."""
    from importlib import metadata  # which costs as much as the rest of `import cooper_rl`

    wheel = f"cooper_rl-{metadata.version('cooper-rl')}-py3-none-any.whl"
    return f"pip install '.[{extra}]' in a clone, or '{wheel}[{extra}]'"
