"""SIGTERM, a second start, another configuration, and what must never be written down."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cooper_rl.config.infrastructure import StorageConfig
from cooper_rl.errors import StoppedError
from cooper_rl.run.stopping import StopRequest
from tests.faults.conftest import Outcome, Trainer, outcome
from tests.faults.kill_server import OVERRIDES
from tests.faults.test_store_faults import environment, overrides
from tests.stand_ins.fixtures import make_client, storage_config
from tests.stand_ins.proxy import Proxy
from tests.stand_ins.radosgw import Account, Gateway

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("point", "hit", "step"), [("rollout", 1, 1), ("reward_update", 2, 2), ("files", 1, 1)]
)
def test_a_run_that_is_told_to_end_saves_and_continues_exactly(
    trainer: Trainer, straight: Outcome, tmp_path: Path, point: str, hit: int, step: int
) -> None:
    """Checkpoints are due at the end only, so that what is saved is saved because of the signal."""
    checkpoint = tmp_path / "checkpoint"
    rare = "cooper.checkpoint_every=100" if point != "files" else "cooper.checkpoint_every=1"
    kill = {"point": point, "hit": hit, "signal": signal.SIGTERM}
    assert trainer.run(checkpoint, rare, kill=kill) == 2
    last = trainer.log().strip().splitlines()[-1]
    assert "StoppedError: SIGTERM: stopped after step" in last
    assert "of 3, which is saved; start again with the same arguments to continue" in last
    assert (checkpoint / "LATEST").read_text() >= f"step-{step:06d}"
    assert trainer.run(checkpoint) == 0
    assert outcome(checkpoint) == straight


def interrupt_without_store(
    trainer: Trainer, proxy: Proxy, config: StorageConfig, folder: Path, *, times: int
) -> tuple[int, str]:
    """Status and log of a run that gets so many Ctrl-C when the store is away after its first checkpoint."""
    settings = [*OVERRIDES, "cooper.steps=1000", *overrides(config)]
    paths = {
        "models": trainer.folder / "models",
        "verify-rm": trainer.folder / "verify_rm",
        "problems": trainer.folder / "problems.jsonl",
        "checkpoint": folder / "run",
        "report": folder / "report.json",
    }
    command = [sys.executable, "-m", "cooper_rl", "train-cooper", "--preset", "laptop"]
    command += [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    command += [word for each in settings for word in ("--set", each)]
    said: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said.append(line)
                if line.endswith("/step-000001\n"):
                    proxy.refuse = True
                if "asking again" in line or ("; Ctrl-C gives it up" in line and times > 1):
                    process.send_signal(signal.SIGINT)
                    time.sleep(0.5)  # for the log of the first one
            return process.wait(timeout=20), "".join(said)
        finally:
            process.kill()


@pytest.mark.parametrize("times", [1, 2])
def test_a_run_that_is_interrupted_while_the_store_is_away_says_how_long_it_waits(
    trainer: Trainer, gateway: Gateway, bucket: str, tmp_path: Path, times: int
) -> None:
    """The second Ctrl-C ends the wait, which would last for ten minutes."""
    with Proxy(gateway.port) as proxy:
        patience = {1: 4, 2: 600}[times]
        config = storage_config(proxy.endpoint, bucket, retry_seconds=patience)
        status, log = interrupt_without_store(trainer, proxy, config, tmp_path, times=times)
    assert status == 130, log[-3000:]
    assert log.endswith("\ncooper-rl train-cooper: interrupted; files that were complete stay\n")
    expected = (
        rf"waiting until the checkpoint of step \d+ is in s3://{bucket}/runs/test/from-000001; a store that "
        rf"does not answer is given up after about {patience + 5} s \(storage\.retry_seconds={patience}, "
        r"storage\.timeout_seconds=5\); Ctrl-C gives it up\n"
    )
    assert len(re.findall(expected, log)) == 1
    assert ("is given up; unless it is complete" in log) == (times == 2)
    assert len(list((tmp_path / "run").glob(".staging-*"))) == times - 1  # what the next start removes


def test_a_step_that_cannot_end_in_time_is_given_up() -> None:
    """The step before took longer than the grace period allows."""

    def interrupted() -> None:
        with stop.step():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    with StopRequest(grace_seconds=0.1) as stop:
        with stop.step():
            time.sleep(0.3)
        with pytest.raises(StoppedError, match=r"in the middle of a step with about .* checkpoint stands"):
            interrupted()
    assert stop.is_made


def test_the_first_step_of_a_process_says_nothing_of_the_others() -> None:
    """It compiles kernels: a step that can end in time is not given up for it."""
    with StopRequest(grace_seconds=0.1) as stop:
        for seconds in (0.3, 0.0):
            with stop.step():
                time.sleep(seconds)
        with stop.step():
            os.kill(os.getpid(), signal.SIGTERM)
    assert stop.is_made


def test_outside_the_main_thread_signals_stay_as_they_were() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[bool] = []

    def use() -> None:
        with StopRequest(grace_seconds=1) as stop:
            seen.append(stop.is_made)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [False]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_finished_run_says_so_and_changes_nothing(
    trainer: Trainer, straight: Outcome, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert trainer.run(checkpoint) == 0
    before = {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")}
    said = trainer.log().count("finished already, nothing is trained")
    assert trainer.run(checkpoint) == 0
    assert trainer.log().count("finished already, nothing is trained") == said + 1
    assert {path: path.stat().st_mtime_ns for path in checkpoint.rglob("*")} == before


def test_another_configuration_or_other_problems_are_refused_with_what_differs(
    trainer: Trainer, straight: Outcome, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert trainer.run(checkpoint, "cooper.steps=1") == 0
    assert trainer.run(checkpoint, "cooper.group_size=2", "seed=1") == 2
    last = trainer.log().strip().splitlines()[-1]
    assert "ConfigError" in last
    assert "(cooper.group_size: 4 there, 2 here; seed: 0 there, 1 here)" in last
    fewer = tmp_path / "fewer.jsonl"
    fewer.write_text("".join((trainer.folder / "problems.jsonl").open().readlines()[:4]))
    assert trainer.run(checkpoint, arguments={"problems": str(fewer)}) == 2
    last = trainer.log().strip().splitlines()[-1]
    assert "data.problems: " in last
    assert "data.verify_rm: " not in last
    assert trainer.run(checkpoint, "cooper.checkpoint_every=2", "storage.keep_last=1") == 0
    assert outcome(checkpoint) == straight


def test_iterations_hand_over_by_reference(
    trainer: Trainer, straight: Outcome, gateway: Gateway, bucket: str, tmp_path: Path
) -> None:
    config = storage_config(gateway.endpoint, bucket)
    job = {"environment": environment(gateway.account)}
    assert trainer.run(tmp_path / "one", *overrides(config), "cooper.steps=1", **job) == 0
    second = job | {"arguments": {"start": str(tmp_path / "one")}}
    status = trainer.run(tmp_path / "two", *overrides(config), "cooper.steps=2", **second)
    assert status == 0, trainer.log()[-3000:]
    assert outcome(tmp_path / "two", config) == straight


@pytest.mark.parametrize("is_mounted", [False, True], ids=["environment", "mounted files"])
def test_no_credential_is_written_anywhere(
    trainer: Trainer, gateway: Gateway, bucket: str, tmp_path: Path, is_mounted: bool
) -> None:
    """Log, report, reference, and every object of the bucket; once a run succeeds and once it is refused."""
    for number, secret in enumerate((gateway.account.secret_key, "wrong-secret-hunter2")):
        account = Account(gateway.account.access_key, secret)
        options, job = {}, {"environment": environment(account)}
        if is_mounted:
            options, job = {"credentials": tmp_path.with_name(f"{tmp_path.name}-secret-{number}")}, {}
            options["credentials"].mkdir()
            (options["credentials"] / "access_key").write_text(account.access_key)
            (options["credentials"] / "secret_key").write_text(account.secret_key)
        config = storage_config(gateway.endpoint, bucket, **options)
        status = trainer.run(tmp_path / f"run-{number}", *overrides(config), **job)
        assert status == 2 * number, trainer.log()[-3000:]
    client = make_client(gateway.port, gateway.account)
    texts = [client.get_object(bucket, str(item.object_name)).data
             for item in client.list_objects(bucket, recursive=True)]  # fmt: skip
    assert len(texts) > 10
    texts += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    texts.append(trainer.log().encode())
    for secret in (gateway.account.secret_key, "wrong-secret-hunter2"):
        assert not any(secret.encode() in text for text in texts)


def test_code_beside_a_model_is_refused(trainer: Trainer, tmp_path: Path) -> None:
    """A model folder that brings Python files with it: they are neither run nor trusted."""
    import json
    import shutil

    folder = tmp_path / "models"
    shutil.copytree(trainer.folder / "models", folder)
    settings = json.loads((folder / "policy" / "config.json").read_text())
    settings |= {"model_type": "mystery", "auto_map": {"AutoConfig": "evil.Config"}}
    (folder / "policy" / "config.json").write_text(json.dumps(settings))
    (folder / "policy" / "evil.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    assert trainer.run(tmp_path / "run", arguments={"models": str(folder)}) == 2
    assert "trust_remote_code" in trainer.log().strip().splitlines()[-1] + trainer.log()[-3000:]
    assert not (tmp_path / "executed").exists()
