"""The examples of every update: groups of one text, shuffled anew in every epoch."""

import random

import pytest

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.schema.data import VerifyExample
from cooper_rl.training.fitting.plan import Plan


def draw_examples(rng: random.Random) -> list[VerifyExample]:
    """Few different fields, so that texts and whole examples occur again and again."""
    return [
        VerifyExample(
            question=rng.choice("ab"), reference_answer=rng.choice("123"), completion=rng.choice("xyzw"),
            label=1,
        )
        for _ in range(rng.randint(1, 60))
    ]  # fmt: skip


def group_by_text(examples: list[VerifyExample]) -> list[list[int]]:
    """With a dictionary of texts; of equal examples, the second is in a second group of the text."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    for index, example in enumerate(examples):
        copies = examples[:index].count(example)
        groups.setdefault((example.question, example.completion, copies), []).append(index)
    return list(groups.values())


@pytest.mark.parametrize("seed", range(40))
def test_every_epoch_has_every_group_of_a_text_once(seed: int) -> None:
    rng = random.Random(seed)
    examples = draw_examples(rng)
    config = VerifyRMConfig(num_epochs=rng.randint(1, 3), batch_size=rng.randint(1, 9))
    plan = Plan(examples, config, seed)
    updates = list(plan.updates())
    assert len(plan) == len(updates)
    assert sum(update.ends_epoch for update in updates) == config.num_epochs
    for epoch in range(config.num_epochs):
        order = [index for update in updates if update.epoch == epoch for index in update.examples]
        by_first = {members[0]: members for members in group_by_text(examples)}
        while order:
            members = by_first.pop(order[0])
            assert order[: len(members)] == members
            del order[: len(members)]
        assert not by_first


def test_the_groups_have_another_order_in_every_epoch() -> None:
    examples = [
        VerifyExample(question=f"{n}", reference_answer="1", completion="x", label=1) for n in range(30)
    ]
    plan = Plan(examples, VerifyRMConfig(num_epochs=2, batch_size=30), seed=0)
    first, second = (update.examples for update in plan.updates())
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second
