"""The state of VerifyRM's training: written after an update, it brings another model to the same place."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.errors import DataError, ModelError, StoppedError
from cooper_rl.models.packed.forward import use_packed
from cooper_rl.models.verify_rm import VerifyRM
from cooper_rl.schema.data import VerifyExample
from cooper_rl.training.fitting.fit_state import OPTIMIZER, WEIGHTS, FitWatch, restore_fit
from cooper_rl.training.fitting.fit_verify_rm import Fit, fit_verify_rm
from cooper_rl.training.optimizer import make_adamw


class KeepOne(FitWatch):
    """Keeps the state after one update, and ends the training there; or continues from it."""

    def __init__(self, folder: Path, *, update: int | None) -> None:
        self._folder, self._update = folder, update
        self.updates: list[tuple[int, bool]] = []

    def begun(self, lesson: int) -> Path | None:
        return self._folder if self._update is None else None

    def updated(self, update: int, write: Callable[[Path], None], *, has_best: bool) -> None:
        self.updates.append((update, has_best))
        if update == self._update:
            write(self._folder)
            raise StoppedError


def rows(count: int) -> list[VerifyExample]:
    return [
        VerifyExample(
            question=f"q{n}", reference_answer=str(n), completion=f"It is {n}.", label=1 if n % 2 else 0
        )
        for n in range(count)
    ]


def fit(
    verify_rm: VerifyRM, watch: FitWatch | None, optimizer: str, kept: list[int], *, validate_every: int = 1
) -> Fit:
    return fit_verify_rm(
        verify_rm,
        rows(12),
        config=VerifyRMConfig.model_validate(
            {
                "lr": 3e-2,
                "batch_size": 4,
                "num_epochs": 2,
                "validate_every": validate_every,
                "optimizer": optimizer,
            }
        ),
        seed=0,
        validation=rows(4),
        keep=lambda: kept.append(1),
        watch=watch,
    )


def with_dropout(verify_rm: VerifyRM) -> VerifyRM:
    """Every update draws from torch's generator."""
    use_packed(verify_rm.model, is_on=False)
    for layer in verify_rm.model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    return verify_rm


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("update", [1, 3, 6])
def test_a_training_that_continues_ends_with_the_same_weights_and_numbers(
    make_verify_rm, tmp_path: Path, update: int, optimizer: str
) -> None:
    """With dropout, so that the generator's state counts too."""
    straight, stopped, continued = (with_dropout(make_verify_rm(0)) for _ in range(3))
    torch.manual_seed(1)
    kept: list[int] = []
    expected = fit(straight, None, optimizer, kept)
    torch.manual_seed(1)
    kept_twice: list[int] = []
    with pytest.raises(StoppedError):
        fit(stopped, KeepOne(tmp_path, update=update), optimizer, kept_twice)
    torch.manual_seed(2)
    watch = KeepOne(tmp_path, update=None)
    found = fit(continued, watch, optimizer, kept_twice)
    known = expected.validation_scores if found.best_update > update else None
    assert found._replace(seconds=0) == expected._replace(seconds=0, validation_scores=known)
    assert found.seconds > 0
    assert kept == kept_twice
    # The first validation is always the best so far.
    assert watch.updates == [(number, True) for number in range(update + 1, 7)]
    for name, weight in straight.model.state_dict().items():
        assert torch.equal(weight, continued.model.state_dict()[name]), name


def test_a_training_that_was_stopped_before_its_first_validation_continues(
    make_verify_rm, tmp_path: Path
) -> None:
    """Validated after updates 3 and 6, stopped after 1: there is no best loss yet."""
    straight, stopped, continued = (make_verify_rm(0) for _ in range(3))
    expected = fit(straight, None, "adamw", [], validate_every=3)
    with pytest.raises(StoppedError):
        fit(stopped, KeepOne(tmp_path, update=1), "adamw", [], validate_every=3)
    watch = KeepOne(tmp_path, update=None)
    found = fit(continued, watch, "adamw", [], validate_every=3)
    assert found._replace(seconds=0) == expected._replace(seconds=0)
    assert [has_best for _, has_best in watch.updates] == [False, True, True, True, True]


def test_the_state_of_another_model_is_refused_and_changes_nothing(make_verify_rm, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        fit(make_verify_rm(0), KeepOne(tmp_path, update=1), "adamw", [])
    other = make_verify_rm(1)
    other.model.score = torch.nn.Linear(other.model.score.in_features, 2, bias=False)
    before = {name: weight.clone() for name, weight in other.model.state_dict().items()}
    trained = SingleProcess(other.model, make_adamw(other.model, lr=1e-3, weight_decay=0.0))
    with pytest.raises(ModelError, match=r"its weights are of another model, e\.g\. 'score\.weight'; train"):
        restore_fit(tmp_path, trained)
    for name, weight in other.model.state_dict().items():
        assert torch.equal(before[name], weight)


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_state_with_a_weight_less_or_more_is_refused(
    make_verify_rm, tmp_path: Path, is_missing: bool
) -> None:
    with pytest.raises(StoppedError):
        fit(make_verify_rm(0), KeepOne(tmp_path, update=1), "adamw", [])
    weights = load_file(tmp_path / WEIGHTS)
    weights["another"] = weights.pop("score.weight") if is_missing else weights["score.weight"].clone()
    save_file(weights, tmp_path / WEIGHTS)
    model = make_verify_rm(0).model
    trained = SingleProcess(model, make_adamw(model, lr=1e-3, weight_decay=0.0))
    with pytest.raises(
        ModelError,
        match=r"its weights are of another model, e\.g\. 'another'; train anew, without this state$",
    ):
        restore_fit(tmp_path, trained)


def test_an_optimisers_state_of_another_model_is_named_with_its_folder(
    make_verify_rm, tmp_path: Path
) -> None:
    with pytest.raises(StoppedError):
        fit(make_verify_rm(0), KeepOne(tmp_path, update=1), "adamw", [])
    save_file({"score.weight/exp_avg": torch.zeros(3)}, tmp_path / OPTIMIZER)
    model = make_verify_rm(0).model
    trained = SingleProcess(model, make_adamw(model, lr=1e-3, weight_decay=0.0))
    with pytest.raises(ModelError, match=rf"^{tmp_path}: optimiser state 'score\.weight/exp_avg' of shape"):
        restore_fit(tmp_path, trained)


def test_a_place_that_cannot_be_written_is_named(make_verify_rm, tmp_path: Path) -> None:
    blocked = tmp_path / "state"
    blocked.write_text("a file")
    watch = KeepOne(blocked, update=1)
    with pytest.raises(DataError, match=r"state: the state cannot be written .*; free space there"):
        fit(make_verify_rm(0), watch, "adamw", [])
