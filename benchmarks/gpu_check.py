"""What one GPU does: the pipeline at its smallest, then Cooper steps of Qwen2.5-1.5B's size; prints JSON.

    python -m benchmarks.gpu_check                 # or: make gpu-check
    python -m benchmarks.gpu_check --device cpu --hidden 64 --layers 2 --vocab 2000 --problems 2 --group 2 \\
        --max-new-tokens 8                         # a rehearsal: the same code, numbers of no meaning

Weights are random, so nothing is downloaded; every token of the vocabulary has four characters of text. A
step is the product's own (`training/step.py`): 16 problems, 16 rollouts of 512 tokens, rewards, policy update
with a reference policy, and a reward update on two rollouts of every problem. `--engine` names who draws.
The first step warms up and is left out. Model FLOPs of the policy update are 6 N T for the policy and 2 N T
for the reference, N weights and T tokens with every prompt counted once, without attention; the recomputed
forward pass does not count. `peak_gib` is what was in use on the whole GPU. `phases` has the seconds of each
phase: the floor and the estimated ones of `cooper-rl plan --seconds`, the measured ones, and their ratio to
the estimated ones.
"""

import argparse
import copy
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from threading import Event, Thread
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

from benchmarks._step_setting import Clock, RolloutPairs, make_problems, make_tokenizer
from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.distributed.trainable import SingleProcess
from cooper_rl.domains.open import default_domain
from cooper_rl.engines.open import open_engine
from cooper_rl.errors import CooperError
from cooper_rl.models.budget import ENGINE_BYTES, OPTIMIZER_BYTES, Card, Phase, make_budget
from cooper_rl.models.memory import GIB, RESERVED
from cooper_rl.models.policy import Policy
from cooper_rl.models.shape import count_weights, read_shape
from cooper_rl.models.verify_rm import new_verify_rm
from cooper_rl.run.memory import make_plan, make_work
from cooper_rl.training import reward_learner
from cooper_rl.training.optimizer import make_adamw
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.reward_learner import RewardLearner
from cooper_rl.training.step import Trainer, run_step
from cooper_rl.verdicts.rule import RuleVerifier
from tests.small_run import SMALL


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        say("gpu_check: skipped, torch sees no CUDA device")
        return 0
    found: dict[str, Any] = {"torch": torch.__version__, "device": name_device(options.device)}
    if not options.only_step:
        found["pipeline_seconds"] = run_pipeline()
    try:
        say(json.dumps(found | measure_steps(options), indent=2))
    except CooperError as error:
        say(f"gpu_check: {error}")
        return 2
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--only-step", action="store_true", help="without the pipeline")
    parser.add_argument("--engine", choices=["hf", "vllm"], default="hf", help="who draws (default: hf)")
    parser.add_argument("--hidden", type=int, default=1536)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--vocab", type=int, default=151936)
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--max-new-tokens", type=int, default=512)
    parser.add_argument("--steps", type=int, default=2, help="measured, after one that warms up")
    parser.add_argument(
        "--peak-tflops",
        type=float,
        default=989.0,
        help="of the GPU, dense bf16; 989: NVIDIA H100 and H200 SXM",
    )
    parser.add_argument("--peak-tb-per-second", type=float, default=3.35, help="3.35: NVIDIA H100 SXM")
    return parser.parse_args(arguments)


def run_pipeline() -> float:
    """Seconds of all stages on this machine's GPU, with models of one layer."""
    values = [text for value in SMALL for text in ("--set", value)]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "pipelines", "local", "--preset", "laptop", "--output", folder, *values],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return time.perf_counter() - started


def measure_steps(options: argparse.Namespace) -> dict[str, Any]:
    """Medians of the measured steps."""
    device = torch.device(options.device)
    clock = Clock(device)
    config = load(
        "single_gpu",
        [
            f"cooper.problems_per_step={options.problems}", f"cooper.group_size={options.group}",
            f"cooper.generation.max_new_tokens={options.max_new_tokens}", f"engine.kind={options.engine}",
            "cooper.generation.batch_size=256", "verify_rm.num_decoys=0",  # the random VerifyRM has none
        ],
    )  # fmt: skip
    reward_learner.__dict__["time"] = types.SimpleNamespace(perf_counter=clock)
    with ExitStack() as stack:
        peak = stack.enter_context(watching_memory(device))
        trainer = make_random_trainer(config, options, device, stack)
        problems = make_problems(options.problems, num_stories=1)
        rows: list[dict[str, float]] = []
        for step in range(1, options.steps + 2):
            started = clock()
            rows.append(run_step(trainer, step, problems).metrics.flat())
            rows[-1]["seconds/step"] = clock() - started
        median = {key: statistics.median(row[key] for row in rows[1:]) for key in rows[1]}
        prompts = sum(len(trainer.policy.encode_prompt(problem.question, None)) for problem in problems)
    num_tokens = prompts + median["rollout/tokens"]
    sizes = trainer.policy.model.config.to_dict()
    flops = 8 * count_weights(read_shape(sizes, place="the random policy")) * num_tokens
    plan = make_plan(config, policy=sizes, verify_rm=sizes, num_processes=1, card_bytes=0)
    work = make_work(config, prompt_tokens=round(prompts / options.problems))
    shape = read_shape(sizes, place="the random policy")
    card = Card(options.peak_tflops * 1e12, options.peak_tb_per_second * 1e12)
    measured = {key.removeprefix("seconds/"): median[key] for key in median if "seconds/" in key}
    return {
        "engine": options.engine,
        "phases": compare_phases(make_budget(shape, shape, work), card, measured),
        "rollout_tokens": median["rollout/tokens"],
        "rollout_tokens_per_second": median["rollout/tokens"] / median["seconds/rollout"],
        "policy_update_mfu": flops / median["seconds/policy_update"] / (options.peak_tflops * 1e12),
        "peak_gib": peak[0] / GIB if device.type == "cuda" else None,
        "planned_gib": (plan.bytes + RESERVED) / GIB,
    }


@contextmanager
def watching_memory(device: torch.device) -> Generator[list[int]]:
    """The most bytes in use on the whole GPU while the block runs, looked at 20 times a second.

    torch's own count has the weights and the cache of a vLLM that sleeps, whose memory is free.
    """
    peak, has_ended = [0], Event()

    def watch() -> None:
        while not has_ended.wait(0.05):
            free, total = torch.cuda.mem_get_info(device)
            peak[0] = max(peak[0], total - free)

    thread = Thread(target=watch, daemon=True)
    if device.type == "cuda":
        thread.start()
    try:
        yield peak
    finally:
        has_ended.set()


ESTIMATED_IN = {
    "rollouts": "rollout",
    "reward": "reward",
    "reference policy": "policy_update",
    "policy update": "policy_update",
    "reward update": "reward_update",
}
"""Phase of the budget -> phase of a step in whose seconds it is measured."""
OPTIMIZERS = "optimisers, weights to the engine"
POLICY_SHARE = (OPTIMIZER_BYTES + ENGINE_BYTES) / (2 * OPTIMIZER_BYTES + ENGINE_BYTES)
"""Share of that phase in the policy update, the rest in the reward update: both models are of one size."""


def compare_phases(
    budget: Sequence[Phase], card: Card, measured: Mapping[str, float]
) -> dict[str, dict[str, float | None]]:
    """Phase of a step -> its seconds at the floor, estimated and measured, and measured over estimated.

    A phase of which nothing is estimated (pairs) has no more than its measured seconds.
    """
    estimated: dict[str, tuple[float, float]] = {}

    def add(name: str, phase: Phase, share: float = 1.0) -> None:
        for place in (name, "step"):
            floor, usual = estimated.get(place, (0.0, 0.0))
            estimated[place] = (floor + share * phase.floor(card), usual + share * phase.estimated(card))

    for phase in budget:
        if phase.name == OPTIMIZERS:
            add("policy_update", phase, POLICY_SHARE)
            add("reward_update", phase, 1 - POLICY_SHARE)
        else:
            add(ESTIMATED_IN[phase.name], phase)
    found: dict[str, dict[str, float | None]] = {}
    for name, seconds in measured.items():
        floor, usual = estimated.get(name, (None, None))
        ratio = seconds / usual if usual else None
        found[name] = {"floor": floor, "estimated": usual, "measured": seconds, "ratio": ratio}
    return found


def make_random_trainer(
    config: Config, options: argparse.Namespace, device: torch.device, stack: ExitStack
) -> Trainer:
    """What `train-cooper` steps with, on random weights."""
    cooper, tokenizer = config.cooper, make_tokenizer(options.vocab)
    sizes = Qwen2Config(
        vocab_size=options.vocab, hidden_size=options.hidden, intermediate_size=options.hidden * 35 // 6,
        num_hidden_layers=options.layers, num_attention_heads=max(1, options.hidden // 128),
        num_key_value_heads=max(1, options.hidden // 768), max_position_embeddings=4096,
        tie_word_embeddings=True, bos_token_id=None, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    with device:
        model = Qwen2ForCausalLM(sizes).eval()
        judging = copy.deepcopy(sizes)
        judging.num_labels = 1
        judge = Qwen2ForSequenceClassification(judging).eval()
    verify_rm = new_verify_rm(judge, tokenizer, reads_added_words=True)
    verify_rm = dataclasses.replace(verify_rm, compute=cooper.precision)
    end_ids, pad_id = frozenset({tokenizer.eos_token_id}), tokenizer.pad_token_id
    policy = Policy(model, tokenizer, end_ids, pad_id, cooper.precision)
    reference = Policy(
        copy.deepcopy(model).requires_grad_(False), tokenizer, end_ids, pad_id, cooper.precision
    )
    rule = stack.enter_context(RuleVerifier(config.labeling.rule))
    reward = RewardLearner(
        verify_rm=verify_rm, rule=rule, judge=None, gate=None, anchors=(), replay=(), domain=default_domain(),
        config=cooper, seed=0,
        optimizer=SingleProcess(
            verify_rm.model, make_adamw(verify_rm.model, lr=cooper.reward.lr, weight_decay=0.01)
        ),
        pairs=stack.enter_context(RolloutPairs(PairMaker(cooper, rule, None, None), max_staleness=0)),
    )  # fmt: skip
    return Trainer(
        policy=policy, reference=reference, reward=reward, config=cooper, instruction=None, seed=0,
        engine=stack.enter_context(closing(open_engine(policy, config.engine))),
        policy_optimizer=SingleProcess(model, make_adamw(model, lr=cooper.policy.lr, weight_decay=0.01)),
    )  # fmt: skip


def name_device(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
