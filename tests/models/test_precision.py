"""Which type `auto` means on a CPU: the one that multiplies faster, by a clock that each test makes."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate, chain
from types import SimpleNamespace

import pytest
import torch

from cooper_rl.models import precision
from cooper_rl.models.precision import NUM_TRIES, compare_types, is_bfloat16

LARGE = SimpleNamespace(device=torch.device("cpu"), num_parameters=lambda: 20_000_000)
SMALL = SimpleNamespace(device=torch.device("cpu"), num_parameters=lambda: 1_000_000)


def clock(*, bfloat16: list[float], float32: list[float]) -> Callable[[], float]:
    """A clock on which the products take so many seconds, in the order in which they are tried."""
    seconds = chain.from_iterable((0.0, taken) for taken in (*bfloat16, *float32))
    return accumulate(seconds).__next__


@pytest.mark.parametrize(
    ("bfloat16", "float32", "expected"),
    [
        (
            [6.7] * NUM_TRIES,
            [0.06] * NUM_TRIES,
            False,
        ),  # oneDNN held to AVX2 on a processor with AVX-512 bf16
        ([0.02] * NUM_TRIES, [0.06] * NUM_TRIES, True),
        ([0.05] * NUM_TRIES, [0.06] * NUM_TRIES, False),  # 1.2 times as fast is not clearly faster
        ([9.0, 0.02, 9.0], [0.06, 9.0, 9.0], True),  # what disturbs a try does not count
    ],
)
def test_bf16_is_taken_where_it_multiplies_clearly_faster(
    bfloat16: list[float], float32: list[float], expected: bool
) -> None:
    assert compare_types(clock(bfloat16=bfloat16, float32=float32)) is expected


def test_the_choice_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        compare_types(clock(bfloat16=[6.7] * NUM_TRIES, float32=[0.06] * NUM_TRIES))
    assert caplog.messages == [
        "this processor multiplies 128x512 by 512x512 in 6700.00 ms in bf16 and in 60.00 ms in fp32: "
        "auto is fp32"
    ]


def test_a_process_tries_once_for_large_models_and_never_for_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[bool] = []

    def compare() -> bool:
        tried.append(True)
        return True

    monkeypatch.setattr(precision, "compare_types", compare)
    precision.multiplies_bfloat16_fast.cache_clear()
    assert not is_bfloat16(SMALL, "auto")
    assert not is_bfloat16(LARGE, "float32")
    assert is_bfloat16(SMALL, "bfloat16")
    assert tried == []
    assert is_bfloat16(LARGE, "auto")
    assert is_bfloat16(LARGE, "auto")
    assert tried == [True]
    precision.multiplies_bfloat16_fast.cache_clear()


@pytest.mark.slow
def test_a_processor_held_to_avx2_is_found_out() -> None:
    """oneDNN emulates bf16 then, and reads its limit at its start. Needs an x86 processor."""

    code = "from cooper_rl.models.precision import compare_types; raise SystemExit(int(compare_types()))"
    limited = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert subprocess.run([sys.executable, "-c", code], env=limited, check=False).returncode == 0
