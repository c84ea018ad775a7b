"""Dynamic sampling: groups all right or all wrong give way to other problems, the same after a restart."""

from dataclasses import replace

import pytest

from cooper_rl.schema.data import Problem
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.refill import Refilled, Scored, refill_flat
from cooper_rl.training.rollout import RolloutGroup, Scores
from cooper_rl.training.step import run_step
from tests.cooper_config import cooper_config
from tests.training.scripted import scripted_trainer

POOL = [
    Problem(id=f"p{n}", source="t", question=f"Tom has {n} apples.", reference_answer="1") for n in range(12)
]


def made(problems: list[Problem], rewards: dict[str, list[float]]) -> Scored:
    """Two rollouts for every problem, whose scores tell them apart; a reward of 0 is wrong."""
    return Scored(
        groups=[RolloutGroup(p, (1,), (), (f"{p.id} first", f"{p.id} second")) for p in problems],
        scores=Scores(
            verify_rm=[float(p.id[1:]) + half / 2 for p in problems for half in (0, 1)],
            rule=[verdict for p in problems for verdict in ("correct", "incorrect")],
        ),
        rewards=[reward for p in problems for reward in rewards.get(p.id, [0.0, 1.0])],
        accuracies=[reward > 0 for p in problems for reward in rewards.get(p.id, [0.0, 1.0])],
    )


def refill(rewards: dict[str, list[float]], *, count: int = 3, max_refills: int = 2, seed: int = 5):
    """The first `count` problems are drawn; also the problems of every further draw, and its seed."""
    draws: list[tuple[list[str], int]] = []

    def draw(problems: list[Problem], seed: int) -> Scored:
        draws.append(([problem.id for problem in problems], seed))
        return made(problems, rewards)

    first = made(POOL[:count], rewards)
    return refill_flat(first, POOL, draw, max_refills=max_refills, seed=seed), draws


def ids(found: Refilled) -> list[str]:
    return [group.problem.id for group in found.scored.groups]


def test_a_flat_group_gives_its_place_to_another_problem_with_all_that_is_said_of_it() -> None:
    found, draws = refill({"p1": [1.0, 1.0]})
    ((replacement,), _) = draws[0]
    assert replacement not in {"p0", "p1", "p2"}
    assert ids(found) == ["p0", replacement, "p2"]
    assert found.scored.rewards == [0.0, 1.0] * 3
    assert found.scored.scores.verify_rm[2:4] == [float(replacement[1:]), float(replacement[1:]) + 0.5]
    assert found.scored.groups[1].texts[0] == f"{replacement} first"
    assert found.num_replaced == 1


def test_nothing_is_drawn_where_no_group_is_flat_or_no_refill_is_allowed() -> None:
    assert refill({})[1] == []
    found, draws = refill({"p0": [1.0, 1.0]}, max_refills=0)
    assert (draws, ids(found), found.num_replaced) == ([], ["p0", "p1", "p2"], 0)


def test_a_draw_is_repeated_for_what_is_still_flat_with_problems_that_were_not_met() -> None:
    flat = {problem.id: [1.0, 1.0] for problem in POOL}
    found, draws = refill(flat, max_refills=3)
    assert [len(drawn) for drawn, _ in draws] == [3, 3, 3]
    met = ["p0", "p1", "p2", *(name for drawn, _ in draws for name in drawn)]
    assert sorted(met) == sorted(problem.id for problem in POOL)
    assert len({seed for _, seed in draws}) == 3
    assert (ids(found), found.num_replaced) == (["p0", "p1", "p2"], 0)


def test_a_pool_that_is_met_ends_the_refills() -> None:
    flat = {problem.id: [1.0, 1.0] for problem in POOL}
    assert [len(drawn) for drawn, _ in refill(flat, count=10, max_refills=9)[1]] == [2]


def test_the_same_seed_draws_the_same_problems_and_another_one_others() -> None:
    flat = {"p0": [1.0, 1.0], "p1": [0.0, 0.0]}
    assert refill(flat, seed=7)[1] == refill(flat, seed=7)[1]
    assert len({str(refill(flat, seed=seed)[1]) for seed in range(5)}) > 1


def test_rewards_that_differ_do_not_keep_a_group_that_is_all_right() -> None:
    """Right both times; the longer completion has lost .2 of its reward."""
    found, _ = refill({"p1": [1.0, 0.8]})
    assert "p1" not in ids(found)
    assert found.num_replaced == 1


@pytest.mark.parametrize("others", [True, False, None])
def test_a_group_with_an_abstention_is_kept(others: bool | None) -> None:
    scored = made(POOL[:1], {})._replace(accuracies=[None, others])
    found = refill_flat(scored, POOL, lambda *_: pytest.fail("drawn"), max_refills=2, seed=5)
    assert (found.scored, found.num_replaced) == (scored, 0)


def test_a_replacement_brings_every_verdict_and_the_judges_work_is_added_up() -> None:
    """Two verdicts of a judge for each of three groups, and for what takes the place of the second."""

    def judged(problems: list[Problem]) -> Scored:
        scored = made(problems, {"p1": [1.0, 1.0]})
        pairs = [("unparsable",) * 2 if p.id == "p1" else ("correct", "incorrect") for p in problems]
        verdicts = [verdict for pair in pairs for verdict in pair]
        scores = replace(scored.scores, rule=verdicts, judge=verdicts)
        return scored._replace(scores=scores, num_judged=len(verdicts))

    found = refill_flat(judged(POOL[:3]), POOL, lambda drawn, _: judged(drawn), max_refills=1, seed=5).scored
    assert found.scores.judge == found.scores.rule == ["correct", "incorrect"] * 3
    assert found.accuracies == [False, True] * 3
    assert found.num_judged == 8


RIGHT, WRONG = "7-2=5;5*2=10. #### 10", "7-2=5;5*2=12. #### 12"
ASKED = [
    Problem(id=name, source="t", question=f"Tom has 7. {name}?", reference_answer="10") for name in "abc"
]


@pytest.mark.parametrize("max_refills", [0, 2])
def test_a_step_trains_on_the_replacement(make_policy, make_verify_rm, rule, max_refills: int) -> None:
    """Problem a is solved by every rollout, b and c by half of them; the step asks a alone."""
    config = cooper_config(
        reward__kind="rule", group_size=2, max_refills=max_refills, problems_per_step=1,
        num_logged_rollouts=1,
    )  # fmt: skip
    script = dict(zip(ASKED, [[RIGHT, RIGHT], [RIGHT, WRONG], [WRONG, RIGHT]], strict=True))

    def first_step():
        trainer = scripted_trainer(
            make_policy, make_verify_rm(0), PairMaker(config, rule, None, None), script
        )
        before = trainer.policy.model.lm_head.weight.detach().clone()
        result = run_step(trainer, 1, ASKED[:1])
        is_trained = not before.equal(trainer.policy.model.lm_head.weight)
        assert not trainer.engine.is_asleep
        return result.rollouts[0].problem_id, is_trained, result.metrics.rollout.refilled

    found = first_step()
    assert found == first_step(), "a step that is done again after a restart draws the same problems"
    if max_refills:
        assert found[0] in "bc"
        assert found[1:] == (True, 1)
    else:
        assert found == ("a", False, None)


@pytest.mark.parametrize(
    "reward",
    [{"kind": "verify_rm", "update_verify_rm": False}, {"kind": "rule", "overlong_buffer_tokens": 64}],
    ids=["score", "shaped"],
)
def test_a_solved_problem_gives_way_whatever_its_rewards_are(
    make_policy, make_verify_rm, rule, reward: dict
) -> None:
    """Problem a is solved twice, at different lengths: VerifyRM's scores and the shaped rewards differ."""
    longer = RIGHT.replace("7-2", "7 - 2")
    config = cooper_config(
        reward=reward, group_size=2, max_refills=2, problems_per_step=1, num_logged_rollouts=1,
        generation={"max_new_tokens": 64},
    )  # fmt: skip
    script = dict(zip(ASKED, [[RIGHT, longer], [RIGHT, WRONG], [WRONG, RIGHT]], strict=True))
    maker = PairMaker(config, rule, None, None)
    trainer = scripted_trainer(make_policy, make_verify_rm(0), maker, script)
    found = run_step(trainer, 1, ASKED[:1])
    assert found.rollouts[0].problem_id in "bc"
    assert found.metrics.rollout.refilled == 1
    assert found.metrics.rollout.rule_accuracy == 0.5


def test_a_replacement_is_paid_by_the_rule_where_the_monitor_took_verify_rm_away(
    make_policy, make_verify_rm, rule
) -> None:
    """Problem a is solved twice; the one in its place is half right."""
    config = cooper_config(reward__update_verify_rm=False, group_size=2, max_refills=1, problems_per_step=1)
    script = dict(zip(ASKED, [[RIGHT, RIGHT], [RIGHT, WRONG], [WRONG, RIGHT]], strict=True))
    trainer = scripted_trainer(make_policy, make_verify_rm(0), PairMaker(config, rule, None, None), script)
    found = run_step(trainer, 1, ASKED[:1], falls_back_to_rule=True).metrics.rollout
    assert (found.refilled, found.reward) == (1, 0.5)


def test_the_problem_of_a_refill_is_drawn_by_step_and_seed(make_policy, make_verify_rm, rule) -> None:
    """Of eight that may take the place of one that is solved."""
    others = [
        Problem(id=str(n), source="t", question=f"Tom has {n}. How many?", reference_answer="10")
        for n in range(8)
    ]
    config = cooper_config(
        reward__kind="rule", group_size=2, max_refills=1, problems_per_step=1, num_logged_rollouts=1
    )
    script = {ASKED[0]: [RIGHT, RIGHT], **{other: [RIGHT, WRONG] for other in others}}

    def drawn(step: int, seed: int) -> str:
        maker = PairMaker(config, rule, None, None)
        trainer = replace(scripted_trainer(make_policy, make_verify_rm(0), maker, script), seed=seed)
        return run_step(trainer, step, ASKED[:1]).rollouts[0].problem_id

    assert [drawn(step, 0) for step in (1, 2)] == [drawn(step, 0) for step in (1, 2)]
    assert len({drawn(step, 0) for step in range(1, 6)}) > 1
    assert len({drawn(1, seed) for seed in range(5)}) > 1


def test_a_long_completion_loses_reward(make_policy, make_verify_rm, rule) -> None:
    """Both solve it; the limit is the longer one's length and the buffer all of it: n / limit is lost."""
    long = RIGHT.replace("7-2", "7 - 2") + "\n#### 10"
    policy = make_policy(0)
    short_tokens, limit = (len(policy.tokenizer(text)["input_ids"]) + 1 for text in (RIGHT, long))
    config = cooper_config(
        reward__kind="rule", group_size=2, problems_per_step=1, generation={"max_new_tokens": limit},
        reward__overlong_buffer_tokens=limit, reward__overlong_penalty=0.5,
    )  # fmt: skip
    maker = PairMaker(config, rule, None, None)
    trainer = scripted_trainer(make_policy, make_verify_rm(0), maker, {ASKED[0]: [RIGHT, long]})
    metrics = run_step(trainer, 1, ASKED[:1]).metrics
    assert metrics.rollout.rule_accuracy == 1
    assert metrics.rollout.reward == pytest.approx(1 - 0.5 * (short_tokens / limit + 1) / 2)
