"""Promotion: files in, a champion in the registry or none, the same end however often it runs."""

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from cooper_rl.checkpoints.manifest import CheckpointManifest
from cooper_rl.checkpoints.reference import open_checkpoint
from cooper_rl.checkpoints.registry import CHAMPION, Registry, open_registry, version_name
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError, DamagedObjectError, DataError, StorageError, WriteConflictError
from cooper_rl.method.intervals import clustered_interval
from cooper_rl.records.files import read_records, read_report, write_records, write_report
from cooper_rl.schema.data import EvaluatedCompletion, Problem, Verdict
from cooper_rl.schema.red_team import RedTeamReport
from cooper_rl.schema.reports import EvalReport, Interval
from cooper_rl.schema.runs import KnownProblem, PromoteReport
from cooper_rl.stages import promote
from tests.stages.champions import (
    EXAMPLES,
    HELD_OUT,
    LATER,
    TRAINING,
    Candidates,
    configured,
    make_candidate,
    make_evaluation,
    make_examples,
)


@pytest.fixture
def candidates(tmp_path: Path, make_policy, make_verify_rm) -> Candidates:
    """Candidates by seed of their weights."""

    def make(seed: int, outcomes: list[int], **options) -> dict[str, Path]:
        folder = tmp_path / f"candidate-{seed}"
        return make_candidate(
            folder, outcomes, policy=make_policy(seed), verify_rm=make_verify_rm(seed), **options
        )

    return make


def test_the_first_candidate_becomes_champion_with_everything_that_was_said_of_it(
    tmp_path: Path, candidates: Candidates
) -> None:
    paths = candidates(0, [0, 1] * 4)
    config = configured(tmp_path / "registry")
    decision = promote.run(config, **paths)
    assert decision.is_promoted
    assert read_report(paths["report"], PromoteReport) == decision
    assert paths["summary"].read_text().startswith(f"# {decision.candidate} is promoted, the first champion")
    champion = open_registry(config).champion()
    assert champion is not None
    assert champion.name == decision.candidate
    assert champion.record.decision == decision
    assert champion.record.checkpoint == f"{paths['checkpoint']}/step-000003"
    folder = open_registry(config).fetch(champion, tmp_path / "fetched", starting_with=("",))
    assert read_records(folder / "held_out.jsonl", Problem) == HELD_OUT
    assert len(read_records(folder / "known.jsonl", KnownProblem)) == len(TRAINING)
    AutoModelForCausalLM.from_pretrained(folder / "policy")
    AutoModelForSequenceClassification.from_pretrained(folder / "verify_rm")


def test_a_model_registry_that_is_away_undoes_no_promotion(
    tmp_path: Path, candidates: Candidates, caplog: pytest.LogCaptureFixture
) -> None:
    """MLflow is told after the pointer is written; what it does with a champion is in tests/run."""
    paths = candidates(0, [0, 1] * 4)
    config = configured(tmp_path / "registry")
    away = config.registry.model_copy(update={"mlflow": "nowhere://host"})
    decision = promote.run(config.model_copy(update={"registry": away}), **paths)
    assert (
        f"registry.mlflow: {decision.candidate} is the champion, and MLflow does not have it" in caplog.text
    )
    champion = open_registry(config).champion()
    assert champion is not None
    assert champion.name == decision.candidate


def test_a_better_one_takes_the_place_and_learned_problems_add_up(
    tmp_path: Path, candidates: Candidates
) -> None:
    config = configured(tmp_path / "registry")
    first = promote.run(config, **candidates(0, [0] * 8))
    second = promote.run(config, **candidates(1, [1] * 8, training=[*TRAINING[:2], *LATER]))
    assert second.is_promoted
    assert second.champion == first.candidate
    champion = open_registry(config).champion()
    assert champion is not None
    assert (champion.name, champion.record.previous) == (second.candidate, first.candidate)
    assert champion.record.num_known_problems == len(TRAINING) + len(LATER)


def test_one_that_is_not_better_leaves_the_registry_as_it_is(tmp_path: Path, candidates: Candidates) -> None:
    config = configured(tmp_path / "registry")
    first = promote.run(config, **candidates(0, [1] * 8))
    before = sorted((tmp_path / "registry").rglob("*"))
    second = promote.run(config, **candidates(1, [1] * 8))
    assert not second.is_promoted
    assert (tmp_path / "registry" / CHAMPION).read_text() == f"{first.candidate}\n"
    assert sorted((tmp_path / "registry").rglob("*")) == before


def test_a_second_try_of_a_promotion_gives_the_first_ones_decision(
    tmp_path: Path, candidates: Candidates
) -> None:
    config = configured(tmp_path / "registry")
    promote.run(config, **candidates(0, [0] * 8))
    paths = candidates(1, [1] * 8)
    once = promote.run(config, **paths)
    before = {path: path.read_bytes() for path in (tmp_path / "registry").rglob("*") if path.is_file()}
    assert promote.run(config, **paths) == once
    after = {path: path.read_bytes() for path in (tmp_path / "registry").rglob("*") if path.is_file()}
    assert after == before


def test_a_try_that_broke_off_before_the_pointer_is_made_good(
    tmp_path: Path, candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(tmp_path / "registry")
    paths = candidates(0, [1] * 8)
    store_type = type(open_registry(config)._store)
    write = store_type.write

    def break_off(self, key: str, data: bytes, *, replaces: str | None) -> str:
        if key == CHAMPION:
            raise StorageError("the network is gone")
        return write(self, key, data, replaces=replaces)

    with monkeypatch.context() as patched:
        patched.setattr(store_type, "write", break_off)
        with pytest.raises(StorageError, match="the network is gone"):
            promote.run(config, **paths)
    with pytest.raises(DamagedObjectError, match="CHAMPION is missing, and there is a version v-"):
        open_registry(config).champion()
    assert promote.run(config, **paths).is_promoted
    assert open_registry(config).champion() is not None


def test_who_comes_second_is_compared_with_who_came_first(
    tmp_path: Path, candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both saw no champion; the other one is promoted while this one's files are being stored."""
    config = configured(tmp_path / "registry")
    first, second = candidates(0, [1] * 8), candidates(1, [1] * 8)
    through = Registry.promote

    def late(self, *args, **options) -> None:
        monkeypatch.setattr(Registry, "promote", through)
        promote.run(config, **first)
        through(self, *args, **options)

    monkeypatch.setattr(Registry, "promote", late)
    decision = promote.run(config, **second)
    assert not decision.is_promoted
    champion = open_registry(config).champion()
    assert champion is not None
    assert decision.champion == champion.name
    assert decision.reasons[0] == (
        "Accuracy is not better beyond the interval: +0.0 points (−22.3 to +22.3) on 8 problems."
    )


def test_who_always_comes_second_gives_up(
    tmp_path: Path, candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_args, **_options) -> None:
        raise WriteConflictError("somebody else wrote it")

    monkeypatch.setattr(Registry, "promote", lose)
    with pytest.raises(WriteConflictError, match="5 other champions were promoted while this one was"):
        promote.run(configured(tmp_path / "registry"), **candidates(0, [1] * 8))


def test_a_champion_is_judged_anew_by_the_rule_verifier_of_today(
    tmp_path: Path, candidates: Candidates
) -> None:
    """Its verifier refused what is right by today's; the candidate, judged by today's, is no better."""
    config = configured(tmp_path / "registry", "evaluation.judge=null")
    first = promote.run(config, **without_judge(candidates(0, [0] * 8), "incorrect"))
    assert first.accuracy.value == 0
    decision = promote.run(config, **without_judge(candidates(1, [1] * 8), "correct"))
    assert not decision.is_promoted
    assert decision.champion_accuracy == decision.accuracy
    assert decision.accuracy.value == 1
    assert decision.accuracy_change is not None
    assert decision.accuracy_change.value == 0


def test_a_champion_is_judged_anew_with_the_question_and_the_ending(
    tmp_path: Path, candidates: Candidates
) -> None:
    """The candidate's verdicts were given on both: without them the champion alone would lose answers."""
    config = configured(tmp_path / "registry", "evaluation.judge=null")
    held_out = [
        row.model_copy(
            update={
                "question": f"{row.question} Round to the nearest whole number.",
                "reference_answer": "12.37",
            }
        )
        for row in HELD_OUT
    ]
    for seed in (0, 1):
        paths = without_judge(candidates(seed, [1] * 8, held_out=held_out), "correct")
        rows = read_records(paths["completions"], EvaluatedCompletion)
        rounded = [row.model_copy(update={"completion": "#### 12"}) for row in rows]
        write_records(paths["completions"], rounded)
        decision = promote.run(config, **paths)
    assert decision.champion_accuracy is not None
    assert decision.champion_accuracy.value == 1
    assert not decision.is_promoted


def without_judge(paths: dict[str, Path], rule: Verdict) -> dict[str, Path]:
    """A candidate whose completions are right, and of which its rule verifier said so much."""
    rows = [
        row.model_copy(update={"completion": f"#### {row.reference_answer}", "judge": None, "rule": rule})
        for row in read_records(paths["completions"], EvaluatedCompletion)
    ]
    write_records(paths["completions"], rows)
    accuracy = clustered_interval([[float(rule == "correct")] for _ in rows])
    changes = {"judge_accuracy": None, "judge_model": None, "rule_accuracy": accuracy}
    reports = read_records(paths["evaluations"], EvalReport)
    write_records(paths["evaluations"], [report.model_copy(update=changes) for report in reports])
    return paths


def test_a_candidate_that_was_judged_on_other_sets_is_refused(tmp_path: Path, candidates: Candidates) -> None:
    config = configured(tmp_path / "registry")
    promote.run(config, **candidates(0, [0] * 8))
    with pytest.raises(DataError, match=r"other held-out problems than champion v-.* evaluate it on those"):
        promote.run(config, **candidates(1, [1] * 8, held_out=LATER[:8]))
    others = make_examples(LATER[:4])
    with pytest.raises(DataError, match="other labelled examples than champion v-"):
        promote.run(config, **candidates(2, [1] * 8, examples=others))
    with pytest.raises(ConfigError, match=r"evaluation\.generation\.temperature: 1\.0 there, 0\.5 here"):
        promote.run(
            configured(tmp_path / "registry", "evaluation.generation.temperature=0.5"),
            **candidates(3, [1] * 8),
        )


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, candidates: Candidates) -> None:
    config = configured(tmp_path / "registry")
    with pytest.raises(DataError, match=r"evaluations.jsonl: the last evaluation is of step 9, .* of step 3"):
        promote.run(config, **candidates(0, [1] * 8, step=9))
    paths = candidates(1, [1] * 8)
    other = candidates(2, [1] * 8, held_out=LATER[:8])
    with pytest.raises(DataError, match=r"completions.jsonl: does not answer the problems of .*held_out"):
        promote.run(config, **paths | {"completions": other["completions"]})
    fewer = candidates(3, [1] * 8, examples=EXAMPLES[2:])
    with pytest.raises(DataError, match=r"examples.jsonl: holds 6 examples, and VerifyRM was evaluated on 8"):
        promote.run(config, **paths | {"examples": fewer["examples"]})


def test_an_evaluation_with_another_judge_or_of_other_examples_is_refused(
    tmp_path: Path, candidates: Candidates
) -> None:
    config, candidate = configured(tmp_path / "registry"), candidates(0, [1] * 8)
    with pytest.raises(DataError, match=r"had the judge tiny, against evaluation\.judge of this"):
        promote.run(configured(tmp_path / "registry", "evaluation.judge=null"), **candidate)
    found = make_evaluation([1] * 8)
    write_records(candidate["evaluations"], [found.model_copy(update={"judge_accuracy": None})])
    with pytest.raises(DataError, match=r"had no judge, against evaluation\.judge of this configuration"):
        promote.run(config, **candidate)
    write_records(candidate["evaluations"], [found.model_copy(update={"verify_rm_hits": [[False, True]]})])
    with pytest.raises(DataError, match="has 2 verify_rm_hits for 8 examples; evaluate the candidate again"):
        promote.run(config, **candidate)


def test_without_a_registry_nothing_is_promoted(candidates: Candidates) -> None:
    with pytest.raises(ConfigError, match=r"registry.uri is not set: give s3://bucket/prefix, or a folder"):
        promote.run(load("laptop"), **candidates(0, [1] * 8))


def test_the_red_teams_report_bounds_its_text_unasked(tmp_path: Path, candidates: Candidates) -> None:
    config = configured(tmp_path / "registry")
    paths = candidates(0, [1] * 8)
    name = version_name(read_manifest(paths["checkpoint"]))
    for target, rate, is_promoted in ((name, 0.5, False), (None, 0.01, None), (name, 0.01, True)):
        universal = Interval(value=rate, low=0.0, high=0.9, count=50)
        attacked = RedTeamReport(
            target=target, universal=universal, num_search_problems=5, num_unseen_problems=50, num_seeds=3,
            num_queries=9, seconds=1.0,
        )  # fmt: skip
        write_report(tmp_path / "red_team.json", attacked)
        if is_promoted is None:
            with pytest.raises(
                DataError, match=r"attacked the VerifyRM of a folder .*, and the candidate is v-"
            ):
                promote.run(config, **paths, red_team=tmp_path / "red_team.json")
        else:
            decision = promote.run(config, **paths, red_team=tmp_path / "red_team.json")
            assert (decision.is_promoted, decision.universal_rate) == (is_promoted, universal)
            assert "No red team" not in " ".join(decision.reasons)


def test_a_decision_without_a_red_team_says_so(tmp_path: Path, candidates: Candidates) -> None:
    decision = promote.run(configured(tmp_path / "registry"), **candidates(0, [1] * 8))
    assert decision.is_promoted
    assert "No red team decided: there is no report of red-team (--red-team)" in decision.reasons[-1]


def read_manifest(checkpoint: Path) -> CheckpointManifest:
    with open_checkpoint(checkpoint, load("laptop").storage, starting_with=()) as found:
        return found.manifest
