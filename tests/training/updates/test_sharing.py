"""Updates as one process of several makes them: it deals out batches, and runs some that do not count."""

from collections.abc import Iterator, Sequence

import pytest
import torch

from cooper_rl.distributed.ranks import Dealt, Ranks
from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.models.verify_rm import VerifyItem
from cooper_rl.schema.data import VerifyExample
from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.reward_update import update_verify_rm
from tests.training.updates.test_updates import ADVANTAGES, cooper, groups_of, pairs_of

REPLAY = [
    VerifyExample(question="Ann has 3.", reference_answer="3", completion=text, label=label)
    for text, label in (("The answer is 3.", 1), ("4", 0), ("The answer is 5. It is 5.", 0))
]


class Filling(Ranks):
    """Runs two further batches for the sake of other processes; keeps the lengths that it shares out."""

    shared: tuple[list[list[int]], ...] = ([],)

    def deal(self, batches: Sequence[list[int]]) -> Iterator[Dealt]:
        yield from super().deal(batches)
        yield Dealt(batches[-1], counts=False)
        yield Dealt(batches[0], counts=False)

    def share_tokens(self, lengths: Sequence[int], max_tokens: int) -> int:
        self.shared[0].append(list(lengths))
        return super().share_tokens(lengths, max_tokens)


def trained(model: torch.nn.Module, ranks: Ranks) -> SingleProcess:
    """Plain gradient descent, so that a gradient shows as it is."""
    found = SingleProcess(model, torch.optim.SGD(model.parameters(), lr=0.1))
    found.ranks = ranks
    return found


@pytest.mark.parametrize("max_tokens", [10_000, 1], ids=["one batch", "one by one"])
def test_batches_that_do_not_count_change_no_reward_update(make_verify_rm, max_tokens: int) -> None:
    config = cooper(max_tokens_per_batch=max_tokens)
    alone, filling = make_verify_rm(0), make_verify_rm(0)
    expected, found = (
        update_verify_rm(each, trained(each.model, ranks), pairs_of(3), REPLAY, config=config)
        for each, ranks in ((alone, Ranks()), (filling, Filling()))
    )
    assert found == pytest.approx(expected, abs=1e-6)
    for name, weight in alone.model.state_dict().items():
        torch.testing.assert_close(filling.model.state_dict()[name], weight, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("max_tokens", [10_000, 1], ids=["one batch", "one by one"])
def test_batches_that_do_not_count_change_no_policy_update(make_policy, max_tokens: int) -> None:
    config = cooper(max_tokens_per_batch=max_tokens, policy__kl_coefficient=0.1)
    alone, filling = make_policy(0), make_policy(0)
    expected, found = (
        update_policy(
            each, make_policy(1), trained(each.model, ranks), groups_of(each), ADVANTAGES, config=config
        )
        for each, ranks in ((alone, Ranks()), (filling, Filling()))
    )
    assert found.model_dump() == pytest.approx(expected.model_dump(), abs=1e-6)
    for name, weight in alone.model.state_dict().items():
        torch.testing.assert_close(filling.model.state_dict()[name], weight, atol=1e-6, rtol=1e-6)


def test_tokens_are_shared_out_by_what_a_batch_holds_together(make_policy, make_verify_rm) -> None:
    """Prompt and completion; positive and negative of a pair; one labelled example."""
    policy, verify_rm = make_policy(0), make_verify_rm(0)
    ranks = Filling()
    ranks.shared[0].clear()
    groups, pairs = groups_of(policy), pairs_of(3)
    update_policy(policy, make_policy(1), trained(policy.model, ranks), groups, ADVANTAGES, config=cooper())
    update_verify_rm(verify_rm, trained(verify_rm.model, ranks), pairs, REPLAY, config=cooper())

    def length(question: str, reference_answer: str, text: str) -> int:
        return len(verify_rm.encode([VerifyItem(question, reference_answer, text)])[0])

    assert ranks.shared[0] == [
        [len(group.prompt_ids) + len(each.token_ids) for group in groups for each in group.generations],
        [
            sum(length(pair.question, pair.reference_answer, text) for text in (pair.positive, pair.negative))
            for pair in pairs
        ],
        [length(each.question, each.reference_answer, each.completion) for each in REPLAY],
    ]
