"""The example programs for trainers: their rows suit the function files, and their options the trainers.

Options are looked up where the trainer is installed: `make test-trainers`.
"""

import ast
import importlib
import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cooper_rl.adapters import verl
from tests.service.conftest import ROOT, Server, scored_by_verifiers

EXAMPLES = ROOT / "examples"
ROW = {"question": "1 + 1?", "answer": "1 + 1 is <<1+1=2>>2.\n#### 2"}
"""In GSM8K's columns."""


@pytest.fixture(scope="module")
def address(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    assert server.start(tmp_path_factory.mktemp("examples") / "state", {})
    return server.url


@pytest.fixture(autouse=True)
def run(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the workers of a trainer have in their environment."""
    monkeypatch.setenv("COOPER_REWARD_URL", address)
    verl.connect.cache_clear()


def program(name: str) -> ModuleType:
    """An example as a module; nothing is downloaded before its `main` or `load`."""
    about = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert about is not None
    assert about.loader is not None
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module


def source_of(package: str, reason: str) -> Path:
    """The folder of an installed package, which need not be importable as a whole."""
    about = importlib.util.find_spec(package)
    if about is None or not about.submodule_search_locations:
        pytest.skip(reason)
    return Path(about.submodule_search_locations[0])


def options_of(text: str) -> set[str]:
    return set(re.findall(r"^ +--(\S+)", text, re.MULTILINE))


def test_a_row_for_verl_is_scored_by_the_function_file() -> None:
    """As veRL's reward manager calls it: with columns of the row."""
    row = program("verl_gsm8k").make_row(ROW, "train")
    reward = verl.compute_score(
        data_source=row["data_source"],
        solution_str="#### 2",
        ground_truth=row["reward_model"]["ground_truth"],
        extra_info=row["extra_info"],
    )
    assert 0 < reward < 1
    assert row["reward_model"]["ground_truth"] == "2"


def test_the_settings_for_verl_fit_its_own_configuration() -> None:
    folder = source_of("verl", "veRL 0.9.1 is not installed")
    omegaconf = pytest.importorskip("omegaconf")
    known = omegaconf.OmegaConf.load(folder / "trainer/config/_generated_ppo_trainer.yaml")
    omegaconf.OmegaConf.set_struct(known, True)
    given = omegaconf.OmegaConf.from_dotlist(list(program("verl_gsm8k").SETTINGS))
    merged = omegaconf.OmegaConf.merge(known, given)
    assert merged.reward.custom_reward_function.name == "compute_score"


def test_a_row_for_openrlhf_has_the_columns_that_its_options_name() -> None:
    module = program("openrlhf_gsm8k")
    words = module.OPTIONS.split()
    columns = {words[words.index(name) + 1] for name in ("--data.input_key", "--data.label_key")}
    assert set(module.make_row(ROW)) == columns
    assert module.make_row(ROW)["answer"] == "2"


def test_the_options_for_openrlhf_are_its_own() -> None:
    folder = source_of("openrlhf", "OpenRLHF 0.11.2 is not installed")
    source = (folder / "cli/train_ppo_ray.py").read_text(encoding="utf-8").replace("{prefix}", "actor")
    known = set(re.findall(r'add_argument\(\s*f?"--([\w.]+)"', source))
    assert options_of(program("openrlhf_gsm8k").OPTIONS) - known == set()


def test_a_row_for_swift_has_the_columns_that_the_plugin_reads() -> None:
    row = program("swift_gsm8k").make_row(ROW)
    assert row == {"messages": [{"role": "user", "content": "1 + 1?"}], "solution": "2"}


def test_the_plugin_for_swift_may_lie_in_a_folder_with_a_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, started = program("swift_gsm8k"), []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "load_dataset", lambda *_, **__: [ROW])
    monkeypatch.setattr(module.subprocess, "run", lambda words, **_: started.append(words))
    installed = SimpleNamespace(submodule_search_locations=["/my projects/cooper_rl"])
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: installed)
    module.main()
    (words,) = started
    assert (
        words[words.index("--external_plugins") + 1]
        == "/my projects/cooper_rl/adapters/ms_swift/cooper_plugin.py"
    )
    assert words[words.index("--dataset") + 1] == "runs/swift/train.jsonl"


def test_the_options_for_swift_are_its_own_or_transformers() -> None:
    """Fields of the classes of arguments, which ms-swift derives from those of transformers and TRL."""
    folders = [
        source_of("swift", "ms-swift 4.6.0 is not installed"),
        source_of("trl", ""),
        source_of("transformers", ""),
    ]
    known = {
        node.target.id
        for folder in folders
        for path in folder.rglob("*arg*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert options_of(program("swift_gsm8k").OPTIONS) - known == set()


def test_the_taskset_for_verifiers_is_scored_by_verifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    vf = pytest.importorskip("verifiers.v1", reason="verifiers 0.4.0 is not installed")
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    found = tomllib.loads((EXAMPLES / "verifiers_gsm8k.toml").read_text(encoding="utf-8"))
    (environment,) = found["orchestrator"]["train"]["env"]
    importlib.import_module("cooper_rl.adapters.vf").connect.cache_clear()
    config = vf.SingleAgentEnvConfig.model_validate(environment["env"])
    task = vf.load_taskset(config.taskset).make_task(0, ROW)
    assert (task.data.prompt, task.data.answer) == ("1 + 1?", "2")
    assert 0 < scored_by_verifiers(task, "It is 2.") < 1


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_a_program_is_whole_and_its_page_names_it(path: Path) -> None:
    compile(path.read_text(encoding="utf-8"), str(path), "exec")
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs/how-to/trainers").glob("*.md")]
    assert any(f"`examples/{path.name}`" in page for page in pages)
