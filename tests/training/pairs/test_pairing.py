"""Pairs from every source: what each gives, what it may not give, and what happens when it gives nothing."""

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from cooper_rl.config import names
from cooper_rl.config.data import ServerConfig
from cooper_rl.engines.base import Generation
from cooper_rl.negatives.pairs import Assistant
from cooper_rl.schema.data import Pairing, PreferencePair, Problem, Verdict
from cooper_rl.servers.assistant import ChatAssistant
from cooper_rl.servers.judge import ChatJudge
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.tiny.judge import TinyJudge
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.rollout import RolloutGroup, Scores
from cooper_rl.verdicts.hybrid import Judge, JudgeItem
from cooper_rl.verdicts.rule import RuleVerifier
from tests.cooper_config import cooper_config
from tests.stand_ins.chat import Reply, ScriptedServer

RIGHT = "7-2=5;5*2=10. #### 10"
W12, W13, W14 = (f"7-2=5;5*2={n}. #### {n}" for n in (12, 13, 14))
MENTIONS = "10+2=12. #### 12"
WORDS, GARBAGE = "The answer is ten.", "has has ( of of"
FIRST = 1e9
"""A weight that puts a source before one of weight 1."""


def rollouts(*texts: str, name: str = "p") -> RolloutGroup:
    problem = Problem(id=name, source="tiny", question=f"{name}: Tom has 7. How many?", reference_answer="10")
    return RolloutGroup(problem, (1,), tuple(Generation((), (), "stop") for _ in texts), texts)


def make(
    rule: RuleVerifier,
    groups: list[RolloutGroup],
    *,
    scores: list[float] | None = None,
    assistant: Assistant | None = None,
    judge: Judge | None = None,
    seed: int = 0,
    attacks: Sequence[str] = (),
    **values: Any,
) -> Pairing:
    """Pairs by the real rule verifier; `negatives` are the weights that are not 0."""
    negatives = dict.fromkeys(names.NEGATIVE_SOURCES.names, 0.0) | values.pop("negatives")
    one = {"pairs__per_problem": 1}
    config = cooper_config(**(one | {"pairs__negatives": negatives} | values))
    texts = [text for group in groups for text in group.texts]
    checks = rule.verify([("10", text) for text in texts])
    seen = Scores(verify_rm=scores or [0.5] * len(texts), rule=[check.verdict for check in checks])
    maker = PairMaker(config, rule, assistant or TinyAssistant(), judge, attacks=attacks)
    return maker.make(groups, seen, step=3, seed=seed)


def only(pairing: Pairing) -> PreferencePair:
    (pair,) = pairing.pairs
    return pair


def verdict(rule: RuleVerifier, text: str) -> str:
    return rule.verify([("10", text)])[0].verdict


class CountingJudge(TinyJudge):
    """The laptop's exact judge, which also remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(0.0, 0)
        self.asked: list[JudgeItem] = []

    def judge(self, items):
        self.asked.extend(items)
        return super().judge(items)


# What each source gives


def test_the_assistant_rewrites_the_positive(rule) -> None:
    pair = only(make(rule, [rollouts(RIGHT, W12)], negatives={"assistant": 1}))
    assert (pair.step, pair.positive, pair.source) == (3, RIGHT, "assistant:tiny")
    assert verdict(rule, pair.negative) == "incorrect"


def test_a_perturbed_positive_states_another_number(rule) -> None:
    pairing = make(rule, [rollouts(RIGHT)], negatives={"perturb": 1})
    pair = only(pairing)
    assert pair.source == "perturb"
    assert pair.negative.startswith("7-2=5;5*2=")
    assert pair.negative != RIGHT
    assert verdict(rule, pair.negative) == "incorrect"
    assert pairing.num_rewrites == 0, "texts that cost nothing are not asked of the assistant"


def test_a_perturbed_positive_that_is_still_right_is_no_negative(rule) -> None:
    """0/4 becomes 0/5 and the like, whatever the seed."""
    problem = Problem(id="p", source="tiny", question="How many?", reference_answer="0")
    group = RolloutGroup(problem, (1,), (Generation((), (), "stop"),), ("\\boxed{\\frac{0}{4}}",))
    config = cooper_config(**({"pairs__negatives": {"assistant": 0, "perturb": 1}}))
    maker = PairMaker(config, rule, None, None)
    scores = Scores(verify_rm=[0.5], rule=["correct"])
    assert [maker.make([group], scores, step=1, seed=seed).pairs for seed in range(5)] == [[]] * 5


def test_a_canary_is_a_known_attack_that_is_not_right_by_chance(rule) -> None:
    groups = [rollouts(RIGHT)]
    found = [make(rule, groups, negatives={"canary": 1}, seed=seed).pairs for seed in range(40)]
    pairs = [pair for row in found for pair in row]
    assert {pair.source for pair in pairs} == {"canary"}
    assert {"", ":", "Thought process:"} <= {pair.negative for pair in pairs}
    assert all(verdict(rule, pair.negative) != "correct" for pair in pairs)


def test_a_text_of_the_red_team_is_a_negative_where_it_is_not_right(rule) -> None:
    groups = [rollouts(RIGHT)]
    attacks = ("777777", "The answer is 10.", "ten", "The answer is 5+5.", "@@")
    found = [make(rule, groups, negatives={"red_team": 1}, attacks=attacks, seed=seed) for seed in range(40)]
    pairs = [pair for row in found for pair in row.pairs]
    assert {(pair.source, pair.negative) for pair in pairs} == {("red_team", "777777"), ("red_team", "@@")}
    assert make(rule, groups, negatives={"red_team": 1}, seed=0).pairs == []


def test_the_wrong_rollout_that_verify_rm_scores_highest_is_the_negative(rule) -> None:
    groups = [
        rollouts(W14, RIGHT, W12, W13, name="a"),
        rollouts(W12, RIGHT, W14, name="b"),
        rollouts(W12, W14, RIGHT, name="c"),
    ]
    scores = [0.1, 0.99, 0.3, 0.8, 0.2, 0.1, 0.6, 0.1, 0.2, 0.3]
    judge = TinyJudge(0.0, 0)
    found = make(rule, groups, scores=scores, judge=judge, negatives={"rollout": 1}).pairs
    assert [(pair.problem_id, pair.negative, pair.source) for pair in found] == [
        ("a", W13, "rollout"),
        ("b", W14, "rollout"),
        ("c", W14, "rollout"),
    ]


# Who must reject a rollout


def test_a_rollout_that_means_the_right_answer_is_passed_over(rule) -> None:
    """The rule verifier cannot read "ten"; the judge says correct, and the next candidate is taken."""
    judge = TinyJudge(0.0, 0)
    groups, scores = [rollouts(RIGHT, WORDS, W12)], [0.5, 0.9, 0.2]
    assert only(make(rule, groups, scores=scores, judge=judge, negatives={"rollout": 1})).negative == W12


def test_any_acceptance_vetoes(rule) -> None:
    """A judge that errs always: it calls 12 correct, and rule verifier and mention check do not count."""
    groups = [rollouts(RIGHT, W12)]
    assert make(rule, groups, judge=TinyJudge(1.0, 0), negatives={"rollout": 1}).pairs == []
    assert only(make(rule, groups, judge=TinyJudge(0.0, 0), negatives={"rollout": 1})).negative == W12


def test_without_a_judge_rule_verifier_and_mention_check_must_both_reject(rule) -> None:
    assert only(make(rule, [rollouts(RIGHT, W12)], negatives={"rollout": 1})).negative == W12
    assert make(rule, [rollouts(RIGHT, MENTIONS)], negatives={"rollout": 1}).pairs == []
    judged = make(rule, [rollouts(RIGHT, MENTIONS)], judge=TinyJudge(0.0, 0), negatives={"rollout": 1})
    assert only(judged).negative == MENTIONS


def test_garbage_needs_the_judge_and_the_mention_check(rule) -> None:
    """The rule verifier finds no answer in it and abstains, which is no rejection."""
    groups = [rollouts(RIGHT, GARBAGE)]
    assert verdict(rule, GARBAGE) == "unparsable"
    assert make(rule, groups, negatives={"rollout": 1}).pairs == []
    assert only(make(rule, groups, judge=TinyJudge(0.0, 0), negatives={"rollout": 1})).negative == GARBAGE
    mentions = [rollouts(RIGHT, f"{GARBAGE} ten of of")]
    flipped = TinyJudge(1.0, 0)
    assert make(rule, mentions, judge=flipped, negatives={"rollout": 1}).pairs == []


def test_texts_that_cannot_be_rejected_take_no_places_of_those_that_can(rule) -> None:
    """Without a judge nobody rejects a text that the rule verifier cannot read, however often it is paid."""
    unread = [f"Surely this is right {'!' * n}" for n in range(4)]
    groups, scores = [rollouts(RIGHT, *unread, W12)], [0.5, 0.9, 0.9, 0.9, 0.9, 0.7]
    assert only(make(rule, groups, scores=scores, negatives={"rollout": 1})).negative == W12


def test_copies_of_one_text_take_one_place(rule) -> None:
    groups, scores = [rollouts(RIGHT, *[WORDS] * 7, W12)], [0.5, *[0.9] * 7, 0.2]
    judge = CountingJudge()
    found = make(rule, groups, scores=scores, judge=judge, negatives={"rollout": 1})
    assert only(found).negative == W12
    assert [item.completion for item in judge.asked] == [WORDS, W12]


@pytest.mark.parametrize("verdicts", [("unparsable", "incorrect"), ("incorrect", "unparsable")])
def test_a_copy_that_was_cut_hides_none_that_was_finished(rule, verdicts: tuple[Verdict, Verdict]) -> None:
    """The rule verifier abstains where the answer may go on beyond the token limit."""
    negatives = dict.fromkeys(names.NEGATIVE_SOURCES.names, 0.0) | {"rollout": 1.0}
    maker = PairMaker(cooper_config(pairs__negatives=negatives), rule, None, None)
    seen = Scores(verify_rm=[0.5, 0.9, 0.9], rule=["correct", *verdicts])
    assert only(maker.make([rollouts(RIGHT, W12, W12)], seen, step=1, seed=0)).negative == W12


def test_the_judge_is_asked_about_the_highest_few_of_a_problem_only(rule) -> None:
    """Also where the problem is drawn twice in a step."""
    judge = CountingJudge()
    groups = [
        rollouts(RIGHT, W12, W13, W14, name="a"),
        rollouts(W12, W13, W14, RIGHT, name="b"),
        rollouts(W12, name="a"),
    ]
    scores = [0.9, 0.1, 0.3, 0.2, 0.7, 0.5, 0.6, 0.9, 0.8]
    found = make(rule, groups, scores=scores, judge=judge, negatives={"rollout": 1, "max_candidates": 2})
    assert [item.completion for item in judge.asked] == [W13, W14, W12, W14]
    assert (found.num_judged_pairs, found.num_judged_audits) == (4, 0)


def test_the_judge_is_not_asked_where_there_is_no_positive_or_another_source(rule) -> None:
    judge = CountingJudge()
    make(rule, [rollouts(W12, W13)], judge=judge, negatives={"rollout": 1})
    make(rule, [rollouts(RIGHT, W13)], judge=judge, negatives={"rollout": 1, "perturb": FIRST})
    assert judge.asked == []


# How many, and what comes next


def test_a_source_that_gives_nothing_is_followed_by_the_next(rule) -> None:
    """All rollouts are right: there is no wrong one to take."""
    pairing = make(rule, [rollouts(RIGHT, RIGHT)], negatives={"rollout": FIRST, "perturb": 1})
    assert only(pairing).source == "perturb"


def test_several_pairs_of_a_problem_have_different_sources(rule) -> None:
    groups = [rollouts(RIGHT, W12, name="a"), rollouts(RIGHT, W13, name="b"), rollouts(W12, W12, name="c")]
    weights = {"assistant": 1, "rollout": 1, "perturb": 1}
    two = make(rule, groups, negatives=weights, pairs__per_problem=2).pairs
    assert [pair.problem_id for pair in two] == ["a", "a", "b", "b"]
    assert two[0].source < two[1].source
    assert two[2].source < two[3].source
    three = make(rule, groups, negatives=weights, pairs__per_problem=4)
    assert [pair.source for pair in three.pairs] == ["assistant:tiny", "perturb", "rollout"] * 2
    assert three.num_positives == 2


def test_a_problem_that_is_drawn_twice_in_a_step_has_one_pair(rule) -> None:
    groups = [rollouts(RIGHT, W12), rollouts(RIGHT, W13)]
    for source in ("assistant", "rollout", "perturb"):
        assert only(make(rule, groups, negatives={source: 1})).problem_id == "p"


def test_the_negative_of_a_problem_that_is_drawn_twice_comes_from_either_group(rule) -> None:
    all_right, mixed = rollouts(RIGHT, RIGHT), rollouts(RIGHT, W12)
    for groups in ([all_right, mixed], [mixed, all_right]):
        assert only(make(rule, groups, negatives={"rollout": 1})).negative == W12


def test_sources_are_drawn_in_the_shares_of_their_weights(rule) -> None:
    """1:3 over 400 problems: the standard deviation is sqrt(.75 * .25 / 400) = 2 %."""
    groups = [rollouts(RIGHT, W12, name=f"p{place}") for place in range(400)]
    pairs = make(rule, groups, negatives={"perturb": 1, "rollout": 3}).pairs
    assert len(pairs) == 400
    assert sum(pair.source == "rollout" for pair in pairs) / 400 == pytest.approx(0.75, abs=0.08)


def test_the_same_seed_gives_the_same_pairs(rule) -> None:
    groups = [rollouts(RIGHT, W12, W13, name=f"p{place}") for place in range(20)]
    weights = dict.fromkeys(names.NEGATIVE_SOURCES.names, 1.0)
    one, same, other = (make(rule, groups, negatives=weights, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_sources_are_drawn_by_the_seed(rule) -> None:
    """One positive and one wrong rollout each, from which both sources make a pair."""
    groups = [rollouts(RIGHT, W12, name=f"p{place}") for place in range(20)]
    one, other = (
        [pair.source for pair in make(rule, groups, negatives={"perturb": 1, "rollout": 1}, seed=seed).pairs]
        for seed in (1, 2)
    )
    assert set(one) == set(other) == {"perturb", "rollout"}
    assert one != other


def test_positives_are_drawn_by_problem_and_seed(rule) -> None:
    """Of two right rollouts of each of 20 problems."""
    other = "5*2=10. #### 10"
    groups = [rollouts(RIGHT, other, name=f"p{place:02d}") for place in range(20)]
    one, same, another = (
        [pair.positive for pair in make(rule, groups, negatives={"perturb": 1}, seed=seed).pairs]
        for seed in (1, 1, 2)
    )
    assert set(one) == set(another) == {RIGHT, other}
    assert one == same != another


class Noting:
    """An assistant without an answer, which keeps its seeds."""

    name = "noting"

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def rewrite(self, items, *, seed):
        self.seeds.append(seed)
        return [None for _ in items]


def test_every_attempt_has_a_seed_of_its_own_that_follows_from_the_steps(rule) -> None:
    """With the seed of the attempt before, an assistant would write the refused text again."""

    def seeds(seed: int) -> list[int]:
        assistant = Noting()
        values = {"negatives": {"assistant": 1}, "pairs__max_attempts": 3}
        make(rule, [rollouts(RIGHT)], assistant=assistant, seed=seed, **values)
        return assistant.seeds

    assert seeds(1) == seeds(1)
    assert len({*seeds(1), *seeds(2)}) == 6


# Items behind a network go their own ways


class Two(Noting):
    """Behind a network: two requests of it wait for each other, and a third one would be seen."""

    max_concurrency = 2

    def __init__(self) -> None:
        super().__init__()
        self._both, self._lock = threading.Barrier(2, timeout=60), threading.Lock()
        self.under_way = self.most = 0

    def begin(self) -> None:
        pass

    def rewrite(self, items, *, seed):
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        self._both.wait()
        time.sleep(0.02)
        with self._lock:
            self.under_way -= 1
        return super().rewrite(items, seed=seed)


def test_an_assistant_is_asked_for_as_many_items_at_a_time_as_it_may_be(rule) -> None:
    assistant = Two()
    make(rule, many(6), assistant=assistant, negatives={"assistant": 1}, pairs__max_attempts=1)
    assert (len(assistant.seeds), assistant.most) == (6, 2)


def wrong_rewrite(body: dict[str, Any], text: str) -> Reply:
    nonce = body["messages"][1]["content"].rpartition("</solution-")[2][:16]
    answer = f"<rewrite-{nonce}>{text}</rewrite-{nonce}>"
    return 200, {}, json.dumps({"choices": [{"message": {"content": answer}}]})


def test_an_item_does_not_wait_for_the_first_try_of_another(rule) -> None:
    """The server keeps b waiting until a, whose first rewrite is no negative, was asked for again."""
    again, num_asked = threading.Event(), Counter[str]()

    def script(number: int, body: dict[str, Any]) -> Reply:
        name = re.search(r"\n(\w): Tom", body["messages"][1]["content"])[1]
        num_asked[name] += 1
        if name == "a" and num_asked["a"] == 2:
            again.set()
        if name == "b":
            assert again.wait(timeout=60), "b's first try holds up a's second"
        return wrong_rewrite(body, RIGHT if num_asked["a"] == 1 and name == "a" else W13)

    server = ScriptedServer(script)
    try:
        groups = [rollouts(RIGHT, name="a"), rollouts(RIGHT, name="b")]
        pairing = make(
            rule, groups, assistant=ChatAssistant(server_config(server)), negatives={"assistant": 1}
        )
    finally:
        server.close()
    assert [pair.negative for pair in pairing.pairs] == [W13, W13]
    assert (pairing.num_rewrites, pairing.num_unanswered) == (3, 0)


def test_what_an_item_gets_does_not_depend_on_timing(rule) -> None:
    """A server whose answers are a function of the request, slow for other items each time, half of its
    rewrites no negatives."""

    def pair_up(delay: Callable[[int], float]) -> Pairing:
        def script(number: int, body: dict[str, Any]) -> Reply:
            time.sleep(delay(number))
            draw = random.Random(json.dumps(body))
            return wrong_rewrite(body, draw.choice([RIGHT, RIGHT, W12, W13, W14]))

        server = ScriptedServer(script)
        try:
            assistant = ChatAssistant(server_config(server, max_concurrency=5))
            return make(rule, many(10), assistant=assistant, negatives={"assistant": 1}, seed=4)
        finally:
            server.close()

    one, other = pair_up(lambda number: 0.0), pair_up(lambda number: random.Random(number).random() / 10)
    assert one == other
    assert len({pair.negative for pair in one.pairs}) > 1
    assert one.num_rewrites > 10


# Servers that are down


@pytest.fixture
def down() -> Iterator[ScriptedServer]:
    server = ScriptedServer(lambda number, body: (500, {}, "out of memory"))
    yield server
    server.close()


def server_config(server: ScriptedServer, **options: Any) -> ServerConfig:
    values = {"max_attempts": 2, "backoff_seconds": 0.001, "max_concurrency": 2} | options
    return ServerConfig(base_url=server.url, model="m", **values)


def many(count: int) -> list[RolloutGroup]:
    return [rollouts(RIGHT, W12, name=f"p{place:02d}") for place in range(count)]


class Silent:
    """An assistant without an answer."""

    name = "silent"

    def rewrite(self, items, *, seed):
        return [None for _ in items]


def test_an_assistant_without_answers_costs_no_pair_and_is_counted(rule) -> None:
    """Three problems, four attempts each: twelve texts asked for, none given."""
    weights = {"assistant": FIRST, "perturb": 1}
    pairing = make(rule, many(3), assistant=Silent(), negatives=weights)
    assert [pair.source for pair in pairing.pairs] == ["perturb"] * 3
    assert (pairing.num_rewrites, pairing.num_unanswered) == (12, 12)


@pytest.mark.parametrize("num_problems", [2, 12], ids=["silent", "given up"])
def test_a_server_that_is_down_costs_no_pair_and_is_counted(
    rule, down: ScriptedServer, num_problems: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Every problem is asked for three times, but after eight failures in a row nothing is sent any more: two
    or three problems have had all their tries then, and the others give up at their next one, which is said
    once."""
    pairing = make(
        rule,
        many(num_problems),
        assistant=ChatAssistant(server_config(down)),
        negatives={"assistant": FIRST, "rollout": 1},
        pairs__max_attempts=3,
    )
    assert [pair.source for pair in pairing.pairs] == ["rollout"] * num_problems
    assert pairing.num_unanswered == pairing.num_rewrites
    assert pairing.num_rewrites == 6 if num_problems == 2 else 12 < pairing.num_rewrites <= 12 + 8
    assert len(down.bodies) <= 2 * (8 + 1), "two tries a request, and one more may be on its way"
    assert caplog.text.count("this step asks its other sources for negatives") == (num_problems == 12)


def test_a_server_that_is_back_is_used_again(rule) -> None:
    is_up = False

    def script(number: int, body: dict[str, Any]) -> Reply:
        if not is_up:
            return 500, {}, "starting"
        nonce = body["messages"][1]["content"].rpartition("</solution-")[2][:16]
        text = f"<rewrite-{nonce}>{W14}</rewrite-{nonce}>"
        return 200, {}, json.dumps({"choices": [{"message": {"content": text}}]})

    server = ScriptedServer(script)
    try:
        assistant = ChatAssistant(server_config(server))
        before = make(rule, many(12), assistant=assistant, negatives={"assistant": 1})
        is_up = True
        after = make(rule, many(12), assistant=assistant, negatives={"assistant": 1})
    finally:
        server.close()
    assert before.pairs == []
    assert before.num_unanswered == before.num_rewrites
    assert [(pair.negative, pair.source) for pair in after.pairs] == [(W14, "assistant:m")] * 12
    assert after.num_unanswered == 0


@pytest.mark.parametrize("count", [2, 12])
def test_a_judge_that_is_down_leaves_the_other_two_verifiers_and_is_counted(
    rule, down: ScriptedServer, count: int
) -> None:
    pairing = make(rule, many(count), judge=ChatJudge(server_config(down)), negatives={"rollout": 1})
    assert [pair.negative for pair in pairing.pairs] == [W12] * count
    assert pairing.num_unanswered == pairing.num_judged_pairs == count


def test_audits_that_nobody_judged_are_counted_beside_the_pairs(rule, down: ScriptedServer) -> None:
    """Two rollouts that may become negatives, and two that are audited, of two problems."""
    pairing = make(
        rule, many(2), judge=ChatJudge(server_config(down)), negatives={"rollout": 1},
        reward__num_audited_rollouts=2,
    )  # fmt: skip
    assert (pairing.num_judged_pairs, pairing.num_judged_audits, pairing.num_unanswered) == (2, 2, 4)
    assert [(each.completion, each.label) for each in pairing.audited] == [(RIGHT, 1)] * 2


def test_a_rollout_that_the_judge_refuses_is_counted(rule) -> None:
    """One of three requests fails for good; the others are judged."""

    def script(number: int, body: dict[str, Any]) -> Reply:
        prompt = body["messages"][1]["content"]
        if W13 in prompt:
            return 400, {}, "context length exceeded"
        nonce = prompt.rpartition("</solution-")[2][:16]
        return 200, {}, json.dumps({"choices": [{"message": {"content": f"VERDICT-{nonce}: INCORRECT"}}]})

    server = ScriptedServer(script)
    try:
        groups = [rollouts(RIGHT, W12, W13, W14)]
        pairing = make(rule, groups, judge=ChatJudge(server_config(server)), negatives={"rollout": 1})
    finally:
        server.close()
    assert only(pairing).negative == W12
    assert pairing.num_unanswered == 1
