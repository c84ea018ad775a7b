"""Time of a co-training step with a slow assistant behind a network: what hiding its answers is worth.

    OMP_NUM_THREADS=1 python -m benchmarks.pair_overlap --models M --verify-rm V --problems P

M, V and P are what `prepare-models`, `train-verify-rm` and `collect-problems` wrote with the laptop preset,
for example in the folder of `make demo`.

The product's own step, models and pair making; the assistant is a chat server on a socket in a process of its
own. It sleeps for a log-normal time, seeded by the request and by how often that was made, then answers with
the laptop's rewrite, or (one in four) with the solution as it was, so that it must be asked again. Each way
adds one thing to the way before it:

    serial      pairs after the policy update, in rounds (only here; the release does so)
    overlapped  pairs beside the policy update, in rounds: all items wait for the slowest before the next try
    streamed    every item has its tries on its own
    stale       `cooper.pairs.max_staleness=1`: pairs of the step before

Ways are taken in turn, each from the same start; the first step warms up and is not counted. The first three
must make the same pairs, which is checked.
"""

import argparse
import json
import logging
import math
import multiprocessing
import random
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from cooper_rl.config.load import load
from cooper_rl.config.root import Config
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.randomness import derive_seed
from cooper_rl.records.files import read_records
from cooper_rl.run.build import SideData, make_trainer
from cooper_rl.run.plan import Inputs, starting_state
from cooper_rl.schema.data import Pairing, Problem
from cooper_rl.schema.step_metrics import StepMetrics
from cooper_rl.servers.assistant import ChatAssistant
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.step import run_step, step_problems

WAYS = ("serial", "overlapped", "streamed", "stale")
UNCHANGED = 0.25
"""Share of answers that are no negative."""


class Slow(NamedTuple):
    """How long the server takes."""

    median_seconds: float
    sigma: float


class Rounds:
    """The same assistant without its own concurrency: a whole round of items is asked for and waited for."""

    def __init__(self, assistant: ChatAssistant) -> None:
        self.name = assistant.name
        self._assistant = assistant

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        with ThreadPoolExecutor(self._assistant.max_concurrency) as threads:
            return list(threads.map(lambda item: self._assistant.rewrite([item], seed=seed)[0], items))


class LateQueue(PairQueue):
    """Makes a step's pairs when they are asked for, after the policy update."""

    def submit(self, *groups_and_scores: Any, **step_and_seed: int) -> None:
        self._late = (groups_and_scores, step_and_seed)

    def take(self) -> Pairing:
        super().submit(*self._late[0], **self._late[1])
        return super().take()


class Measured(NamedTuple):
    """One way, once."""

    seconds_per_step: float
    waited: float
    """Of these, waiting for pairs."""
    num_rewrites: int
    pairs: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--models", "--verify-rm", "--problems"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--median-seconds", type=float, default=0.3)
    parser.add_argument("--sigma", type=float, default=1.0, help="1.0: one answer in 100 takes ten medians")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    slow = Slow(options.median_seconds, options.sigma)
    context = multiprocessing.get_context("spawn")
    port = context.SimpleQueue()
    server = context.Process(target=serve, args=(slow, port), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get()}/v1"
    found: dict[str, list[Measured]] = {way: [] for way in WAYS}
    for repeat in range(options.repeats):
        for way in WAYS:
            found[way].append(measure(way, repeat, url, options))
            say(f"{way:11}{found[way][-1].seconds_per_step:6.2f} s/step")
    server.terminate()
    same = {tuple(row.pairs) for way in WAYS[:3] for row in found[way]}
    say(f"median {slow.median_seconds} s, sigma {slow.sigma}; {options.repeats} times {options.steps} steps")
    say(f"same pairs in the first three: {len(same) == 1}")
    serial = [row.seconds_per_step for row in found["serial"]]
    for way in WAYS:
        own = [row.seconds_per_step for row in found[way]]
        waited = statistics.median(row.waited for row in found[way])
        ratios = [one / other for one, other in zip(serial, own, strict=True)]
        last = found[way][-1]
        say(
            f"| {way} | {statistics.median(own):.2f} | {waited:.2f} | "
            f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f}) | "
            f"{last.num_rewrites} |"
        )
    return 0 if len(same) == 1 else 1


def measure(way: str, repeat: int, url: str, options: argparse.Namespace) -> Measured:
    """The steps of one way from the start, and the mean of all but the first."""
    config = configure(way, repeat, url, options)
    problems = read_records(options.problems, Problem)
    with ExitStack() as stack:
        inputs = Inputs(options.models, options.verify_rm, options.problems, Path(), None, {})
        state = starting_state(config, inputs, None)
        data = SideData((), (), ())
        trainer = make_trainer(config, state, problems, data, stack, models=options.models, place="the start")
        if way in WAYS[:2]:
            server = config.cooper.pairs.assistant and config.cooper.pairs.assistant.server
            assert server, "configured above"
            maker = PairMaker(config.cooper, trainer.reward.rule, Rounds(ChatAssistant(server)), None)
            queue = LateQueue if way == "serial" else PairQueue
            own = stack.enter_context(queue(maker, max_staleness=0))
            trainer = replace(trainer, reward=replace(trainer.reward, pairs=own))
        rows: list[StepMetrics] = []
        pairs: list[str] = []
        seconds: list[float] = []
        for step in range(1, options.steps + 2):
            batch = step_problems(problems, step, count=config.cooper.problems_per_step, seed=trainer.seed)
            started = time.perf_counter()
            result = run_step(trainer, step, batch)
            seconds.append(time.perf_counter() - started)
            rows.append(result.metrics)
            pairs += [f"{pair.step} {pair.problem_id} {pair.negative}" for pair in result.pairs]
    return Measured(
        statistics.mean(seconds[1:]),
        statistics.mean(row.seconds["pairing"] for row in rows[1:]),
        int(sum(row.pairs.rewrites or 0 for row in rows[1:])),
        pairs,
    )


def configure(way: str, repeat: int, url: str, options: argparse.Namespace) -> Config:
    """The laptop preset with the assistant behind a socket and no other source, as in the paper."""
    server = "cooper.pairs.assistant.server"
    values = [
        "cooper.pairs.assistant.tiny=false",
        f'{server}.base_url="{url}"',
        f"{server}.model={way}-{repeat}",
        "cooper.pairs.negatives.rollout=0",
        "cooper.pairs.per_problem=1",
        "cooper.monitor=null",
        f"cooper.pairs.max_staleness={int(way == 'stale')}",
    ]
    return load("laptop", values)


def serve(slow: Slow, port: Any) -> None:
    """The chat server; runs in its own process."""
    asked: Counter[tuple[str, int]] = Counter()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            # The model's name says which way and repeat asks: every way meets the same server.
            key = body["model"], body["seed"]
            with lock:
                asked[key] += 1
                repeat = body["model"].rpartition("-")[2]
                draw = random.Random(derive_seed(repeat, body["seed"], asked[key]))
            time.sleep(slow.median_seconds * math.exp(draw.gauss(0, slow.sigma)))
            content = rewrite(body["messages"][1]["content"], body["seed"])
            answer = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that cancels is part of the measurement."""

    http = Server(("127.0.0.1", 0), Handler)
    port.put(http.server_port)
    http.serve_forever()


def rewrite(prompt: str, seed: int) -> str:
    """The laptop's rewrite of the solution in a prompt, or the solution itself."""
    blocks = {
        match[1]: match[3]
        for match in re.finditer(r"<([a-z-]+)-([0-9a-f]{16})>\n(.*?)\n</\1-\2>", prompt, re.DOTALL)
    }
    nonce = re.search(r"<solution-([0-9a-f]{16})>", prompt)
    assert nonce, "the prompt has a solution"
    item = RewriteItem("", blocks["problem"], blocks["reference-answer"], blocks["solution"])
    text = TinyAssistant().rewrite([item], seed=seed)[0]
    if text is None or random.Random(derive_seed(seed, "unchanged")).random() < UNCHANGED:
        text = item.solution
    return f"<rewrite-{nonce[1]}>\n{text}\n</rewrite-{nonce[1]}>"


def say(text: str, *, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
