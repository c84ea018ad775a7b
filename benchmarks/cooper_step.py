"""A whole Cooper step against TRL's GRPOTrainer with a reward model and a pairwise update, in turn.

    OMP_NUM_THREADS=1 python -m benchmarks.cooper_step --repeats 3                       # natural lengths
    OMP_NUM_THREADS=1 python -m benchmarks.cooper_step --repeats 3 --fixed --max-new-tokens 96
    OMP_NUM_THREADS=1 python -m benchmarks.cooper_step --problems 4 --fixed --max-new-tokens 384 \\
        --sides "TRL" "TRL tuned" "TRL expert" "expert, no fallback"
    python -m benchmarks.cooper_step --device cuda --engine vllm --hidden 1536 --layers 28 --vocab 151936 \\
        --sides "TRL expert"                     # both draw with vLLM in their own process, on one GPU

Ours is the product's own step: trainer, engine, scoring, policy update and reward update as `train-cooper`
makes them, `cooper.precision=bfloat16`. TRL's sides: `GRPOTrainer`, a reward function that scores with the
same VerifyRM in padded batches, and a plain padded pairwise update. All: the same random models (Qwen2),
prompts, rollouts, temperature, KL to a reference policy, one update a step, one thread.

    TRL                  as it ships: fp32 weights under bf16 autocast, activations computed again
    TRL tuned            bf16 weights
    TRL expert           bf16 weights, activations kept (for the sides above: `--keep-activations`)
    expert, no fallback  and the head as TRL has it on CUDA (`_trl_step.py: take_out_fallback`): on a CPU TRL
                         1.16 computes it for prompts and padding too, and multiplies fp32 copies backwards

Beside the seconds stand the positions that went through layers and head in the update's forward passes of
policy and reference policy. The default model's head takes the share of the products that Qwen2.5-1.5B's
takes (15 %), the default prompts have 97 tokens on average: in Qwen2.5's chat template GSM8K's questions have
89, MATH's 103.

Random text is never correct, so all make their pairs from the first two rollouts of every problem; rollouts
are checked by the rule verifier on our side only. With natural lengths a completion may end after any token,
with the same probability. After its step TRL's side also gives its pairs to TRL's RewardTrainer, whose
seconds stand beside the step.

Sides take turns, each in a process of its own, after warm-up rounds that are not counted. Seconds are the
process's CPU seconds, on a GPU wall-clock seconds; ratios are those of seconds per generated token, of the
reward update per pair.
"""

import argparse
import logging
import multiprocessing
import statistics
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from benchmarks._step_setting import (
    GROUP_SIZE,
    MAX_LENGTH,
    NUM_PROBLEMS,
    VLLM_MEMORY,
    Clock,
    Measured,
    RolloutPairs,
    make_models,
    make_problems,
)
from benchmarks._trl_step import SETTINGS, describe_work, trl_side
from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.config.load import load
from cooper_rl.models.completions import CompletionBatch, completion_logprobs
from cooper_rl.models.packed.packing import PackedBatch
from cooper_rl.models.policy import Policy, load_policy
from cooper_rl.models.verify_rm import load_verify_rm
from cooper_rl.run.build import SideData, make_trainer
from cooper_rl.schema.data import Problem
from cooper_rl.training import policy_update, reward_learner
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.step import run_step

NATURAL_BARS = {"TRL": 5.0, "TRL tuned": 3.5, "expert, no fallback": 4.5}
FIXED_BARS = {"TRL": 2.8, "TRL tuned": 2.2, "expert, no fallback": 2.4}
LONG_BARS = {"expert, no fallback": 2.0}
"""With more than 96 tokens, all of them drawn."""
PAIR_BAR = 2.0
OUR_WORK = (
    "packed, a prompt once a group; fp32 weights under bf16 autocast; activations kept; head at completion "
    "tokens"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--engine", choices=["hf", "vllm"], default="hf", help="who draws on both sides; vllm sleeps between"
    )
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocab", type=int, default=2700, help="tokens; at least the laptop's 655")
    parser.add_argument("--stories", type=int, default=4, help="in a prompt, of about 25 tokens each")
    parser.add_argument("--problems", type=int, default=NUM_PROBLEMS, help="of a step, with 8 rollouts each")
    parser.add_argument("--trl-batch", type=int, default=32, help="rollouts of TRL's forward passes")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--fixed", action="store_true", help="no completion ends before --max-new-tokens")
    parser.add_argument(
        "--keep-activations", action="store_true", help="TRL without activation checkpointing"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warm-ups", type=int, default=1)
    parser.add_argument("--sides", nargs="*", default=["TRL", "TRL tuned"], metavar="SIDE", choices=SETTINGS)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        say("cooper_step: skipped, torch sees no CUDA device")
        return 0
    for side in ["ours", *options.sides]:
        say(f"{side:20}{OUR_WORK if side == 'ours' else describe_work(SETTINGS[side])}")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        make_models(folder, options)
        sides = {
            side: stack.enter_context(started(side, folder, options)) for side in ["ours", *options.sides]
        }
        found: dict[str, list[Measured]] = {side: [] for side in sides}
        for turn in range(-options.warm_ups, options.repeats):
            for side, connection in sides.items():
                connection.send("step")
                measured = connection.recv()
                say(f"{'warm-up' if turn < 0 else f'round {turn + 1}':9}{describe(side, measured)}")
                if turn >= 0:
                    found[side].append(measured)
    report(found, bars_of(options))
    return 0


def bars_of(options: argparse.Namespace) -> dict[str, float]:
    """By side; none where no bar was set."""
    if not options.fixed:
        return NATURAL_BARS
    return FIXED_BARS if options.max_new_tokens <= 96 else LONG_BARS


@contextmanager
def started(side: str, folder: Path, options: argparse.Namespace) -> Iterator[Connection]:
    """A side in a process of its own, which does a step whenever it is sent something."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve, args=(theirs, side, folder, options), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join()


def serve(connection: Connection, side: str, folder: Path, options: argparse.Namespace) -> None:
    """What a side's process does until the other end is closed."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clock = Clock(torch.device(options.device))
    problems = make_problems(options.problems, options.stories)
    with ExitStack() as stack:
        if side == "ours":
            run = our_side(folder, problems, stack, options, clock)
        else:
            run = trl_side(folder, problems, options, clock, SETTINGS[side])
        while is_asked(connection):
            connection.send(run())


def is_asked(connection: Connection) -> bool:
    """Waits for the next question; False: there will be none."""
    try:
        return bool(connection.recv())
    except EOFError:
        return False


def our_side(
    folder: Path, problems: Sequence[Problem], stack: ExitStack, options: argparse.Namespace, clock: Clock
) -> Callable[[], Measured]:
    """The product's trainer, and its next step."""
    values = [
        "cooper.precision=bfloat16", "cooper.monitor=null", "cooper.judge=null",
        "cooper.policy.warmup_steps=0",
        "cooper.pairs.negatives.rollout=0", "cooper.pairs.per_problem=1", "cooper.policy.lr=1e-6",
        f"cooper.problems_per_step={options.problems}", f"cooper.group_size={GROUP_SIZE}",
        f"cooper.generation.max_new_tokens={options.max_new_tokens}", f"engine.kind={options.engine}",
        f"engine.gpu_memory_utilization={VLLM_MEMORY}", f"engine.max_model_len={MAX_LENGTH}",
    ]  # fmt: skip
    config = load("laptop", values)
    state = TrainingState(
        step=0, policy=load_policy(folder / "policy", device=clock.device),
        verify_rm=load_verify_rm(folder / "verify_rm", device=clock.device),
        policy_optimizer={}, verify_rm_optimizer={}, metrics=[], pairs=[],
    )  # fmt: skip
    trainer = make_trainer(
        config, state, problems, SideData((), (), ()), stack, models=folder, place="the start"
    )
    maker = PairMaker(config.cooper, trainer.reward.rule, None, None)
    pairs = stack.enter_context(RolloutPairs(maker, max_staleness=0))
    trainer = replace(trainer, reward=replace(trainer.reward, pairs=pairs))
    vars(reward_learner)["time"] = types.SimpleNamespace(perf_counter=clock)  # phases on the same clock
    steps = iter(range(1, 10**6))
    counted = counting()

    def run() -> Measured:
        counted.clear()
        started = clock()
        metrics = run_step(trainer, next(steps), problems).metrics
        seconds = {"step": clock() - started} | {
            name.removeprefix("seconds/"): value
            for name, value in metrics.flat().items()
            if name.startswith("seconds/")
        }
        return Measured(seconds, metrics.rollout.tokens or 0, *map(sum, zip(*counted, strict=True)))

    return run


def counting() -> list[tuple[int, int]]:
    """Positions through layers and head of every forward pass of our policy update."""
    counted: list[tuple[int, int]] = []

    def run(policy: Policy, batch: CompletionBatch, *, temperature: float) -> torch.Tensor:
        tokens = batch.tokens
        ids = tokens.token_ids if isinstance(tokens, PackedBatch) else tokens.input_ids
        counted.append((ids.numel(), len(batch.targets)))
        return completion_logprobs(policy, batch, temperature=temperature)

    vars(policy_update)["completion_logprobs"] = run
    return counted


def report(found: dict[str, list[Measured]], bars: dict[str, float]) -> None:
    for side, rows in found.items():
        say(f"median   {describe(side, median(rows))}")
    for side in found:
        pairs = list(zip(found[side], found["ours"], strict=False))
        if side != "ours" and pairs:
            steps = [
                (peer.seconds["step"] / peer.num_tokens) / (own.seconds["step"] / own.num_tokens)
                for peer, own in pairs
            ]
            updates = [peer.seconds["RewardTrainer"] / own.seconds["reward_update"] for peer, own in pairs]
            bar = f"bar {bars[side]}x" if side in bars else "no bar"
            say(
                f"{side}: step {ratio(steps)} a token ({bar}); its RewardTrainer {ratio(updates)} ours "
                f"(bar {PAIR_BAR}x)"
            )


def median(rows: Sequence[Measured]) -> Measured:
    phases = {phase: statistics.median(row.seconds[phase] for row in rows) for phase in rows[0].seconds}
    counts = [int(statistics.median(column)) for column in zip(*(row[1:] for row in rows), strict=True)]
    return Measured(phases, *counts)


def ratio(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"


def describe(side: str, measured: Measured) -> str:
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in measured.seconds.items())
    work = f"layers {measured.layer_tokens}, head {measured.head_tokens}"
    return f"{side:20}{measured.num_tokens:6} tokens  {phases}; {work}"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
