"""CooperReward against the step of `train_cooper`, its checkpoints, and what it refuses."""

import copy
import itertools
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch

from cooper_rl import CooperReward
from cooper_rl.api import reward_run
from cooper_rl.config.cooper import CooperConfig, GateConfig
from cooper_rl.errors import (
    ConfigError,
    CooperError,
    DataError,
    HackingError,
    TrainingError,
)
from cooper_rl.models.verify_rm import VerifyRM, save_verify_rm
from cooper_rl.schema.data import VerifyExample
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.training import reward_learner
from cooper_rl.training.gate import make_gate
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.reward_learner import Rewarded, RewardLearner
from cooper_rl.training.step import run_step
from tests.api.rewarding import (
    HELD_OUT,
    PROBLEMS,
    REPLAY,
    RULE,
    answers,
    ask,
    copy_of,
    make_reward,
    same_weights,
)
from tests.cooper_config import cooper_config
from tests.training.scripted import scripted_trainer, with_reward


class Spy(RewardLearner):
    """Remembers the rewards."""

    found: list[list[float]]

    def score(self, groups, **options) -> Rewarded:
        rewarded = super().score(groups, **options)
        self.found.append(rewarded.rewards)
        return rewarded


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
                if not key.startswith(("seconds/", "verify_rm/anchor", "monitor/"))
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


def test_a_row_without_a_reference_answer_has_no_reward_and_leaves_the_others_as_they_are(
    make_verify_rm,
) -> None:
    """TRL's data sets of several tasks: what a reward does not apply to gets None."""
    with CooperReward(make_verify_rm(0), rule=RULE, device="cpu") as reward:
        alone = ask(reward)
    with CooperReward(make_verify_rm(0), rule=RULE, device="cpu") as reward:
        rows = [(problem, text) for problem in PROBLEMS for text in answers(problem)]
        found = reward(
            ["def f(): pass", *(text for _, text in rows), "of another task"],
            questions=["Write f.", *(problem.question for problem, _ in rows), ""],
            reference_answers=[None, *(problem.reference_answer for problem, _ in rows), None],
        )
        assert (found[0], found[-1]) == (None, None)
        assert found[1:-1] == pytest.approx(alone)
        assert reward.step == 1
        assert reward(["def f(): pass"], questions=["Write f."], reference_answers=[None]) == [None]
        assert reward.step == 1


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


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_autocast_of_the_trainer_changes_no_number(make_verify_rm, precision: str) -> None:
    """As a Lightning module's `training_step` calls it."""
    config = {"precision": precision}
    with (
        make_reward(make_verify_rm, config=config) as plain,
        make_reward(make_verify_rm, config=config) as rounded,
    ):
        for _ in range(2):
            expected = ask(plain)
            with torch.autocast("cpu", torch.bfloat16):
                assert ask(rounded) == expected
        assert same_weights(plain.verify_rm, rounded.verify_rm)


def test_the_default_type_of_the_trainer_changes_no_number(make_verify_rm) -> None:
    """As of one that makes its models in bf16 without naming the type at each of them."""
    with make_reward(make_verify_rm) as plain, make_reward(make_verify_rm) as other:
        expected = [ask(plain), ask(plain)]
        torch.set_default_dtype(torch.bfloat16)
        try:
            assert [ask(other), ask(other)] == expected
        finally:
            torch.set_default_dtype(torch.float32)
        assert same_weights(plain.verify_rm, other.verify_rm)


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
                    [f"{half} It is:\n#### 10", f"{half} It is:\n#### 11"] * 2,
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
        ({"reference_answers": ["1"]}, r"^give questions or prompts, one per completion"),
        ({"reference_answers": [], "questions": ["q"]}, r"^reference_answers: 0 values for 1 completions"),
        (
            {"reference_answers": [True], "questions": ["q"]},
            r"^reference_answers: value 0 is True \(bool\), not text or a number; "
            "give the final answer alone$",
        ),
        ({"reference_answers": ["1"], "questions": [""]}, r"^questions: value 0 is empty; give a text$"),
        (
            {"reference_answers": ["1"], "prompts": [[{"role": "system", "content": "s"}]]},
            r"^prompts: value 0 is .*; give a text, or chat messages with one of role 'user'$",
        ),
    ],
)
def test_columns_that_cannot_be_used_are_named(make_verify_rm, columns: dict[str, Any], said: str) -> None:
    with make_reward(make_verify_rm) as reward, pytest.raises(DataError, match=said):
        reward(["#### 1"], **columns)


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_reward_is_not_copied(make_verify_rm, make_copy) -> None:
    said = r"^CooperReward cannot be copied or sent to another process.* give them a RewardClient$"
    with make_reward(make_verify_rm) as reward, pytest.raises(CooperError, match=said):
        make_copy(reward)


def test_a_group_of_two_problems_is_refused(make_verify_rm) -> None:
    said = r"^group_ids: 'a' stands for two problems, at 0 and 1: 'p' and 'q'"
    with make_reward(make_verify_rm) as reward, pytest.raises(DataError, match=said):
        reward(["1", "2"], questions=["p", "q"], reference_answers=["1", "1"], group_ids=["a", "a"])


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"config": {"policy": {}}}, ConfigError, r"^config: policy: not read by a reward; its keys are "),
        ({"config": {"reward": {"lr": -1}}}, ConfigError, r"^config: reward.lr: Input should be gr"),
        (
            {"config": {"reward": {"learning_rate": 1e-5}}},
            ConfigError,
            r"^config: reward\.learning_rate: unknown key; known here: .*\blr, ",
        ),
        (
            {"config": {"monitor": {"actions": "stop"}}},
            ConfigError,
            r"^config: monitor\.actions: unknown key; did you mean 'action'\?$",
        ),
        (
            {"config": {"reward.lr": 1e-5}},
            ConfigError,
            r"^config: reward\.lr: not read by a reward.*; write reward\.lr as nested mappings$",
        ),
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


STOPS = {"reward": {"update_verify_rm": False}, "monitor": {"window": 2, "action": "stop", "num_anchors": 0}}


def test_a_reward_that_was_stopped_stays_stopped_after_a_restart(make_verify_rm, tmp_path) -> None:
    """It still scores: an evaluation trains on nothing."""
    torch.nn.init.zeros_((verify_rm := make_verify_rm(0)).model.score.weight)
    save_verify_rm(verify_rm, tmp_path / "verify_rm")
    options: dict[str, Any] = {"config": STOPS, "rule": RULE, "device": "cpu", "folder": tmp_path / "run"}
    with CooperReward(tmp_path / "verify_rm", **options) as reward:
        with pytest.raises(HackingError, match="at step 4"):
            hack(reward, 6)
        with pytest.raises(HackingError, match="at step 4"):
            ask(reward)
    with CooperReward(tmp_path / "verify_rm", **options) as restarted:
        with pytest.raises(HackingError, match="at step 4"):
            ask(restarted)
        assert restarted.step == 4
        restarted.is_learning = False
        assert ask(restarted) == [0.5] * 16


def test_a_checkpoint_that_cannot_be_written_lets_no_stopped_reward_go_on(
    make_verify_rm, tmp_path, monkeypatch
) -> None:
    def refuse(*_: object) -> None:
        raise DataError("no space left on the disk")

    torch.nn.init.zeros_((verify_rm := make_verify_rm(0)).model.score.weight)
    with (
        CooperReward(verify_rm, config=STOPS, rule=RULE, device="cpu", folder=tmp_path / "run") as reward,
        monkeypatch.context() as full,
    ):
        full.setattr(reward_run, "write_state", refuse)
        with pytest.raises(HackingError, match="at step 4"):
            hack(reward, 6)


def test_a_reward_that_makes_no_pairs_is_told_once(make_verify_rm, caplog) -> None:
    """As with GSM8K's whole solutions in the place of reference answers, which the rule cannot compare."""
    solution = "Tom has 7 - 2 = 5 apples left, and 5 * 2 = 10 after that.\n#### 10"
    with make_reward(make_verify_rm) as reward:
        for _ in range(11):
            reward(["#### 10", "It is 10."], questions=["How many?"] * 2, reference_answers=[solution] * 2)
        assert reward.pairs == []
    said = "10 steps made no preference pair, so VerifyRM has learned nothing from the policy"
    assert caplog.text.count(said) == 1
    assert "calls 0 % correct and cannot read 100 %" in caplog.text
    assert "#### 10'), and completions must state theirs" in caplog.text


def test_verify_rm_learns_nothing_from_questions_that_the_gate_asks(make_verify_rm, caplog) -> None:
    """They are rewarded all the same, and the first step says so."""
    held_out = [
        VerifyExample(
            question=problem.question.upper() + " ",  # the same question, by which every split goes
            reference_answer=problem.reference_answer,
            completion=answers(problem)[place],
            label=1 - place,
        )
        for problem in PROBLEMS[:3]
        for place in (0, 1)
    ]
    with make_reward(make_verify_rm, held_out=held_out) as reward:
        assert len(ask(reward)) == 16
        ask(reward)
        assert {pair.question for pair in reward.pairs} == {PROBLEMS[3].question}
    assert caplog.text.count("step 1: 3 of 4 groups have a question of held_out") == 1


def test_a_step_that_failed_takes_its_pairs_again(make_verify_rm, monkeypatch) -> None:
    """With the pairs of the step before: what they teach is learned once, and nothing is lost."""

    def fail(*_: object, **__: object) -> None:
        raise TrainingError("the loss is not finite")

    config = {"pairs": {"max_staleness": 1}}
    with (
        make_reward(make_verify_rm, config=config) as whole,
        make_reward(make_verify_rm, config=config) as failing,
    ):
        for step in range(1, 6):
            if step == 3:
                with monkeypatch.context() as broken:
                    broken.setattr(reward_learner, "update_verify_rm", fail)
                    with pytest.raises(TrainingError):
                        ask(failing)
            assert ask(failing) == ask(whole)
        assert failing.pairs == whole.pairs
        assert same_weights(failing.verify_rm, whole.verify_rm)


def test_a_step_that_ran_out_of_memory_is_taken_again_from_no_gradient(make_verify_rm, monkeypatch) -> None:
    """It fails in its second batch; the first one has left a gradient by then."""
    config = {"max_tokens_per_batch": 60}
    with (
        make_reward(make_verify_rm, config=config) as whole,
        make_reward(make_verify_rm, config=config) as failing,
    ):
        with monkeypatch.context() as short:
            short.setattr(VerifyRM, "counted_logits", _fail_in_the_second_batch())
            with pytest.raises(TrainingError, match="out of memory"):
                ask(failing)
        assert ask(failing) == ask(whole)
        assert same_weights(failing.verify_rm, whole.verify_rm)


def _fail_in_the_second_batch() -> Any:
    compute, trained = VerifyRM.counted_logits, itertools.count(1)

    def fail(verify_rm: VerifyRM, groups: Any) -> torch.Tensor:
        if torch.is_grad_enabled() and next(trained) == 2:
            raise RuntimeError("CUDA out of memory")
        return compute(verify_rm, groups)

    return fail


def test_a_gradient_that_is_not_finite_leaves_the_step_undone(make_verify_rm) -> None:
    with make_reward(make_verify_rm) as reward:
        ask(reward)
        with torch.no_grad():
            next(iter(reward.verify_rm.model.parameters())).fill_(float("nan"))
        with pytest.raises(TrainingError, match=r"^VerifyRM's score is NaN for the question"):
            ask(reward)
        assert reward.step == 1


def test_a_configuration_object_is_taken_as_it_is(make_verify_rm) -> None:
    config = CooperConfig.model_validate({"pairs": {"assistant": {"tiny": True}}})
    with make_reward(
        make_verify_rm, config=config.model_copy(update={"gate": GateConfig()}), held_out=HELD_OUT
    ) as reward:
        ask(reward)
        assert {pair.source for pair in reward.pairs} <= {"assistant:tiny", "rollout"}
        assert "gate/accuracy" in reward.metrics[-1]


def test_held_out_examples_bring_the_gate_to_a_configuration_object_too(make_verify_rm) -> None:
    config = CooperConfig.model_validate({"pairs": {"negatives": {"assistant": 0}}})
    with make_reward(make_verify_rm, config=config, held_out=HELD_OUT) as reward:
        ask(reward)
        assert "gate/accuracy" in reward.metrics[-1]
    none = CooperConfig.model_validate({"pairs": {"negatives": {"assistant": 0}}, "gate": None})
    with make_reward(make_verify_rm, config=none, held_out=HELD_OUT) as reward:
        ask(reward)
        assert "gate/accuracy" not in reward.metrics[-1]
