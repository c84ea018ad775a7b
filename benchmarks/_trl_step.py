"""TRL's sides of `cooper_step.py`: GRPOTrainer, a reward function, a pairwise update, RewardTrainer."""

import argparse
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar

from benchmarks._step_setting import GROUP_SIZE, MAX_LENGTH, VLLM_MEMORY, Clock, Measured, pair_of
from cooper_rl.models.packed.batching import pad_right
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.schema.data import PreferencePair, Problem


class Setting(NamedTuple):
    """How TRL is set."""

    has_bf16_weights: bool
    keeps_activations: bool
    """Else they are computed again in the backward, which is TRL's default."""
    has_fallback: bool
    """Of a device without Triton; see `take_out_fallback`."""


SETTINGS = {
    "TRL": Setting(has_bf16_weights=False, keeps_activations=False, has_fallback=True),
    "TRL tuned": Setting(has_bf16_weights=True, keeps_activations=False, has_fallback=True),
    "TRL expert": Setting(has_bf16_weights=True, keeps_activations=True, has_fallback=True),
    "expert, no fallback": Setting(has_bf16_weights=True, keeps_activations=True, has_fallback=False),
}


def describe_work(setting: Setting) -> str:
    """What such a side computes, in a line."""
    weights = "bf16 weights" if setting.has_bf16_weights else "fp32 weights under bf16 autocast"
    backward = "activations kept" if setting.keeps_activations else "activations computed again"
    head = (
        "head at every position, its backward products in fp32"
        if setting.has_fallback
        else "head at completion tokens, its products in bf16"
    )
    return f"padded batches, a prompt once a rollout; {weights}; {backward}; {head}"


def take_out_fallback() -> None:
    """TRL's head as it is on CUDA, on a CPU: completion tokens alone, products in the type of the passes.

    Without Triton TRL 1.16 sends every position through the head, prompts and padding too (`compact` in
    `trl/trainer/utils.py: add_fused_lm_head`), and its backward multiplies fp32 copies (`_addmm_fp32` in
    `trl/kernels/chunked_logprob.py`). The first module asks its own name `_use_triton` for `compact` alone;
    which kernel runs is asked in the second, and stays torch's.
    """
    from trl.kernels import chunked_logprob
    from trl.trainer import utils

    assert utils._use_triton is chunked_logprob._use_triton, "this TRL chooses its head in another way"
    vars(utils)["_use_triton"] = lambda _device: True

    def add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
        total += left @ right

    assert callable(chunked_logprob._addmm_fp32)
    vars(chunked_logprob)["_addmm_fp32"] = add_product


def trl_side(
    folder: Path, problems: Sequence[Problem], options: argparse.Namespace, clock: Clock, setting: Setting
) -> Callable[[], Measured]:
    """A step of GRPOTrainer, the pairwise update after it, a RewardTrainer for the same pairs.

    A trainer draws with transformers in a step of its own; vLLM takes a minute to start, and is kept.
    """
    disable_progress_bar()
    if not setting.has_fallback:
        take_out_fallback()
    # By the library: our own loader would also give this process our settings of the allocator.
    model = AutoModelForSequenceClassification.from_pretrained(
        folder / "verify_rm", dtype=torch.bfloat16 if setting.has_bf16_weights else torch.float32
    )
    verify_rm = VerifyRM(model.to(clock.device).train(), AutoTokenizer.from_pretrained(folder / "verify_rm"))
    optimizer = torch.optim.AdamW(verify_rm.model.parameters(), lr=1e-5)

    def make() -> tuple[Peer, Any, list[tuple[int, int]]]:
        peer = Peer(verify_rm, optimizer, problems, clock)
        trainer = make_grpo_trainer(folder, peer, options, setting)
        trainer._generate = timed(trainer._generate, "rollout", peer.seconds, clock)
        return peer, trainer, counting(trainer, has_fallback=setting.has_fallback)

    prepare = cache(make) if options.engine == "vllm" else make

    def run() -> Measured:
        peer, trainer, counted = prepare()
        peer.seconds.update(dict.fromkeys(peer.seconds, 0.0))
        counted.clear()
        trainer._last_loaded_step = -1  # vLLM gets the weights, as in every step of one training
        trainer.train()
        seconds = reward_trainer_seconds(folder, peer, options, setting)
        return Measured(
            peer.seconds | {"RewardTrainer": seconds}, peer.num_tokens, *map(sum, zip(*counted, strict=True))
        )

    return run


def counting(trainer: Any, *, has_fallback: bool) -> list[tuple[int, int]]:
    """Positions through layers and head of every forward pass that the trainer is going to make."""
    counted: list[tuple[int, int]] = []
    call = trainer._get_per_token_logps_and_entropies

    def run(
        model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, *args: Any, **named: Any
    ) -> Any:
        rows, width = input_ids.shape
        asked = rows * (width - 1) if has_fallback else int(attention_mask[:, -logits_to_keep:].sum())
        counted.append((rows * width, asked))
        return call(model, input_ids, attention_mask, logits_to_keep, *args, **named)

    trainer._get_per_token_logps_and_entropies = run
    return counted


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


def make_grpo_trainer(folder: Path, peer: Peer, options: argparse.Namespace, setting: Setting) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(folder / "trl"), max_steps=1, per_device_train_batch_size=options.trl_batch,
        gradient_accumulation_steps=options.problems * GROUP_SIZE // options.trl_batch,
        num_generations=GROUP_SIZE, beta=1e-3, temperature=1.0,
        max_completion_length=options.max_new_tokens, learning_rate=1e-6,
        use_vllm=options.engine == "vllm", vllm_enable_sleep_mode=True,
        vllm_gpu_memory_utilization=VLLM_MEMORY, vllm_max_model_length=MAX_LENGTH,
        **settings_of(options, setting),
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


def settings_of(options: argparse.Namespace, setting: Setting) -> dict[str, Any]:
    """What both trainers of TRL get; recomputing activations is their own default."""
    dtype = torch.bfloat16 if setting.has_bf16_weights else torch.float32
    return {
        "bf16": True, "model_init_kwargs": {"dtype": dtype},
        "activation_checkpointing": not (setting.keeps_activations or options.keep_activations),
        "use_cpu": options.device == "cpu",
        "save_strategy": "no", "report_to": [], "disable_tqdm": True, "logging_strategy": "no",
    }  # fmt: skip


def reward_trainer_seconds(folder: Path, peer: Peer, options: argparse.Namespace, setting: Setting) -> float:
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
        learning_rate=1e-5, max_length=None, **settings_of(options, setting),
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
