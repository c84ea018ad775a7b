"""What a run may change when it goes on."""

from pathlib import Path

from cooper_rl.config.data import ServerConfig
from cooper_rl.config.load import load
from cooper_rl.run.identity import MAY_DIFFER, SERVER_KEYS, co_training_identity, fit_identity


def test_budgets_and_pauses_of_a_server_may_change_and_what_it_says_may_not() -> None:
    """A run that a budget ended goes on with a raised one."""
    assert set(ServerConfig.model_fields) - set(SERVER_KEYS) == {"model", "temperature", "max_tokens"}
    assert set(SERVER_KEYS) < set(ServerConfig.model_fields)
    assert {"cooper.judge.server.max_cost", "cooper.pairs.assistant.server.max_requests"} < set(MAY_DIFFER)


def test_the_training_of_verify_rm_is_known_by_what_its_numbers_depend_on(tmp_path: Path) -> None:
    """Of other stages' settings nothing counts, nor of how often it saves; of its own each other one does."""
    rows = tmp_path / "train.jsonl"
    rows.write_text("row\n")

    def identity(*overrides: str):
        return fit_identity(load("laptop", overrides), models=None, files={"train": rows, "attacks": None})

    same = ["verify_rm.checkpoint_seconds=1", "verify_rm.gradient_checkpointing=true", "cooper.steps=3"]
    assert identity(*same) == identity()
    for changed in ("seed=7", "verify_rm.lr=1", "problems.domain=programs", "packed_forward=false"):
        assert identity(changed) != identity(), changed
    before = identity()
    assert before.chosen["data.train"]
    assert "data.attacks" not in before.chosen
    rows.write_text("another row\n")
    assert identity() != before


def test_how_often_a_run_is_saved_may_change_unless_an_alarm_goes_back_to_what_is_saved() -> None:
    def identity(action: str, every: int):
        values = [f"cooper.monitor.action={action}", f"cooper.checkpoint_every={every}"]
        return co_training_identity(load("laptop", values))

    assert identity("warn", 1) == identity("warn", 2)
    assert identity("rollback", 1) != identity("rollback", 2)
