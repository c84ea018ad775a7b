"""The state of code and inputs for which finished stages of a local run are kept."""

import os
from pathlib import Path

from pipelines.local.inputs import fingerprint


def written(package: Path, text: str) -> str:
    (package / "room").mkdir(exist_ok=True)
    (package / "room" / "one.py").write_text(text)
    return fingerprint("laptop", [], image_id="", package=package)


def test_an_edit_of_comments_or_docstrings_keeps_what_has_finished(tmp_path: Path) -> None:
    before = written(tmp_path, "def half(x):\n    return x / 2\n")
    assert written(tmp_path, '# why\ndef half(x):\n    """Half."""\n\n    return x / 2\n') == before
    assert written(tmp_path, "def half(x):\n    return x / 3\n") != before


def test_presets_and_templates_count_as_they_are_written(tmp_path: Path) -> None:
    found = {written(tmp_path, "x = 1\n")}
    for name, text in (
        ("laptop.toml", "a = 1\n"),
        ("laptop.toml", "# a\na = 1\n"),
        ("chat.jinja", "{{ a }}"),
    ):
        (tmp_path / name).write_text(text)
        found.add(fingerprint("laptop", [], image_id="", package=tmp_path))
    assert len(found) == 4
    assert fingerprint("laptop", [], image_id="sha256:1", package=tmp_path) not in found


def test_an_exchanged_model_or_artifact_begins_a_new_run(tmp_path: Path) -> None:
    model, artifact = tmp_path / "model", tmp_path / "examples.jsonl"
    model.mkdir()
    settings = [f"models.policy={model}", f"models.backbone={model}"]
    found: set[str] = set()
    for weights, rows in (("a", ""), ("bb", ""), ("bb", "{}\n")):
        (model / "model.safetensors").write_text(weights)
        artifact.write_text(rows)
        found.add(
            fingerprint("single_gpu", settings, image_id="", artifacts=[artifact], package=tmp_path / "none")
        )
    assert len(found) == 3


def test_a_home_folder_of_nobody_is_left_to_the_stage_that_names_it(tmp_path: Path) -> None:
    settings = ["models.policy=~nobody9/model", "models.backbone=~nobody9/model"]
    assert fingerprint("single_gpu", settings, image_id="", package=tmp_path)


def test_any_entry_of_a_model_folder_counts(tmp_path: Path) -> None:
    """Also a link to nowhere, and a name that is not UTF-8."""
    model = tmp_path / "model"
    model.mkdir()
    found: set[str] = set()
    for make in (
        lambda: None,
        lambda: (model / "gone.safetensors").symlink_to("nowhere"),
        lambda: Path(os.fsdecode(os.fsencode(model / "caf") + b"\xe9")).touch(),
    ):
        make()
        settings = [f"models.policy={model}", f"models.backbone={model}"]
        found.add(fingerprint("single_gpu", settings, image_id="", package=tmp_path / "none"))
    assert len(found) == 3


def test_an_edited_source_file_begins_a_new_run(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    found: set[str] = set()
    for text in ("{}\n", "{}\n{}\n"):
        problems.write_text(text)
        found.add(fingerprint("laptop", [f"problems.sources=['{problems}']"], image_id="", package=tmp_path))
    assert len(found) == 2
