"""Binary cross-entropy training: it learns, it is invariant to splits, it refuses one class."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.domains.open import default_domain, find_domain
from cooper_rl.errors import TrainingError
from cooper_rl.models.decoys import Decoys, decoys_of
from cooper_rl.models.template import noted_domain
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, score_examples
from cooper_rl.records.files import read_report
from cooper_rl.schema.data import VerifyExample
from cooper_rl.training.fitting.fit_state import PROGRESS, FitProgress, FitWatch
from cooper_rl.training.fitting.fit_verify_rm import (
    fit_verify_rm,
    learning_rate_factor,
    log_loss,
    train_in_lessons,
)
from cooper_rl.training.optimizer import apply_gradients


def examples(count: int) -> list[VerifyExample]:
    """Correct says apples, incorrect says pears: learnable by a random model in a few updates."""
    return [
        VerifyExample(
            question=f"Tom has {n} apples.", reference_answer=str(n),
            completion="The answer is apples." if n % 2 else "The answer is pears." * (n % 3 + 1),
            label=n % 2,
        )
        for n in range(count)
    ]  # fmt: skip


def config(**values) -> VerifyRMConfig:
    return VerifyRMConfig.model_validate({"lr": 3e-3, "batch_size": 16, "num_epochs": 5} | values)


def test_training_halves_the_loss_of_a_guess(make_verify_rm) -> None:
    fit = fit_verify_rm(make_verify_rm(0), examples(64), config=config(), seed=0)
    assert (fit.num_updates, fit.best_update, fit.validation_loss) == (20, 20, None)
    assert fit.final_loss < 0.5 * math.log(2)


@pytest.mark.parametrize(("num_epochs", "tail"), [(5, 2), (1, 1)])
def test_the_final_loss_is_the_mean_over_the_last_tenth_of_the_updates(
    make_verify_rm, tmp_path: Path, num_epochs: int, tail: int
) -> None:
    """Two of 20 updates, and one of four."""

    class KeepLast(FitWatch):
        def updated(self, update, write, *, has_best):
            write(tmp_path)

    found = fit_verify_rm(
        make_verify_rm(0), examples(64), config=config(num_epochs=num_epochs), seed=0, watch=KeepLast()
    )
    losses = read_report(tmp_path / PROGRESS, FitProgress).losses
    assert found.final_loss == pytest.approx(sum(losses[-tail:]) / tail)


def test_every_update_has_the_rate_of_its_place(make_verify_rm) -> None:
    """Six updates, of which three warm up; the decay is that of the matrices."""
    steps: list[tuple[float, float]] = []

    def note(optimizer, *_):
        steps.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]))

    hook = register_optimizer_step_pre_hook(note)
    try:
        schedule = config(num_epochs=2, lr=1e-3, warmup_fraction=0.5, weight_decay=0.25)
        fit_verify_rm(make_verify_rm(0), examples(48), config=schedule, seed=0)
    finally:
        hook.remove()
    rates = [1e-3 * factor for factor in (0.25, 0.5, 0.75, 1.0, 0.775, 0.325)]
    assert [rate for rate, _ in steps] == pytest.approx(rates)
    assert {decay for _, decay in steps} == {0.25}


def read_in(make_verify_rm, rows: list[VerifyExample], *, seed: int = 0, **values) -> list[str]:
    """Completions in the order in which a training reads them; every one is another text."""
    made = make_verify_rm(0)
    encoded = made.encode([VerifyItem(r.question, r.reference_answer, r.completion) for r in rows])
    number_of = {tuple(ids): row.question for ids, row in zip(encoded, rows, strict=True)}
    found: list[str] = []

    class Watched(VerifyRM):
        def split(self, units, max_tokens):
            found.extend(number_of.get(tuple(unit[0]), "added") for unit in units)
            return super().split(units, max_tokens)

    options = {name: values.pop(name) for name in ("attacks", "domain") if name in values}
    train_in_lessons(
        Watched(made.model, made.tokenizer), rows, config=config(**values), is_from_scratch=False, seed=seed,
        **options,
    )  # fmt: skip
    return found


def test_every_epoch_reads_all_examples_in_an_order_of_its_own_that_the_seed_draws(make_verify_rm) -> None:
    rows = examples(16)
    one, same, other = (read_in(make_verify_rm, rows, seed=seed, num_epochs=2) for seed in (1, 1, 2))
    questions = sorted(row.question for row in rows)
    assert sorted(one[:16]) == sorted(one[16:]) == questions
    assert one[:16] != one[16:]
    assert one == same
    assert one != other


def test_equal_rows_are_no_variants_of_a_text_and_are_read_apart(make_verify_rm) -> None:
    """Three equal rows among 15: in some of 20 epochs they do not stand side by side."""
    rows = [*examples(12), *[examples(30)[29]] * 3]
    order = read_in(make_verify_rm, rows, num_epochs=20)
    places = [
        [place for place, text in enumerate(order[start : start + 15]) if text == rows[-1].question]
        for start in range(0, 300, 15)
    ]
    assert {len(each) for each in places} == {3}
    for first, second in ((0, 1), (1, 2)):
        assert any(each[second] - each[first] > 1 for each in places)


def test_a_training_learns_the_attacks_and_the_additions_of_its_domain(make_verify_rm) -> None:
    """Two texts on two problems; canaries of a domain that has none."""
    domain = replace(default_domain(), make_canaries=lambda *_, **__: [])
    values = {"num_epochs": 1, "num_attack_problems": 2, "num_canary_problems": 2}
    found = read_in(make_verify_rm, examples(16), attacks=["777777", "@@"], domain=domain, **values)
    assert (len(found), found.count("added")) == (20, 4)


class Lessons(FitWatch):
    """Knows the first lessons as learned, and keeps the numbers of those that begin."""

    def __init__(self, num_done: int) -> None:
        self.num_done = num_done
        self.begun_lessons: list[int] = []

    def is_done(self, lesson: int) -> bool:
        return lesson < self.num_done

    def begun(self, lesson: int) -> Path | None:
        self.begun_lessons.append(lesson)


@pytest.mark.parametrize("num_done", [0, 1, 2])
def test_lessons_that_were_learned_are_left_out_and_only_the_last_is_validated(
    make_verify_rm, num_done: int
) -> None:
    """Spans of 4 and of 9 characters, one epoch each, and whole completions for two."""
    watch, kept = Lessons(num_done), []
    found = train_in_lessons(
        make_verify_rm(0), examples(16), config=config(answer_spans=(4, 9), num_epochs=2),
        is_from_scratch=False, seed=0, validation=examples(4), keep=lambda: kept.append(1), watch=watch,
    )  # fmt: skip
    assert watch.begun_lessons == [0, 1, 2][num_done:]
    assert 1 <= len(kept) <= found.num_updates == 2


def test_muon_learns_it_too_and_moves_every_weight(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)
    before = {name: weight.clone() for name, weight in verify_rm.model.named_parameters()}
    fit = fit_verify_rm(verify_rm, examples(64), config=config(optimizer="muon"), seed=0)
    assert fit.final_loss < 0.7 * math.log(2)
    for name, weight in verify_rm.model.named_parameters():
        assert not torch.equal(before[name], weight), name


def test_the_result_does_not_depend_on_the_token_budget(make_verify_rm) -> None:
    wide, narrow = make_verify_rm(0), make_verify_rm(0)
    whole = fit_verify_rm(wide, examples(20), config=config(num_epochs=1), seed=0)
    split = fit_verify_rm(narrow, examples(20), config=config(num_epochs=1, max_tokens_per_batch=64), seed=0)
    assert whole.final_loss == pytest.approx(split.final_loss, abs=1e-5)
    assert whole.num_tokens == split.num_tokens
    assert whole.num_computed_tokens < split.num_computed_tokens < split.num_tokens
    for name, tensor in wide.model.state_dict().items():
        torch.testing.assert_close(tensor, narrow.model.state_dict()[name], atol=2e-5, rtol=1e-4)


def test_no_more_than_one_update_is_encoded_at_a_time(make_verify_rm, monkeypatch) -> None:
    """With decoys the token ids of all examples would fill gigabytes."""
    encode, seen = VerifyRM.encode_compared, []

    def watched(self, items, *, epoch=None):
        seen.append((len(items), epoch))
        return encode(self, items, epoch=epoch)

    monkeypatch.setattr(VerifyRM, "encode_compared", watched)
    fit_verify_rm(make_verify_rm(0), examples(20), config=config(num_epochs=2), seed=0)
    assert seen == [(16, 0), (4, 0), (16, 1), (4, 1)]


def test_a_text_with_another_reference_is_learned_in_the_same_update(make_verify_rm) -> None:
    """Twelve texts with two references each, in batches of two: every update holds both of one text."""
    rows = [
        row.model_copy(update={"reference_answer": reference, "label": label})
        for reference, label in (("apples", 1), ("pears", 0))
        for row in examples(12)
    ]
    updates: list[list[tuple[int, ...]]] = []

    class Watched(VerifyRM):
        def split(self, units, max_tokens):
            updates.append([tuple(unit[0]) for unit in units])
            return super().split(units, max_tokens)

    made = make_verify_rm(0)
    watched = Watched(made.model, made.tokenizer)
    fit_verify_rm(watched, rows, config=config(batch_size=2, num_epochs=1), seed=0)
    encoded = made.encode([VerifyItem(r.question, r.reference_answer, r.completion) for r in rows])
    text_of = {tuple(ids): row.question for ids, row in zip(encoded, rows, strict=True)}
    assert len(updates) == 12
    assert [len({text_of[ids] for ids in update}) for update in updates] == [1] * 12


def test_one_class_alone_is_refused(make_verify_rm) -> None:
    only_correct = [example for example in examples(10) if example.label == 1]
    with pytest.raises(TrainingError, match="all 5 training examples have the label 1"):
        fit_verify_rm(make_verify_rm(0), only_correct, config=config(), seed=0)


def test_hostile_texts_do_not_make_up_for_a_class_that_is_missing(make_verify_rm) -> None:
    only_correct = [example for example in examples(10) if example.label == 1]
    with pytest.raises(TrainingError, match="all 5 training examples have the label 1"):
        train_in_lessons(
            make_verify_rm(0),
            only_correct,
            config=config(hostile_fraction=0.5),
            is_from_scratch=False,
            seed=0,
        )


def test_the_learning_rate_warms_up_linearly_and_falls_to_a_tenth() -> None:
    """100 updates, 10 of warm-up: 1/11 first, 10/11 tenth, peak at 10, half way (.55) at 55, near .1 last."""
    factors = [learning_rate_factor(update, 100, 0.1) for update in range(100)]
    assert factors[0] == pytest.approx(1 / 11)
    assert factors[9] == pytest.approx(10 / 11)
    assert factors[10] == pytest.approx(1.0)
    assert factors[55] == pytest.approx(0.55)
    assert factors[99] == pytest.approx(0.1, abs=1e-3)


def test_the_log_loss_of_two_scores_is_worked_out_by_hand() -> None:
    """-(ln .8 + ln .5) / 2 = .4581; a certain mistake costs -ln 1e-7 = 16.118, not infinity."""
    assert log_loss([1, 0], [0.8, 0.5]) == pytest.approx(0.4581454, abs=1e-6)
    assert log_loss([1], [0.0]) == log_loss([0], [1.0]) == pytest.approx(16.118096, abs=1e-5)
    assert log_loss([1, 0], [1.0, 0.0]) == 0


def test_the_best_weights_are_kept_and_training_stops_when_validation_gets_worse(make_verify_rm) -> None:
    """Validation says the opposite of the training data, so the first validation stays the best."""
    kept: list[list[float]] = []
    opposite = [example.model_copy(update={"label": 1 - example.label}) for example in examples(8)]
    verify_rm = make_verify_rm(0)
    fit = fit_verify_rm(
        verify_rm, examples(64), config=config(num_epochs=10, patience=2), seed=0,
        validation=opposite, keep=lambda: kept.append(score_examples(verify_rm, opposite)),
    )  # fmt: skip
    assert (fit.best_update, fit.num_updates) == (4, 12)
    assert kept == [fit.validation_scores]


def test_validation_comes_every_so_many_updates_and_without_dropout(make_verify_rm) -> None:
    """Every third of four updates, and at the epoch's end."""
    verify_rm = make_verify_rm(0)
    is_training: list[bool] = []
    verify_rm.model.score.register_forward_pre_hook(lambda module, _: is_training.append(module.training))
    fit_verify_rm(
        verify_rm, examples(64), config=config(num_epochs=1, validate_every=3), seed=0, validation=examples(8)
    )
    assert is_training == [True, True, True, False, True, False]
    assert not verify_rm.model.training


def test_gradient_checkpointing_changes_nothing_but_memory(make_verify_rm) -> None:
    plain, recomputed = make_verify_rm(0), make_verify_rm(0)
    fit_verify_rm(plain, examples(16), config=config(num_epochs=1), seed=0)
    fit_verify_rm(recomputed, examples(16), config=config(num_epochs=1, gradient_checkpointing=True), seed=0)
    assert [each.model.model.gradient_checkpointing for each in (plain, recomputed)] == [False, True]
    for name, tensor in plain.model.state_dict().items():
        torch.testing.assert_close(tensor, recomputed.model.state_dict()[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("balance", "incorrect", "correct"), [("weights", 16 / 24, 16 / 8), ("none", 1, 1)])
def test_class_weights_make_three_to_one_count_the_same(
    make_verify_rm, balance: str, incorrect: float, correct: float
) -> None:
    """12 incorrect and 4 correct: weights 16/24 and 16/8; at the start the loss is the weighted mean."""
    rows = [e for e in examples(32) if e.label == 0][:12] + [e for e in examples(32) if e.label == 1][:4]
    verify_rm = make_verify_rm(0)
    logits = verify_rm.logits(
        verify_rm.encode([VerifyItem(e.question, e.reference_answer, e.completion) for e in rows])
    )
    losses = torch.nn.functional.softplus(torch.where(torch.arange(16) < 12, logits, -logits))
    expected = (losses[:12].sum() * incorrect + losses[12:].sum() * correct) / 16
    balanced = config(num_epochs=1, class_balance=balance)
    fit = fit_verify_rm(verify_rm, rows, config=balanced, seed=0)
    assert fit.final_loss == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("count", [0, 2])
def test_a_training_notes_what_its_scores_are_compared_with(make_verify_rm, count: int) -> None:
    verify_rm = make_verify_rm(0)
    rows = examples(16)
    compared = config(num_epochs=1, num_decoys=count)
    train_in_lessons(verify_rm, rows, config=compared, is_from_scratch=False, seed=0)
    answers = tuple(sorted(row.reference_answer for row in rows))
    assert decoys_of(verify_rm.model) == (Decoys(answers, 2, "mathematics") if count else None)
    assert verify_rm.template.reference_last == (count > 0)


def test_a_training_notes_its_domain(make_verify_rm) -> None:
    """Programs are cut in their own way, and their decoys are programs' answers."""
    verify_rm = make_verify_rm(0)
    values = config(num_epochs=1, num_decoys=2)
    domain = find_domain("programs")
    train_in_lessons(verify_rm, examples(4), config=values, is_from_scratch=False, seed=0, domain=domain)
    noted = decoys_of(verify_rm.model)
    assert noted is not None
    assert noted_domain(verify_rm.model) == noted.domain == "programs"


def test_a_nan_stops_and_names_what_is_kept(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)

    def damage() -> None:
        with torch.no_grad():
            verify_rm.model.score.weight.fill_(float("nan"))

    with pytest.raises(
        TrainingError, match=r"update 5: the VerifyRM's gradient is nan.*best weights, of update 4, are kept"
    ):
        fit_verify_rm(verify_rm, examples(64), config=config(), seed=0, validation=examples(4), keep=damage)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_says_what_to_lower(make_verify_rm, error) -> None:
    verify_rm = make_verify_rm(0)

    def fail(*_: object) -> None:
        raise error

    verify_rm.model.score.register_forward_pre_hook(fail)
    with pytest.raises(
        TrainingError,
        match=r"^update 1: out of memory \(.*; no weights were validated before: lower "
        r"verify_rm\.max_tokens_per_batch=16384 or set verify_rm\.gradient_checkpointing=true$",
    ):
        fit_verify_rm(verify_rm, examples(16), config=config(), seed=0)


def test_another_runtime_error_is_not_taken_for_memory(make_verify_rm) -> None:
    verify_rm = make_verify_rm(0)

    def fail(*_: object) -> None:
        raise RuntimeError("shapes differ")

    verify_rm.model.score.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match=r"^shapes differ$"):
        fit_verify_rm(verify_rm, examples(16), config=config(), seed=0)


def test_a_gradient_over_the_limit_is_cut_to_it(make_verify_rm) -> None:
    """SGD at rate 1 moves the weights by the gradient itself: by .5 where its norm is more."""
    model = make_verify_rm(0).model
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    (model.score.weight * 3).sum().backward()
    norm = apply_gradients(
        SingleProcess(model, torch.optim.SGD(model.parameters(), lr=1.0)), 0.5, name="VerifyRM"
    )
    moved = sum(((w - before[name]) ** 2).sum() for name, w in model.named_parameters())
    assert norm == pytest.approx(3 * 32**0.5, rel=1e-5)
    assert moved.sqrt().item() == pytest.approx(0.5, rel=1e-4)


def test_no_examples_are_refused(make_verify_rm) -> None:
    with pytest.raises(
        TrainingError,
        match=r"^there are no training examples; VerifyRM needs correct and incorrect completions: sample "
        r"from weaker or stronger models$",
    ):
        fit_verify_rm(make_verify_rm(0), [], config=config(), seed=0)
