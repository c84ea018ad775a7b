"""Requests a second of four servers on one VerifyRM and the same texts, and their answers under too many.

    make demo OUTPUT=runs/demo
    python -m benchmarks.service_load --verify-rm runs/demo/end-to-end-*/train-verify-rm/verify_rm \
        --completions runs/demo/end-to-end-*/evaluate-policy/completions --output runs/service_load.json

    learning  `serve --learn`, every request is a step: VerifyRM's scores, rule verdicts, pairs, reward update
    rewards   `serve --learn` with `learn=never`: VerifyRM's scores and rule verdicts
    scores    `serve-verify-rm`: VerifyRM's scores
    plain     transformers behind FastAPI and uvicorn: VerifyRM's scores, one padded forward pass a request

All have one thread. In every round each side is asked by four clients in turn, which gives its rate, and
then at that rate and at ten times of it by a clock that waits for nobody. The sides alternate, so that their
ratio holds although the machine is shared.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks._load_servers import Servers

NUM_CLIENTS = 4
OVERLOAD = 10
GRACE_SECONDS = 60.0
"""How long answers may still come after the last request of a clock."""


class Answer(NamedTuple):
    """One request."""

    status: int
    """0: none in time."""
    seconds: float


class Phase(NamedTuple):
    """One side under one load."""

    rate: float
    """Requests sent a second."""
    answered: float
    """Requests answered 200 a second, until the last answer."""
    p50: float
    p99: float
    """Seconds, of those answered 200."""
    num_sent: int
    num_refused: int
    """429."""
    num_failed: int
    """Any other end."""


class Side(NamedTuple):
    """One kind of server, and what it is sent."""

    url: str
    body: Callable[[list[dict[str, str]]], dict[str, Any]]


def read_requests(path: Path, *, num_items: int) -> list[list[dict[str, str]]]:
    """Completions of evaluated problems, whole groups, `num_items` a request."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = ("question", "reference_answer", "completion")
    items = [{name: row[name] for name in names} for row in rows]
    return [items[start : start + num_items] for start in range(0, len(items) - num_items + 1, num_items)]


def summarise(answers: list[Answer], *, rate: float, seconds: float) -> Phase:
    """Of everything that was sent in a phase."""
    times = sorted(answer.seconds for answer in answers if answer.status == 200)
    return Phase(
        rate=rate,
        answered=len(times) / seconds,
        p50=quantile(times, 0.5),
        p99=quantile(times, 0.99),
        num_sent=len(answers),
        num_refused=sum(answer.status == 429 for answer in answers),
        num_failed=sum(answer.status not in (200, 429) for answer in answers),
    )


def quantile(times: list[float], share: float) -> float:
    """Of sorted times, the nearest one; NaN of none."""
    return times[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


class Load:
    """Sends the requests of one side, over and over."""

    def __init__(self, side: Side, requests: list[list[dict[str, str]]]) -> None:
        self._side = side
        self._requests = itertools.cycle(requests)

    def in_turn(self, seconds: float) -> Phase:
        """Clients that send a request when their last one was answered."""
        return asyncio.run(self._in_turn(seconds))

    def by_clock(self, rate: float, seconds: float) -> Phase:
        """A request every 1 / `rate` seconds, whatever is answered."""
        return asyncio.run(self._by_clock(rate, seconds))

    def settle(self) -> None:
        """Wait until the server has done what it was sent, which would else slow the next side."""
        for _ in range(2):  # the second waits until the step of the first is learned
            httpx.post(self._side.url, json=self._side.body(next(self._requests)), timeout=120)
        time.sleep(1.0)

    async def _in_turn(self, seconds: float) -> Phase:
        answers: list[Answer] = []
        began = time.monotonic()

        async def ask_on(client: httpx.AsyncClient) -> None:
            while time.monotonic() - began < seconds:
                answers.append(await self._ask(client))

        async with self._client() as client:
            await asyncio.gather(*(ask_on(client) for _ in range(NUM_CLIENTS)))
        took = time.monotonic() - began
        return summarise(answers, rate=len(answers) / took, seconds=took)

    async def _by_clock(self, rate: float, seconds: float) -> Phase:
        tasks: list[asyncio.Task[Answer]] = []
        began = time.monotonic()
        async with self._client() as client:
            while (due := len(tasks) / rate) < seconds:
                await asyncio.sleep(max(0.0, began + due - time.monotonic()))
                tasks.append(asyncio.create_task(self._ask(client)))
            sent = time.monotonic() - began
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)
            took = time.monotonic() - began
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        answers = [each if isinstance(each, Answer) else Answer(0, GRACE_SECONDS) for each in ended]
        return summarise(answers, rate=len(tasks) / sent, seconds=took)

    async def _ask(self, client: httpx.AsyncClient) -> Answer:
        body = self._side.body(next(self._requests))
        began = time.monotonic()
        try:
            status = (await client.post(self._side.url, json=body)).status_code
        except httpx.TransportError:
            status = 0
        return Answer(status, time.monotonic() - began)

    def _client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=50)
        return httpx.AsyncClient(timeout=120, limits=limits)


def sides_of(ports: dict[str, int]) -> dict[str, Side]:
    """Both kinds of requests to `serve --learn` go to one server, to runs of their own."""

    def to_run(learn: str) -> Callable[[list[dict[str, str]]], dict[str, Any]]:
        return lambda items: {"request_id": uuid.uuid4().hex, "learn": learn, "items": items}

    return {
        "learning": Side(f"http://127.0.0.1:{ports['serve']}/v1/runs/learning/rewards", to_run("now")),
        "rewards": Side(f"http://127.0.0.1:{ports['serve']}/v1/runs/scoring/rewards", to_run("never")),
        "scores": Side(
            f"http://127.0.0.1:{ports['serve-verify-rm']}/v1/score", lambda items: {"items": items}
        ),
        "plain": Side(f"http://127.0.0.1:{ports['plain']}/v1/score", lambda items: {"items": items}),
    }


def measure(options: argparse.Namespace) -> dict[str, list[dict[str, dict[str, float]]]]:
    """Per side and round, the three phases."""
    requests = read_requests(options.completions, num_items=options.items)
    found: dict[str, list[dict[str, dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as folder, Servers(options.verify_rm, Path(folder)) as servers:
        loads = {name: Load(side, requests) for name, side in sides_of(servers.ports).items()}
        for load in loads.values():
            load.in_turn(1.0)  # the first requests open runs and warm up
            load.settle()
        for number in range(options.rounds):
            for name, load in loads.items():
                in_turn = load.in_turn(options.seconds)
                phases = {"in turn": in_turn}
                for times in (1, OVERLOAD):
                    phases[f"{times}x"] = load.by_clock(times * in_turn.answered, options.seconds)
                    load.settle()
                found.setdefault(name, []).append({key: each._asdict() for key, each in phases.items()})
                sys.stdout.write(f"round {number + 1} {name}: {in_turn.answered:.1f} requests/s\n")
    return found


def make_table(found: dict[str, list[dict[str, dict[str, float]]]]) -> str:
    """Medians over the rounds, as Markdown; a ratio is that of each round, against a busy neighbour."""
    lines = [
        "| side | requests/s | of `plain` | 1x: p50, p99 | 10x: answered/s | refused (429) "
        "| p50, p99 of the answered |",
        "|---|---|---|---|---|---|---|",
    ]
    plain = [each["in turn"]["answered"] for each in found["plain"]]
    for name, rounds in found.items():
        ratio = statistics.median(
            each["in turn"]["answered"] / other for each, other in zip(rounds, plain, strict=True)
        )
        over = f"{OVERLOAD}x"
        refused = statistics.median(each[over]["num_refused"] / each[over]["num_sent"] for each in rounds)
        failed = sum(int(each[key]["num_failed"]) for each in rounds for key in each)
        lines.append(
            f"| {name} | {middle(rounds, 'in turn', 'answered'):.1f} | {ratio:.2f} "
            f"| {1000 * middle(rounds, '1x', 'p50'):.0f}, {1000 * middle(rounds, '1x', 'p99'):.0f} ms "
            f"| {middle(rounds, over, 'answered'):.1f} | {100 * refused:.0f} %"
            + (f" ({failed} got no answer)" if failed else "")
            + f" | {1000 * middle(rounds, over, 'p50'):.0f}, {1000 * middle(rounds, over, 'p99'):.0f} ms |"
        )
    return "\n".join(lines)


def middle(rounds: list[dict[str, dict[str, float]]], phase: str, name: str) -> float:
    return statistics.median(each[phase][name] for each in rounds)


def main() -> None:
    """Measure, write the numbers, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--verify-rm", type=Path, required=True)
    parser.add_argument(
        "--completions", type=Path, required=True, help="completions that evaluate-policy wrote"
    )
    parser.add_argument("--output", type=Path)
    parser.add_argument("--items", type=int, default=64, help="completions of a request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each of the three phases")
    options = parser.parse_args()
    found = measure(options)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(found, indent=1))
    sys.stdout.write(make_table(found) + "\n")


if __name__ == "__main__":
    main()
