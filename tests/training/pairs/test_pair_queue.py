"""Pairs beside the policy update: whose turn it is to be learned from, whatever the timing."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cooper_rl.config.data import RuleConfig, ServerConfig
from cooper_rl.engines.base import Generation
from cooper_rl.errors import CooperError
from cooper_rl.negatives.pairs import Assistant
from cooper_rl.schema.data import Pairing, Problem
from cooper_rl.servers.assistant import ChatAssistant
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.rollout import RolloutGroup, Scores
from cooper_rl.verdicts.rule import RuleVerifier
from tests.cooper_config import cooper_config
from tests.stand_ins.serving import saying_nothing

RIGHT = "7-2=5;5*2=10. #### 10"
GROUPS = [
    RolloutGroup(
        Problem(id="p", source="tiny", question="How many?", reference_answer="10"),
        (1,),
        (Generation((), (), "stop"),),
        (RIGHT,),
    )
]
SCORES = Scores(verify_rm=[0.5], rule=["correct"])


@pytest.fixture(scope="module")
def rule() -> Iterator[RuleVerifier]:
    with RuleVerifier(RuleConfig(num_workers=1)) as verifier:
        yield verifier


def maker(rule: RuleVerifier, assistant: Assistant | None = None) -> PairMaker:
    config = cooper_config()
    return PairMaker(config, rule, assistant or TinyAssistant(), None)


def steps_of(pairing: Pairing) -> list[int]:
    return [pair.step for pair in pairing.pairs]


def test_without_staleness_a_step_learns_from_its_own_pairs(rule) -> None:
    with PairQueue(maker(rule), max_staleness=0) as pairs:
        for step in (1, 2):
            pairs.submit(GROUPS, SCORES, step=step, seed=step)
            assert steps_of(pairs.take()) == [step]
            assert pairs.pending() == []


def test_with_staleness_one_a_step_learns_from_the_pairs_of_the_step_before(rule) -> None:
    with PairQueue(maker(rule), max_staleness=1) as pairs:
        taken = []
        for step in (1, 2, 3):
            pairs.submit(GROUPS, SCORES, step=step, seed=step)
            taken.append(steps_of(pairs.take()))
            assert [steps_of(waiting) for waiting in pairs.pending()] == [[step]]
    assert taken == [[], [1], [2]]


def test_what_was_pending_is_learned_from_first_with_its_counts(rule) -> None:
    with PairQueue(maker(rule), max_staleness=1) as pairs:
        pairs.submit(GROUPS, SCORES, step=1, seed=1)
        pairs.take()
        (waiting,) = pairs.pending()
    assert (waiting.num_positives, waiting.num_rewrites) == (1, 1)
    with PairQueue(maker(rule), max_staleness=1, pending=[waiting]) as pairs:
        pairs.submit(GROUPS, SCORES, step=2, seed=2)
        assert pairs.take() == waiting
        assert [steps_of(later) for later in pairs.pending()] == [[2]]


def test_ctrl_c_does_not_wait_for_an_assistant_that_says_nothing(rule) -> None:
    with saying_nothing() as url:
        assistant = ChatAssistant(ServerConfig(base_url=f"{url}/v1", model="assistant-1"))
        pairs = PairQueue(maker(rule, assistant), max_staleness=0)
        started = time.monotonic()
        with suppress(KeyboardInterrupt), pairs:
            pairs.submit(GROUPS, SCORES, step=1, seed=1)
            time.sleep(0.2)
            raise KeyboardInterrupt
    assert time.monotonic() - started < 5


def test_pairs_are_those_of_the_seed_that_was_given(rule) -> None:
    with PairQueue(maker(rule), max_staleness=0) as pairs:
        taken: list[Pairing] = []
        for seed in range(9):
            pairs.submit(GROUPS, SCORES, step=1, seed=seed)
            taken.append(pairs.take())
    assert taken == [maker(rule).make(GROUPS, SCORES, step=1, seed=seed) for seed in range(9)]
    assert len({pairing.pairs[0].negative for pairing in taken}) > 1


class Patient:
    """The laptop's assistant, which waits until it is told to go on."""

    name = "patient"

    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.num_answers = 0

    def rewrite(self, items, *, seed):
        self.is_asked.set()
        assert self.may_answer.wait(timeout=60), "the caller waits for the pairs"
        self.num_answers += 1
        return TinyAssistant().rewrite(items, seed=seed)


def test_the_caller_goes_on_while_pairs_are_made(rule) -> None:
    assistant = Patient()
    with PairQueue(maker(rule, assistant), max_staleness=0) as pairs:
        pairs.submit(GROUPS, SCORES, step=1, seed=1)
        assistant.may_answer.set()
        assert steps_of(pairs.take()) == [1]


def test_leaving_waits_for_the_pairs_that_are_being_made_and_begins_no_others(rule) -> None:
    assistant = Patient()
    with PairQueue(maker(rule, assistant), max_staleness=1) as pairs:
        for step in (1, 2):
            pairs.submit(GROUPS, SCORES, step=step, seed=step)
        assert assistant.is_asked.wait(timeout=60)
        threading.Timer(0.1, assistant.may_answer.set).start()
    assert assistant.num_answers == 1


def test_what_making_pairs_raises_is_raised_where_they_are_taken() -> None:
    with RuleVerifier(RuleConfig(num_workers=1)) as closed:
        pass
    with PairQueue(maker(closed), max_staleness=0) as pairs:
        pairs.submit(GROUPS, SCORES, step=1, seed=1)
        with pytest.raises(CooperError, match="asked for a verdict after it was closed"):
            pairs.take()
