"""TRL's side of `cooper_step.py`: GRPOTrainer, a reward function, a pairwise update, RewardTrainer."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _step_setting import GROUP_SIZE, NUM_PROBLEMS, Clock, Measured, pair_of
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar

from cooper_rl.models.packed.batching import pad_right
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.schema.data import PreferencePair, Problem


def trl_side(
    folder: Path, problems: Sequence[Problem], options: argparse.Namespace, clock: Clock, *, is_tuned: bool
) -> Callable[[], Measured]:
    """A new GRPOTrainer for one step, the pairwise update after it, a RewardTrainer for the same pairs."""
    disable_progress_bar()
    # By the library: our own loader would also give this process our settings of the allocator.
    model = AutoModelForSequenceClassification.from_pretrained(
        folder / "verify_rm", dtype=torch.bfloat16 if is_tuned else torch.float32
    )
    verify_rm = VerifyRM(model.to(clock.device).train(), AutoTokenizer.from_pretrained(folder / "verify_rm"))
    optimizer = torch.optim.AdamW(verify_rm.model.parameters(), lr=1e-5)

    def run() -> Measured:
        peer = Peer(verify_rm, optimizer, problems, clock)
        trainer = make_grpo_trainer(folder, peer, options, is_tuned=is_tuned)
        trainer._generate = timed(trainer._generate, "rollout", peer.seconds, clock)
        trainer.train()
        seconds = reward_trainer_seconds(folder, peer, options, is_tuned=is_tuned)
        return Measured(peer.seconds | {"RewardTrainer": seconds}, peer.num_tokens)

    return run


class Peer(TrainerCallback):
    """What surrounds TRL's step: the clock, the reward function, the pairwise update."""

    def __init__(
        self, verify_rm: VerifyRM, optimizer: torch.optim.Optimizer, problems: Sequence[Problem], clock: Clock
    ) -> None:
        self.verify_rm, self.optimizer, self.clock = verify_rm, optimizer, clock
        self.problems = {problem.question: problem for problem in problems}
        self.seconds: dict[str, float] = {"step": 0.0}
        self.num_tokens = 0
        self.pairs: list[PreferencePair] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._started = self.clock()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        updated = self.clock()
        self._update()
        self.seconds["reward_update"] = self.clock() - updated
        self.seconds["step"] = self.clock() - self._started
        self.seconds["reference, policy update"] = 2 * self.seconds["step"] - sum(self.seconds.values())

    @torch.no_grad()
    def reward(self, prompts: Any, completions: Any, completion_ids: Any, **_: Any) -> list[float]:
        started = self.clock()
        self.num_tokens = sum(map(len, completion_ids))
        rows = [
            (self.problems[prompt[0]["content"]], completion[0]["content"])
            for prompt, completion in zip(prompts, completions, strict=True)
        ]
        starts = range(0, len(rows), GROUP_SIZE)
        self.pairs = [pair_of(rows[place][0], rows[place][1], rows[place + 1][1]) for place in starts]
        items = [VerifyItem(problem.question, problem.reference_answer, text) for problem, text in rows]
        scores = [score for batch in self._logits(items, 32) for score in batch.sigmoid().tolist()]
        self.seconds["reward"] = self.clock() - started
        return scores

    def _update(self) -> None:
        items = [
            VerifyItem(pair.question, pair.reference_answer, text)
            for pair in self.pairs
            for text in (pair.positive, pair.negative)
        ]
        for logits in self._logits(items, 16):
            difference = logits[::2] - logits[1::2]
            (-torch.nn.functional.logsigmoid(difference).sum() / len(self.pairs)).backward()
        torch.nn.utils.clip_grad_norm_(self.verify_rm.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _logits(self, items: Sequence[VerifyItem], size: int) -> Any:
        """The library's own walk over padded batches, in bf16."""
        model, device = self.verify_rm.model, self.clock.device
        sequences = self.verify_rm.encode(items)
        for start in range(0, len(sequences), size):
            batch = pad_right(sequences[start : start + size], pad_id=0, device=device)
            with torch.autocast(device.type, torch.bfloat16):
                out = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)
            yield out.logits[:, 0].float()


def make_grpo_trainer(folder: Path, peer: Peer, options: argparse.Namespace, *, is_tuned: bool) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(folder / "trl"), max_steps=1, per_device_train_batch_size=32,
        gradient_accumulation_steps=NUM_PROBLEMS * GROUP_SIZE // 32, num_generations=GROUP_SIZE, beta=1e-3,
        temperature=1.0, max_completion_length=options.max_new_tokens, learning_rate=1e-6,
        **settings_of(options, is_tuned=is_tuned),
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=str(folder / "policy"),
        reward_funcs=peer.reward,
        args=config,
        train_dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": question}] for question in peer.problems]}
        ),
        processing_class=peer.verify_rm.tokenizer,
        callbacks=[peer],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def settings_of(options: argparse.Namespace, *, is_tuned: bool) -> dict[str, Any]:
    """What both trainers of TRL get; recomputing activations is their own default."""
    return {
        "bf16": True, "model_init_kwargs": {"dtype": torch.bfloat16 if is_tuned else torch.float32},
        "activation_checkpointing": not options.keep_activations, "use_cpu": options.device == "cpu",
        "save_strategy": "no", "report_to": [], "disable_tqdm": True, "logging_strategy": "no",
    }  # fmt: skip


def reward_trainer_seconds(folder: Path, peer: Peer, options: argparse.Namespace, *, is_tuned: bool) -> float:
    """One step of TRL's RewardTrainer on the pairs of the peer's step, without what it prepares before."""
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    prompts = [VerifyItem(pair.question, pair.reference_answer, "") for pair in peer.pairs]
    chosen, rejected = (
        peer.verify_rm.encode(
            [item._replace(completion=text) for item, text in zip(prompts, texts, strict=True)]
        )
        for texts in ([pair.positive for pair in peer.pairs], [pair.negative for pair in peer.pairs])
    )
    config = RewardConfig(
        output_dir=str(folder / "trl_reward"), max_steps=1, per_device_train_batch_size=len(peer.pairs),
        learning_rate=1e-5, max_length=None, **settings_of(options, is_tuned=is_tuned),
    )  # fmt: skip
    stopwatch = Stopwatch(peer.clock)
    trainer = RewardTrainer(
        model=str(folder / "verify_rm"),
        args=config,
        train_dataset=Dataset.from_dict({"chosen_ids": chosen, "rejected_ids": rejected}),
        processing_class=peer.verify_rm.tokenizer,
        callbacks=[stopwatch],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return stopwatch.seconds


class Stopwatch(TrainerCallback):
    """The seconds of a trainer's last step."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.seconds = clock, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._started = self.clock()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds = self.clock() - self._started


def timed(call: Callable[..., Any], phase: str, seconds: dict[str, float], clock: Clock) -> Any:
    def run(*args: Any, **options: Any) -> Any:
        started = clock()
        found = call(*args, **options)
        seconds[phase] = seconds.get(phase, 0.0) + clock() - started
        return found

    return run
