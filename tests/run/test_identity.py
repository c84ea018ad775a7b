"""What a run of co-training may change when it goes on."""

from cooper_rl.config.data import ServerConfig
from cooper_rl.run.identity import MAY_DIFFER, SERVER_KEYS


def test_budgets_and_pauses_of_a_server_may_change_and_what_it_says_may_not() -> None:
    """A run that a budget ended goes on with a raised one."""
    assert set(ServerConfig.model_fields) - set(SERVER_KEYS) == {"model", "temperature", "max_tokens"}
    assert set(SERVER_KEYS) < set(ServerConfig.model_fields)
    assert {"cooper.judge.server.max_cost", "cooper.pairs.assistant.server.max_requests"} < set(MAY_DIFFER)
