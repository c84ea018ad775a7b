"""A whole Cooper step against TRL's GRPOTrainer with a reward model and a pairwise update, in turn.

    OMP_NUM_THREADS=1 python benchmarks/cooper_step.py --repeats 3                       # natural lengths
    OMP_NUM_THREADS=1 python benchmarks/cooper_step.py --repeats 3 --fixed --max-new-tokens 96

Ours is the product's own step: trainer, engine, scoring, policy update and reward update as `train-cooper`
makes them, `cooper.compute=bfloat16`. TRL's side: `GRPOTrainer` (fp32 weights under bf16 autocast, its
default; or bf16 weights, tuned), a reward function that scores with the same VerifyRM in padded batches, and
a plain padded pairwise update. Both: the same random models (Qwen2), prompts, rollouts, temperature, KL to a
reference policy, one update a step, one thread. TRL's activation checkpointing is off, which favours it.

Random text is never correct, so both make their pairs from the first two rollouts of every problem; rollouts
are checked by the rule verifier on our side only. With natural lengths every token ends a completion with a
probability of one in 96. Seconds are the process's CPU seconds, on a GPU wall-clock seconds; the ratio is
that of seconds per generated token. Nothing
is warmed up on either side: the median over several repeats leaves the first out.
"""

import argparse
import logging
import math
import random
import statistics
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import (
    PrinterCallback,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    TrainerCallback,
)

from cooper_rl.backends.checkpoint import TrainingState
from cooper_rl.backends.policy import Policy, load_policy, save_policy
from cooper_rl.backends.verify_rm import VerifyItem, VerifyRM, load_verify_rm, save_verify_rm
from cooper_rl.config.load import load
from cooper_rl.core.batching import pad_right
from cooper_rl.records import write_report
from cooper_rl.schema import ModelSet, Pairing, PreferencePair, Problem
from cooper_rl.stages._models import MANIFEST
from cooper_rl.stages._trainer import SideData, make_trainer
from cooper_rl.tiny.problems import generate_stories
from cooper_rl.tiny.tokenizer import build_tokenizer
from cooper_rl.training import step as step_module
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.rollout import RolloutGroup, Scores

NUM_PROBLEMS, GROUP_SIZE, STORIES = 16, 8, 3
MEAN_LENGTH = 96
BARS = {"natural": {"TRL": 5.0, "TRL tuned": 3.5}, "fixed": {"TRL": 2.8, "TRL tuned": 2.2}}


class Measured(NamedTuple):
    """One step of one side."""

    seconds: dict[str, float]
    """By phase, `step` is the whole."""
    num_tokens: int


class Clock(NamedTuple):
    """Seconds that pass on a device."""

    device: torch.device

    def __call__(self) -> float:
        if self.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--fixed", action="store_true", help="no completion ends before --max-new-tokens")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=["TRL", "TRL tuned"], metavar="SIDE")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        say("cooper_step: skipped, torch sees no CUDA device")
        return 0
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clock = Clock(torch.device(options.device))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        problems = make_problems()
        make_models(folder, options)
        sides: dict[str, Callable[[], Measured]] = {"ours": our_side(folder, problems, stack, options, clock)}
        for side in options.sides:
            sides[side] = trl_side(folder, problems, options, clock, is_tuned=side == "TRL tuned")
        found: dict[str, list[Measured]] = {side: [] for side in sides}
        for _ in range(options.repeats):
            for side, run in sides.items():
                found[side].append(run())
                last = found[side][-1]
                phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in last.seconds.items())
                say(f"{side:10}{last.num_tokens:6} tokens  {phases}")
    report(found, BARS["fixed" if options.fixed else "natural"])
    return 0


def make_problems() -> list[Problem]:
    """Each of three stories, so that a prompt has about 75 tokens."""
    stories = generate_stories(NUM_PROBLEMS * STORIES, random.Random(0))
    questions = [
        " ".join(story.question for story in stories[start : start + STORIES])
        for start in range(0, len(stories), STORIES)
    ]
    return [
        Problem(id=str(place), source="benchmark", question=question, reference_answer=str(place))
        for place, question in enumerate(questions)
    ]


def make_models(folder: Path, options: argparse.Namespace) -> None:
    """Random policy and VerifyRM of the same size, in the folders that the stages read."""
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": options.hidden, "intermediate_size": 4 * options.hidden,
        "num_hidden_layers": options.layers, "num_attention_heads": options.hidden // 64,
        "num_key_value_heads": max(1, options.hidden // 128), "max_position_embeddings": 2048,
        "bos_token_id": None, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id,
    }  # fmt: skip
    policy = Qwen2ForCausalLM(Qwen2Config(**sizes))
    policy.generation_config.eos_token_id = tokenizer.eos_token_id
    policy.generation_config.do_sample = True
    set_end_probability(policy, tokenizer.eos_token_id, 0.0 if options.fixed else 1 / MEAN_LENGTH)
    end_ids = frozenset({tokenizer.eos_token_id})
    save_policy(Policy(policy, tokenizer, end_ids, tokenizer.pad_token_id), folder / "policy")
    verify_rm = Qwen2ForSequenceClassification(Qwen2Config(**sizes, num_labels=1))
    save_verify_rm(VerifyRM(verify_rm, tokenizer), folder / "verify_rm")
    write_report(folder / MANIFEST, ModelSet(policy="policy", samplers={}, backbone="policy"))


@torch.no_grad()
def set_end_probability(model: Any, end_id: int, probability: float) -> None:
    """Give every hidden state a constant first entry, which the end token's logit alone reads."""
    model.model.embed_tokens.weight[:, 0] = 1.0
    constant = model.model(torch.arange(50)[None]).last_hidden_state[0, :, 0].mean().item()
    model.lm_head.weight[:, 0] = 0.0
    odds = probability / (1 - probability)
    logit = math.log(odds * (model.config.vocab_size - 1)) if odds else -100.0
    model.lm_head.weight[end_id, 0] = logit / constant


class RolloutPairs(PairQueue):
    """Two rollouts of every problem, whatever they say."""

    def submit(self, groups: Sequence[RolloutGroup], scores: Scores, *, step: int, seed: int) -> None:
        self._pairs = [pair_of(group.problem, *group.texts[:2]) for group in groups]

    def take(self) -> Pairing:
        return Pairing(pairs=self._pairs)


def pair_of(problem: Problem, positive: str, negative: str) -> PreferencePair:
    return PreferencePair(
        step=1, problem_id=problem.id, question=problem.question, source="benchmark",
        reference_answer=problem.reference_answer, positive=positive, negative=negative,
    )  # fmt: skip


def our_side(
    folder: Path, problems: Sequence[Problem], stack: ExitStack, options: argparse.Namespace, clock: Clock
) -> Callable[[], Measured]:
    """The product's trainer, and its next step."""
    values = [
        "cooper.compute=bfloat16", "cooper.monitor=null", "cooper.judge=null", "cooper.policy_warmup_steps=0",
        "cooper.negatives.rollout=0", "cooper.pairs_per_problem=1", "cooper.policy_lr=1e-6",
        f"cooper.problems_per_step={NUM_PROBLEMS}", f"cooper.group_size={GROUP_SIZE}",
        f"cooper.generation.max_new_tokens={options.max_new_tokens}",
    ]  # fmt: skip
    config = load("laptop", values)
    state = TrainingState(
        step=0, policy=load_policy(folder / "policy", device=clock.device),
        verify_rm=load_verify_rm(folder / "verify_rm", device=clock.device),
        policy_optimizer={}, verify_rm_optimizer={}, metrics=[], pairs=[],
    )  # fmt: skip
    trainer = make_trainer(config, state, SideData((), (), ()), stack, models=folder, place="the start")
    maker = PairMaker(config.cooper, trainer.rule, None, None)
    trainer = replace(trainer, pairs=stack.enter_context(RolloutPairs(maker, max_staleness=0)))
    vars(step_module)["time"] = types.SimpleNamespace(perf_counter=clock)  # phases on the same clock
    steps = iter(range(1, 10**6))

    def run() -> Measured:
        started = clock()
        metrics = step_module.run_step(trainer, next(steps), problems).metrics
        seconds = {"step": clock() - started} | {
            name.removeprefix("seconds/"): value
            for name, value in metrics.items()
            if name.startswith("seconds/")
        }
        return Measured(seconds, int(metrics["rollout/tokens"]))

    return run


def trl_side(
    folder: Path, problems: Sequence[Problem], options: argparse.Namespace, clock: Clock, *, is_tuned: bool
) -> Callable[[], Measured]:
    """A new GRPOTrainer for one step and the pairwise update after it."""
    verify_rm = load_verify_rm(folder / "verify_rm", device=clock.device)
    if is_tuned:
        verify_rm.model.to(torch.bfloat16)
    verify_rm.model.train()
    optimizer = torch.optim.AdamW(verify_rm.model.parameters(), lr=1e-5)

    def run() -> Measured:
        peer = Peer(verify_rm, optimizer, problems, clock)
        trainer = make_grpo_trainer(folder, peer, options.max_new_tokens, is_tuned=is_tuned)
        trainer._generate = timed(trainer._generate, "rollout", peer.seconds, clock)
        trainer.train()
        return Measured(peer.seconds, peer.num_tokens)

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


def make_grpo_trainer(folder: Path, peer: Peer, max_new_tokens: int, *, is_tuned: bool) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=str(folder / "trl"), max_steps=1, per_device_train_batch_size=32,
        gradient_accumulation_steps=NUM_PROBLEMS * GROUP_SIZE // 32, num_generations=GROUP_SIZE, beta=1e-3,
        temperature=1.0, max_completion_length=max_new_tokens, learning_rate=1e-6, bf16=True,
        activation_checkpointing=False, use_cpu=peer.clock.device.type == "cpu", save_strategy="no",
        report_to=[], disable_tqdm=True, logging_strategy="no",
        model_init_kwargs={"dtype": torch.bfloat16 if is_tuned else torch.float32},
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=str(folder / "policy"),
        reward_funcs=peer.reward,
        args=config,
        train_dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": question}] for question in peer.problems]}
        ),
        processing_class=build_tokenizer(),
        callbacks=[peer],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def timed(call: Callable[..., Any], phase: str, seconds: dict[str, float], clock: Clock) -> Any:
    def run(*args: Any, **options: Any) -> Any:
        started = clock()
        found = call(*args, **options)
        seconds[phase] = seconds.get(phase, 0.0) + clock() - started
        return found

    return run


def report(found: dict[str, list[Measured]], bars: dict[str, float]) -> None:
    ours = found["ours"]
    for side, rows in found.items():
        phases = {
            phase: statistics.median(row.seconds.get(phase, 0.0) for row in rows) for phase in rows[0].seconds
        }
        say(f"| {side} | " + " | ".join(f"{phase} {seconds:.2f}" for phase, seconds in phases.items()) + " |")
    for side, bar in bars.items():
        ratios = [
            (peer.seconds["step"] / peer.num_tokens) / (own.seconds["step"] / own.num_tokens)
            for peer, own in zip(found.get(side, []), ours, strict=False)
        ]
        if ratios:
            say(
                f"{side}: {statistics.median(ratios):.2f}x a token (bar {bar}x; "
                f"{min(ratios):.2f} to {max(ratios):.2f})"
            )


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
