"""A run's page while it goes on, and the server that shows it to this machine."""

import html
import math
import re
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from cooper_rl.__main__ import main
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError
from cooper_rl.records.files import write_records
from cooper_rl.records.live import LiveFile, LiveHeader
from cooper_rl.report.live import live_page
from cooper_rl.report.page import settings
from cooper_rl.report.watch import Watcher
from cooper_rl.schema.reports import Interval
from cooper_rl.schema.step_metrics import RolloutMetrics, StepMetrics
from tests.stages.run_files import make_evaluation, make_metrics
from tests.stages.test_report import assert_nothing_but_our_script


def begin(checkpoint: Path, *, steps: int, arm: str | None = None) -> LiveFile:
    live = LiveFile(
        checkpoint, LiveHeader(arm=arm, last_step=40, settings=dict(settings(load("laptop")))), step=0
    )
    for row in make_metrics(40)[:steps]:
        live.append(row)
    return live


@contextmanager
def watched(folder: Path):
    with Watcher(folder, port=0) as watcher:
        thread = threading.Thread(target=watcher.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield watcher
        finally:
            watcher.shutdown()
            thread.join()


def get(address: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=60) as answer:
        return answer.read().decode()


def test_a_run_can_be_watched_from_its_first_step_on(tmp_path: Path) -> None:
    with watched(tmp_path) as watcher:
        assert "No run has begun to train yet" in get(watcher.address)
        live = begin(tmp_path / "run" / "train-cooper" / "checkpoint", steps=1)
        assert "<td>1 of 40</td>" in get(watcher.address)
        live.append(make_metrics(40)[1])
        page = get(watcher.address)
        assert "<td>2 of 40</td>" in page
        assert 'data-live="5"' in page
        assert_nothing_but_our_script(page)
        live.close()


def test_only_this_machines_own_name_and_one_page_are_answered(tmp_path: Path) -> None:
    with watched(tmp_path) as watcher:
        assert watcher.address.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(watcher.address, Host="rebound.example")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{watcher.address}etc/passwd")
        with pytest.raises(
            ConfigError, match=rf"--port {watcher.server_port}: cannot be used .* choose another"
        ):
            Watcher(tmp_path, port=watcher.server_port)
    with pytest.raises(ConfigError, match="absent: no such folder; give the --output of a run"):
        Watcher(tmp_path / "absent", port=0)
    assert main(["watch", str(tmp_path / "absent"), "--write", str(tmp_path / "page.html")]) == 2
    with pytest.raises(ConfigError, match=r"--port 99999: cannot be used \(.*0-65535"):
        Watcher(tmp_path, port=99999)
    with pytest.raises(ConfigError, match=r"no folder \(File name too long\); give the --output of a run"):
        Watcher(tmp_path / ("n" * 300), port=0)


def test_arms_and_iterations_of_a_pipeline_are_told_apart(tmp_path: Path) -> None:
    """Two iterations of Cooper make one line, of 40 steps; the frozen arm beside it has 7."""
    begin(tmp_path / "run" / "train-cooper" / "checkpoint", steps=20).close()
    second = begin(tmp_path / "run" / "train-cooper-2" / "checkpoint", steps=0)
    for row in make_metrics(40)[20:]:
        second.append(row)
    second.close()
    begin(tmp_path / "run" / "train-cooper-0" / "checkpoint", steps=7, arm="frozen").close()
    points = [make_evaluation(0, 0.4, 0.5), make_evaluation(20, 0.45, 0.6)]
    for name, count in (("evaluate-policy", 1), ("evaluate-policy-2", 2)):
        (tmp_path / "run" / name).mkdir()
        write_records(tmp_path / "run" / name / "evaluations", points[:count])
    (tmp_path / "run" / "evaluate-policy-2" / "evaluations.draft").write_text("half")
    page = live_page(tmp_path)
    assert page is not None
    assert "frozen: VerifyRM reward" in page
    assert "Preference pairs" in page  # of Cooper, though the frozen arm's file may come first
    assert (
        '"label":"cooper: VerifyRM reward","color":"orange","dash":"solid","marker":"o","kind":"line"' in page
    )
    assert "Evaluations, run/evaluate-policy-2" in page
    assert "Evaluations, run/evaluate-policy<" not in page
    assert "run/train-cooper-0, frozen" in page
    assert_nothing_but_our_script(page)


@pytest.mark.parametrize("name", ["$\\frac{$", "$5 or $6", "_trial", "<b> & 'c'"])
def test_a_folder_of_any_name_stands_in_the_figures_as_it_is(tmp_path: Path, name: str) -> None:
    """As no formula, no markup, and nothing that a legend leaves out."""
    for arm in (name, "other"):
        begin(tmp_path / arm / "seed-0" / "train_cooper_1" / "checkpoint", steps=3).close()
    page = live_page(tmp_path)
    assert page is not None
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert any(f"{name}: VerifyRM reward" in html.unescape(picture) for picture in pictures)
    assert_nothing_but_our_script(page)


def test_a_number_that_is_not_finite_is_shown_as_a_dash(tmp_path: Path) -> None:
    live = begin(tmp_path / "checkpoint", steps=0)
    rollout = RolloutMetrics(verify_rm_reward=math.nan, rule_accuracy=math.inf)
    live.append(StepMetrics(step=1, rollout=rollout, seconds={"rollout": math.nan}))
    live.close()
    unknown = Interval(value=math.nan, low=math.nan, high=math.nan, count=60)
    evaluation = make_evaluation(0, 0.4, 0.45).model_copy(update={"verify_rm_reward": unknown})
    write_records(tmp_path / "evaluations.jsonl", [evaluation])
    page = live_page(tmp_path)
    assert page is not None
    assert "<td>1 of 40</td>\n<td>–</td>\n<td>–</td>" in page
    assert '<th scope="row">VerifyRM reward</th>\n<td>– <small>–</small></td>' in page
    assert not re.search(r"\b(nan|inf)\b", page, re.IGNORECASE)


def test_the_page_so_far_can_be_written_to_a_file(tmp_path: Path, capsys) -> None:
    for arm in ("cooper", "rule", "frozen"):
        for seed in (0, 1):
            begin(tmp_path / arm / f"seed-{seed}" / "train_cooper_1" / "checkpoint", steps=3).close()
    assert main(["watch", str(tmp_path), "--write", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "data-live" not in page.partition("<script>")[0]
    assert page.count("<svg") == page.count("<figure") > 8
    assert page.count('"label":"rule: tokens"') == 2
    assert main(["watch", str(tmp_path / "rule" / "seed-0"), "--write", str(tmp_path / "one.html")]) == 0
    (tmp_path / "empty").mkdir()
    assert main(["watch", str(tmp_path / "empty"), "--write", str(tmp_path / "none.html")]) == 2
    assert "no run below it has begun to train" in capsys.readouterr().err
