"""The tutorial works as it is written: its files and commands, in their order, in an empty folder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
BLOCK = re.compile(r'^```(python|toml|bash)(?: title="([\w.]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_tutorial_runs_from_an_empty_folder_to_the_readers_own_model(tmp_path: Path) -> None:
    """Minutes: it trains a small model, VerifyRM and both together."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, arguments in (
        ("python", ""),
        ("cooper-rl", "-m cooper_rl "),
    ):  # a link would leave the environment
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n')
        (commands / name).chmod(0o755)
    folder = tmp_path / "first"
    folder.mkdir()
    environment = os.environ | {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HF_HUB_OFFLINE": "1",
    }
    bash = shutil.which("bash")
    assert bash is not None
    shown = ""
    for language, name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "bash":
            done = subprocess.run(
                [bash, "-euo", "pipefail", "-c", text], cwd=folder, env=environment, check=False,
                capture_output=True, text=True, timeout=1200,
            )  # fmt: skip
            assert done.returncode == 0, text + done.stderr[-3000:]
            shown += done.stdout
        else:
            (folder / name).write_text(text)
    assert re.findall(r"^(\w+) - ", shown, re.MULTILINE) == ["correct", "incorrect", "unparsable"]
    assert (folder / "checkpoint" / "LATEST").is_file()
    assert "The same problems, before and after" in (folder / "report.html").read_text(encoding="utf-8")
    assert (folder / "own" / "checkpoint" / "LATEST").is_file()
