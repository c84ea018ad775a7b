"""The benchmark with TRL's trainer runs, and goes on where it was ended."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cooper_rl.models.policy import save_policy
from cooper_rl.models.verify_rm import save_verify_rm
from cooper_rl.records.files import write_records
from cooper_rl.schema.data import VerifyExample
from cooper_rl.tiny.problems import generate_problems

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_every_arm_is_trained_once_and_evaluated_before_and_after(
    make_policy, make_verify_rm, tmp_path: Path
) -> None:
    """One step with random models, in the folders of a pipeline's run; the second command adds an arm."""
    run = tmp_path / "run"
    for folder in ("prepare-models/models", "train-verify-rm", "collect-problems", "label-completions"):
        (run / folder).mkdir(parents=True)
    save_policy(make_policy(0), run / "prepare-models/models/policy")
    save_verify_rm(make_verify_rm(0), run / "train-verify-rm/verify_rm")
    problems = generate_problems(44, seed=0)
    write_records(run / "collect-problems/problems", problems[:40])
    write_records(run / "collect-problems/held_out", problems[40:])
    for name, rows in (("train", problems[:40]), ("test", problems[40:])):
        examples = [
            VerifyExample(
                question=row.question, reference_answer=row.reference_answer, completion="#### 1", label=0
            )
            for row in rows
        ]
        write_records(run / "label-completions" / name, examples)
    output = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.trl_hacking", "--run", str(run), "--steps", "1"]
    for arms in ("frozen", "frozen,cooper,alone"):
        done = subprocess.run(
            [*command, "--output", str(output), "--arms", arms],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout.count(" seed 0 (") == 2
    found = json.loads(output.read_text())
    assert [row["arm"] for row in found] == ["frozen", "cooper", "alone"]
    assert all([each["step"] for each in row["evaluations"]] == [0, 1] for row in found)
    assert all(len(row["rewards"]) == 1 for row in found)
    assert [len(row["metrics"]) for row in found] == [0, 1, 1]
    assert found[0]["evaluations"][0] == found[1]["evaluations"][0]
