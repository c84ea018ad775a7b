"""Co-training's guards through the stage, with a policy that is right every other time."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cooper_rl.errors import ConfigError, DataError, HackingError
from cooper_rl.models.policy import Policy, save_policy
from cooper_rl.models.verify_rm import load_verify_rm, score_examples
from cooper_rl.records.files import read_records, write_records, write_report
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.reports import ModelSet
from tests.stages.conftest import Files, with_other_questions
from tests.stages.train_cooper.test_train_cooper import is_same_state, numbers, read, train

RIGHT, WRONG = "7-2=5;5*2=10.\n#### 10", "7-2=5;5*2=12.\n#### 12"
ALARMED = [
    "cooper.reward.update_verify_rm=false",
    "cooper.evaluate_every=null",
    "cooper.monitor.window=2",
    "cooper.monitor.max_gap_rise=1e-6",
    "cooper.checkpoint_every=1",
    "storage.keep_last=50",
]
"""Bounds so small that any rise is an alarm; a frozen VerifyRM, so that steps are fast."""
NUM_STEPS = 16


def teach(policy: Policy, questions: list[str]) -> None:
    """Plain gradient descent on both solutions of every question, until it writes one or the other."""
    torch.manual_seed(0)
    prompts = [policy.encode_prompt(question, None) for question in questions]
    rows = [
        (prompt, [*policy.tokenizer(text)["input_ids"], policy.tokenizer.eos_token_id])
        for prompt in prompts
        for text in (RIGHT, WRONG)
    ]
    size = max(len(prompt) + len(ids) for prompt, ids in rows)
    ids = torch.tensor([[*p, *i] + [policy.pad_id] * (size - len(p) - len(i)) for p, i in rows])
    labels = torch.tensor([[-100] * len(p) + i + [-100] * (size - len(p) - len(i)) for p, i in rows])
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-2)
    for _ in range(80):
        policy.model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module")
def guarded(files: Files, tmp_path_factory, make_policy) -> Files:
    folder = tmp_path_factory.mktemp("guarded")
    problems = [
        Problem(id=str(n), source="tiny", question=f"Tom has {n} pens.", reference_answer="10")
        for n in range(8)
    ]
    policy = make_policy(0)
    teach(policy, [problem.question for problem in problems])
    save_policy(policy, folder / "policy")
    models = ModelSet(policy="policy", samplers={"policy": "policy"}, backbone="policy")
    write_report(folder / "models.json", models)
    write_records(folder / "problems.jsonl", problems)
    write_records(folder / "held_out.jsonl", problems[:3])
    return replace(
        files,
        folder=folder,
        models=folder,
        problems=folder / "problems.jsonl",
        held_out=folder / "held_out.jsonl",
    )


@pytest.fixture
def forty_held_out(tmp_path: Path) -> Path:
    """So many problems that chance moves their accuracy little."""
    problems = [
        Problem(id=f"h{n}", source="tiny", question=f"Tom has {n} pens.", reference_answer="10")
        for n in range(10, 50)
    ]
    write_records(tmp_path / "forty.jsonl", problems)
    return tmp_path / "forty.jsonl"


GENERATION = ["cooper.generation.max_new_tokens=24", "evaluation.generation.max_new_tokens=24"]


def go(files: Files, checkpoint: Path, *overrides: str, **paths: Path):
    return train(files, checkpoint, *GENERATION, *overrides, **paths)


# The monitor


@pytest.fixture(scope="module")
def warned(guarded: Files, tmp_path_factory) -> tuple[Path, int]:
    """A run that only warns, and the step of its first alarm."""
    checkpoint = tmp_path_factory.mktemp("warned") / "run"
    report = go(guarded, checkpoint, *ALARMED, f"cooper.steps={NUM_STEPS}")
    assert report.first_alarm_step is not None
    assert 4 <= report.first_alarm_step <= NUM_STEPS - 3, "the tests need steps after the alarm"
    return checkpoint, report.first_alarm_step


def rewards(rows: list[dict[str, float]], *names: str) -> list[list[float]]:
    return [[row[f"rollout/{name}"] for row in rows] for name in names]


def test_warn_goes_on_as_before(warned: tuple[Path, int]) -> None:
    rows = numbers(warned[0])
    paid, scored = rewards(rows, "reward", "verify_rm_reward")
    assert paid == scored
    assert next(row["step"] for row in rows if row.get("monitor/alarm")) == warned[1]
    assert not any("monitor/alarm" in row for row in rows[:3])


def test_anchors_stay_while_the_policy_moves(guarded: Files, tmp_path: Path) -> None:
    """With VerifyRM frozen their score is one number; updates of VerifyRM move it."""
    values = ["cooper.monitor.num_anchors=8", "cooper.steps=3"]
    go(guarded, tmp_path / "frozen", *values, "cooper.reward.update_verify_rm=false")
    go(guarded, tmp_path / "cooper", *values, "cooper.reward.update_verify_rm=true")
    frozen, moved = (
        [row["verify_rm/anchor_score"] for row in numbers(tmp_path / name)] for name in ("frozen", "cooper")
    )
    assert len(set(frozen)) == 1
    assert 0 < frozen[0] < 1
    assert moved[0] == frozen[0]
    assert len(set(moved)) == 3


def test_a_reward_without_verify_rm_is_not_watched(guarded: Files, tmp_path: Path) -> None:
    go(guarded, tmp_path / "run", *ALARMED, "cooper.reward.kind=rule", "cooper.steps=5")
    assert not any(key.startswith("monitor/") for row in numbers(tmp_path / "run") for key in row)


def test_stop_saves_and_refuses_to_go_on(guarded: Files, warned: tuple[Path, int], tmp_path: Path) -> None:
    alarm = warned[1]
    stopping = [*ALARMED, "cooper.monitor.action=stop", f"cooper.steps={NUM_STEPS}"]
    stopping += ["cooper.checkpoint_every=50"]
    for _ in range(2):
        with pytest.raises(HackingError, match=rf"found reward hacking by step {alarm}, which is saved"):
            go(guarded, tmp_path / "run", *stopping)
        assert read(tmp_path / "run").step == alarm
    assert numbers(tmp_path / "run") == numbers(warned[0])[:alarm]


def test_an_alarm_in_the_last_step_is_not_handed_on(
    guarded: Files, warned: tuple[Path, int], tmp_path: Path
) -> None:
    """The iteration is complete, but starting it again must not make a success of it."""
    stopping = [*ALARMED, "cooper.monitor.action=stop", f"cooper.steps={warned[1]}"]
    for _ in range(2):
        with pytest.raises(HackingError, match="found reward hacking"):
            go(guarded, tmp_path / "run", *stopping)
    assert not (tmp_path / "run.json").exists()


def test_rule_goes_on_with_the_rule_reward(guarded: Files, warned: tuple[Path, int], tmp_path: Path) -> None:
    alarm = warned[1]
    go(guarded, tmp_path / "run", *ALARMED, "cooper.monitor.action=rule", f"cooper.steps={alarm + 2}")
    rows = numbers(tmp_path / "run")
    assert rows[:alarm] == numbers(warned[0])[:alarm]
    paid, accuracy = rewards(rows[alarm:], "reward", "rule_accuracy")
    assert paid == accuracy
    assert not any("monitor/rolled_back_to" in row for row in rows)


def test_an_alarm_of_an_iteration_before_leaves_a_reward_that_is_not_watched(
    guarded: Files, warned: tuple[Path, int], tmp_path: Path
) -> None:
    """A judge that is always wrong, so that its reward is not the rule's."""
    judged = ["cooper.reward.kind=judge", "cooper.judge={tiny_error_rate=1.0}", "cooper.steps=3"]
    go(guarded, tmp_path / "run", *ALARMED, *judged, "cooper.monitor.action=rule", start=warned[0])
    paid, judge, rule = rewards(
        numbers(tmp_path / "run")[NUM_STEPS:], "reward", "judge_accuracy", "rule_accuracy"
    )
    assert paid == judge != rule
    assert len(paid) == 3


def test_rollback_puts_back_an_earlier_checkpoint_and_goes_on_with_the_rule_reward(
    guarded: Files, warned: tuple[Path, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stopped right after the alarm, the run holds what it held at the step that it went back to."""
    alarm = warned[1]
    back = [*ALARMED, "cooper.monitor.action=rollback"]
    go(guarded, tmp_path / "run", *back, f"cooper.steps={alarm}")
    target = int(numbers(tmp_path / "run")[-1]["monitor/rolled_back_to"])
    assert 2 <= target <= alarm - 2
    assert f"since step {target} " in caplog.text
    assert "no checkpoint" not in caplog.text
    go(guarded, tmp_path / "early", *back, f"cooper.steps={target}")
    assert is_same_state(tmp_path / "run", tmp_path / "early")
    assert read(tmp_path / "run").step == alarm

    go(guarded, tmp_path / "run", *back, f"cooper.steps={alarm + 3}")
    go(guarded, tmp_path / "straight", *back, f"cooper.steps={alarm + 3}")
    rows = numbers(tmp_path / "run")
    assert rows == numbers(tmp_path / "straight")
    assert is_same_state(tmp_path / "run", tmp_path / "straight")
    paid, accuracy = rewards(rows[alarm:], "reward", "rule_accuracy")
    assert paid == accuracy


def test_rollback_finds_its_checkpoint_among_the_few_that_are_kept(
    guarded: Files, warned: tuple[Path, int], tmp_path: Path
) -> None:
    """Stopped and continued before the alarm, with only the newest checkpoint kept otherwise."""
    alarm = warned[1]
    back = [*ALARMED, "cooper.monitor.action=rollback"]
    go(guarded, tmp_path / "all", *back, f"cooper.steps={alarm}")
    for last in (alarm - 1, alarm):
        go(guarded, tmp_path / "few", *back, "storage.keep_last=1", f"cooper.steps={last}")
    every, few = (numbers(tmp_path / name)[-1]["monitor/rolled_back_to"] for name in ("all", "few"))
    assert few == every > 0


@pytest.mark.parametrize("is_stopped", [False, True], ids=["straight", "stopped"])
def test_rollback_without_an_early_checkpoint_goes_back_to_the_start(
    guarded: Files, warned: tuple[Path, int], tmp_path: Path, is_stopped: bool
) -> None:
    """A checkpoint that is there only because somebody stopped the run is none to go back to."""
    alarm = warned[1]
    values = ["cooper.monitor.action=rollback", "cooper.checkpoint_every=50"]
    for last in [2, alarm] if is_stopped else [alarm]:
        go(guarded, tmp_path / "run", *ALARMED, *values, f"cooper.steps={last}")
    assert numbers(tmp_path / "run")[-1]["monitor/rolled_back_to"] == 0
    state = read(tmp_path / "run")
    assert state.policy_optimizer == {}
    original = load_verify_rm(guarded.verify_rm, device=torch.device("cpu")).model.state_dict()
    assert all(
        torch.equal(tensor, original[name]) for name, tensor in state.verify_rm.model.state_dict().items()
    )


def test_rollback_goes_back_to_the_iterations_start_where_the_reward_rose_before_it(
    guarded: Files, warned: tuple[Path, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before_alarm = warned[1] - 1
    back = [*ALARMED, "cooper.monitor.action=rollback"]
    go(guarded, tmp_path / "first", *back, f"cooper.steps={before_alarm}")
    go(guarded, tmp_path / "second", *back, "cooper.steps=1", start=tmp_path / "first")
    assert numbers(tmp_path / "second")[-1]["monitor/rolled_back_to"] == before_alarm
    assert "already, of which this iteration has no checkpoint" in caplog.text


# The gate


def test_updates_that_the_gate_takes_back_are_counted(guarded: Files, tmp_path: Path) -> None:
    """The held-out labels are what VerifyRM says at the start (accuracy 1); replay teaches the contrary."""
    verify_rm = load_verify_rm(guarded.verify_rm, device=torch.device("cpu"))
    rng = random.Random(0)
    bare = [
        VerifyExample(question=f"Q{n}", reference_answer=str(n), completion=f"#### {guess}", label=0)
        for n, guess in enumerate(rng.sample(range(100), 12))
    ]
    said = [int(score > 0.5) for score in score_examples(verify_rm, bare)]
    for name, flip in (("examples", 0), ("replay", 1)):
        rows = [row.model_copy(update={"label": label ^ flip}) for row, label in zip(bare, said, strict=True)]
        write_records(tmp_path / f"{name}.jsonl", rows)
    report = go(
        guarded, tmp_path / "run",
        "cooper.gate={ max_accuracy_drop = 0.0, max_canary_rise = 1.0, max_attack_rise = 1.0 }",
        "cooper.reward.num_replay_examples=12", "cooper.reward.replay_weight=100",
        "cooper.reward.lr=1e-2", "cooper.steps=4",
        examples=tmp_path / "examples.jsonl", replay=with_other_questions(tmp_path / "replay.jsonl"),
    )  # fmt: skip
    rows = [row for row in numbers(tmp_path / "run") if row["pairs/count"]]
    assert rows
    assert {row["gate/start_accuracy"] for row in rows} == {1.0}
    assert [row["gate/rolled_back"] for row in rows] == [float(row["gate/accuracy"] < 1) for row in rows]
    assert report.num_rolled_back_reward_updates == sum(row["gate/rolled_back"] for row in rows) > 0


def test_the_gate_reads_its_start_anew_on_other_examples(guarded: Files, tmp_path: Path) -> None:
    """A second iteration with the same examples keeps the first one's start; with others it has its own."""
    options = ["cooper.gate={ num_canary_problems = 2 }", "cooper.steps=2"]
    go(guarded, tmp_path / "first", *options, examples=guarded.examples)
    others = with_other_questions(guarded.examples)
    for name, examples in (("same", guarded.examples), ("other", others)):
        go(guarded, tmp_path / name, *options, start=tmp_path / "first", examples=examples)
    data, same, other = (
        [row["gate/data"] for row in numbers(tmp_path / name) if row["pairs/count"]]
        for name in ("first", "same", "other")
    )
    assert len(set(data + same)) == 1
    assert len(set(other)) == 2
    rows = read_records(others, VerifyExample)
    scores = score_examples(read(tmp_path / "first").verify_rm, rows)
    right = [(score > 0.5) == (row.label == 1) for row, score in zip(rows, scores, strict=True)]
    own = [row for row in numbers(tmp_path / "other") if row.get("gate/data") == other[-1]]
    assert {row["gate/start_accuracy"] for row in own} == {sum(right) / len(right)}


# The leak guard


@pytest.mark.parametrize(("bound", "num_warnings"), [(0.5, 1), (1, 0)])
def test_pairs_that_a_probe_tells_apart_are_warned_of_once(
    sevens: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture, bound: float, num_warnings: int
) -> None:
    """Also where the run is continued. The first step has pairs of too few questions for a probe."""
    for last in (2, 4):
        train(sevens, tmp_path / "run", f"cooper.pairs.max_shortcut_auroc={bound}", f"cooper.steps={last}")
    first, *later = (row.get("pairs/shortcut_auroc") for row in numbers(tmp_path / "run"))
    assert first is None
    assert all(value is not None and 0.5 < value <= 1 for value in later)
    said = "a probe that reads no answer tells positives from negatives with an AUROC of"
    assert caplog.text.count(said) == num_warnings
    assert (f"step 2: {said} {later[0]:.2f}" in caplog.text) == bool(num_warnings)


# Evaluation, and files that options need


def test_evaluations_stand_in_the_metrics_of_their_steps(guarded: Files, tmp_path: Path) -> None:
    go(guarded, tmp_path / "run", "cooper.evaluate_every=2", "cooper.steps=4",
       examples=guarded.examples, held_out=guarded.held_out)  # fmt: skip
    rows = numbers(tmp_path / "run")
    evaluated = [{name for name in row if name.startswith("eval/")} for row in rows]
    assert evaluated[0] == evaluated[2] == set()
    assert evaluated[1] == evaluated[3]
    assert {name for name in evaluated[1] if "/canary_" not in name or name.endswith("rate")} == {
        f"eval/{name}"
        for name in (
            "rule_accuracy", "judge_accuracy", "verify_rm_reward", "verify_rm_accuracy", "verify_rm_auroc",
            "canary_rate", "worst_canary_rate", "cut_fraction",
        )
    }  # fmt: skip
    assert {"eval/canary_rate/empty", "eval/canary_rate/forged_verdict"} <= evaluated[1]
    assert all(
        rows[1][name] <= rows[1][name.replace("rate/", "high/")]
        for name in evaluated[1]
        if "canary_rate/" in name
    )
    assert all(0 <= row[name] <= 1 for row in rows for name in row if name.startswith("eval/"))


def test_an_alarm_is_evaluated_at_once(guarded: Files, tmp_path: Path) -> None:
    """Only the first, on the models that raised it, also where they are rolled back then. The judge denies
    nothing here: there is no earlier evaluation to compare with."""
    values = [*ALARMED, "cooper.evaluate_every=100", f"cooper.steps={NUM_STEPS}"]
    given = {"examples": guarded.examples, "held_out": guarded.held_out}
    report = go(guarded, tmp_path / "warned", *values, **given)
    go(guarded, tmp_path / "back", *values, "cooper.monitor.action=rollback", **given)
    rows, back = numbers(tmp_path / "warned"), numbers(tmp_path / "back")
    assert sum(row.get("monitor/alarm", 0) for row in rows) > 1
    first = report.first_alarm_step
    assert first is not None
    assert [row["step"] for row in rows if "eval/judge_accuracy" in row] == [first]
    assert rows[first - 1].items() <= back[first - 1].items()


def test_an_evaluation_below_the_best_one_raises_the_alarm_and_goes_back_to_that(
    guarded: Files, forty_held_out: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A learning rate at which the policy falls apart: better after one step, and lost after the second."""
    go(
        guarded, tmp_path / "run", *ALARMED, "cooper.monitor.action=rollback", "cooper.evaluate_every=1",
        "evaluation.samples_per_problem=8", "cooper.policy.lr=0.05", "cooper.policy.warmup_steps=6",
        "cooper.steps=3",
        examples=guarded.examples, held_out=forty_held_out,
    )  # fmt: skip
    first, second, third = numbers(tmp_path / "run")
    assert second["eval/judge_accuracy"] < first["eval/judge_accuracy"] - 0.2
    assert (second["monitor/dropped"], second["monitor/alarm"], second["monitor/rolled_back_to"]) == (1, 1, 1)
    assert "monitor/dropped" not in first
    assert "monitor/dropped" not in third, "one alarm a run"
    assert third["eval/judge_accuracy"] > second["eval/judge_accuracy"]
    assert "step 2: accuracy on held-out problems is" in caplog.text
    assert f"and was {first['eval/judge_accuracy']:.3f} after step 1" in caplog.text


@pytest.mark.slow
def test_an_alarm_that_the_judge_denies_ends_nothing(
    guarded: Files, forty_held_out: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By chance a window of eight rollouts has fewer right ones; forty held-out problems show no loss."""
    report = go(
        guarded, tmp_path / "run", *ALARMED, "cooper.monitor.max_gap_rise=0.06", "cooper.monitor.action=stop",
        "cooper.evaluate_every=3", "evaluation.samples_per_problem=8", f"cooper.steps={NUM_STEPS}",
        examples=guarded.examples, held_out=forty_held_out,
    )  # fmt: skip
    rows = numbers(tmp_path / "run")
    denied = [int(row["step"]) for row in rows if row.get("monitor/alarm")]
    assert denied
    assert report.denied_alarm_steps == denied
    assert report.first_alarm_step is None
    assert report.last_step == NUM_STEPS
    assert f"step {denied[0]}: the judge denies it" in caplog.text
    assert "eval/judge_accuracy" in rows[denied[0] - 1]
    assert not any("monitor/gap_rise" in row for row in rows[denied[0] : denied[0] + 3])


@pytest.mark.parametrize(
    ("overrides", "given", "message"),
    [
        (["cooper.evaluate_every=1"], ["examples"], r"--held-out is missing.*cooper\.evaluate_every=null"),
        (["cooper.evaluate_every=1"], ["held_out"], r"--examples is missing.*cooper\.evaluate_every=null"),
        (["cooper.gate={}"], [], r"--examples is missing.*cooper\.gate=null"),
        (
            ["cooper.reward.num_replay_examples=2"],
            [],
            r"--replay is missing.*cooper\.reward\.num_replay_examples=0",
        ),
    ],
)
def test_an_option_without_its_file_is_refused(
    guarded: Files, tmp_path: Path, overrides: list[str], given: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        go(guarded, tmp_path / "run", *overrides, **{name: getattr(guarded, name) for name in given})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("place", ["examples", "test"])
def test_replay_of_questions_that_are_evaluated_on_is_refused(
    guarded: Files, tmp_path: Path, place: str
) -> None:
    given = {"replay": guarded.examples, place: guarded.examples}
    with pytest.raises(DataError, match=r"of its questions are evaluated on, e\.g\. .*of other questions"):
        go(guarded, tmp_path / "run", "cooper.reward.num_replay_examples=2", **given)
    assert not (tmp_path / "run").exists()


def test_a_gate_is_not_needed_where_verify_rm_stays(guarded: Files, tmp_path: Path) -> None:
    values = [
        "cooper.gate={}",
        "cooper.reward.num_replay_examples=2",
        "cooper.reward.update_verify_rm=false",
        "cooper.steps=1",
    ]
    assert go(guarded, tmp_path / "run", *values).num_pairs == 0


# Resume


EVERYTHING = [
    "cooper.gate={ max_accuracy_drop = 0.1, max_canary_rise = 0.1, num_canary_problems = 2 }",
    "cooper.reward.num_replay_examples=4",
    "cooper.reward.ema_decay=0.5",
    "cooper.evaluate_every=2",
    "cooper.pairs.negatives={ assistant = 1, rollout = 1, perturb = 1, canary = 1 }",
    "cooper.pairs.per_problem=3",
    "cooper.monitor={ window = 2, max_gap_rise = 1e-6, action = 'rule' }",
    "cooper.advantages.drop_equal_groups=true",
    "cooper.policy.overlong_filtering=true",
    "evaluation.max_canary_problems=2",
]


@pytest.mark.parametrize(
    "options",
    [
        ["cooper.pairs.max_staleness=1"],
        pytest.param(EVERYTHING, marks=pytest.mark.slow),
        pytest.param([*EVERYTHING, "cooper.pairs.max_staleness=1"], marks=pytest.mark.slow),
    ],
    ids=["late pairs", "everything", "everything with late pairs"],
)
def test_two_runs_equal_one_of_twice_the_length(guarded: Files, tmp_path: Path, options: list[str]) -> None:
    """Continued in its own folder and as a second iteration: the same numbers, weights, optimisers, pairs."""
    replay = with_other_questions(guarded.examples)
    inputs = {"examples": guarded.examples, "replay": replay, "held_out": guarded.held_out}
    go(guarded, tmp_path / "straight", *options, "cooper.steps=4", **inputs)
    rows = numbers(tmp_path / "straight")
    assert sum(row["pairs/count"] for row in rows) > 10

    go(guarded, tmp_path / "stopped", *options, "cooper.steps=2", **inputs)
    go(guarded, tmp_path / "next", *options, "cooper.steps=2", start=tmp_path / "stopped", **inputs)
    go(guarded, tmp_path / "stopped", *options, "cooper.steps=4", **inputs)
    for other in ("stopped", "next"):
        assert numbers(tmp_path / other) == rows
        assert is_same_state(tmp_path / other, tmp_path / "straight")
        one, two = read(tmp_path / other), read(tmp_path / "straight")
        assert (one.pairs, one.pending, one.rollouts) == (two.pairs, two.pending, two.rollouts)
        assert bool(one.pending) == ("cooper.pairs.max_staleness=1" in options)
