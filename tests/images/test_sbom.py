"""`images/sbom`: the packages that an image holds, as the real CycloneDX tool writes them."""

import json
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.small_run import ROOT

VALIDATE = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text())
sys.exit(str(found) if found else 0)
"""


def find_tool() -> str:
    """In the environment of `make sbom`, or on the path."""
    own = ROOT / ".venv-sbom" / "bin" / "cyclonedx-py"
    found = str(own) if own.is_file() else shutil.which("cyclonedx-py")
    return found or pytest.skip("cyclonedx-py is not installed: make sbom does it")


def locked(*files: str) -> dict[str, tuple[str, int]]:
    """Package -> version and number of hashes, as the lock has them."""
    found: dict[str, tuple[str, int]] = {}
    for file in files:
        text = (ROOT / "images" / file).read_text(encoding="utf-8").replace("\\\n", "")
        for line in text.splitlines():
            if match := re.match(r"([\w.-]+)(?:\[[^]]*\])?==(\S+)", line):
                found[match[1]] = (match[2], line.count("--hash=sha256:"))
    return found


@pytest.mark.parametrize(
    ("image", "files", "more"),
    [
        ("cpu", ["cpu/requirements.txt"], {"torch": ("2.13.0+cpu", 0)}),
        ("gpu", ["gpu/requirements.txt", "gpu/requirements-source.txt"], {}),
    ],
)
def test_every_package_of_the_lock_is_named_with_its_hashes(
    image: str, files: list[str], more: dict[str, tuple[str, int]], tmp_path: Path
) -> None:
    tool = find_tool()
    subprocess.run([ROOT / "images" / "sbom", image, tool, str(tmp_path)], check=True, cwd=ROOT)
    path = tmp_path / f"cooper-rl-{image}.cdx.json"
    bill = json.loads(path.read_text(encoding="utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    ours = bill["metadata"]["component"]
    assert (ours["name"], ours["version"]) == ("cooper-rl", version("cooper-rl"))
    found = {
        each["name"]: (
            each["version"],
            sum(len(place.get("hashes", [])) for place in each["externalReferences"]),
        )
        for each in bill["components"]
    }
    assert found == locked(*files) | more
    assert len(bill["components"]) == len(found)
    python = Path(tool).resolve().parent / "python"
    done = subprocess.run([python, "-c", VALIDATE, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_image_that_nobody_named_is_asked_for(tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "images" / "sbom"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage: images/sbom cpu|gpu CYCLONEDX_PY FOLDER" in done.stderr
