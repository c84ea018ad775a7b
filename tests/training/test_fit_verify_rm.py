"""Binary cross-entropy training: it learns, it is invariant to splits, it refuses one class."""

import math

import pytest
import torch

from cooper_rl.config import VerifyRMConfig
from cooper_rl.errors import TrainingError
from cooper_rl.schema import VerifyExample
from cooper_rl.training.fit_verify_rm import fit_verify_rm, learning_rate_factor


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
    assert fit.num_updates == 20
    assert fit.final_loss < 0.5 * math.log(2)


def test_the_result_does_not_depend_on_the_token_budget(make_verify_rm) -> None:
    wide, narrow = make_verify_rm(0), make_verify_rm(0)
    whole = fit_verify_rm(wide, examples(20), config=config(num_epochs=1), seed=0)
    split = fit_verify_rm(narrow, examples(20), config=config(num_epochs=1, max_tokens_per_batch=64), seed=0)
    assert whole == pytest.approx(split, abs=1e-5)
    for name, tensor in wide.model.state_dict().items():
        torch.testing.assert_close(tensor, narrow.model.state_dict()[name], atol=2e-5, rtol=1e-4)


def test_one_class_alone_is_refused(make_verify_rm) -> None:
    only_correct = [example for example in examples(10) if example.label == 1]
    with pytest.raises(TrainingError, match="all 5 training examples have the label 1"):
        fit_verify_rm(make_verify_rm(0), only_correct, config=config(), seed=0)


def test_the_learning_rate_warms_up_linearly_and_falls_to_a_tenth() -> None:
    """100 updates, 10 of warm-up: 1/11 first, 10/11 tenth, peak at 10, half way (.55) at 55, near .1 last."""
    factors = [learning_rate_factor(update, 100, 0.1) for update in range(100)]
    assert factors[0] == pytest.approx(1 / 11)
    assert factors[9] == pytest.approx(10 / 11)
    assert factors[10] == pytest.approx(1.0)
    assert factors[55] == pytest.approx(0.55)
    assert factors[99] == pytest.approx(0.1, abs=1e-3)
