"""VerifyRM's training, scoring and pair update against the plain Hugging Face recipe, in turn in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.verify_rm --data ../shared/data --hidden 256 --layers 4

The plain recipe: `Trainer` with its default collator and AdamW, batches of a fixed size padded to their
longest, weights and lengths as ours; for the pair update also the released code's padding to 1024 tokens. An
expert's recipe batches texts of similar length: all are sorted, in training and in scoring, which bounds what
`train_sampling_strategy="group_by_length"` gains. All sides: real completions, the same model and weights,
batch size, epochs, learning rate and precision, one thread. With `--distinct` no two examples share a
question. Times are CPU seconds of the process, so that a busy machine disturbs both alike. Tokens are counted
as the examples have them; the padding fraction is what the plain recipe adds.

Losses after training are compared where both sides make the same updates: one batch, several epochs, and our
schedule of learning rates in the Trainer too.
"""

import argparse
import copy
import logging
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from cooper_rl.config.cooper import CooperConfig, PairsConfig
from cooper_rl.config.data import AssistantConfig
from cooper_rl.config.models import ScratchModel, VerifyRMConfig
from cooper_rl.machine.device import pick_device
from cooper_rl.models.packed.batching import pad_right
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, make_from_scratch
from cooper_rl.records.files import read_rows
from cooper_rl.schema.data import PreferencePair, VerifyExample
from cooper_rl.training.fitting.fit_verify_rm import fit_verify_rm, learning_rate_factor, log_loss
from cooper_rl.training.optimizer import make_adamw
from cooper_rl.training.reward_update import update_verify_rm

BATCH_SIZE = 16
LR = 3e-4
FIXED_LENGTH = 1024
EQUAL_EPOCHS = 6


class LabelTrainer(Trainer):
    """Binary cross-entropy on one logit, as the released code does."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        labels = inputs.pop("labels").float()
        outputs = model(**inputs, use_cache=False)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(outputs.logits[:, 0].float(), labels)
        return (loss, outputs) if return_outputs else loss


class OurSchedule(LabelTrainer):
    """With the learning rates of `fit_verify_rm`. The Trainer's own begin at 0 and end at 0."""

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer or self.optimizer,
            lambda update: learning_rate_factor(update, num_training_steps, VerifyRMConfig().warmup_fraction),
        )
        return self.lr_scheduler


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--examples", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--compute", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--distinct", action="store_true", help="one completion of each question")
    parser.add_argument("--parts", nargs="+", default=["train", "score", "pairs"], metavar="PART")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    examples = read_examples(options.data / "labelled")
    pairs = pairs_of(examples, 16)
    if options.distinct:
        examples = list({example.question: example for example in examples}.values())
    size = ScratchModel(hidden_size=options.hidden, num_layers=options.layers, num_heads=options.hidden // 64)
    texts = [text for e in examples[:1500] for text in (e.question, e.reference_answer, e.completion)]
    verify_rm = make_from_scratch(texts, size, seed=0, device=pick_device())
    verify_rm = VerifyRM(verify_rm.model, verify_rm.tokenizer, options.compute)
    chosen = random.Random(0).sample(examples, options.examples)
    lengths = [len(ids) for ids in verify_rm.encode([item_of(e) for e in chosen])]
    batches = [lengths[at : at + BATCH_SIZE] for at in range(0, len(lengths), BATCH_SIZE)]
    padded = sum(len(batch) * max(batch) for batch in batches)
    say(
        f"{verify_rm.model.num_parameters():,} parameters, {options.compute}, {len(chosen)} examples, "
        f"{sum(lengths)} tokens, longest {max(lengths)}, padding fraction of the plain recipe "
        f"{1 - sum(lengths) / padded:.2f}"
    )
    if "train" in options.parts:
        train(verify_rm, chosen, sum(lengths), options)
    if "score" in options.parts:
        score(verify_rm, examples[: options.examples * 2], options)
    if "pairs" in options.parts:
        update_pairs(verify_rm, pairs, options)
    return 0


def read_examples(folder: Path) -> list[VerifyExample]:
    """GSM8K completions of eight models, those of a question together, in the order of the questions."""
    rows = [
        row.value for name in ("gsm8k_ems", "zeroeval_gsm") for row in read_rows(folder / f"{name}.jsonl")
    ]
    found = [
        VerifyExample(
            question=row["question"], reference_answer=row["gold"], completion=row["completion"],
            label=int(row["label"]),
        )
        for row in rows
    ]  # fmt: skip
    return sorted(found, key=lambda example: example.question)


def train(verify_rm: VerifyRM, chosen: Sequence[VerifyExample], num_tokens: int, options: Any) -> None:
    config = VerifyRMConfig(num_epochs=1, batch_size=BATCH_SIZE, lr=LR, precision=options.compute)
    by_length = sorted(chosen, key=lambda e: len(verify_rm.encode([item_of(e)])[0]))
    sides: dict[str, Callable[[VerifyRM], object]] = {
        "plain": lambda model: fit_plainly(model, chosen, options),
        "sorted": lambda model: fit_plainly(model, by_length, options, train_sampling_strategy="sequential"),
        "ours": lambda model: fit_verify_rm(model, chosen, config=config, seed=0),
    }
    times = compare(verify_rm, sides, options.repeats)
    report("BCE training", times, len(chosen), num_tokens, bar=2.0)
    report("BCE training", times, len(chosen), num_tokens, bar=2.0, peer="sorted")
    batch = chosen[:BATCH_SIZE]
    config = config.model_copy(update={"num_epochs": EQUAL_EPOCHS})
    plain, ours = copy_of(verify_rm), copy_of(verify_rm)
    fit_plainly(plain, batch, options, kind=OurSchedule, num_train_epochs=EQUAL_EPOCHS)
    fit_verify_rm(ours, batch, config=config, seed=0)
    say(
        f"  {EQUAL_EPOCHS} equal updates: the loss goes from {loss_of(verify_rm, batch):.5f} to "
        f"{loss_of(plain, batch):.5f} (plain) and {loss_of(ours, batch):.5f} (ours)"
    )


def fit_plainly(
    model: VerifyRM,
    chosen: Sequence[VerifyExample],
    options: Any,
    kind: type[LabelTrainer] = LabelTrainer,
    **more: Any,
) -> None:
    encoded = model.encode([item_of(example) for example in chosen])
    rows = [{"input_ids": ids, "labels": e.label} for ids, e in zip(encoded, chosen, strict=True)]
    arguments = TrainingArguments(
        output_dir="runs/plain", per_device_train_batch_size=BATCH_SIZE, learning_rate=LR,
        weight_decay=0.01, warmup_steps=0.03, lr_scheduler_type="cosine", bf16=options.compute == "bfloat16",
        use_cpu=True, save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
        **{"num_train_epochs": 1, **more},
    )  # fmt: skip
    kind(
        model=model.model,
        args=arguments,
        train_dataset=rows,  # pyright: ignore[reportArgumentType] a list is a map-style data set
        data_collator=DataCollatorWithPadding(model.tokenizer),
    ).train()


def score(verify_rm: VerifyRM, rows: Sequence[VerifyExample], options: Any) -> None:
    items = [item_of(row) for row in rows]

    @torch.no_grad()
    def plain(model: VerifyRM, *, is_sorted: bool = False) -> None:
        sequences = model.encode(items)
        if is_sorted:
            sequences.sort(key=len)
        for start in range(0, len(sequences), BATCH_SIZE):
            torch.sigmoid(padded_logits(model, sequences[start : start + BATCH_SIZE], options))

    sides: dict[str, Callable[[VerifyRM], object]] = {
        "plain": plain,
        "sorted": lambda model: plain(model, is_sorted=True),
        "ours": lambda model: model.score(items),
    }
    times = compare(verify_rm, sides, options.repeats)
    tokens = sum(len(ids) for ids in verify_rm.encode(items))
    report("scoring", times, len(items), tokens, bar=2.5)
    report("scoring", times, len(items), tokens, bar=2.0, peer="sorted")


def update_pairs(verify_rm: VerifyRM, pairs: Sequence[PreferencePair], options: Any) -> None:
    config = CooperConfig(pairs=PairsConfig(assistant=AssistantConfig(tiny=True)))

    def ours(model: VerifyRM) -> None:
        update_verify_rm(model, make_adamw(model.model, lr=1e-5, weight_decay=0.01), pairs, config=config)

    def plain(model: VerifyRM, length: int | None = None) -> None:
        optimizer = torch.optim.AdamW(model.model.parameters(), lr=1e-5)
        items = [
            VerifyItem(p.question, p.reference_answer, t) for p in pairs for t in (p.positive, p.negative)
        ]
        sequences = model.encode(items)
        for start in range(0, len(sequences), BATCH_SIZE):
            logits = padded_logits(model, sequences[start : start + BATCH_SIZE], options, length)
            loss = -torch.nn.functional.logsigmoid(logits[::2] - logits[1::2]).sum() / len(pairs)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    sides: dict[str, Callable[[VerifyRM], object]] = {
        "fixed 1024": lambda model: plain(model, FIXED_LENGTH), "plain": plain, "ours": ours,
    }  # fmt: skip
    times = compare(verify_rm, sides, options.repeats)
    tokens = sum(
        len(ids)
        for p in pairs
        for ids in verify_rm.encode(
            [VerifyItem(p.question, p.reference_answer, t) for t in (p.positive, p.negative)]
        )
    )
    report("pair update", times, len(pairs), tokens, bar=2.0)
    report("pair update", times, len(pairs), tokens, bar=7.0, peer="fixed 1024")


def pairs_of(examples: Sequence[VerifyExample], count: int) -> list[PreferencePair]:
    """A correct and an incorrect completion of the same question, for the first questions that have both."""
    by_question: dict[str, dict[int, VerifyExample]] = {}
    for example in examples:
        by_question.setdefault(example.question, {}).setdefault(example.label, example)
    both = [found for found in by_question.values() if len(found) == 2][:count]
    return [
        PreferencePair(
            step=1, problem_id=str(place), question=found[1].question, source="benchmark",
            reference_answer=found[1].reference_answer, positive=found[1].completion,
            negative=found[0].completion,
        )
        for place, found in enumerate(both)
    ]  # fmt: skip


def padded_logits(
    model: VerifyRM, sequences: Sequence[Sequence[int]], options: Any, length: int | None = None
) -> torch.Tensor:
    """The library's own walk over a padded batch."""
    pad_id = model.tokenizer.pad_token_id
    batch = pad_right(sequences, pad_id=pad_id, device=model.device)
    ids, mask = batch.input_ids, batch.attention_mask
    if length is not None:
        ids = torch.nn.functional.pad(ids, (0, length - ids.shape[1]), value=pad_id)
        mask = torch.nn.functional.pad(mask, (0, length - mask.shape[1]))
    with torch.autocast("cpu", torch.bfloat16, enabled=options.compute == "bfloat16"):
        return model.model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, 0].float()


def compare(
    verify_rm: VerifyRM, sides: dict[str, Callable[[VerifyRM], object]], repeats: int
) -> dict[str, list[float]]:
    """CPU seconds of every side, in turn, each from a copy of the weights."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            model = copy_of(verify_rm)
            started = time.process_time()
            run(model)
            times[name].append(time.process_time() - started)
    return times


def copy_of(verify_rm: VerifyRM) -> VerifyRM:
    return VerifyRM(copy.deepcopy(verify_rm.model), verify_rm.tokenizer, verify_rm.compute)


def report(
    name: str,
    times: dict[str, list[float]],
    count: int,
    num_tokens: int,
    *,
    bar: float,
    peer: str = "plain",
) -> None:
    ratios = [theirs / ours for theirs, ours in zip(times[peer], times["ours"], strict=True)]
    ours = statistics.median(times["ours"])
    theirs = statistics.median(times[peer])
    say(
        f"{name}: {statistics.median(ratios):.2f}x (bar {bar}x; {min(ratios):.2f} to {max(ratios):.2f}); "
        f"{peer} {count / theirs:.1f}/s {num_tokens / theirs:.0f} tokens/s, "
        f"ours {count / ours:.1f}/s {num_tokens / ours:.0f} tokens/s"
    )


def loss_of(model: VerifyRM, rows: Sequence[VerifyExample]) -> float:
    return log_loss([row.label for row in rows], model.score([item_of(row) for row in rows]))


def item_of(example: VerifyExample) -> VerifyItem:
    return VerifyItem(example.question, example.reference_answer, example.completion)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
