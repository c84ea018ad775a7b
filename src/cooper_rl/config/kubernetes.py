"""Texts that Kubernetes reads: names, labels, variables, images, quantities. A wrong one is refused when the
configuration is read. Kubernetes would refuse it when the task comes that needs it, after hours.

The rules are those of Kubernetes (`util/validation` and `api/resource` of its apimachinery) and of the
references to images that container engines read (`reference` of the distribution project). Neither kfp nor
the client of Kubernetes checks them.
"""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
OBJECT_NAME = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"
"""A DNS subdomain, as most objects have for their names."""
_WORD = r"(?=[^/]{1,63}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_HOST = (
    r"([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])"
)
_FOLDER = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_QUANTITY = re.compile(
    r"\+?(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"((?P<unit>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_SMALL = {"n": -9, "u": -6, "m": -3}
_LARGE = "kMGTPE"

MIN_MEMORY = "64Mi"
"""No container of ours starts in less: importing kfp alone takes more."""
_MAX_BYTES = 2**63 - 1
"""Kubernetes counts bytes in 64 bits."""
_MAX_CPUS = 10_000
"""No machine has as many. `4Gi` CPUs are a memory in the wrong place, and Kubernetes would look for them for
ever."""


def _text(pattern: str, what: str, *, longest: int = 253) -> AfterValidator:
    """A check that a text has this form; `what` names it and says what it may hold."""

    def check(text: str) -> str:
        if len(text) > longest or not re.fullmatch(pattern, text):
            raise ValueError(f"is no {what}")
        return text

    return AfterValidator(check)


_DNS = "of a-z, 0-9, '-' and '.', a letter or digit at both ends of each part"
_ENDS = "of letters, digits, '-', '_' and '.', a letter or digit at both ends"

ObjectName = Annotated[str, _text(OBJECT_NAME, f"name of a Kubernetes object: use at most 253 {_DNS}")]
"""Name of a secret, a runtime and of most other objects."""
Namespace = Annotated[
    str,
    _text(
        _DNS_LABEL,
        "name of a namespace: use at most 63 of a-z, 0-9 and '-', a letter or digit at both ends",
        longest=63,
    ),
]
QueueName = Annotated[str, _text(OBJECT_NAME, f"name of a queue: use at most 63 {_DNS}", longest=63)]
"""Name of a LocalQueue, which jobs and pods have as a label."""
_LABEL_KEY = rf"((?=[^/]{{1,253}}/){OBJECT_NAME}/)?{_WORD}"
_A_KEY = f"use at most 63 {_ENDS}, after a domain and '/' if it has one"
LabelKey = Annotated[str, _text(_LABEL_KEY, f"key of a label: {_A_KEY}", longest=317)]
TaintKey = Annotated[str, _text(f"({_LABEL_KEY})?", f"key of a taint: {_A_KEY}", longest=317)]
"""Empty: every taint."""
LabelValue = Annotated[str, _text(rf"({_WORD})?", f"value of a label: use at most 63 {_ENDS}", longest=63)]
DeviceName = Annotated[
    str,
    _text(
        rf"(?!requests\.)(?=[^/]{{1,244}}/){OBJECT_NAME}/{_WORD}",
        "resource of a device plug-in: write its domain and name, such as nvidia.com/gpu",
        longest=308,
    ),
]
SecretKey = Annotated[
    str, _text(r"(?!\.\.)(?!\.\Z)[-._A-Za-z0-9]+", "key of a secret: use letters, digits, '-', '_' and '.'")
]
VariableName = Annotated[
    str,
    _text(
        r"(?!\.\.)(?!\.\Z)[-._A-Za-z][-._A-Za-z0-9]*",
        "name of an environment variable: use letters, digits and '_', no digit first",
        longest=4096,
    ),
]
"""As every version of Kubernetes takes it; later ones than 1.32 take more."""
Image = Annotated[
    str,
    _text(
        rf"({_HOST}(:[0-9]+)?/)?{_FOLDER}(/{_FOLDER})*"
        r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
        r"(@sha256:[0-9a-f]{64}|@sha384:[0-9a-f]{96}|@sha512:[0-9a-f]{128})?",
        "reference to an image: write [host[:port]/]name:version or ...@sha256:digest, in small letters",
        longest=1024,
    ),
]


def quantity(text: str) -> Decimal:
    """The number that a quantity stands for.

    Raises:
        ValueError: Kubernetes reads none in this text.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError("is no quantity: write a number and perhaps a unit, such as 4, 500m or 16Gi")
    number, unit = Decimal(found["number"]), found["unit"] or ""
    if found["exponent"]:
        return number.scaleb(int(found["exponent"]))
    if unit in _SMALL:
        return number.scaleb(_SMALL[unit])
    power = 0 if not unit else _LARGE.index(unit[0].replace("K", "k")) + 1
    return number * (1024 if unit.endswith("i") else 1000) ** power


def _without_float(value: object) -> object:
    return str(value) if isinstance(value, float) else value


def _check_cpus(value: int | str) -> int | str:
    if not 0 < quantity(str(value)) <= _MAX_CPUS:
        raise ValueError("is no number of CPUs that a task can have: write more than 0, such as 4 or 500m")
    return value


def _check_memory(text: str) -> str:
    found = quantity(text)
    if not quantity(MIN_MEMORY) <= found <= _MAX_BYTES:
        raise ValueError(
            f"is {found:.0f} bytes, in which no task can work: write its unit, at least "
            f"{MIN_MEMORY}, such as 16Gi"
        )
    return text


Cpus = Annotated[str, AfterValidator(_check_cpus)]
CpusOrNumber = Annotated[int | str, BeforeValidator(_without_float), AfterValidator(_check_cpus)]
Memory = Annotated[str, AfterValidator(_check_memory)]
"""Bytes, on a disk too."""
