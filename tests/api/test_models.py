"""Training VerifyRM through the public API leaves a card with its numbers."""

import runpy
from pathlib import Path

from cooper_rl import VerifyExample, train_verify_rm

SMALL = {"num_epochs": 1, "scratch": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}}


def rows(start: int) -> list[VerifyExample]:
    return [
        VerifyExample(
            question=f"{n}+1?", reference_answer=str(n + 1), completion=f"It is {n + label}.", label=label
        )
        for n in range(start, start + 6)
        for label in (0, 1)
    ]


def test_the_card_tells_what_the_weights_reach_on_the_validation(tmp_path: Path) -> None:
    train_verify_rm(rows(0), tmp_path / "rm", validation=rows(50), config=SMALL, device="cpu")
    card = (tmp_path / "rm" / "README.md").read_text(encoding="utf-8")
    assert "On the 12 validation examples of its training, of 6 problems" in card
    assert "None were recorded" not in card


def test_the_cards_example_runs_beside_the_folder(tmp_path: Path, monkeypatch, capsys) -> None:
    train_verify_rm(rows(0), tmp_path / "rm", config=SMALL, device="cpu")
    card = (tmp_path / "rm" / "README.md").read_text(encoding="utf-8")
    (tmp_path / "example.py").write_text(card.split("```python\n")[1].split("```")[0])
    monkeypatch.chdir(tmp_path)
    runpy.run_path("example.py")
    (score,) = eval(capsys.readouterr().out)  # a list of one number
    assert 0 < score < 1
