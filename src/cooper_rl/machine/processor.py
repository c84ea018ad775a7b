"""The processor that computes, by name and by the vector instructions that it has.

Both decide which kernels a library chooses, and so the last bits of a product.
"""

import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

_INFO = Path("/proc/cpuinfo")
_VECTORS = re.compile(r"(avx|amx|fma|sve|sme(?!p)|asimd|bf16|i8mm)\w*")
"""Instructions that products of matrices are made of, as Linux names them on x86 and ARM. `smep` is none."""


def processor_name() -> str:
    """Such as "AMD EPYC 7763 64-Core Processor"; the architecture where the system tells no name."""
    return _read().get("model name") or platform.processor() or platform.machine()


def processor_model() -> str:
    """The name with the numbers that tell apart what a virtual machine calls by one name."""
    found = _read()
    numbers = [f"{key.removeprefix('cpu ')} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{processor_name()} ({', '.join(numbers)})" if numbers else processor_name()


def vector_instructions() -> str:
    """Those that the system lets programs use, such as "avx avx2 fma"; "unknown" where it does not say."""
    found = _read()
    flags = (found.get("flags") or found.get("Features") or "").split()
    return " ".join(sorted({flag for flag in flags if _VECTORS.fullmatch(flag)})) or "unknown"


@cache
def _read() -> dict[str, str]:
    """Linux's description of the first processor; nothing elsewhere."""
    with suppress(OSError):
        first = _INFO.read_text(encoding="utf-8").partition("\n\n")[0]
        return {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in first.splitlines())
        }
    return {}
