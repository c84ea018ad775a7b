"""Four small problems, and a reward that is asked about answers to them."""

import copy
from dataclasses import replace

import torch

from cooper_rl import CooperReward, RuleConfig
from cooper_rl.config.data import AnswerPolicy
from cooper_rl.models.verify_rm import VerifyRM
from cooper_rl.schema.data import Problem, VerifyExample

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


def make_reward(make_verify_rm, **options) -> CooperReward:
    return CooperReward(make_verify_rm(0), rule=RULE, device="cpu", **options)
