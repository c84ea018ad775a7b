import random

import pytest
import torch

from cooper_rl.config.models import TinyModel
from cooper_rl.models.template import add_template, open_template
from cooper_rl.tiny.architecture import new_model
from cooper_rl.tiny.texts import (
    Example,
    matching_examples,
    policy_examples,
    stream_batches,
    verdict_examples,
)
from cooper_rl.tiny.tokenizer import build_tokenizer
from cooper_rl.tiny.warm_up import learning_rate_factor, warm_up

SIZE = TinyModel(hidden_size=32, num_layers=1, num_heads=2)


def test_the_policy_learns_the_solution_and_its_end_and_not_the_prompt() -> None:
    tokenizer = build_tokenizer()
    example = policy_examples(1, tokenizer, random.Random(0))[0]
    learned = [token for token, weight in zip(example.token_ids, example.weights, strict=True) if weight]
    prompt = [token for token, weight in zip(example.token_ids, example.weights, strict=True) if not weight]
    assert tokenizer.decode(prompt).startswith("Question: ")
    assert tokenizer.decode(prompt).endswith("\nAnswer: ")
    assert learned[-1] == tokenizer.eos_token_id
    assert "=" in tokenizer.decode(learned)


@pytest.mark.parametrize("make", [matching_examples, verdict_examples])
def test_a_backbone_text_is_the_template_and_then_a_verdict_that_holds(make) -> None:
    tokenizer = build_tokenizer()
    model = new_model(SIZE, tokenizer, seed=0)
    add_template(model, tokenizer, reads_added_words=True)
    template = open_template(model, tokenizer, "backbone")
    verdicts: list[str] = []
    for example in make(200, tokenizer, random.Random(0), template=template):
        *encoded, last = example.token_ids
        assert encoded[-1] == template.separators.completion_end
        fields = template.decode(encoded)
        verdicts.append(tokenizer.decode([last]))
        if fields.completion[0].endswith(f"#### {fields.reference_answer[0]}"):
            assert verdicts[-1] == " yes"
    assert set(verdicts) == {" yes", " no"}
    assert 0.3 < verdicts.count(" yes") / len(verdicts) < 0.7


def test_batches_hold_every_example_once_and_texts_of_similar_length() -> None:
    rng = random.Random(0)

    def make(count: int) -> list[Example]:
        return [Example([0] * rng.randint(1, 100), []) for _ in range(count)]

    batches = list(stream_batches(make, 20, batch_size=8, rng=rng))
    assert [len(batch) for batch in batches] == [8] * 20
    spread = [max(map(length, batch)) - min(map(length, batch)) for batch in batches[:16]]
    assert sum(spread) / len(spread) < 15


def length(example: Example) -> int:
    return len(example.token_ids)


def test_training_lowers_the_loss_and_is_the_same_for_the_same_seed() -> None:
    tokenizer = build_tokenizer()

    def trained() -> torch.Tensor:
        model = new_model(SIZE, tokenizer, seed=0)
        rng = random.Random(0)
        batches = stream_batches(
            lambda count: policy_examples(count, tokenizer, rng), 40, batch_size=16, rng=rng
        )
        warm_up(model, batches, num_updates=40, lr=5e-3, name="test")
        ids = torch.tensor([policy_examples(1, tokenizer, random.Random(1))[0].token_ids])
        return model(input_ids=ids, labels=ids).loss

    fresh = new_model(SIZE, tokenizer, seed=0)
    ids = torch.tensor([policy_examples(1, tokenizer, random.Random(1))[0].token_ids])
    loss = trained()
    assert loss < fresh(input_ids=ids, labels=ids).loss - 1
    torch.testing.assert_close(loss, trained())


def test_a_new_model_knows_that_ten_is_10_and_close_to_11() -> None:
    tokenizer = build_tokenizer()
    weight = new_model(TinyModel(), tokenizer, seed=0).get_input_embeddings().weight.detach()

    def distance(one: str, other: str) -> float:
        ids = tokenizer.convert_tokens_to_ids([one, other])
        return float((weight[ids[0]] - weight[ids[1]]).norm())

    assert distance("42", "forty-two") < distance("42", "43") < distance("42", "67")


def test_drawing_a_model_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    new_model(SIZE, build_tokenizer(), seed=0)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_learning_rate_rises_over_20_updates_and_falls_to_a_fiftieth() -> None:
    factors = [learning_rate_factor(update, 1000) for update in range(1000)]
    assert factors[0] == pytest.approx(1 / 20)
    assert factors[9] == pytest.approx(0.5, abs=1e-3)
    assert factors[500] == pytest.approx(0.02 + 0.98 / 2)
    assert factors[999] == pytest.approx(0.02, abs=1e-3)
