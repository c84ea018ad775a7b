"""The digest of code changes with what the code does, and with nothing else."""

from pathlib import Path

import pytest

from cooper_rl.machine.sources import folder_digest, source_digest


def write(folder: Path, text: str) -> str:
    (folder / "room").mkdir(exist_ok=True)
    (folder / "room" / "one.py").write_text(text)
    return folder_digest(folder, "room")


def test_what_the_code_does_counts_and_comments_docstrings_and_layout_do_not(tmp_path: Path) -> None:
    before = write(tmp_path, 'def half(x):\n    """Half."""\n    return x / 2\n')
    assert write(tmp_path, "# why\ndef half(x):\n\n    return (x / 2)\n") == before
    assert write(tmp_path, "def half(x):\n    return x / 3\n") != before


def test_a_digest_is_the_same_under_every_python(tmp_path: Path) -> None:
    """Recorded under 3.11. Later versions write type parameters, empty fields and empty texts otherwise."""
    text = 'class Page:\n    def row(self, x, width=8):\n        return f"{x:<{width}}", f"{x}", "", [], {}\n'
    assert write(tmp_path, text) == "1780efed942a"


def test_names_of_modules_and_data_beside_them_count(tmp_path: Path) -> None:
    before = write(tmp_path, "x = 1\n")
    (tmp_path / "room" / "__pycache__").mkdir()
    (tmp_path / "room" / "__pycache__" / "one.pyc").write_bytes(b"compiled")
    assert folder_digest(tmp_path, "room") == before
    (tmp_path / "room" / "words.txt").write_text("words")
    with_words = folder_digest(tmp_path, "room")
    assert with_words != before
    (tmp_path / "room" / "one.py").rename(tmp_path / "room" / "two.py")
    assert folder_digest(tmp_path, "room") not in (before, with_words)


def test_our_own_rooms_have_digests_and_others_are_refused() -> None:
    assert len(source_digest("verdicts", "randomness.py")) == 12
    assert source_digest("verdicts") != source_digest("method")
    with pytest.raises(FileNotFoundError, match="no_such_room: no package or module of Cooper-RL; name one"):
        source_digest("no_such_room")
