"""Batches: fair, by tokens, without what nobody waits for any more."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cooper_rl.errors import TrainingError
from cooper_rl.models.verify_rm import VerifyItem
from cooper_rl.servers.batcher import QueueFullError, ScoreBatcher


class Scorer:
    """Scores an item with its question's number, one batch at a time, each when it is let go."""

    def __init__(self, *, is_free: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Semaphore(10**6 if is_free else 0)

    def __call__(self, items: Sequence[VerifyItem]) -> list[float]:
        self.batches.append([item.question for item in items])
        self.gate.acquire()
        return [float(item.question.partition("/")[2]) for item in items]


def items(name: str, count: int) -> list[VerifyItem]:
    return [VerifyItem(f"{name}/{index}", "r", "c") for index in range(count)]


def make(score: Any, **options: Any) -> ScoreBatcher:
    limits = {"max_items": 10, "max_tokens": 100, "max_wait_seconds": 0, "max_waiting": 1000}
    return ScoreBatcher(score, **{**limits, **options})


def run(talk: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(talk, 30))


async def until(is_so: Any) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


def test_a_small_request_does_not_wait_behind_a_large_one() -> None:
    """Fifty items of which ten are a batch; the single item is in the batch after the one under way."""

    async def talk() -> list[list[str]]:
        scorer = Scorer(is_free=False)
        batcher = make(scorer)
        await batcher.start()
        large = asyncio.create_task(batcher.submit(items("large", 50), [1] * 50))
        await until(lambda: scorer.batches)
        small = asyncio.create_task(batcher.submit(items("small", 1), [1]))
        scorer.gate.release(2)
        await small
        assert not large.done()
        scorer.gate.release(10)
        assert (await large).scores == [float(index) for index in range(50)]
        await batcher.close()
        return scorer.batches

    batches = run(talk())
    assert "small/0" in batches[1]
    assert len(batches) == 6


def test_a_batch_has_as_many_tokens_as_it_may_and_a_larger_item_is_alone() -> None:
    async def talk() -> list[list[str]]:
        scorer = Scorer(is_free=False)
        batcher = make(scorer)
        await batcher.start()
        asked = [asyncio.create_task(batcher.submit(items(name, 1), [size])) for name, size in sizes.items()]
        await asyncio.sleep(0)
        scorer.gate.release(10)
        await asyncio.gather(*asked)
        await batcher.close()
        return scorer.batches

    sizes = {"a": 60, "b": 40, "c": 1, "d": 500, "e": 7}
    assert run(talk()) == [["a/0", "b/0"], ["c/0"], ["d/0"], ["e/0"]]


def test_what_its_caller_gave_up_is_never_scored() -> None:
    async def talk() -> list[list[str]]:
        scorer = Scorer(is_free=False)
        batcher = make(scorer)
        await batcher.start()
        first = asyncio.create_task(batcher.submit(items("first", 10), [1] * 10))
        await until(lambda: scorer.batches)
        gone = asyncio.create_task(batcher.submit(items("gone", 50), [1] * 50))
        small = asyncio.create_task(batcher.submit(items("small", 1), [1]))
        await asyncio.sleep(0)
        assert batcher.num_waiting == 61
        gone.cancel()
        await asyncio.wait([gone])
        assert batcher.num_waiting == 11
        scorer.gate.release(10)
        await asyncio.gather(first, small)
        await until(lambda: batcher.num_waiting == 0)
        await batcher.close()
        return scorer.batches

    assert run(talk())[1:] == [["small/0"]]


def test_who_comes_when_too_much_waits_is_told_when_to_come_again() -> None:
    async def talk() -> None:
        scorer = Scorer(is_free=False)
        batcher = make(scorer, max_waiting=10)
        await batcher.start()
        waiting = asyncio.create_task(batcher.submit(items("first", 10), [1] * 10))
        await asyncio.sleep(0)
        with pytest.raises(
            QueueFullError, match="10 items wait and at most 10 may; try again in 1 s"
        ) as found:
            await batcher.submit(items("second", 1), [1])
        assert found.value.retry_seconds == 1
        with pytest.raises(QueueFullError, match="10 items wait"):
            batcher.check_room(1)  # the same answer before a request is tokenized
        scorer.gate.release(10)
        await waiting
        await batcher.close()

    run(talk())


def test_a_forward_pass_that_hangs_does_not_keep_the_server_from_ending() -> None:
    async def talk() -> ScoreBatcher:
        scorer = Scorer(is_free=False)
        batcher = make(scorer)
        await batcher.start()
        asked = asyncio.create_task(batcher.submit(items("first", 1), [1]))
        await until(lambda: scorer.batches)
        await until(lambda: batcher.batch_seconds > 0.05)
        await batcher.close(seconds=0.2)
        asked.cancel()
        return batcher

    assert run(talk()).is_stuck


def test_a_model_that_fails_is_told_to_its_callers_and_to_no_later_one() -> None:
    async def talk() -> list[float]:
        def score(batch: Sequence[VerifyItem]) -> list[float]:
            if batch[0].question == "bad/0":
                raise TrainingError("VerifyRM's score is NaN")
            return [0.5] * len(batch)

        batcher = make(score)
        await batcher.start()
        with pytest.raises(TrainingError, match="VerifyRM's score is NaN"):
            await batcher.submit(items("bad", 30), [1] * 30)
        assert batcher.num_waiting == 0
        scored = await batcher.submit(items("good", 2), [1] * 2)
        await batcher.close()
        return scored.scores

    assert run(talk()) == [0.5, 0.5]


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(
        st.lists(st.integers(1, 150), min_size=1, max_size=15).map(lambda sizes: (sizes, False))
        | st.lists(st.integers(1, 150), min_size=1, max_size=15).map(lambda sizes: (sizes, True)),
        min_size=1,
        max_size=12,
    )
)
def test_every_request_gets_its_own_scores_in_order_whoever_goes_meanwhile(
    requests: list[tuple[list[int], bool]],
) -> None:
    """True: its caller gives up. No item is scored twice, and no batch has more than it may."""

    async def talk() -> None:
        scorer = Scorer()
        seen: list[tuple[int, int]] = []
        batcher = make(scorer, on_batch=lambda count, tokens: seen.append((count, tokens)))
        await batcher.start()
        asked = [
            asyncio.create_task(batcher.submit(items(str(number), len(sizes)), sizes))
            for number, (sizes, _) in enumerate(requests)
        ]
        await asyncio.sleep(0)
        for task, (_, gives_up) in zip(asked, requests, strict=True):
            if gives_up:
                task.cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer, (sizes, gives_up) in zip(answers, requests, strict=True):
            if not gives_up:
                assert not isinstance(answer, BaseException)
                assert answer.scores == [float(index) for index in range(len(sizes))]
        await batcher.close()
        assert batcher.num_waiting == 0
        scored = [question for batch in scorer.batches for question in batch]
        assert len(scored) == len(set(scored))
        assert all(count <= 10 and (tokens <= 100 or count == 1) for count, tokens in seen)

    run(talk())


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(
        st.tuples(st.lists(st.integers(1, 150), min_size=1, max_size=15), st.integers(0, 3)),
        min_size=2,
        max_size=10,
    )
)
def test_no_request_waits_for_more_tokens_of_another_than_it_had_and_one_item(
    requests: list[tuple[list[int], int]],
) -> None:
    """Each comes after so many more batches. Short items get as many tokens as long ones, not turns."""

    async def talk() -> tuple[list[list[str]], list[int]]:
        scorer = Scorer(is_free=False)
        batcher = make(scorer)
        await batcher.start()
        asked: list[asyncio.Task[Any]] = []
        arrivals: list[int] = []
        for number, (sizes, num_batches) in enumerate(requests):
            for _ in range(num_batches):
                seen = len(scorer.batches)
                if batcher.num_waiting:
                    scorer.gate.release()
                    await until(lambda seen=seen: len(scorer.batches) > seen or not batcher.num_waiting)
            arrivals.append(len(scorer.batches))  # the batch under way is without it
            asked.append(asyncio.create_task(batcher.submit(items(str(number), len(sizes)), sizes)))
            await until(lambda: scorer.batches)
        scorer.gate.release(1000)
        await asyncio.gather(*asked)
        await batcher.close()
        return scorer.batches, arrivals

    batches, arrivals = run(talk())
    for number, (own, _) in enumerate(requests):
        of_others = [0] * len(requests)
        had = 0
        for question in (each for batch in batches[arrivals[number] :] for each in batch):
            name, index = map(int, question.split("/"))
            if name != number:
                of_others[name] += requests[name][0][index]
                continue
            for other, taken in enumerate(of_others):
                assert taken <= had + max(requests[other][0]), (number, index, other)
            had += own[index]
