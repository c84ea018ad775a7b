"""Binary cross-entropy training of VerifyRM on labelled examples (before any co-training; rows 4 and 5).

Validation decides which weights are kept and when to stop. What is learned in which order is in
`curriculum.py`; where weights are kept is the caller's `keep`. What an update depends on is in
`fit_state.py`.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.domains.veto import note_veto
from cooper_rl.errors import TrainingError
from cooper_rl.machine.memory import describe, is_out_of_memory
from cooper_rl.method.losses import label_loss
from cooper_rl.models.decoys import add_decoys
from cooper_rl.models.muon import MuonWithAdamW
from cooper_rl.models.packed.packing import count_packed
from cooper_rl.models.template import note_reading
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, score_examples
from cooper_rl.progress import Progress
from cooper_rl.schema.data import VerifyExample
from cooper_rl.training.fitting.curriculum import Keep, plan_lessons
from cooper_rl.training.fitting.fit_state import FitProgress, FitWatch, restore_fit, write_fit
from cooper_rl.training.fitting.plan import Plan
from cooper_rl.training.optimizer import apply_gradients, make_adamw, set_recomputing

logger = logging.getLogger(__name__)

SMALLEST_PROBABILITY = 1e-7
"""The score of what is true is taken as no lower in validation, so that one sure mistake does not decide
alone."""


class Fit(NamedTuple):
    """The outcome of one training run."""

    num_updates: int
    final_loss: float
    """Mean loss per example over the last tenth of the updates (at least one)."""
    best_update: int
    """Updates done when the weights were best on the validation examples; the last one without them."""
    validation_loss: float | None
    """Mean log loss of the best weights; None without validation examples."""
    validation_scores: list[float] | None
    """What the best weights score each validation example. None without any, and where a process that was
    stopped found the best weights."""
    num_tokens: int
    """Tokens of all examples that were trained on, over the epochs."""
    num_computed_tokens: int
    """Tokens that went through the layers: less where examples share a beginning."""
    seconds: float
    """Seconds of training, validation included, also of processes that were stopped."""


class _Data:
    """The examples, and what was computed of them."""

    def __init__(self, examples: Sequence[VerifyExample], config: VerifyRMConfig) -> None:
        self._weights = _class_weights(examples, config)
        self._examples = examples
        self._max_tokens = config.max_tokens_per_batch
        self.num_tokens = 0
        self.num_computed_tokens = 0

    def backward(self, verify_rm: VerifyRM, batch: Sequence[int], epoch: int) -> float:
        """Add the gradient of the mean loss over the examples of one update; returns that loss.

        Each epoch has decoys of its own: other ones teach more than the same ones again.
        """
        # Encoded here: the token ids of all examples with their decoys would fill gigabytes.
        examples = [self._examples[index] for index in batch]
        items = [VerifyItem(e.question, e.reference_answer, e.completion) for e in examples]
        groups = verify_rm.encode_compared(items, epoch=epoch)
        loss = 0.0
        for part in verify_rm.split(groups, self._max_tokens):
            chosen = [groups[place] for place in part]
            sequences = [ids for group in chosen for ids in group]
            self.num_tokens += sum(map(len, sequences))
            self.num_computed_tokens += count_packed(sequences)
            labels = torch.tensor([float(examples[place].label) for place in part], device=verify_rm.device)
            part_loss = label_loss(
                verify_rm.counted_logits(chosen),
                labels,
                num_batch_examples=len(batch),
                weights=None
                if self._weights is None
                else torch.where(labels == 1, self._weights[1], self._weights[0]),
            )
            part_loss.backward()
            loss += part_loss.item()
        return loss


@dataclass
class _Validation:
    """The best weights so far."""

    examples: Sequence[VerifyExample]
    keep: Callable[[], None]
    best_loss: float = math.inf
    best_scores: list[float] | None = None
    best_update: int = 0
    num_worse: int = 0

    def check(self, verify_rm: VerifyRM, update: int) -> None:
        verify_rm.model.eval()
        # The model's own: with a veto, wrong examples would say nothing of the weights.
        scores = score_examples(verify_rm, self.examples, with_veto=False)
        loss = log_loss([e.label for e in self.examples], scores)
        verify_rm.model.train()
        logger.info("train_verify_rm update=%d validation_loss=%.4f best=%.4f", update, loss, self.best_loss)
        if loss < self.best_loss:
            self.best_loss, self.best_scores, self.best_update, self.num_worse = loss, scores, update, 0
            self.keep()
        else:
            self.num_worse += 1


@dataclass
class _Course:
    """One training as far as it went, beside model and optimiser."""

    data: _Data
    best: _Validation
    lesson: int
    losses: list[float] = field(default_factory=list[float])
    _started: float = field(default_factory=time.monotonic)
    """Earlier by the seconds of processes that were stopped."""

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def go_on(self, progress: FitProgress) -> None:
        """Take over what was counted before."""
        logger.info("train_verify_rm goes on after update %d", len(progress.losses))
        self.losses = list(progress.losses)
        self.best.best_loss = math.inf if progress.best_loss is None else progress.best_loss
        self.best.best_update, self.best.num_worse = progress.best_update, progress.num_worse
        self.data.num_tokens, self.data.num_computed_tokens = (
            progress.num_tokens,
            progress.num_computed_tokens,
        )
        self._started -= progress.seconds

    def _progress(self) -> FitProgress:
        return FitProgress(
            lesson=self.lesson,
            losses=tuple(self.losses),
            best_loss=None if self.best.best_loss == math.inf else self.best.best_loss,
            best_update=self.best.best_update,
            num_worse=self.best.num_worse,
            num_tokens=self.data.num_tokens,
            num_computed_tokens=self.data.num_computed_tokens,
            seconds=self.seconds(),
        )

    def writer(self, trained: SingleProcess) -> Callable[[Path], None]:
        """Writes the state into a folder."""
        return lambda folder: write_fit(folder, self._progress(), trained)


def train_in_lessons(
    verify_rm: VerifyRM,
    examples: Sequence[VerifyExample],
    *,
    config: VerifyRMConfig,
    is_from_scratch: bool,
    seed: int,
    domain: Domain | None = None,
    validation: Sequence[VerifyExample] = (),
    attacks: Sequence[str] = (),
    keep: Callable[[], None] = lambda: None,
    watch: FitWatch | None = None,
    keep_examples: Keep = list,
) -> Fit:
    """`fit_verify_rm` on every lesson of the curriculum in turn; only the last one is validated and kept.

    `keep_examples` is the `keep` of `plan_lessons`.

    What it reads of a completion, the decoys that its scores are compared with and the veto are noted in the
    model first: training, validation and every later score use them.

    Raises:
        TrainingError: as `fit_verify_rm`.
        CooperError: `watch` ended the training.
    """
    domain = domain or default_domain()
    if not config.swapped_references:
        # Before hostile texts and canaries are added, all of which are wrong.
        _check_labels(examples)
    # Decoys share everything before the reference answer, so that one that stands last costs little.
    note_reading(verify_rm.model, domain=domain.name, reference_last=config.num_decoys > 0)
    add_decoys(
        verify_rm.model,
        (example.reference_answer for example in examples),
        count=config.num_decoys,
        domain=domain.name,
    )
    note_veto(verify_rm.model, domain=domain.name if config.veto else None)
    lessons = plan_lessons(
        examples,
        config=config,
        is_from_scratch=is_from_scratch,
        seed=seed,
        domain=domain,
        attacks=attacks,
        keep=keep_examples,
    )
    watch = watch or FitWatch()
    for number, lesson in enumerate(lessons[:-1]):
        if watch.is_done(number):
            continue
        logger.info("train_verify_rm lesson=%s examples=%d", lesson.name, len(lesson.examples))
        done = fit_verify_rm(
            verify_rm, lesson.examples, config=lesson.config, seed=seed, watch=watch, lesson=number
        )
        logger.info("train_verify_rm lesson=%s loss=%.4f", lesson.name, done.final_loss)
    return fit_verify_rm(
        verify_rm,
        lessons[-1].examples,
        config=config,
        seed=seed,
        validation=validation,
        keep=keep,
        watch=watch,
        lesson=len(lessons) - 1,
    )


def fit_verify_rm(
    verify_rm: VerifyRM,
    examples: Sequence[VerifyExample],
    *,
    config: VerifyRMConfig,
    seed: int,
    validation: Sequence[VerifyExample] = (),
    keep: Callable[[], None] = lambda: None,
    watch: FitWatch | None = None,
    lesson: int = 0,
) -> Fit:
    """Train in place for `num_epochs`, each in an order drawn with the seed.

    The learning rate warms up linearly, then falls to a tenth along a cosine.

    Args:
        verify_rm: Trained in place; after an early stop it holds the last weights, not the best.
        examples: Both labels must be among them.
        config: The section of this stage.
        seed: Decides the order.
        validation: Examples of other problems that decide which weights are best; none: the last.
        keep: Called whenever the weights are the best so far.
        watch: Keeps states between updates, and knows which one this training is continued from.
        lesson: Number of this training among those of one model.

    Raises:
        TrainingError: only one class among the examples, a gradient that is not finite, or out of memory;
            what `keep` stored before stays valid.
        CooperError: `watch` ended the training.
    """
    watch = watch or FitWatch()
    data = _Data(examples, config)
    plan = Plan(examples, config, seed)
    optimizer: Any = (make_adamw if config.optimizer == "adamw" else MuonWithAdamW)(
        verify_rm.model, lr=config.lr, weight_decay=config.weight_decay
    )
    trained = SingleProcess(verify_rm.model, optimizer)
    course = _Course(data, _Validation(validation, keep), lesson=lesson)
    begun = watch.begun(lesson)
    if begun is not None:
        course.go_on(restore_fit(begun, trained))
    best, losses = course.best, course.losses
    progress = Progress("train_verify_rm", len(plan) - len(losses), logger)
    set_recomputing(verify_rm.model, is_on=config.gradient_checkpointing)
    verify_rm.model.train()
    for number, update in islice(enumerate(plan.updates()), len(losses), None):
        if config.patience is not None and best.num_worse >= config.patience:
            logger.info("train_verify_rm stopped early after update %d", number)
            break
        for group in optimizer.param_groups:
            group["lr"] = config.lr * learning_rate_factor(number, len(plan), config.warmup_fraction)
        try:
            with watch.update():
                losses.append(data.backward(verify_rm, update.examples, update.epoch))
                apply_gradients(trained, config.max_grad_norm, name="VerifyRM")
                is_due = (number + 1) % (config.validate_every or len(plan)) == 0
                if validation and (update.ends_epoch or is_due):
                    best.check(verify_rm, number + 1)
        except (TrainingError, RuntimeError, MemoryError) as error:
            raise _explain(error, number, best, config) from error
        progress.advance(loss=losses[-1])
        watch.updated(number + 1, course.writer(trained), has_best=best.best_update > 0)
    verify_rm.model.eval()
    tail = losses[-max(1, len(losses) // 10) :]
    return Fit(
        num_updates=len(losses),
        final_loss=sum(tail) / len(tail),
        best_update=best.best_update if validation else len(losses),
        validation_loss=best.best_loss if validation else None,
        validation_scores=best.best_scores,
        num_tokens=data.num_tokens,
        num_computed_tokens=data.num_computed_tokens,
        seconds=course.seconds(),
    )


def learning_rate_factor(update: int, num_updates: int, warmup_fraction: float) -> float:
    """Share of the peak learning rate at `update` (from 0): linear up, then a cosine down to 0.1."""
    warmup = round(num_updates * warmup_fraction)
    if update < warmup:
        return (update + 1) / (warmup + 1)
    done = (update - warmup) / max(1, num_updates - warmup)
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))


def log_loss(labels: Sequence[int], scores: Sequence[float]) -> float:
    """Mean of -log of the score given to what is true, taken as 1e-7 at least."""
    total = 0.0
    for label, score in zip(labels, scores, strict=True):
        probability = score if label == 1 else 1 - score
        total -= math.log(max(probability, SMALLEST_PROBABILITY))
    return total / len(labels)


def _class_weights(examples: Sequence[VerifyExample], config: VerifyRMConfig) -> tuple[float, float] | None:
    """Weight of an incorrect and of a correct example; None when all count 1."""
    num_correct = _check_labels(examples)
    if config.class_balance == "none":
        return None
    return len(examples) / (2 * (len(examples) - num_correct)), len(examples) / (2 * num_correct)


def _check_labels(examples: Sequence[VerifyExample]) -> int:
    """The number of correct examples; refuses them where they have one label only."""
    num_correct = sum(example.label for example in examples)
    if num_correct in {0, len(examples)}:
        found = "there are no training examples"
        if examples:
            found = f"all {len(examples)} training examples have the label {examples[0].label}"
        raise TrainingError(
            f"{found}; VerifyRM needs correct and incorrect completions: sample from weaker or stronger "
            "models"
        )
    return num_correct


def _explain(error: Exception, update: int, best: _Validation, config: VerifyRMConfig) -> Exception:
    """The same error with what is left of the run; anything that is not about numbers or memory as it is."""
    kept = (
        f"the best weights, of update {best.best_update}, are kept"
        if best.best_update
        else "no weights were validated before"
    )
    if isinstance(error, TrainingError):
        return TrainingError(f"update {update + 1}: {error}; {kept}")
    if not is_out_of_memory(error):
        return error
    return TrainingError(
        f"update {update + 1}: {describe(error)}; {kept}: lower verify_rm.max_tokens_per_batch="
        f"{config.max_tokens_per_batch} or set verify_rm.gradient_checkpointing=true"
    )
