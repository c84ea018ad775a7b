"""The whole step, with real models, the laptop's assistant and a scripted engine."""

import random
import time
from dataclasses import replace

import pytest
import torch

from cooper_rl.config.cooper import GateConfig
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import TrainingError
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.redteam.hostile import hostile_examples
from cooper_rl.schema.data import Pairing, Problem, VerifyExample
from cooper_rl.schema.step_metrics import GateMetrics, PairMetrics
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.tiny.judge import TinyJudge
from cooper_rl.training.gate import GateReading, RewardGate
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.rollout import Scores, begin_rollouts
from cooper_rl.training.step import Trainer, run_step, step_problems
from tests.cooper_config import cooper_config
from tests.stand_ins.scripted_engine import ScriptedEngine
from tests.training.scripted import scripted_trainer, with_reward

PROBLEMS = [
    Problem(id=name, source="t", question=f"Tom has 7 apples. {name}?", reference_answer="10")
    for name in "ba"
]
RIGHT, OTHER_RIGHT = "7-2=5;5*2=10. #### 10", "7-2=5;5*2=10. \\boxed{10}"
WRONG, UNREADABLE = "7-2=5;5*2=12. #### 12", "The answer is ten."


class CountingAssistant:
    """The laptop's assistant, which also remembers what it was asked."""

    name = "tiny"

    def __init__(self) -> None:
        self.asked: list[RewriteItem] = []

    def rewrite(self, items, *, seed):
        self.asked.extend(items)
        return TinyAssistant().rewrite(items, seed=seed)


def make_trainer(
    make_policy,
    make_verify_rm,
    rule,
    texts: list[list[str]],
    *,
    assistant: CountingAssistant | None = None,
    **values,
) -> Trainer:
    """A trainer whose engine writes `texts[i]` for problem i."""
    paper = {"pairs__negatives": {"rollout": 0}, "group_size": 4}
    rates = {"reward__lr": 1e-3, "reward__weight_decay": 0, "policy__weight_decay": 0}
    config = cooper_config(**(paper | rates | values))
    maker = PairMaker(config, rule, assistant or CountingAssistant(), None)
    return scripted_trainer(make_policy, make_verify_rm(0), maker, dict(zip(PROBLEMS, texts, strict=True)))


def snapshot(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def is_unchanged(before: dict[str, torch.Tensor], model: torch.nn.Module) -> bool:
    return all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in before.items())


MIXED = [[RIGHT, WRONG, UNREADABLE, OTHER_RIGHT], [WRONG, WRONG, UNREADABLE, WRONG]]


def test_the_anchors_score_is_the_mean_over_all_of_them(make_policy, make_verify_rm, rule) -> None:
    trainer = make_trainer(make_policy, make_verify_rm, rule, [[RIGHT] * 4] * 2)
    anchors = [VerifyItem("How many?", "10", text) for text in (RIGHT, WRONG, UNREADABLE)]
    scores = trainer.reward.verify_rm.score(anchors)
    found = with_reward(trainer, anchors=anchors).reward.score_anchors()
    assert found == pytest.approx((scores[0] + scores[1] + scores[2]) / 3)
    assert trainer.reward.score_anchors() is None


def test_a_step_tells_what_the_rejected_rollouts_and_the_anchors_are_paid(
    make_policy, make_verify_rm, rule
) -> None:
    """Means of scores before the step: of four rollouts that the rule verifier rejects, of two anchors."""
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED)
    rejected = [(PROBLEMS[0], WRONG), *[(PROBLEMS[1], WRONG)] * 3]
    scores = trainer.reward.verify_rm.score(
        [VerifyItem(problem.question, problem.reference_answer, text) for problem, text in rejected]
    )
    anchors = [VerifyItem("How many?", "10", text) for text in (RIGHT, UNREADABLE)]
    levels = trainer.reward.verify_rm.score(anchors)
    metrics = run_step(with_reward(trainer, anchors=anchors), 1, PROBLEMS).metrics
    assert metrics.rollout.rejected_score == pytest.approx(sum(scores) / 4)
    assert metrics.verify_rm.anchor_score == pytest.approx(sum(levels) / 2)


def test_a_step_changes_both_models_and_hands_the_weights_to_the_engine(
    make_policy, make_verify_rm, rule
) -> None:
    """Eight rollouts, two of them rule-correct, two unparsable; one of two problems has a positive."""
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED)
    policy, verify_rm = snapshot(trainer.policy.model), snapshot(trainer.reward.verify_rm.model)
    began = time.perf_counter()
    result = run_step(trainer, 1, PROBLEMS)
    assert 0 < sum(result.metrics.seconds.values()) < time.perf_counter() - began
    assert not is_unchanged(policy, trainer.policy.model)
    assert not is_unchanged(verify_rm, trainer.reward.verify_rm.model)
    assert trainer.engine.num_weight_loads == 1
    assert result.metrics.rollout.rule_accuracy == 0.25
    assert result.metrics.rollout.rule_unparsable == 0.25
    assert result.metrics.pairs.count == 1
    assert set(result.metrics.seconds) == {
        "rollout", "reward", "policy_update", "pairing", "reward_update"
    }  # fmt: skip


def test_the_engine_sleeps_while_the_policy_is_updated(make_policy, make_verify_rm, rule) -> None:
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED)
    is_asleep: set[bool] = set()
    head = trainer.policy.model.lm_head
    head.register_forward_pre_hook(lambda *_: is_asleep.add(trainer.engine.is_asleep))
    run_step(trainer, 1, PROBLEMS)
    assert is_asleep == {True}
    assert not trainer.engine.is_asleep


def test_the_judge_speaks_of_all_rollouts_only_where_it_is_the_reward(
    make_policy, make_verify_rm, rule
) -> None:
    """It reads "ten", which the rule verifier does not: four of eight rollouts are right."""
    for reward in ("judge", "rule"):
        trainer = make_trainer(
            make_policy, make_verify_rm, rule, MIXED, reward__kind=reward, judge={"tiny_error_rate": 0}
        )
        found = run_step(with_reward(trainer, judge=TinyJudge(0.0, 0)), 1, PROBLEMS).metrics
        assert found.rollout.reward == (0.5 if reward == "judge" else 0.25)
        assert found.rollout.judge_accuracy == (0.5 if reward == "judge" else None)


def test_after_an_alarm_the_rule_pays(make_policy, make_verify_rm, rule) -> None:
    """Two of eight rollouts are right by the rule; VerifyRM's scores are told all the same."""
    found = [
        run_step(
            make_trainer(make_policy, make_verify_rm, rule, MIXED), 1, PROBLEMS, falls_back_to_rule=falls
        )
        for falls in (False, True)
    ]
    by_score, by_rule = (result.metrics.rollout for result in found)
    assert by_score.reward == by_score.verify_rm_reward == by_rule.verify_rm_reward
    assert by_rule.reward == 0.25


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scale": "none"}, 0.25),
        ({"scale": "std"}, 0.4330127),
        ({"scale": "std", "std_floor": 10}, 0.025),
        ({"scale": "none", "estimator": "rloo"}, 1 / 3),
    ],
)
def test_advantages_are_made_as_configured(
    make_policy, make_verify_rm, rule, options: dict, expected: float
) -> None:
    """Rewards 1 0 0 1 and 0 0 0 0: centred 1/2 each in the first group and 0 in the second.

    The deviation of the first is 1 / sqrt(3), the mean of the others of its group 1/3 for a 1, 2/3 for a 0.
    """
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED, reward__kind="rule", advantages=options)
    found = run_step(trainer, 1, PROBLEMS).metrics.rollout.abs_advantage
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_policy_is_asked_with_the_instruction(make_policy, make_verify_rm, rule) -> None:
    """The engine knows the prompts that hold it, and no others."""
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED)
    policy = trainer.policy
    lines = [(*policy.tokenizer(RIGHT)["input_ids"], policy.tokenizer.eos_token_id)]
    script = {tuple(policy.encode_prompt(each.question, "Be brief.")): lines for each in PROBLEMS}
    engine = ScriptedEngine(script, end_ids=policy.end_ids)
    result = run_step(replace(trainer, engine=engine, instruction="Be brief."), 1, PROBLEMS)
    assert result.metrics.rollout.rule_accuracy == 1


def noting(verify_rm: VerifyRM, asked: list[VerifyItem]) -> VerifyRM:
    """The same VerifyRM, which keeps what it reads."""

    class Noting(VerifyRM):
        def encode_compared(self, items, *, epoch=None):
            asked.extend(items)
            return super().encode_compared(items, epoch=epoch)

    return Noting(verify_rm.model, verify_rm.tokenizer)


def learned(make_policy, make_verify_rm, rule, *, step: int, seed: int, fraction: float = 0) -> list[str]:
    """Completions of the six replayed examples of a step, and hostile ones for `fraction` of them."""
    examples = [
        VerifyExample(question=f"Q{n}", reference_answer="918273", completion=f"It is {n}.", label=n % 2)
        for n in range(100)
    ]
    values = {"reward__num_replay_examples": 6, "reward__hostile_fraction": fraction}
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED, **values)
    asked: list[VerifyItem] = []
    verify_rm = noting(trainer.reward.verify_rm, asked)
    run_step(with_reward(trainer, verify_rm=verify_rm, replay=examples, seed=seed), step, PROBLEMS)
    return [item.completion for item in asked if item.question.startswith("Q")]


def test_replayed_examples_are_drawn_by_step_and_seed(make_policy, make_verify_rm, rule) -> None:
    draws = [
        learned(make_policy, make_verify_rm, rule, step=step, seed=seed)
        for step, seed in ((1, 0), (1, 0), (2, 0), (1, 1))
    ]
    assert [len(set(draw)) for draw in draws] == [6] * 4
    assert draws[0] == draws[1]
    assert len({tuple(draw) for draw in draws}) == 3


def test_hostile_texts_are_as_many_as_configured_and_drawn_by_step_and_seed(
    make_policy, make_verify_rm, rule
) -> None:
    """Half as many as the six replayed ones, which come first."""
    draws = [
        learned(make_policy, make_verify_rm, rule, step=step, seed=seed, fraction=0.5)
        for step, seed in ((1, 0), (1, 0), (2, 0), (1, 1))
    ]
    assert [len(draw) for draw in draws] == [9] * 4
    assert draws[0] == draws[1]
    assert len({tuple(draw[6:]) for draw in draws}) == 3


def test_a_steps_pairs_are_made_with_the_steps_seed(make_policy, make_verify_rm, rule) -> None:
    """The assistant's slip in one of two right rollouts."""

    def negatives(seed: int) -> list[str]:
        trainer = with_reward(make_trainer(make_policy, make_verify_rm, rule, MIXED), seed=seed)
        return [pair.negative for step in range(1, 6) for pair in run_step(trainer, step, PROBLEMS).pairs]

    assert negatives(0) == negatives(0)
    assert len(set(negatives(0))) > 1
    assert negatives(0) != negatives(1)


def test_the_numbers_of_a_steps_pairs(make_policy, make_verify_rm, rule) -> None:
    """One of two problems has a positive, and a pair of each of three sources."""
    values = {"pairs__negatives": {"assistant": 1, "rollout": 1, "perturb": 1}, "pairs__per_problem": 3}
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED, **values)
    assert run_step(trainer, 1, PROBLEMS).metrics.pairs == PairMetrics(
        count=3, positives=1, rewrites=1, unanswered=0,
        by_source={"assistant": 1, "rollout": 1, "perturb": 1, "canary": 0, "red_team": 0},
    )  # fmt: skip


def test_a_step_learns_its_labels_behind_the_gate_and_tells_what_the_gate_did(
    make_policy, make_verify_rm, rule
) -> None:
    """A gate that nothing passes takes back the update on a pair and a replayed example."""
    examples = [
        VerifyExample(question="Q", reference_answer="3", completion=RIGHT, label=label) for label in (0, 1)
    ]
    shut = RewardGate(GateConfig(), examples, [], GateReading(accuracy=2.0, canary_rate=0.0), data=7)
    trainer = with_reward(make_trainer(make_policy, make_verify_rm, rule, MIXED), gate=shut, replay=examples)
    before = snapshot(trainer.reward.verify_rm.model)
    found = run_step(trainer, 1, PROBLEMS).metrics
    assert (found.gate.rolled_back, found.gate.data, found.gate.start_accuracy) == (True, 7, 2.0)
    assert found.verify_rm.loss is not None
    assert found.verify_rm.replay_loss > 0
    assert is_unchanged(before, trainer.reward.verify_rm.model)

    nothing = make_trainer(make_policy, make_verify_rm, rule, [[WRONG], [WRONG]])
    found = run_step(with_reward(nothing, gate=shut), 1, PROBLEMS).metrics
    assert (found.gate, found.verify_rm.loss) == (GateMetrics(), None)


def test_replay_draws_as_many_examples_as_are_configured_and_there(make_policy, make_verify_rm, rule) -> None:
    examples = [
        VerifyExample(question="Q", reference_answer="3", completion=text, label=0)
        for text in (RIGHT, WRONG, UNREADABLE)
    ]
    losses: list[float] = []
    for count in (0, 1, 3, 9):
        trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED, reward__num_replay_examples=count)
        result = run_step(with_reward(trainer, replay=examples), 1, PROBLEMS)
        losses.append(result.metrics.verify_rm.replay_loss)
    assert losses[0] == 0
    assert losses[1] != pytest.approx(losses[2])
    assert losses[2] == pytest.approx(losses[3])


def test_the_same_step_replays_the_same_examples(make_policy, make_verify_rm, rule) -> None:
    """Every rank, and a resumed run, draws 3 of these 100 as the others do."""
    examples = [
        VerifyExample(question=f"Q{n}", reference_answer=str(n), completion=f"It is {n}.", label=n % 2)
        for n in range(100)
    ]
    losses = []
    for _ in range(2):
        trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED, reward__num_replay_examples=3)
        result = run_step(with_reward(trainer, replay=examples), 1, PROBLEMS)
        losses.append(result.metrics.verify_rm.replay_loss)
    assert losses[0] == losses[1] is not None


def test_hostile_texts_beside_the_replayed_examples_are_learned_as_wrong(
    make_policy, make_verify_rm, rule
) -> None:
    """Of 16 other texts than the 8 steps draw, on the problems of the replayed examples, which are right."""
    examples = [
        VerifyExample(question=f"Q{n}", reference_answer=str(n), completion=f"It is {n}.", label=1)
        for n in range(20, 40)
    ]
    texts = list(hostile_examples(examples, 16, random.Random(7), domain=default_domain()))
    scores: list[float] = []
    for fraction in (0.0, 1.0):
        changes = {"reward__lr": 3e-3, "reward__hostile_fraction": fraction}
        trainer = with_reward(
            make_trainer(make_policy, make_verify_rm, rule, MIXED, **changes), replay=examples
        )
        for step in range(1, 9):
            run_step(trainer, step, PROBLEMS)
        items = [VerifyItem(row.question, row.reference_answer, row.completion) for row in texts]
        scores.append(sum(trainer.reward.verify_rm.score(items)) / len(items))
    assert scores[1] < scores[0] - 0.1


def test_where_nothing_is_right_audits_alone_move_verify_rm(make_policy, make_verify_rm, rule) -> None:
    """Replay without pairs teaches nothing new; an audited rollout does, and the replay goes with it."""
    wrong = [[WRONG] * 4, [WRONG] * 4]
    replay = [VerifyExample(question="Q", reference_answer="3", completion=RIGHT, label=0)]
    for count, learned in ((0, None), (1, 1), (9, 2)):
        trainer = make_trainer(make_policy, make_verify_rm, rule, wrong, reward__num_audited_rollouts=count)
        before = trainer.reward.verify_rm.model.score.weight.detach().clone()
        metrics = run_step(with_reward(trainer, replay=replay), 1, PROBLEMS).metrics
        assert (metrics.pairs.count, metrics.pairs.audited, metrics.pairs.audited_wrong) == (
            0,
            learned,
            learned,
        )
        assert (metrics.verify_rm.replay_loss is None) == (learned is None)
        is_unchanged = torch.equal(before, trainer.reward.verify_rm.model.score.weight)
        assert is_unchanged == (learned is None)


def test_a_pair_is_a_rule_correct_rollout_against_a_rewrite_that_parses_and_is_wrong(
    make_policy, make_verify_rm, rule
) -> None:
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED)
    (pair,) = run_step(trainer, 1, PROBLEMS).pairs
    assert pair.problem_id == "b"
    assert pair.positive in {RIGHT, OTHER_RIGHT}
    verdicts = [check.verdict for check in rule.verify([("10", pair.positive), ("10", pair.negative)])]
    assert verdicts == ["correct", "incorrect"]
    assert pair.source == "assistant:tiny"


def pair_up(groups, assistant, rule, *, max_attempts: int) -> Pairing:
    """The pairs of rollouts that are all correct."""
    config = cooper_config(pairs__max_attempts=max_attempts)
    count = sum(len(group.texts) for group in groups)
    scores = Scores(verify_rm=[0.5] * count, rule=["correct"] * count)
    return PairMaker(config, rule, assistant, None).make(groups, scores, step=1, seed=0)


class PaddedAssistant:
    """Puts white space round a wrong solution, as chat models do."""

    name = "padded"

    def rewrite(self, items, *, seed):
        return [f"\n{WRONG} \n" for _ in items]


def test_white_space_at_the_ends_does_not_tell_the_halves_apart(make_policy, make_verify_rm, rule) -> None:
    """The release's negatives end in an extra newline that its positives lack."""
    trainer = make_trainer(make_policy, make_verify_rm, rule, [[RIGHT + "\n"], [f" {OTHER_RIGHT}"]])
    wait = begin_rollouts(
        trainer.engine, trainer.policy, PROBLEMS, trainer.config.generation,
        group_size=2, instruction=None, seed=0,
    )  # fmt: skip
    groups = wait()
    pairs = pair_up(groups, PaddedAssistant(), rule, max_attempts=1).pairs
    assert [(pair.positive, pair.negative) for pair in pairs] == [(OTHER_RIGHT, WRONG), (RIGHT, WRONG)]


def test_the_assistant_is_asked_only_where_there_is_a_positive(make_policy, make_verify_rm, rule) -> None:
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED)
    run_step(trainer, 1, PROBLEMS)
    assert {item.problem_id for item in trainer.reward.pairs.maker.assistant.asked} == {"b"}


def test_the_best_paid_rollout_of_each_problem_is_kept_best_first(make_policy, make_verify_rm, rule) -> None:
    texts = [[WRONG, UNREADABLE], [WRONG, RIGHT]]
    for count in (1, 2):
        trainer = make_trainer(
            make_policy, make_verify_rm, rule, texts, reward__kind="rule", num_logged_rollouts=count
        )
        kept = [
            (row.problem_id, row.completion, row.reward) for row in run_step(trainer, 1, PROBLEMS).rollouts
        ]
        assert kept == [("a", RIGHT, 1.0), ("b", WRONG, 0.0)][:count]


class SureEngine:
    """A scripted engine that held every token of the first completion for e^-.5, and the others for sure."""

    def __init__(self, engine) -> None:
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def generate(self, *arguments, **options):
        drawn = self._engine.generate(*arguments, **options)
        first = drawn[0][0]
        drawn[0][0] = replace(first, logprobs=(-0.5,) * len(first.token_ids))
        return drawn


def test_entropy_length_and_equal_groups_are_told_of_the_rollouts(make_policy, make_verify_rm, rule) -> None:
    """Entropy: .5 nats at the first completion's n tokens and 0 elsewhere: .5 n / all. By the rule the first
    group is paid 1 0 0 1, the second 0 0 0 0: one of two is equal."""
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED, reward__kind="rule")
    found = run_step(replace(trainer, engine=SureEngine(trainer.engine)), 1, PROBLEMS).metrics.rollout
    lengths = [len(trainer.policy.tokenizer(text)["input_ids"]) + 1 for texts in MIXED for text in texts]
    assert found.entropy == pytest.approx(0.5 * lengths[0] / sum(lengths))
    assert found.completion_tokens == sum(lengths) / 8
    assert found.tokens == sum(lengths)
    assert found.equal_groups == 0.5


def test_the_score_of_rejected_rollouts_is_their_mean(make_policy, make_verify_rm, rule) -> None:
    """One of eight is rejected, and then none."""
    items = [VerifyItem(PROBLEMS[0].question, "10", WRONG)]
    for texts, expected in (
        ([RIGHT, RIGHT, RIGHT, WRONG], make_verify_rm(0).score(items, max_tokens_per_batch=1)[0]),
        ([RIGHT], None),
    ):
        trainer = make_trainer(make_policy, make_verify_rm, rule, [texts, [RIGHT]])
        found = run_step(trainer, 1, PROBLEMS).metrics.rollout.rejected_score
        assert found == (None if expected is None else pytest.approx(expected, abs=1e-5))


def test_a_step_without_a_correct_rollout_gives_no_pair_and_leaves_verify_rm(
    make_policy, make_verify_rm, rule
) -> None:
    trainer = make_trainer(make_policy, make_verify_rm, rule, [[WRONG], [UNREADABLE]])
    before = snapshot(trainer.reward.verify_rm.model)
    result = run_step(trainer, 1, PROBLEMS)
    assert result.pairs == []
    assert result.metrics.pairs.count == 0
    assert result.metrics.verify_rm.loss is None
    assert is_unchanged(before, trainer.reward.verify_rm.model)


def test_the_frozen_arm_trains_the_policy_alone(make_policy, make_verify_rm, rule) -> None:
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED, reward__update_verify_rm=False)
    policy, verify_rm = snapshot(trainer.policy.model), snapshot(trainer.reward.verify_rm.model)
    result = run_step(trainer, 1, PROBLEMS)
    assert not is_unchanged(policy, trainer.policy.model)
    assert is_unchanged(verify_rm, trainer.reward.verify_rm.model)
    assert result.pairs == []


def test_the_rule_arm_gives_equal_groups_zero_advantage(make_policy, make_verify_rm, rule) -> None:
    """Group one is 1 1 1 1, group two 0 0 0 0: no advantage anywhere, and VerifyRM's scores do not count."""
    texts = [[RIGHT, OTHER_RIGHT], [WRONG, UNREADABLE]]
    trainer = make_trainer(
        make_policy, make_verify_rm, rule, texts, reward__kind="rule", policy__kl_coefficient=0.0
    )
    before = snapshot(trainer.policy.model)
    result = run_step(trainer, 1, PROBLEMS)
    assert result.metrics.rollout.abs_advantage == 0.0
    assert None not in result.metrics.flat().values(), "nothing was trained on, so nothing is said of it"
    assert is_unchanged(before, trainer.policy.model)


class StubbornAssistant:
    """Returns the solution as it was, text that does not parse, nothing, and only then a wrong solution."""

    name = "stubborn"

    def __init__(self) -> None:
        self.answers = [RIGHT, UNREADABLE, None, WRONG]

    def rewrite(self, items, *, seed):
        return [self.answers.pop(0) for _ in items]


def test_a_rewrite_is_asked_for_again_until_it_parses_and_is_wrong(make_policy, make_verify_rm, rule) -> None:
    """The release takes an empty parse for a wrong answer, and a copy of the positive gets through."""
    trainer = make_trainer(make_policy, make_verify_rm, rule, [[RIGHT], [WRONG]])
    wait = begin_rollouts(
        trainer.engine, trainer.policy, PROBLEMS[:1], trainer.config.generation,
        group_size=2, instruction=None, seed=0,
    )  # fmt: skip
    groups = wait()
    few = pair_up(groups, StubbornAssistant(), rule, max_attempts=3)
    assert few.pairs == []
    assert few.num_rewrites == 3
    enough = pair_up(groups, StubbornAssistant(), rule, max_attempts=4)
    assert [pair.negative for pair in enough.pairs] == [WRONG]


def test_pairs_are_in_the_order_of_their_problem_ids(make_policy, make_verify_rm, rule) -> None:
    """The release's order comes from a set."""
    trainer = make_trainer(make_policy, make_verify_rm, rule, [[RIGHT], [OTHER_RIGHT]])
    assert [pair.problem_id for pair in run_step(trainer, 1, PROBLEMS).pairs] == ["a", "b"]


def test_every_epoch_meets_every_problem_once_in_another_order() -> None:
    problems = [Problem(id=str(n), source="t", question="q", reference_answer="1") for n in range(7)]
    met = [p.id for step in range(1, 8) for p in step_problems(problems, step, count=3, seed=0)]
    epochs = [met[:7], met[7:14], met[14:21]]
    assert all(sorted(epoch) == sorted(p.id for p in problems) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert step_problems(problems, 5, count=3, seed=0) == step_problems(problems, 5, count=3, seed=0)
    assert step_problems(problems, 5, count=3, seed=0) != step_problems(problems, 5, count=3, seed=1)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            "policy",
            r"^the policy's update: out of memory \(.*; lower cooper\.max_tokens_per_batch=16384, or set "
            r"cooper\.gradient_checkpointing=true or distributed\.offload_optimizer=true$",
        ),
        (
            "verify_rm's update",
            r"^the VerifyRM's update: out of memory \(.*; lower cooper\.max_tokens_per_batch=16384",
        ),
        ("verify_rm", r"^VerifyRM's scores: out of memory \(.*; lower cooper\.max_tokens_per_batch=16384 "),
    ],
)
def test_a_model_that_runs_out_of_memory_says_what_to_lower(
    make_policy, make_verify_rm, rule, model: str, said: str
) -> None:
    trainer = make_trainer(make_policy, make_verify_rm, rule, MIXED)
    head = trainer.policy.model.lm_head if model == "policy" else trainer.reward.verify_rm.model.score
    is_late = model == "verify_rm's update"
    head.register_forward_pre_hook(
        lambda *_: None if is_late and not torch.is_grad_enabled() else torch.empty(10**15)
    )
    with pytest.raises(TrainingError, match=said):
        run_step(trainer, 1, PROBLEMS)
