"""The benchmark of the service counts what it says."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.service_load import Answer, make_table, quantile, read_requests, summarise
from cooper_rl.models.verify_rm import save_verify_rm


def test_requests_hold_equally_many_completions_without_what_the_evaluation_added(tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "reference_answer": "2", "completion": "2", "score": 0.5} for n in range(7)]
    path = tmp_path / "completions"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    requests = read_requests(path, num_items=3)
    assert [[item["question"] for item in request] for request in requests] == [
        ["0?", "1?", "2?"],
        ["3?", "4?", "5?"],
    ]
    assert set(requests[0][0]) == {"question", "reference_answer", "completion"}


def test_refused_and_failed_requests_are_counted_and_have_no_share_in_the_times() -> None:
    """Two of five are answered, in 0.1 and 0.3 s, within 4 s: half a request a second."""
    answers = [Answer(200, 0.3), Answer(429, 9.0), Answer(200, 0.1), Answer(0, 9.0), Answer(500, 9.0)]
    found = summarise(answers, rate=2.5, seconds=4.0)
    assert (found.answered, found.num_sent, found.num_refused, found.num_failed) == (0.5, 5, 1, 2)
    assert (found.p50, found.p99) == (0.3, 0.3)
    assert math.isnan(quantile([], 0.5))
    assert quantile([0.1, 0.2, 0.3, 0.4], 0.5) == 0.3


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    """10 of 5, 4 of 1 and 3 of 3: 2, 4 and 1; the median is 2, while that of the rates would be 4 / 3."""

    def of(rate: float) -> dict[str, dict[str, float]]:
        phase = {
            "answered": rate,
            "p50": 0.01,
            "p99": 0.02,
            "num_sent": 10,
            "num_refused": 5,
            "num_failed": 0,
        }
        return {key: dict(phase) for key in ("in turn", "1x", "10x")}

    table = make_table({"scores": [of(10), of(4), of(3)], "plain": [of(5), of(1), of(3)]})
    row = next(line for line in table.splitlines() if line.startswith("| scores"))
    assert row == "| scores | 4.0 | 2.00 | 10, 20 ms | 4.0 | 50 % | 10, 20 ms |"


@pytest.mark.slow
def test_all_four_servers_are_measured(make_verify_rm, tmp_path: Path) -> None:
    """Half a second each; needs about a minute."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    rows = [
        {
            "question": f"{n // 4} + 1?",
            "reference_answer": str(n // 4 + 1),
            "completion": f"It is {n // 4 + n % 2}.",
        }
        for n in range(32)
    ]
    (tmp_path / "completions").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "benchmarks.service_load", "--verify-rm", str(tmp_path / "verify_rm")]
    command += ["--completions", str(tmp_path / "completions"), "--items", "8", "--rounds", "1"]
    command += ["--seconds", "0.5", "--output", str(tmp_path / "found.json")]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert list(found) == ["learning", "rewards", "scores", "plain"]
    assert all(rounds[0]["in turn"]["answered"] > 0 for rounds in found.values())
    assert all(rounds[0]["1x"]["num_failed"] == 0 for rounds in found.values())
