"""Labelling with several judges: third votes, majorities, cascades, and what they take."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cooper_rl.config.load import load
from cooper_rl.errors import ServerError
from cooper_rl.records.files import read_records, write_records
from cooper_rl.schema.data import JudgeVote, Label
from tests.stages.label_completions.labelling import label, write_inputs
from tests.stand_ins.chat import Reply, ScriptedServer


def test_where_rule_and_judge_differ_the_third_vote_decides_and_is_in_the_audit(tmp_path: Path) -> None:
    """All verdicts of the laptop's judge are flipped, so it differs from the rule wherever that has one."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is plenty."], source="tiny")
    flipped = ["labeling.rule.num_workers=1", "labeling.judge={tiny_error_rate=1.0}"]
    assert label(tmp_path, load("laptop", flipped)).decisions["rule_and_judge_disagree"] == 60
    report = label(tmp_path, load("laptop", [*flipped, "labeling.third_vote.judge.tiny_error_rate=0"]))
    assert report.decisions["rule_and_judge_disagree_third_vote_decides"] == 60
    audit = read_records(tmp_path / "labels.jsonl", Label)
    assert len(audit) == 90
    assert [(row.rule, row.judge, row.third, row.third_voter) for row in audit[:3]] == [
        ("correct", "incorrect", "correct", "tiny(error_rate=0)"),
        ("incorrect", "correct", "incorrect", "tiny(error_rate=0)"),
        ("unparsable", "correct", None, None),
    ]
    assert [row.is_correct for row in audit[:2]] == [True, False]
    assert [row.third_reason for row in audit[:3]] == [
        "states 1, reference answer 1", "states 2, reference answer 1", None,
    ]  # fmt: skip


def test_a_second_judge_breaks_the_tie(tmp_path: Path, judge_server: tuple[str, Path]) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"], source="tiny")
    server = f'{{base_url="{judge_server[0]}", model="judge-2"}}'
    config = load(
        "laptop",
        [
            "labeling.rule.num_workers=1",
            "labeling.judge={tiny_error_rate=1.0}",
            f"labeling.third_vote={{judge={{server={server}}}}}",
        ],
    )
    report = label(tmp_path, config)
    assert (report.num_labelled, report.num_correct) == (60, 30)
    assert (report.judge_model, report.judge_usage) == ("tiny(error_rate=1)", None)
    assert report.third_judge_usage is not None
    usage = report.third_judge_usage
    assert usage.num_requests - usage.num_retries == 60
    assert read_records(tmp_path / "labels.jsonl", Label)[0].third_voter == "judge-2"


def say_correct(number: int, body: dict[str, Any]) -> Reply:
    text = f"It is.\nVERDICT-{read_nonce(body)}: CORRECT"
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return 200, {}, json.dumps({"choices": [{"message": {"content": text}}], "usage": usage})


def read_nonce(body: dict[str, Any]) -> str:
    found = re.search(r"<solution-([0-9a-f]{16})>", body["messages"][1]["content"])
    assert found is not None
    return found[1]


def test_a_label_says_why_the_second_judge_gave_no_verdict(tmp_path: Path) -> None:
    """It refuses the two requests about one problem."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"], source="tiny")

    def script(number: int, body: dict[str, Any]) -> Reply:
        if "What is 1 + 0?" in body["messages"][1]["content"]:
            return 400, {}, "too long"
        return say_correct(number, body)

    server = ScriptedServer(script)
    second = f'{{judge={{server={{base_url="{server.url}", model="m"}}}}}}'
    label(tmp_path, load("laptop", ["labeling.judge={tiny_error_rate=1.0}", f"labeling.third_vote={second}"]))
    server.close()
    rows = read_records(tmp_path / "labels.jsonl", Label)
    assert [row.third_failure for row in rows[:3]] == ["refused", "refused", None]
    assert rows[0].third_reason == "no answer: HTTP 400: 'too long'"
    assert rows[0].is_correct is None
    assert rows[2].third == "correct"
    assert rows[2].third_reason is not None
    assert rows[2].third_reason.startswith("It is.")


@pytest.fixture
def agreeing_server() -> Iterator[ScriptedServer]:
    """Calls everything correct, for 110 tokens each."""
    server = ScriptedServer(say_correct)
    yield server
    server.close()


def test_what_judges_take_is_estimated_before_anything_is_asked(
    tmp_path: Path, agreeing_server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """60 decisive rows and 30 that the rule does not read: the second judge may be asked about the 60."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is plenty."])
    prices = "price_per_million_prompt_tokens=10000, price_per_million_completion_tokens=10000"
    server = f'base_url="{agreeing_server.url}", {prices}, max_requests=80'
    overrides = [
        "labeling.rule.num_workers=1",
        f'labeling.judge={{server={{model="m1", {server}}}}}',
        f'labeling.third_vote={{judge={{server={{model="m2", base_url="{agreeing_server.url}"}}}}}}',
    ]
    num_asked: list[int] = []
    caplog.handler.addFilter(lambda record: num_asked.append(len(agreeing_server.bodies)) or True)
    with caplog.at_level("INFO", logger="cooper_rl.verdicts.votes"), pytest.raises(ServerError) as stopped:
        label(tmp_path, load("laptop", overrides))
    said = [text for text in caplog.messages if text.startswith("judge m")]
    assert re.fullmatch(
        r"judge m1: 0 .*; about 90 requests, \d+ prompt tokens with the instructions, "
        r"23040 completion tokens, a cost of \d+\.\d\d; "
        r"server\.max_requests=80 ends it after about 89% of them",
        said[0],
    )
    assert said[1].startswith("judge m2: 0 verdicts are known or asked for once; at most 60 requests, ")
    assert num_asked[caplog.messages.index(said[1])] == 0
    assert "server.max_requests=80 is spent" in str(stopped.value)
    report = label(tmp_path, load("laptop", [*overrides, "labeling.judge.server.max_requests=200"]))
    assert report.num_known_verdicts == 80
    assert report.judge_usage is not None
    assert (report.judge_usage.num_requests, report.judge_usage.cost) == (10, pytest.approx(11.0))


def test_of_several_judges_the_majority_counts_and_each_is_in_the_label(tmp_path: Path) -> None:
    """The first judge is always wrong, the two others (almost) never."""
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}", "The answer is {answer}."], source="tiny")
    others = "labeling.other_judges=[{tiny_error_rate=0.0}, {tiny_error_rate=0.000001}]"
    report = label(tmp_path, load("laptop", ["labeling.judge={tiny_error_rate=1.0}", others]))
    assert report.decisions == {"both_agree": 90}
    assert report.judge_model == "tiny(error_rate=1) + tiny(error_rate=0) + tiny(error_rate=1e-06)"
    row = read_records(tmp_path / "labels.jsonl", Label)[0]
    assert (row.judge, row.judge_reason) == (
        "correct",
        "2 of 3 judges say so: tiny(error_rate=0), tiny(error_rate=1e-06)",
    )
    assert [(vote.voter, vote.verdict) for vote in row.judges] == [
        ("tiny(error_rate=1)", "incorrect"), ("tiny(error_rate=0)", "correct"),
        ("tiny(error_rate=1e-06)", "correct"),
    ]  # fmt: skip
    assert row.judges[0].reason.startswith("flipped by the error rate")
    assert report.agreement is not None
    kappas = {pair: found.kappa for pair, found in report.agreement.pairs.items()}
    assert (kappas["rule~judge"], kappas["judge_2~judge_3"], kappas["judge_1~judge_2"]) == (
        1,
        1,
        pytest.approx(-0.8),
    )
    assert report.agreement.by_answer_type["integer"].correct_dropped_share == 0.0
    assert report.metrics()["agreement/pairs/rule~judge/kappa"] == 1.0


def test_labels_with_and_without_several_judges_are_the_same_in_parquet(tmp_path: Path) -> None:
    plain = {"completion_id": "c", "rule": "correct", "rule_reason": "", "judge": None, "judge_model": None}
    rows = [Label(**plain, is_correct=True, reason="rule_alone")]
    vote = JudgeVote(voter="m", verdict="correct", reason="it is")
    for found in (rows, [*rows, rows[0].model_copy(update={"judges": (vote,), "completion_id": "d"})]):
        write_records(tmp_path / "labels.parquet", found)
        assert read_records(tmp_path / "labels.parquet", Label) == found


def test_a_cascade_asks_where_the_rule_abstains_and_audits_the_rest(tmp_path: Path) -> None:
    """60 decisive completions and 30 that only the judge reads; the judge errs on a tenth of all."""
    write_inputs(
        tmp_path,
        ["#### {answer}", "#### {wrong}", "It is certainly {answer}, so ten less ten."],
        source="tiny",
    )
    config = load(
        "laptop",
        [
            "labeling.judge_asked=where_rule_abstains",
            "labeling.audit_fraction=0.4",
            "labeling.judge.tiny_error_rate=0.1",
        ],
    )
    report = label(tmp_path, config)
    rows = read_records(tmp_path / "labels.jsonl", Label)
    decisive = [row for row in rows if row.rule != "unparsable"]
    audited = [row for row in decisive if row.judge is not None]
    assert all(row.judge is not None for row in rows if row.rule == "unparsable")
    assert 0.2 < len(audited) / len(decisive) < 0.6
    assert report.audit is not None
    assert report.audit.num_audited == len(audited)
    assert report.audit.num_unchecked == len(decisive) - len(audited)
    differing = sum(row.judge != row.rule for row in audited)
    assert report.audit.differing_share.value == pytest.approx(differing / len(audited))
    unchecked = [row for row in decisive if row.judge is None]
    assert {row.reason for row in unchecked} == {"rule_alone"}
    assert all(row.is_correct is (row.rule == "correct") for row in unchecked)
    assert label(tmp_path, config).audit == report.audit


def test_without_a_cascade_there_is_no_audit(tmp_path: Path) -> None:
    write_inputs(tmp_path, ["#### {answer}", "#### {wrong}"], source="tiny")
    report = label(tmp_path, load("laptop"))
    assert report.audit is None
    rows = read_records(tmp_path / "labels.jsonl", Label)
    assert all(row.judge_reason and row.judge_failure is None for row in rows)
