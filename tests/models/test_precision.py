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
from cooper_rl.models.precision import MIN_GAIN, NUM_TRIES, compare_types, is_bfloat16, settle

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
    assert (compare_types(clock(bfloat16=bfloat16, float32=float32)) >= MIN_GAIN) is expected


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

    def compare() -> float:
        tried.append(True)
        return 3.0

    monkeypatch.setattr(precision, "compare_types", compare)
    precision.bfloat16_gain.cache_clear()
    assert not is_bfloat16(SMALL, "auto")
    assert not is_bfloat16(LARGE, "float32")
    assert is_bfloat16(SMALL, "bfloat16")
    assert tried == []
    assert is_bfloat16(LARGE, "auto")
    assert is_bfloat16(LARGE, "auto")
    assert tried == [True]
    precision.bfloat16_gain.cache_clear()


@pytest.mark.parametrize(
    ("gain", "recorded", "expected"),
    [
        (3.0, "float32", "float32"),  # a processor that is faster in the other type
        (1.1, "bfloat16", "bfloat16"),
        (0.01, "bfloat16", "float32"),  # emulated: the run would never end
        (3.0, None, "bfloat16"),  # a checkpoint of a version that recorded none
        (1.1, None, "float32"),
        (3.0, "auto", "bfloat16"),
    ],
)
def test_the_recorded_type_is_kept_where_the_processor_would_choose_another(
    monkeypatch: pytest.MonkeyPatch, gain: float, recorded: str | None, expected: str
) -> None:
    monkeypatch.setattr(precision, "bfloat16_gain", lambda: gain)
    assert settle(LARGE, "auto", recorded=recorded) == expected
    assert settle(LARGE, "float32", recorded="bfloat16") == "float32"  # as configured


@pytest.mark.slow
def test_a_processor_held_to_avx2_is_found_out() -> None:
    """oneDNN emulates bf16 then, and reads its limit at its start. Needs an x86 processor."""

    code = (
        "from cooper_rl.models.precision import MIN_GAIN, compare_types; "
        "raise SystemExit(int(compare_types() >= MIN_GAIN))"
    )
    limited = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert subprocess.run([sys.executable, "-c", code], env=limited, check=False).returncode == 0
