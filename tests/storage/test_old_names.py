"""Images are newer than the manifests of a cluster: what those run by name still runs."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("old", "new"), [("fetch_model", "storage.models"), ("prepare_buckets", "storage.buckets")]
)
def test_a_module_that_old_manifests_run_is_its_successor(old: str, new: str) -> None:
    asked = [
        subprocess.run(
            [sys.executable, "-m", f"cooper_rl.{name}", *options],
            capture_output=True, text=True, timeout=120, check=False,
        )
        for name in (f"backends.{old}", new)
        for options in (["--help"], ["--unknown"])
    ]  # fmt: skip
    found = [(done.returncode, done.stdout, done.stderr) for done in asked]
    old_help, old_refusal, new_help, new_refusal = found
    assert old_help == new_help
    assert old_refusal == new_refusal
    assert (old_help[0], old_refusal[0]) == (0, 2)
