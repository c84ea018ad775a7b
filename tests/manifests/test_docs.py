"""Operations and security pages: paths exist, commands parse, secrets are made, named tests exist."""

import base64
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cooper_rl.storage import buckets as prepare_buckets
from cooper_rl.storage import models as fetch_model
from manifests.check.references import read_expected
from pipelines.__main__ import build_parser

ROOT = Path(__file__).parent.parent.parent
OPERATIONS = (ROOT / "docs" / "cluster" / "operations.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "docs" / "cluster" / "security.md").read_text(encoding="utf-8")
UPKEEP = (ROOT / "docs" / "cluster" / "upkeep.md").read_text(encoding="utf-8")
PARSERS = {
    "cooper_rl.storage.buckets": prepare_buckets.build_parser,
    "cooper_rl.storage.models": fetch_model.build_parser,
    "pipelines": build_parser,
}


def blocks_of(text: str) -> list[str]:
    return re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)


def commands_of(text: str) -> list[list[str]]:
    """Words of every line of every block, continued lines joined."""
    lines = "\n".join(blocks_of(text)).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip() and "$" not in line]


@pytest.mark.parametrize("text", [OPERATIONS, SECURITY, UPKEEP], ids=["operations", "security", "upkeep"])
def test_paths_that_a_page_names_exist(text: str) -> None:
    paths = set(re.findall(r"(?:manifests|pipelines|tests|docs)/[\w./*-]*[\w*]", text))
    assert paths
    missing = [path for path in sorted(paths) if not list(ROOT.glob(path))]
    assert not missing
    links = re.findall(r"\]\(([\w./]+\.md)\)", text)
    assert all((ROOT / "docs" / "cluster" / link).is_file() for link in links)


def test_folders_that_are_applied_or_checked_are_overlays() -> None:
    """Every `kubectl apply -k` and `manifests.check`; every file of `kubectl apply -f`."""
    found = 0
    for words in commands_of(OPERATIONS + UPKEEP):
        if words[:2] == ["kubectl", "apply"] or words[:3] == ["python", "-m", "manifests.check"]:
            for word in words:
                if word.startswith("manifests/"):
                    found += 1
                    path = ROOT / word
                    assert (path / "kustomization.yaml").is_file() or path.suffix == ".yaml", word
    assert found >= 5


def test_files_that_are_applied_without_kustomize_say_where_everything_goes() -> None:
    """What names no namespace lands in `default`, where a quota would refuse other people's pods."""
    applied = [words for words in commands_of(OPERATIONS) if words[:2] == ["kubectl", "apply"]]
    files = [word for words in applied for word in words if word.endswith(".yaml")]
    assert len(files) == 2
    for name in files:
        for body in yaml.safe_load_all((ROOT / name).read_text(encoding="utf-8")):
            assert body["kind"] == "Namespace" or body["metadata"].get("namespace"), (name, body)


def test_commands_of_ours_parse() -> None:
    modules = [words for words in commands_of(OPERATIONS) if words[:2] == ["python", "-m"]]
    names = {words[2] for words in modules}
    assert {"manifests.check", "pipelines", "cooper_rl.storage.buckets"} <= names
    for words in modules:
        if words[2] in PARSERS:
            PARSERS[words[2]]().parse_args(words[3:])


_OWN = Path(sys.executable).parent / "kubectl"
KUBECTL = str(_OWN) if _OWN.is_file() else "command kubectl"


def run_with_kubectl(script: str, body: str, *, folder: Path) -> list[Any]:
    """Run a page's block by bash with a `kubectl` of that body; returns the documents that it printed."""
    bash = shutil.which("bash")
    assert bash is not None
    program = f"kubectl() {{ {body}; }}\nset -eu\n{script}"
    done = subprocess.run([bash, "-c", program], capture_output=True, text=True, cwd=folder, check=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def test_the_secrets_that_the_page_makes_are_those_that_the_overlays_expect(tmp_path: Path) -> None:
    """The page's own lines, run by bash with the real kubectl, which then only prints what it would send."""
    script = next(block for block in blocks_of(OPERATIONS) if "secret() {" in block)
    bodies = run_with_kubectl(script, f'{KUBECTL} "$@" --dry-run=client -o yaml; echo ---', folder=tmp_path)
    made = {
        f"{body['metadata']['namespace']}/{body['metadata']['name']}": sorted(body["data"]) for body in bodies
    }
    assert made == read_expected(ROOT / "manifests" / "overlays" / "minio").secrets
    data = [body["data"] for body in bodies]
    keys = [body["secret_key"] for body in data if "secret_key" in body]
    assert len(set(keys)) == 4
    assert not any(value for value in keys if len(value) < 40)


def test_a_new_key_is_made_first_where_the_store_learns_of_it(tmp_path: Path) -> None:
    """The page's own lines, run by bash; the real kubectl makes the secrets and sends nothing."""
    script = next(block for block in blocks_of(UPKEEP) if "renew() {" in block)
    others = 'case "$*" in "apply -f -") cat ;; *) echo "- $*" ;; esac'
    body = f'if [ "$1" = create ]; then {KUBECTL} "$@"; else {others}; echo ---; fi'
    steps = run_with_kubectl(script, body, folder=tmp_path)
    made = [step for step in steps if isinstance(step, dict)]
    assert [step["metadata"]["namespace"] for step in made] == ["cooper-rl-storage", "cooper-rl"]
    assert made[0]["data"] == made[1]["data"]
    old = base64.b64encode(b"cooper-rl-train").decode()
    assert made[0]["data"]["access_key"] != old
    between = [str(step) for step in steps[steps.index(made[0]) + 1 : steps.index(made[1])]]
    assert "wait --for=condition=complete job/prepare-buckets" in between[-1]


def test_tests_that_the_security_page_names_exist() -> None:
    names = set(re.findall(r"`(test_\w+)`", SECURITY))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    defined = set(re.findall(r"^def (test_\w+)\(", "\n".join(sources), flags=re.MULTILINE))
    assert len(names) > 20
    assert not sorted(names - defined)


def test_the_sizing_table_is_what_its_formulas_give() -> None:
    """P and V times bytes per parameter, as the page writes them."""
    verify_rm = 1.54e9
    for column, policy in enumerate([1.54e9, 7.62e9]):
        checkpoint = 12 * (policy + verify_rm)
        for start, value in {
            "checkpoint (weights": checkpoint,
            "bucket `cooper-rl`": 7 * checkpoint,
            "... and with `cooper.monitor.action=rollback`": 3 * checkpoint,
            "memory of the training pod": checkpoint + 20e9,
            "disk of the training node": 2 * checkpoint,
        }.items():
            row = next(line for line in OPERATIONS.splitlines() if line.startswith(f"| {start}"))
            shown = row.split("|")[3 + column].strip().removesuffix(" GB")
            assert float(shown) == pytest.approx(value / 1e9, abs=0.06 if "." in shown else 0.5), row
