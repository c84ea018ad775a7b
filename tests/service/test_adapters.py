"""The function files for trainers ask a real server, called as the trainers' own code calls them.

Where veRL, verifiers, ms-swift or OpenRLHF is installed, its own code calls. None is in this project's
environment: `make test-trainers` makes one for each.
"""

import asyncio
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from cooper_rl import RewardClient
from cooper_rl.adapters import verl
from cooper_rl.errors import CooperError
from tests.service.conftest import Server, scored_by_verifiers

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def address(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a server whose steps are six completions."""
    assert server.start(tmp_path_factory.mktemp("adapters") / "state", {})
    return server.url


@pytest.fixture(autouse=True)
def run(address: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test has a run of its own; the adapters read the environment when they are first called."""
    name = request.node.name.replace("_", "-")[:60].rstrip("-")
    monkeypatch.setenv("COOPER_REWARD_URL", address)
    monkeypatch.setenv("COOPER_REWARD_RUN", name)
    verl.connect.cache_clear()
    yield name
    verl.connect.cache_clear()


def steps(address: str, run: str) -> tuple[int, int]:
    """Steps learned or being learned, and completions of the next one."""
    (found,) = (row for row in httpx.get(f"{address}/v1/runs", timeout=60).json() if row["run"] == run)
    return found["step"], found["collected_items"]


def test_verl_asks_for_one_completion_at_a_time(address: str, run: str) -> None:
    """As `NaiveRewardManager.run_single` of veRL 0.9.1 does, with keyword arguments."""
    facts = {"question": "1 + 1?", "num_turns": 1, "rollout_reward_scores": {}}
    rewards = [
        verl.compute_score(
            data_source="openai/gsm8k",
            solution_str=f"#### {answer}",
            ground_truth="2",
            extra_info=facts | {"split": split},
        )
        for answer, split in ((2, "train"), (3, "train"), (2, "test"))
    ]
    assert all(0 < reward < 1 for reward in rewards)
    assert rewards[0] == rewards[2]
    assert steps(address, run) == (0, 2)
    with pytest.raises(CooperError, match=r"openai/gsm8k: no extra_info\.question"):
        verl.compute_score("openai/gsm8k", "2", "2", {})


def test_verls_own_loader_finds_the_function() -> None:
    reward = pytest.importorskip("verl.trainer.ppo.reward", reason="veRL 0.9.1 is not installed")
    omegaconf = pytest.importorskip("omegaconf")
    keys = {"path": "pkg://cooper_rl.adapters.verl", "name": "compute_score"}
    config = omegaconf.OmegaConf.create({"reward": {"custom_reward_function": keys}})
    found = reward.get_custom_reward_fn(config)(
        data_source="d", solution_str="#### 2", ground_truth="2", extra_info={"question": "1 + 1?"}
    )
    assert 0 < found < 1


class ORM:
    """The base class of ms-swift's reward functions."""

    def __init__(self, args: Any = None) -> None:
        self.args = args


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """ms-swift's module `swift.rewards`; where it is not installed, the two names that plugins use."""
    try:
        return importlib.import_module("swift.rewards")
    except ImportError:
        rewards = ModuleType("swift.rewards")
        vars(rewards).update(ORM=ORM, orms={})
        monkeypatch.setitem(sys.modules, "swift", ModuleType("swift"))
        monkeypatch.setitem(sys.modules, "swift.rewards", rewards)
        return rewards


def test_ms_swift_finds_the_plugin_by_its_name(swift: ModuleType, address: str, run: str) -> None:
    """As `score_completions` of ms-swift 4.6.0 calls it: the data set's columns as lists."""
    sys.modules.pop("cooper_rl.adapters.ms_swift.cooper_plugin", None)
    importlib.import_module("cooper_rl.adapters.ms_swift.cooper_plugin")
    reward = swift.orms["cooper"](args=None)
    asked = [{"role": "system", "content": "Think."}, {"role": "user", "content": "1 + 1?"}]
    messages = [[*asked, {"role": "assistant", "content": text}] for text in ("#### 2", "#### 3")]
    rewards = reward(["#### 2", "#### 3"], messages=messages, solution=["2", "2"], trainer_state=None)
    assert len(rewards) == 2
    assert steps(address, run) == (0, 2)
    with pytest.raises(CooperError, match="no column 'solution'; rename that of the final answers"):
        reward(["#### 2"], messages=messages[:1], answer=["2"], trainer_state=None)
    sys.modules.pop("cooper_rl.adapters.ms_swift.cooper_plugin", None)


def test_the_plugins_folder_hides_no_package_where_it_is_first_on_the_path() -> None:
    """As `import_external_file` of ms-swift 4.6.0 puts it, for the processes that it spawns too."""
    (plugin,) = (ROOT / "src/cooper_rl/adapters").rglob("cooper_plugin.py")
    command = f"import sys; sys.path.insert(0, {str(plugin.parent)!r}); from trl import GRPOConfig"
    subprocess.run([sys.executable, "-c", command], check=True)


def test_a_task_of_verifiers_is_scored_by_its_own_code(address: str, run: str) -> None:
    pytest.importorskip("verifiers.v1", reason="verifiers 0.4.0 is not installed")
    adapter = importlib.import_module("cooper_rl.adapters.vf")
    names: dict[str, Any] = {}
    page = (ROOT / "docs/how-to/trainers/verifiers.md").read_text(encoding="utf-8")
    exec(page.partition("```python\n")[2].partition("```")[0], names)  # the page's own code
    task = names["SolveIt"](names["Problem"](idx=0, prompt="1 + 1?", answer="2"))
    assert isinstance(task, adapter.CooperReward)
    reward = scored_by_verifiers(task, "It is 2.")
    assert 0 < reward < 1
    assert steps(address, run) == (0, 1)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
    chat = names["SolveIt"](names["Problem"](idx=1, prompt=messages, answer="2"))
    assert scored_by_verifiers(chat, "It is 2.") == reward


def test_openrlhfs_own_executor_reads_the_answers(address: str, run: str) -> None:
    agent = pytest.importorskip("openrlhf.utils.agent", reason="OpenRLHF 0.11.2 is not installed")
    executor = agent.SingleTurnAgentExecutor(f"{address}/v1/runs/{run}/openrlhf")
    found = asyncio.run(executor._fetch_rewards_via_http(["1 + 1?#### 2"], ["1 + 1?"], ["2"]))
    assert 0 < found[0]["rewards"][0] < 1
    assert found[0]["scores"] == found[0]["rewards"]


def test_the_function_files_are_short_and_ask_with_arguments_that_exist() -> None:
    """At most 30 lines each."""

    known = set(inspect.signature(RewardClient.__call__).parameters)
    for path in (ROOT / "src/cooper_rl/adapters").rglob("[!_]*.py"):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 30, path
        assert {"questions", "reference_answers", "learn"} <= known
        compile(text, str(path), "exec")
