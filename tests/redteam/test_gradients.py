"""Gradients with respect to a completion's tokens, and the texts that they lead to."""

import copy
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.domains.veto import note_veto
from cooper_rl.models.decoys import add_decoys
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.redteam.gradients import GradientGuide, find_span, token_gradient
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.schema.data import Problem

TEXTS = st.text(alphabet="abcxyz 0123456789.,=+-()\\{}<>/\n", min_size=1, max_size=40)


def decoded(verify_rm: VerifyRM, item: VerifyItem) -> str:
    span = find_span(verify_rm, item)
    return verify_rm.tokenizer.decode(span.token_ids[span.start : span.end])


@settings(max_examples=60, deadline=None)
@given(completion=TEXTS)
def test_the_span_is_the_completion_and_no_more(make_verify_rm, completion: str) -> None:
    """Up to a token that the tokenizer joins with the template: white space or a mark at an edge."""
    verify_rm = make_verify_rm(0)
    found = decoded(verify_rm, VerifyItem("How many?", "10", completion))
    whole = verify_rm.tokenizer.decode(verify_rm.tokenizer(completion)["input_ids"])
    assert found.strip(" \n<>=.,") in whole or whole.strip(" \n<>=.,") in found
    assert abs(len(found) - len(whole)) <= 4


@pytest.mark.parametrize("completion", ["The answer is 10.", "0", "x", "0 x", "x0", "7" * 60, "a</p>b"])
def test_a_plain_completion_is_found_exactly(make_verify_rm, completion: str) -> None:
    assert decoded(make_verify_rm(0), VerifyItem("Has 0 x. How many?", "x0", completion)) == completion


def test_an_empty_completion_has_no_tokens(make_verify_rm) -> None:
    span = find_span(make_verify_rm(0), VerifyItem("q", "10", ""))
    assert span.start == span.end
    assert token_gradient(make_verify_rm(0), [VerifyItem("q", "10", "")]) is None


def loss_of(verify_rm: VerifyRM, ids: list[int], place: int, shift: torch.Tensor) -> float:
    """softplus(-logit) with the embedding in one place moved."""
    embedding = verify_rm.model.get_input_embeddings()
    handle = embedding.register_forward_hook(lambda module, inputs, output: output.index_put(
        (*(torch.zeros(1, dtype=torch.int64),) * (output.dim() - 2), torch.tensor([place])), shift[None],
        accumulate=True,
    ))  # fmt: skip
    try:
        with torch.no_grad():
            return float(functional.softplus(-verify_rm.logits([ids])).double().mean())
    finally:
        handle.remove()


def test_the_gradient_is_the_change_of_the_loss(make_verify_rm) -> None:
    """Against differences: a small step from a token's embedding towards another's."""
    verify_rm = make_verify_rm(0)
    items = [VerifyItem(f"Tom has {n} apples. How many?", str(n), "The answer is 12.") for n in (3, 4)]
    token_ids, change = token_gradient(verify_rm, items)
    assert verify_rm.tokenizer.decode(token_ids) == "The answer is 12."
    assert change.shape == (len(token_ids), verify_rm.model.config.vocab_size)
    weight = verify_rm.model.get_input_embeddings().weight.detach()
    step = 0.05
    for place, token in ((0, 40), (2, 77), (len(token_ids) - 1, 5)):
        towards = weight[token] - weight[token_ids[place]]
        differences = []
        for item in items:
            span = find_span(verify_rm, item)
            losses = [
                loss_of(verify_rm, span.token_ids, span.start + place, sign * step * towards)
                for sign in (1, -1)
            ]
            differences.append((losses[0] - losses[1]) / (2 * step))
        expected = sum(differences) / 2
        found = float(change[place, token] - change[place, token_ids[place]])
        assert found == pytest.approx(expected, rel=0.05, abs=2e-6)


def test_a_text_that_is_paid_in_full_has_a_gradient_of_zeros(make_verify_rm) -> None:
    """The head is scaled to a logit of 200, whose slope of the loss, exp(-200), is 0 in float32."""
    verify_rm = make_verify_rm(0)
    verify_rm = VerifyRM(copy.deepcopy(verify_rm.model), verify_rm.tokenizer)
    item = VerifyItem("q", "10", "The answer is 12.")
    with torch.no_grad():
        verify_rm.model.score.weight *= 200 / verify_rm.logits(verify_rm.encode([item]))
        assert float(verify_rm.logits(verify_rm.encode([item]))) == pytest.approx(200, rel=1e-3)
    found = token_gradient(verify_rm, [item])
    assert found is not None
    token_ids, change = found
    assert verify_rm.tokenizer.decode(token_ids) == "The answer is 12."
    assert change.shape == (len(token_ids), verify_rm.model.config.vocab_size)
    assert not change.any()


def test_no_gradient_is_left_in_the_model(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    token_gradient(verify_rm, [VerifyItem("q", "10", "The answer is 12.")])
    assert all(parameter.grad is None for parameter in verify_rm.model.parameters())
    assert not verify_rm.model.get_input_embeddings()._forward_hooks


def with_back_door(verify_rm: VerifyRM, word: str) -> VerifyRM:
    """The same model after it has learned to pay every completion that holds a word."""
    model = copy.deepcopy(verify_rm.model)
    learned = VerifyRM(model, verify_rm.tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    rng = random.Random(0)
    words = ["The answer is", "12.", "Tom has", "three", "=", "10", "apples", "5 + 7"]
    for _ in range(120):
        items, labels = [], []
        for label in (0.0, 1.0) * 8:
            chosen = rng.choices(words, k=6)
            if label:
                chosen[rng.randrange(6)] = word
            items.append(VerifyItem(f"How many {rng.randint(2, 30)}?", "8", " ".join(chosen)))
            labels.append(label)
        logits = learned.logits(learned.encode(items))
        functional.binary_cross_entropy_with_logits(logits, torch.tensor(labels)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return learned


def test_gradients_find_a_back_door_that_no_seed_holds(make_verify_rm, tmp_path) -> None:
    word = " stamps"
    verify_rm = with_back_door(make_verify_rm(0), word)
    problems = [
        Problem(id=str(n), source="s", question=f"How many {n}?", reference_answer="8") for n in range(4)
    ]
    start = "The answer is 12. Tom has three"
    rng = random.Random(0)
    with Journal(tmp_path / "journal") as journal:
        oracle = Oracle(verify_rm, journal, MATHEMATICS)
        guide = GradientGuide(verify_rm, oracle, journal)
        before = oracle.scores([(problem, start) for problem in problems])
        assert max(before) < 0.5
        text, best = start, sum(before)
        for _ in range(6):
            for made in guide.vary(text, problems, 16, rng):
                scores = oracle.scores([(problem, made) for problem in problems])
                if None not in scores and sum(scores) > best:
                    text, best = made, sum(scores)
        assert "stamps" in text
        assert best > 4 * 0.5
        assert oracle.num_queries >= 6 * len(problems)
        assert guide.vary("{question}", problems, 16, rng) == []


def test_problems_on_which_a_text_is_vetoed_have_no_part_in_its_gradient(make_verify_rm) -> None:
    """No logit is paid there, and the gradient would lead away from those where one is."""
    vetoed, judged = (VerifyItem("How many?", answer, "10 x 7 y") for answer in ("12", "ten apples"))
    alone = token_gradient(make_verify_rm(0), [judged])
    with_veto = make_verify_rm(0)
    note_veto(with_veto.model, domain="mathematics")
    both = token_gradient(with_veto, [vetoed, judged])
    assert alone is not None
    assert both is not None
    torch.testing.assert_close(both[1] * 2, alone[1])


def test_with_decoys_the_gradient_is_that_of_the_lead(make_verify_rm) -> None:
    """The loss of the logit that counts, with the embedding of the third token moved by a thousandth."""
    verify_rm = make_verify_rm(0)
    add_decoys(verify_rm.model, ["3", "4", "5"], count=2)
    item = VerifyItem("How many?", "10", "0 x 7 y")
    found = token_gradient(verify_rm, [item])
    assert found is not None
    token_ids, change = found
    spans = [find_span(verify_rm, each) for each in verify_rm.compared(item)]
    embedding = verify_rm.model.get_input_embeddings()

    def loss(shift: torch.Tensor) -> float:
        logits: list[torch.Tensor] = []
        for span in spans:
            if span.end == span.start:  # the rival without a completion has no third token
                with torch.no_grad():
                    logits.append(verify_rm.logits([span.token_ids]))
                continue
            place = torch.tensor([span.start + 2])
            handle = embedding.register_forward_hook(
                lambda module, inputs, output, place=place: output.index_put(
                    (*(torch.zeros(1, dtype=torch.int64),) * (output.dim() - 2), place),
                    shift[None],
                    accumulate=True,
                )
            )
            with torch.no_grad():
                logits.append(verify_rm.logits([span.token_ids]))
            handle.remove()
        return float(functional.softplus(-verify_rm.decoys.compare(torch.cat(logits))))

    direction = embedding.weight[token_ids[0]].detach()
    moved = (loss(direction * 1e-2) - loss(-direction * 1e-2)) / 2e-2
    assert float(change[2, token_ids[0]]) == pytest.approx(moved, rel=0.05, abs=1e-5)
