"""Both Dockerfiles keep the rules for an image that runs restricted and builds without network.

Each rule is shown to catch a bad example. What needs an engine is in `test_cpu_image.py`.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.images import CPU_IMAGE, GPU_IMAGE

ROOT = Path(__file__).parent.parent.parent
DOCKERFILES = [ROOT / "images" / name / "Dockerfile" for name in ("cpu", "gpu")]
LABELS = ("title", "description", "licenses", "version", "revision", "base.name")

Stages = dict[str, list[tuple[str, str]]]
"""Stage -> its instructions as (keyword, rest); what stands before the first FROM is the stage ''."""


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_breaks_no_rule(path: Path) -> None:
    assert list(broken_rules(path.read_text(encoding="utf-8"))) == []


GOOD = """\
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE} AS build
RUN pip install --no-cache-dir --no-index --no-deps x
FROM ${BASE_IMAGE} AS base
LABEL @
USER 1000:1000
FROM base AS serve
HEALTHCHECK CMD ["true"]
ENTRYPOINT ["serve"]
FROM base AS stages
CMD ["help"]
""".replace("@", " ".join(f'org.opencontainers.image.{name}="x"' for name in LABELS))


def test_the_good_example_breaks_no_rule() -> None:
    assert list(broken_rules(GOOD)) == []


@pytest.mark.parametrize(
    ("good", "bad", "broken"),
    [
        ("python:3.11-slim", "python:latest", "ARG BASE_IMAGE: 'python:latest' is not pinned"),
        ("python:3.11-slim", "python", "ARG BASE_IMAGE: 'python' is not pinned"),
        ("FROM ${BASE_IMAGE} AS build", "FROM python:3.11 AS build", "build: FROM python:3.11 names no ARG"),
        ("USER 1000:1000", "USER root", "stages: runs as root"),
        ("USER 1000:1000\n", "", "stages: runs as root"),
        ("--no-index ", "", "build: pip without --no-index"),
        ("USER 1000", "RUN apt-get install gcc\nUSER 1000", "base: RUN apt-get install gcc"),
        ("USER 1000", "RUN curl -O http://x\nUSER 1000", "base: RUN curl -O http://x"),
        ("USER 1000", "RUN pip install x\nUSER 1000", "base: RUN pip install x"),
        ("USER 1000", "ADD http://x /x\nUSER 1000", "base: ADD, not COPY"),
        ("USER 1000", "COPY --from=build / /\nUSER 1000", "base: copies a whole file system"),
        ("USER 1000", "ENV API_TOKEN=1\nUSER 1000", "base: a secret in ENV API_TOKEN=1"),
        ('CMD ["help"]', "CMD help", "stages: CMD is not a JSON list"),
        ('CMD ["help"]', 'ENTRYPOINT ["help"]', "stages: has an ENTRYPOINT"),
        ('HEALTHCHECK CMD ["true"]\n', "", "serve: has no HEALTHCHECK"),
        ("image.version", "image.vers", "base: no label org.opencontainers.image.version"),
    ],
)
def test_a_broken_rule_is_found(good: str, bad: str, broken: str) -> None:
    assert good in GOOD
    assert broken in list(broken_rules(GOOD.replace(good, bad)))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_our_own_package_is_the_last_layer_and_dependencies_are_several(path: Path) -> None:
    """A change of ours is sent alone: what stands before it neither holds it nor depends on it."""
    stages = read_stages(path.read_text(encoding="utf-8"))
    copied = [rest for keyword, rest in stages["base"] if keyword == "COPY"]
    assert copied[-1] == "--from=build /own /"
    split = next(rest for keyword, rest in stages["split"] if keyword == "RUN")
    layers = [word.partition("=")[0] for word in split.split() if "=" in word]
    assert [f"--from=split /layers/{layer} /" for layer in (*layers, "rest")] == [
        line for line in copied if line.startswith("--from=split")
    ]
    assert not any("src" in rest.split() for name in ("dependencies", "split") for _, rest in stages[name])


def test_both_images_end_alike() -> None:
    """From the user on: what runs as whom, and how it is started and asked for its health."""
    ends = [path.read_text(encoding="utf-8").partition("\nRUN useradd")[2] for path in DOCKERFILES]
    assert ends[0]
    assert ends[0] == ends[1].replace("--gpus all ", "")


def test_make_builds_what_components_ask_for(tmp_path: Path) -> None:
    """Names and tags stand in the Makefile and in components/images.py; this holds them together."""
    for name in ("cpu", "gpu"):
        folder = tmp_path / "build" / "wheelhouse" / name
        folder.mkdir(parents=True)
        (folder / "SHA256SUMS").touch()
    done = subprocess.run(
        ["make", "--dry-run", "images", "push", "REGISTRY=registry.example:5000/ml", "BASE_IMAGE=b@sha256:1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    built = re.findall(r"--file images/(\w+)/Dockerfile --target (\w+) ", done.stdout)
    assert built == [("cpu", "stages"), ("cpu", "serve"), ("gpu", "stages"), ("gpu", "serve")]
    expected = [
        f"registry.example:5000/ml/{image}{suffix}"
        for image in (CPU_IMAGE, GPU_IMAGE)
        for suffix in ("", "-serve")
    ]
    assert re.findall(r"--tag (\S+)", done.stdout) == expected
    assert re.findall(r"docker push (\S+)", done.stdout) == expected
    assert done.stdout.count("--network none") == 4
    assert done.stdout.count("--build-arg BASE_IMAGE=b@sha256:1") == 4


def test_push_without_a_registry_says_what_to_add() -> None:
    done = subprocess.run(["make", "push"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "make push: say where to, e.g. REGISTRY=registry.example:5000/ml" in done.stderr


def test_the_build_context_holds_only_what_is_asked_for() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = set()
    for path in DOCKERFILES:
        for _, instructions in read_stages(path.read_text(encoding="utf-8")).items():
            for keyword, rest in instructions:
                if keyword == "COPY" and "--from" not in rest:
                    copied |= {source.split("/")[0] for source in rest.split()[:-1]}
    assert copied <= allowed
    assert "build/wheelhouse" in allowed


def broken_rules(text: str) -> Iterator[str]:
    """Every broken rule of a Dockerfile, as `stage: what is wrong`."""
    stages = read_stages(text)
    for keyword, rest in stages.pop(""):
        name, _, default = rest.partition("=")
        tag = default.rpartition("/")[2].partition(":")[2]
        if keyword == "ARG" and "@sha256:" not in default and tag in {"", "latest"}:
            yield f"ARG {name}: {default!r} is not pinned"
    for name, instructions in stages.items():
        yield from _broken_in_stage(name, instructions, stages)
    for name in ("serve", "stages"):
        inherited = _chain(name, stages)
        users = [rest for keyword, rest in inherited if keyword == "USER"]
        if not users or users[-1] != "1000:1000":
            yield f"{name}: runs as {users[-1] if users else 'root'}"
    labels = " ".join(rest for keyword, rest in stages["base"] if keyword == "LABEL")
    for label in LABELS:
        if f"org.opencontainers.image.{label}=" not in labels:
            yield f"base: no label org.opencontainers.image.{label}"
    if "HEALTHCHECK" not in dict(stages["serve"]):
        yield "serve: has no HEALTHCHECK"
    if "ENTRYPOINT" in dict(_chain("stages", stages)):
        yield "stages: has an ENTRYPOINT"  # Kubeflow's own command would become its arguments


def _broken_in_stage(name: str, instructions: list[tuple[str, str]], stages: Stages) -> Iterator[str]:
    for keyword, rest in instructions:
        origin = rest.split()[0]
        if keyword == "FROM" and not origin.startswith("${") and origin not in stages:
            yield f"{name}: FROM {origin} names no ARG"
        if keyword == "ADD":
            yield f"{name}: ADD, not COPY"
        if keyword == "COPY" and re.search(r"--from=\S+ / ", rest):
            yield f"{name}: copies a whole file system"
        if keyword in {"ENV", "ARG"} and re.search(r"(TOKEN|SECRET|PASSWORD|CREDENTIAL)", rest):
            yield f"{name}: a secret in {keyword} {rest}"
        if keyword in {"CMD", "ENTRYPOINT", "HEALTHCHECK"} and not _is_list(rest):
            yield f"{name}: {keyword} is not a JSON list"
        if keyword != "RUN":
            continue
        if not _is_thrown_away(name, stages) and re.search(
            r"\b(apt-get|apt|apk|pip|curl|wget|git|gcc|make)\b", rest
        ):
            yield f"{name}: RUN {rest}"
        for call in re.findall(r"\bpip\b[^&|;]*\binstall\b[^&|;]*", rest):
            for option in ("--no-index", "--no-deps", "--no-cache-dir"):
                if option not in call:
                    yield f"{name}: pip without {option}"


def _is_thrown_away(name: str, stages: Stages) -> bool:
    return all(name != origin for final in ("serve", "stages") for origin in _ancestry(final, stages))


def _ancestry(name: str, stages: Stages) -> Iterator[str]:
    yield name
    origin = stages[name][0][1].split()[0]
    if origin in stages:
        yield from _ancestry(origin, stages)


def _is_list(rest: str) -> bool:
    try:
        return isinstance(json.loads(re.sub(r"^(--\S+ )*(CMD )?", "", rest)), list)
    except json.JSONDecodeError:
        return False


def read_stages(text: str) -> Stages:
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    stages: Stages = {"": []}
    name = ""
    for line in lines.replace("\\\n", "").splitlines():
        keyword, _, rest = " ".join(line.split()).partition(" ")
        if keyword == "FROM":
            name = rest.rpartition(" AS ")[2]
            stages[name] = []
        if keyword:
            stages[name].append((keyword, rest))
    return stages


def _chain(name: str, stages: Stages) -> list[tuple[str, str]]:
    """Instructions of a stage after those of the stages that it starts from."""
    origin = stages[name][0][1].split()[0]
    return [*(_chain(origin, stages) if origin in stages else []), *stages[name][1:]]
