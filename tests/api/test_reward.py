"""CooperReward against the step of `train_cooper`, its checkpoints, and what it refuses."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cooper_rl import CooperReward, RuleConfig, load_verify_rm
from cooper_rl.config.cooper import CooperConfig, GateConfig
from cooper_rl.config.data import AnswerPolicy
from cooper_rl.errors import (
    ConfigError,
    CooperError,
    DataError,
    HackingError,
    TrainingError,
    WriteConflictError,
)
from cooper_rl.models.verify_rm import VerifyRM, save_verify_rm
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.training.gate import make_gate
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.reward_learner import Rewarded, RewardLearner
from cooper_rl.training.step import run_step
from tests.cooper_config import cooper_config
from tests.training.scripted import scripted_trainer, with_reward

QUESTION = "Tom has 7 apples, gives away {}, doubles them. How many apples?"
PROBLEMS = [
    Problem(id=str(n), source="t", question=QUESTION.format(n), reference_answer=str(2 * (7 - n)))
    for n in (2, 3, 4, 1)
]
RULE = RuleConfig(num_workers=1, policy=AnswerPolicy(number_words=False))


def answers(problem: Problem) -> list[str]:
    """Right, wrong, and one that the rule cannot read."""
    left, total = 7 - int(problem.id), int(problem.reference_answer)
    return [
        f"7-{problem.id}={left};{left}*2={total}. #### {total}",
        f"7-{problem.id}={left};{left}*2={total + 3}. #### {total + 3}",
        "The answer is ten.",
        f"#### {total + 1}",
    ]


def examples(start: int) -> list[VerifyExample]:
    return [
        VerifyExample(
            question=QUESTION.format(n),
            reference_answer=str(n),
            completion=f"#### {n + (n % 2)}",
            label=1 - n % 2,
        )
        for n in range(start, start + 12)
    ]


REPLAY, HELD_OUT = examples(20), examples(40)


class Spy(RewardLearner):
    """Remembers the rewards."""

    found: list[list[float]]

    def score(self, groups, **options) -> Rewarded:
        rewarded = super().score(groups, **options)
        self.found.append(rewarded.rewards)
        return rewarded


def same_weights(one: VerifyRM, other: VerifyRM) -> bool:
    ours, theirs = one.model.state_dict(), other.model.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def copy_of(verify_rm: VerifyRM) -> VerifyRM:
    return replace(verify_rm, model=copy.deepcopy(verify_rm.model))


def ask(reward: CooperReward, problems=PROBLEMS, **more) -> list[float]:
    rows = [(problem, text) for problem in problems for text in answers(problem)]
    return reward(
        [text for _, text in rows],
        questions=[problem.question for problem, _ in rows],
        reference_answers=[problem.reference_answer for problem, _ in rows],
        **({"group_ids": [problem.id for problem, _ in rows]} | more),
    )


def test_a_reward_learns_from_programs(make_verify_rm) -> None:
    """A right and a wrong program for each of two tasks make two pairs, checked by running the tests."""
    tasks = {
        "f(a=1, b=2) == 3": ("return a + b", "return a - b"),
        "f(a=3, b=2) == 6": ("return a * b", "return a"),
    }
    with CooperReward(make_verify_rm(0), device="cpu", domain="programs") as reward:
        reward(
            [text for texts in tasks.values() for text in texts],
            questions=[f"Write f. {tests}" for tests in tasks for _ in range(2)],
            reference_answers=[tests for tests in tasks for _ in range(2)],
        )
        assert reward.metrics[0]["rollout/rule_accuracy"] == 0.5
        assert {pair.positive for pair in reward.pairs} == {"return a + b", "return a * b"}


def test_an_unknown_domain_is_refused(make_verify_rm) -> None:
    with pytest.raises(ConfigError, match=r"problems\.domain=law: nothing is registered under this name"):
        CooperReward(make_verify_rm(0), domain="law")


VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {"pairs__negatives": {"rollout": 0}, "pairs__per_problem": 1, "reward__num_replay_examples": 0},
    "all sources": {"pairs__negatives": {"assistant": 1, "rollout": 1, "perturb": 1, "canary": 1}},
    "rule gated": {"reward__kind": "rule_gated", "reward__ema_decay": 0.5},
    "late pairs": {"pairs__max_staleness": 1},
}


@pytest.mark.parametrize(
    "name",
    [
        "all sources",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("paper", "rule gated", "late pairs")),
    ],
)
def test_rewards_pairs_and_weights_are_those_of_train_cooper(
    make_policy, make_verify_rm, rule, tmp_path, name: str
) -> None:
    """Bit for bit over four steps of other problems, behind a gate."""
    config = cooper_config(
        **(
            {
                "group_size": 4,
                "reward__lr": 3e-3,
                "gate": {"max_accuracy_drop": 0.5, "max_canary_rise": 1, "max_attack_rise": 1},
            }
            | VARIANTS[name]
        )
    )
    trainer = scripted_trainer(
        make_policy,
        make_verify_rm(0),
        PairMaker(config, rule, TinyAssistant(), None),
        {problem: answers(problem) for problem in PROBLEMS},
    )
    gate = make_gate(config.gate, trainer.reward.verify_rm, HELD_OUT, seed=0, starts=[])
    trainer = with_reward(trainer, gate=gate, replay=REPLAY)
    spy = Spy(**vars(trainer.reward))
    object.__setattr__(spy, "found", [])
    trainer = replace(trainer, reward=spy)
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")

    with CooperReward(
        tmp_path / "verify_rm", config=config, rule=RULE, replay=REPLAY, held_out=HELD_OUT, device="cpu"
    ) as reward:
        pairs = []
        for step in range(1, 5):
            problems = PROBLEMS[step % 3 :] + PROBLEMS[: step % 2]
            problems = list(dict.fromkeys(problems))
            result = run_step(trainer, step, problems)
            pairs += result.pairs
            rewards = ask(reward, problems)
            assert rewards == spy.found[-1]
            ours = {
                key: value
                for key, value in reward.metrics[-1].items()
                if not key.startswith(("seconds/", "verify_rm/anchor"))
            }
            assert ours.items() <= result.metrics.flat().items()
        assert reward.pairs == pairs
        assert len(pairs) > 4
        assert any(row.get("gate/rolled_back") == 0 for row in reward.metrics)
        assert same_weights(reward.verify_rm, trainer.reward.verify_rm)
        assert not same_weights(reward.verify_rm, make_verify_rm(0))


def test_the_order_of_rows_changes_no_reward_where_groups_are_named(make_verify_rm) -> None:
    """Rows of a problem need not lie together."""
    rows = [(problem, text) for problem in PROBLEMS for text in answers(problem)]
    shuffled = rows[::2] + rows[1::2]
    found = []
    for order in (rows, shuffled):
        with CooperReward(make_verify_rm(0), rule=RULE, device="cpu") as reward:
            rewards = reward(
                [text for _, text in order],
                questions=[problem.question for problem, _ in order],
                reference_answers=[problem.reference_answer for problem, _ in order],
                group_ids=[problem.id for problem, _ in order],
            )
            found.append(dict(zip([(p.id, t) for p, t in order], rewards, strict=True)))
            assert reward.metrics[-1]["pairs/positives"] == 4
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_without_group_ids_consecutive_equal_questions_are_a_group(make_verify_rm) -> None:
    with CooperReward(make_verify_rm(0), rule=RULE, device="cpu") as reward:
        ask(reward, group_ids=None)
        assert reward.metrics[-1]["pairs/positives"] == 4
        assert len({pair.problem_id for pair in reward.pairs}) == 4


@pytest.mark.parametrize("staleness", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_reward_that_was_killed_goes_on_exactly(make_verify_rm, tmp_path, staleness: int) -> None:
    """Six steps at once, and three, a new object without a close, and three."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: dict[str, Any] = {
        "config": {
            "checkpoint_every": 3,
            "pairs": {"max_staleness": staleness},
            "reward": {"lr": 3e-3, "ema_decay": 0.5},
            "gate": {"max_accuracy_drop": 0.5, "max_canary_rise": 1, "max_attack_rise": 1},
            "monitor": {"num_anchors": 5, "window": 2},
        },
        "rule": RULE, "replay": REPLAY, "held_out": HELD_OUT, "device": "cpu",
    }  # fmt: skip

    def start(name: str) -> CooperReward:
        return CooperReward(tmp_path / "verify_rm", folder=tmp_path / name, **options)

    with start("whole") as whole:
        expected = [ask(whole, PROBLEMS[n % 2 :]) for n in range(6)]
    broken = start("broken")
    found = [ask(broken, PROBLEMS[n % 2 :]) for n in range(4)]  # the fourth is lost with the process
    with start("broken") as resumed:
        assert resumed.step == 3
        found[3:] = [ask(resumed, PROBLEMS[n % 2 :]) for n in range(3, 6)]
        assert found == expected
        assert same_weights(resumed.verify_rm, whole_verify_rm := load_state(tmp_path / "whole"))
        assert not same_weights(whole_verify_rm, make_verify_rm(0))
        assert without_seconds(resumed) == without_seconds(whole)
        assert resumed.pairs == whole.pairs
    with pytest.raises(WriteConflictError, match="somebody else"):  # it would put its own back
        broken.close()


def without_seconds(reward: CooperReward) -> list[dict[str, float]]:
    return [
        {key: value for key, value in row.items() if not key.startswith("seconds/")} for row in reward.metrics
    ]


def rows_of_pieces(folder: Path, kind: str) -> list[int]:
    """Rows in each piece of the log, oldest first."""
    return [len((piece / kind).read_text().splitlines()) for piece in sorted((folder / "logs").iterdir())]


@pytest.mark.parametrize("is_saved_whole", [False, True], ids=["in pieces", "whole, as by earlier versions"])
def test_the_log_of_its_folder_is_written_once_in_pieces(make_verify_rm, tmp_path, is_saved_whole) -> None:
    """Six steps in three checkpoints; the first two steps, whole, become one piece with the next two."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"config": {"checkpoint_every": 2}, "rule": RULE, "device": "cpu"}
    run = tmp_path / "run"
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "straight", **options) as straight:
        for _ in range(6):
            ask(straight)
    with CooperReward(tmp_path / "verify_rm", folder=None if is_saved_whole else run, **options) as first:
        for _ in range(2):
            ask(first)
        if is_saved_whole:
            first.save(run)
    with CooperReward(tmp_path / "verify_rm", folder=run, **options) as reward:
        for _ in range(4):
            ask(reward)
    assert rows_of_pieces(tmp_path / "straight", "metrics.jsonl") == [2, 2, 2]
    assert rows_of_pieces(run, "metrics.jsonl") == ([4, 2] if is_saved_whole else [2, 2, 2])
    assert sum(rows_of_pieces(run, "pairs.jsonl")) == len(straight.pairs) > 0
    last = run / (run / "LATEST").read_text().strip()
    assert not (last / "metrics.jsonl").exists()
    assert not (last / "pairs.jsonl").exists()
    with CooperReward(tmp_path / "verify_rm", folder=run, **options) as again:
        assert without_seconds(again) == without_seconds(straight)
        assert again.pairs == straight.pairs
        assert same_weights(again.verify_rm, straight.verify_rm)


def test_a_state_loaded_from_elsewhere_begins_the_folders_log_anew(make_verify_rm, tmp_path) -> None:
    """Three steps in the folder, then on from one of another run: no row of the three is read again."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"config": {"checkpoint_every": 1}, "rule": RULE, "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", **options) as other:
        ask(other, PROBLEMS[2:])
        other.save(tmp_path / "other")
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as reward:
        for _ in range(3):
            ask(reward)
        assert reward.load(tmp_path / "other")
        for _ in range(3):
            ask(reward)
        expected = without_seconds(reward), list(reward.pairs)
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as again:
        assert again.step == 4
        assert (without_seconds(again), again.pairs) == expected


@pytest.mark.parametrize("place", ["elsewhere", "run", "link"])
def test_a_state_saved_between_checkpoints_leaves_the_folder_complete(
    make_verify_rm, tmp_path, place: str
) -> None:
    """Saved elsewhere, or into its own folder, at the start, after a step, and twice; then closed."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    options: Any = {"config": {"checkpoint_every": 10}, "rule": RULE, "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as reward:
        reward.save(tmp_path / place)
        for _ in range(2):
            ask(reward)
            reward.save(tmp_path / place)
        reward.save(tmp_path / place)
    for folder in {"run", place}:
        with CooperReward(tmp_path / "verify_rm", folder=tmp_path / folder, **options) as again:
            assert again.step == 2
            assert (without_seconds(again), again.pairs) == (without_seconds(reward), reward.pairs)
            assert same_weights(again.verify_rm, reward.verify_rm)


@pytest.mark.parametrize("place", ["elsewhere", "run"])
def test_a_state_before_the_first_step_is_saved_and_loaded(make_verify_rm, tmp_path, place: str) -> None:
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"rule": RULE, "folder": tmp_path / "run", "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", **options) as reward:
        reward.save(tmp_path / place)
        ask(reward)
        assert reward.load(tmp_path / place)
    with CooperReward(tmp_path / "verify_rm", **options) as again:
        assert (again.step, again.metrics, again.pairs) == (0, [], [])
        assert same_weights(again.verify_rm, make_verify_rm(0))


@pytest.mark.parametrize("num_steps", [0, 3])
def test_a_state_that_was_loaded_from_elsewhere_and_closed_at_once_is_its_folders(
    make_verify_rm, tmp_path, num_steps: int
) -> None:
    """One step elsewhere; none or three in the folder before."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"rule": RULE, "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", **options) as other:
        ask(other, PROBLEMS[2:])
        other.save(tmp_path / "other")
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as reward:
        for _ in range(num_steps):
            ask(reward)
        assert reward.load(tmp_path / "other")
    with CooperReward(tmp_path / "verify_rm", folder=tmp_path / "run", **options) as again:
        assert (without_seconds(again), again.pairs) == (without_seconds(other), other.pairs)
        assert same_weights(again.verify_rm, other.verify_rm)


def test_a_state_of_its_own_folder_is_gone_back_to(make_verify_rm, tmp_path) -> None:
    """A step after the last checkpoint is dropped, and taken again."""
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    options: Any = {"rule": RULE, "folder": tmp_path / "run", "device": "cpu"}
    with CooperReward(tmp_path / "verify_rm", **options) as reward:
        ask(reward)
        reward.save(tmp_path / "run")
        ask(reward)
        expected = without_seconds(reward)
        assert reward.load(tmp_path / "run")
        assert reward.step == 1
        ask(reward)
        assert without_seconds(reward) == expected
    with CooperReward(tmp_path / "verify_rm", **options) as again:
        assert without_seconds(again) == expected


def load_state(folder: Path) -> VerifyRM:
    (name,) = (folder / "LATEST").read_text().split()
    return load_verify_rm(folder / name / "verify_rm", device="cpu")


def test_a_folder_of_another_configuration_is_refused(make_verify_rm, tmp_path) -> None:
    save_verify_rm(make_verify_rm(0), tmp_path / "verify_rm")
    with CooperReward(tmp_path / "verify_rm", rule=RULE, folder=tmp_path / "run", device="cpu") as reward:
        ask(reward)
    with pytest.raises(
        ConfigError, match=r"holds a run of another configuration .*cooper.reward.lr: 1e-05 there"
    ):
        CooperReward(
            tmp_path / "verify_rm",
            config={"reward": {"lr": 1e-3}},
            rule=RULE,
            folder=tmp_path / "run",
            device="cpu",
        )


def test_nothing_is_learned_where_learning_is_off(make_verify_rm) -> None:
    with CooperReward(make_verify_rm(0), rule=RULE, device="cpu") as reward:
        before = copy_of(reward.verify_rm)
        reward.is_learning = False
        rewards = ask(reward)
        assert (reward.step, reward.metrics, reward.pairs) == (0, [], [])
        assert same_weights(before, reward.verify_rm)
        reward.is_learning = True
        assert ask(reward) == rewards
        assert not same_weights(before, reward.verify_rm)


def test_it_learns_where_the_trainer_calls_without_gradients(make_verify_rm) -> None:
    with CooperReward(make_verify_rm(0), rule=RULE, device="cpu") as reward:
        before = copy_of(reward.verify_rm)
        with torch.no_grad():
            ask(reward)
        assert not same_weights(before, reward.verify_rm)
        before = copy_of(reward.verify_rm)
        with torch.inference_mode():
            ask(reward)
        assert not same_weights(before, reward.verify_rm)


def test_chat_messages_are_read_as_question_and_completion(make_verify_rm) -> None:
    """The system prompt is no part of the question; blocks of text are joined."""
    plain = make_reward(make_verify_rm)
    chat = make_reward(make_verify_rm)
    text = answers(PROBLEMS[0])[0]
    expected = plain([text] * 2, questions=[PROBLEMS[0].question] * 2, reference_answers=["10"] * 2)
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROBLEMS[0].question}]
    blocks = [{"type": "text", "text": text[:5]}, {"type": "text", "text": text[5:]}]
    found = chat(
        [[{"role": "assistant", "content": text}], [{"role": "assistant", "content": blocks}]],
        prompts=[prompt] * 2,
        reference_answer=["10"] * 2,
        completion_ids=[[1], [2]],
    )
    assert found == expected
    for reward in (plain, chat):
        reward.close()


def test_half_a_surrogate_pair_is_read_as_the_replacement_character(make_verify_rm, tmp_path) -> None:
    """In every column and in a replayed example: rewards, pairs and checkpoint of U+FFFD in its place."""

    def train(half: str) -> CooperReward:
        replay = [row.model_dump() | {"completion": row.completion + half} for row in REPLAY]
        with CooperReward(make_verify_rm(0), rule=RULE, replay=replay, folder=tmp_path / str(ord(half)),
                          device="cpu") as reward:  # fmt: skip
            rewards.append(
                reward(
                    [f"#### 10 {half}", f"#### 11{half}"] * 2,
                    questions=[f"5+5?{half}"] * 4,
                    reference_answers=[f"10{half}"] * 2 + ["10"] * 2,
                    group_ids=[f"a{half}"] * 2 + ["b"] * 2,
                )
            )
        return reward

    rewards: list[list[float]] = []
    found, expected = train("\ud800"), train("\ufffd")
    assert rewards[0] == rewards[1]
    assert found.pairs == expected.pairs
    assert found.pairs
    assert same_weights(found.verify_rm, expected.verify_rm)


def make_reward(make_verify_rm, **options) -> CooperReward:
    return CooperReward(make_verify_rm(0), rule=RULE, device="cpu", **options)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {},
            r"^no reference answers: the data set has no column 'reference_answer' \(passed: none\); name it",
        ),
        (
            {"solution": ["1"]},
            r"no column 'reference_answer' \(passed: solution\); name it with reference_column",
        ),
        ({"reference_answers": ["1"]}, r"^CooperReward needs questions or prompts, one per completion"),
        ({"reference_answers": [], "questions": ["q"]}, r"^reference_answers: 0 values for 1 completions"),
        (
            {"reference_answers": [None], "questions": ["q"]},
            r"^reference_answers: value 0 is 'None'; give a text$",
        ),
        ({"reference_answers": ["1"], "questions": [""]}, r"^questions: value 0 is ''; give a text$"),
        (
            {"reference_answers": ["1"], "prompts": [[{"role": "system", "content": "s"}]]},
            r"^prompts: value 0 is .*; give a text, or chat messages with one of role 'user'$",
        ),
    ],
)
def test_columns_that_cannot_be_used_are_named(make_verify_rm, columns: dict[str, Any], said: str) -> None:
    with make_reward(make_verify_rm) as reward, pytest.raises(DataError, match=said):
        reward(["#### 1"], **columns)


def test_a_group_of_two_problems_is_refused(make_verify_rm) -> None:
    said = r"^group_ids: 'a' stands for two problems, at 0 and 1: 'p' and 'q'"
    with make_reward(make_verify_rm) as reward, pytest.raises(DataError, match=said):
        reward(["1", "2"], questions=["p", "q"], reference_answers=["1", "1"], group_ids=["a", "a"])


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"config": {"policy": {}}}, ConfigError, r"^config: policy: not read by a reward; its keys are "),
        ({"config": {"reward": {"lr": -1}}}, ConfigError, r"^config: reward.lr: Input should be gr"),
        ({"config": {"reward": {"overlong_buffer_tokens": 4}}}, ConfigError, r"counts tokens, which"),
        (
            {"config": {"pairs": {"negatives": {"assistant": 0, "red_team": 1}}}},
            ConfigError,
            r"^config: pairs.negatives.red_team=1 needs a red team's texts, which only train-cooper reads",
        ),
        ({"config": {"gate": {}}}, ConfigError, r"^config: gate needs labelled examples: give held_out="),
        (
            {"config": {"monitor": {"action": "rollback"}}},
            ConfigError,
            r"^config: monitor.action=rollback takes the policy back too",
        ),
        ({"replay": REPLAY, "held_out": REPLAY}, DataError, r"^replay: 12 of its rows have a question that"),
        ({"replay": [{"question": "q"}]}, DataError, r"^replay: row 0: reference_answer: Field required; a"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_refused(make_verify_rm, options, error, said: str) -> None:
    with pytest.raises(error, match=said):
        make_reward(make_verify_rm, **options)


def test_a_closed_reward_says_so(make_verify_rm) -> None:
    reward = make_reward(make_verify_rm)
    reward.close()
    with pytest.raises(CooperError, match=r"^this CooperReward is closed; make another one"):
        ask(reward)
    assert reward.step == 0


def test_all_processes_but_the_first_have_no_model(make_verify_rm, monkeypatch) -> None:
    """They load nothing: the folder need not be there."""
    monkeypatch.setenv("RANK", "1")
    reward = CooperReward("nowhere", device="cpu")
    with pytest.raises(CooperError, match=r"^the first process alone has VerifyRM"):
        _ = reward.verify_rm
    reward.close()


def hack(reward: CooperReward, steps: int) -> None:
    """Rollouts that fall from right to wrong, while VerifyRM is frozen at one score for all texts."""
    for step in range(steps):
        place = 0 if step < 2 else 1
        reward(
            [answers(problem)[place] for problem in PROBLEMS],
            questions=[problem.question for problem in PROBLEMS],
            reference_answers=[problem.reference_answer for problem in PROBLEMS],
        )


@pytest.mark.parametrize("action", ["stop", "rule", "warn"])
def test_an_alarm_of_the_monitor_stops_or_falls_back_or_warns(make_verify_rm, caplog, action: str) -> None:
    """A head of zeros scores everything .5, so that only rule accuracy changes."""
    verify_rm = make_verify_rm(0)
    torch.nn.init.zeros_(verify_rm.model.score.weight)
    config = {
        "reward": {"update_verify_rm": False},
        "monitor": {"window": 2, "action": action, "num_anchors": 0},
    }
    with CooperReward(verify_rm, config=config, rule=RULE, device="cpu") as reward:
        if action == "stop":
            with pytest.raises(
                HackingError, match=r"^the monitor found reward hacking at step 4; look at the "
            ):
                hack(reward, 6)
        else:
            hack(reward, 6)
            assert [row.get("monitor/alarm") for row in reward.metrics][2:4] == [None, 1.0]
            assert reward.metrics[-1]["rollout/reward"] == (0 if action == "rule" else 0.5)
        assert caplog.text.count("reward hacking: since step 2") == 1


def test_a_gradient_that_is_not_finite_leaves_the_step_undone(make_verify_rm) -> None:
    with make_reward(make_verify_rm) as reward:
        ask(reward)
        with torch.no_grad():
            next(iter(reward.verify_rm.model.parameters())).fill_(float("nan"))
        with pytest.raises(TrainingError, match=r"^VerifyRM's score is NaN for the question"):
            ask(reward)
        assert reward.step == 1


def test_the_trained_model_is_saved_as_a_folder_that_loads(make_verify_rm, tmp_path) -> None:
    with make_reward(make_verify_rm) as reward:
        ask(reward)
        reward.save_verify_rm(tmp_path / "trained")
        assert same_weights(load_verify_rm(tmp_path / "trained", device="cpu"), reward.verify_rm)


def test_a_configuration_object_is_taken_as_it_is(make_verify_rm) -> None:
    config = CooperConfig.model_validate({"pairs": {"assistant": {"tiny": True}}})
    with make_reward(
        make_verify_rm, config=config.model_copy(update={"gate": GateConfig()}), held_out=HELD_OUT
    ) as reward:
        ask(reward)
        assert {pair.source for pair in reward.pairs} <= {"assistant:tiny", "rollout"}
        assert "gate/accuracy" in reward.metrics[-1]
