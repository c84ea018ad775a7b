"""What only an engine in a process of its own does; what all engines do is in `test_engine_contract.py`."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from cooper_rl.config.data import GenerationConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.engines import separate
from cooper_rl.engines.base import begin_generating
from cooper_rl.engines.open import open_engine
from cooper_rl.engines.separate import SeparateEngine, visible_devices
from cooper_rl.errors import ConfigError, CooperError, TrainingError
from tests.engines.test_engine_contract import (
    GREEDY,
    PROMPTS,
    SAMPLED,
    as_policy,
    greedy_ids,
    ids,
    make_model,
)

OWN = EngineConfig(process="own")
LONG = GenerationConfig(max_new_tokens=240)


@pytest.fixture(scope="module")
def engine() -> Iterator[SeparateEngine]:
    made = SeparateEngine(as_policy(make_model(0)), OWN)
    yield made
    made.close()


def weights(seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    return iter(make_model(seed).state_dict().items())


def test_it_draws_bit_for_bit_what_the_engine_in_this_process_draws(engine: SeparateEngine) -> None:
    """Tokens and log-probabilities, with the trained weights and with others that are handed over."""
    model = make_model(0)
    here = open_engine(as_policy(model), EngineConfig())
    for seed in (0, 3, 0):
        model.load_state_dict(make_model(seed).state_dict())
        engine.load_weights(weights(seed))
        there = engine.generate(PROMPTS, SAMPLED, samples=3, seed=5)
        assert there == here.generate(PROMPTS, SAMPLED, samples=3, seed=5)


def test_a_draw_is_by_the_weights_that_were_handed_over_before_it(engine: SeparateEngine) -> None:
    """All of it is asked for at once, while the process is still at the first draw."""
    places = range(len(PROMPTS))
    drawn = []
    for seed in (0, 1, 2, 0):
        engine.load_weights(weights(seed))
        drawn.append(begin_generating(engine, PROMPTS, GREEDY, samples=1, seed=0, places=places))
    assert [ids(each.result()) for each in drawn] == [greedy_ids(make_model(seed)) for seed in (0, 1, 2, 0)]


def test_what_the_trainer_changes_later_reaches_the_engine_with_the_next_weights_alone(
    engine: SeparateEngine,
) -> None:
    model = make_model(0)
    expected = greedy_ids(model)
    engine.load_weights(iter(model.state_dict().items()))
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(-1)
    assert ids(engine.generate(PROMPTS, GREEDY, samples=1, seed=0)) == expected


def test_weights_that_were_taken_leave_no_files(engine: SeparateEngine) -> None:
    engine.load_weights(weights(0))
    engine.generate(PROMPTS, GREEDY, samples=1, seed=0)
    assert list(engine.folder.glob("weights-*")) == []


def test_an_error_of_the_process_is_raised_here_and_the_next_draw_goes_on(engine: SeparateEngine) -> None:
    with pytest.raises(TrainingError, match=r"the engine's process failed: \w+Error: "):
        engine.generate([[10**6]], GREEDY, samples=1, seed=0)
    engine.load_weights(weights(0))
    assert ids(engine.generate(PROMPTS, GREEDY, samples=1, seed=0)) == greedy_ids(make_model(0))


def test_sigterm_to_the_whole_job_leaves_the_engine_to_the_trainer(engine: SeparateEngine) -> None:
    os.kill(engine.process.pid or 0, signal.SIGTERM)
    os.kill(engine.process.pid or 0, signal.SIGINT)
    engine.load_weights(weights(0))
    assert ids(engine.generate(PROMPTS, GREEDY, samples=1, seed=0)) == greedy_ids(make_model(0))


def test_a_process_that_is_gone_is_told_by_what_waits_and_by_what_follows() -> None:
    engine = SeparateEngine(as_policy(make_model(0)), OWN)
    try:
        drawn = engine.begin(PROMPTS, LONG, samples=64, seed=0, places=range(4))
        engine.process.kill()
        with pytest.raises(TrainingError, match=r"has ended \(exit status -9;.*engine.process=same"):
            drawn.result()
        engine.load_weights(weights(0))
        with pytest.raises(TrainingError, match="has ended"):
            engine.generate(PROMPTS, GREEDY, samples=1, seed=0)
    finally:
        engine.close()


@pytest.mark.slow
def test_weights_that_cannot_be_taken_stop_the_next_draw_and_an_idle_process_ends_by_itself() -> None:
    """The draw would be by the weights of another step."""
    engine = SeparateEngine(as_policy(make_model(0)), OWN)
    try:
        engine.load_weights(iter({"no.such.weight": torch.zeros(1)}.items()))
        with pytest.raises(TrainingError, match=r"KeyError.*no\.such\.weight"):
            engine.generate(PROMPTS, GREEDY, samples=1, seed=0)
    finally:
        engine.close()
    assert engine.process.exitcode == 0
    assert not engine.folder.exists()


@pytest.mark.slow
def test_closing_does_not_wait_for_a_draw() -> None:
    engine = SeparateEngine(as_policy(make_model(0)), OWN)
    drawn = [engine.begin(PROMPTS, LONG, samples=1000, seed=0, places=range(4)) for _ in range(3)]
    time.sleep(0.5)
    engine.close()
    assert engine.process.exitcode == -signal.SIGKILL
    assert not engine.folder.exists()
    assert all(each.cancelled() or each.exception() is not None for each in drawn)


def test_a_start_that_fails_is_told_as_it_is_there() -> None:
    """vLLM is not installed here; where it is, it refuses a length that the model was not made for."""
    config = EngineConfig(process="own", kind="vllm", max_model_len=10**6)
    with pytest.raises(ConfigError, match=r"engine\.(kind=vllm|max_model_len)"):
        SeparateEngine(as_policy(make_model(0)), config)


@pytest.mark.slow
def test_the_process_ends_with_a_trainer_that_is_killed(tmp_path: Path) -> None:
    code = """
        from cooper_rl.config.engine import EngineConfig
        from cooper_rl.engines.separate import SeparateEngine
        from tests.engines.test_engine_contract import PROMPTS, as_policy, make_model
        from tests.engines.test_engine_separate import LONG
        if __name__ == "__main__":
            engine = SeparateEngine(as_policy(make_model(0)), EngineConfig(process="own"))
            engine.begin(PROMPTS, LONG, samples=1000, seed=0, places=range(4))
            print(engine.process.pid, flush=True)
            engine.process.join()
    """
    script = tmp_path / "trainer.py"
    script.write_text(textwrap.dedent(code))
    root = Path(__file__).parents[2]
    trainer = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}", "OMP_NUM_THREADS": "1"},
    )
    assert trainer.stdout is not None
    pid = int(trainer.stdout.readline())
    os.kill(pid, 0)
    trainer.kill()
    trainer.wait()
    assert wait_for_end(pid)


def wait_for_end(pid: int) -> bool:
    """True once there is no such process, or only what its parent has not asked about."""
    for _ in range(300):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("devices", "environment", "expected"),
    [
        ((1,), {"CUDA_VISIBLE_DEVICES": "4,6"}, "6"),
        ((2, 3), {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, "6,7"),
        ((2, 3), {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, "3"),
        ((1,), {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, "GPU-b"),
    ],
)
def test_each_trainer_has_its_share_of_the_devices(
    devices: tuple[int, ...], environment: dict[str, str], expected: str
) -> None:
    config = EngineConfig(process="own", devices=devices)
    assert visible_devices(config, CUDA, environment) == expected


@pytest.mark.parametrize(
    ("values", "environment", "message"),
    [
        ({"devices": (4,)}, {}, r"devices=\[4\]: this process sees 4 devices"),
        ({"devices": (0, 1)}, {}, r"the first 1 train: leave them out"),
        ({"devices": (2,)}, {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "2 trainers.*: give 2"),
        ({"devices": (1,), "tensor_parallel_size": 2}, {}, "engine.tensor_parallel_size=2: give 2"),
    ],
)
def test_devices_that_do_not_fit_are_refused(
    values: dict[str, object], environment: dict[str, str], message: str
) -> None:
    config = EngineConfig.model_validate({"process": "own", **values})
    with pytest.raises(ConfigError, match=message):
        visible_devices(config, CUDA, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"} | environment)


def test_devices_without_cuda_are_refused_before_a_process_starts() -> None:
    with pytest.raises(ConfigError, match=r"engine.devices=\[1\]: training runs on cpu.*set it to null"):
        SeparateEngine(as_policy(make_model(0)), EngineConfig(process="own", devices=(1,)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"devices": (1,)}, "engine.process=own, or engine.devices=null"),
        ({"process": "own", "devices": ()}, "give numbers of GPUs from 0"),
        ({"process": "own", "devices": (1, 1)}, "each once"),
        ({"process": "own", "devices": (-1,)}, "give numbers of GPUs from 0"),
    ],
)
def test_devices_that_mean_nothing_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        EngineConfig.model_validate(values)


def test_a_full_disk_is_told_with_the_place(engine: SeparateEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(separate.torch, "save", refuse)
    with pytest.raises(CooperError, match=r"No space left on device.*set TMPDIR, or set engine.process=same"):
        engine.load_weights(weights(0))
