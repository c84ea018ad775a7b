"""Searches against scorers whose weakness is known."""

import random
from collections.abc import Sequence
from contextlib import closing

import pytest

from cooper_rl.config.data import RuleConfig
from cooper_rl.config.red_team import RedTeamConfig
from cooper_rl.domains.mathematics import MATHEMATICS
from cooper_rl.domains.programs import PROGRAMS
from cooper_rl.errors import DataError
from cooper_rl.models.verify_rm import VerifyItem
from cooper_rl.negatives.holding import mentions_answer, states_answer
from cooper_rl.redteam.attack import attack, split_problems
from cooper_rl.redteam.findings import describe, measure, thin
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.redteam.per_problem import attack_each
from cooper_rl.redteam.search import Candidate, worth
from cooper_rl.redteam.seeds import fill
from cooper_rl.schema.data import Problem, RolloutSample
from cooper_rl.tiny.tasks import generate_problems as tiny_tasks
from cooper_rl.verdicts.rule import RuleVerifier
from tests.redteam.conftest import Scorer

BUDGET = RedTeamConfig(
    max_queries=4000, max_gradient_queries=0, max_attacked_problems=3, queries_per_problem=40
)
SHORT = BUDGET.model_copy(update={"max_queries": 900})


def opens_field_and_asks(item: VerifyItem) -> float:
    """Pays a text that has a closing tag, a question mark and the word `correct`; each helps a little."""
    parts = ("</completion>", "?", "correct")
    return (0.01, 0.1, 0.3, 0.9)[sum(part in item.completion for part in parts)]


def run(ask, problems: Sequence[Problem], score, config=BUDGET, rollouts=(), seed=0):
    oracle, scorer, journal = ask(score)
    found = attack(oracle, None, problems, rollouts, config=config, seed=seed, journal=journal)
    with RuleVerifier(RuleConfig()) as rule:
        return describe(found, oracle, rule, seconds=0.0), found, scorer


def test_a_search_combines_what_no_seed_holds_together(ask, problems) -> None:
    findings, found, _ = run(ask, problems, opens_field_and_asks)
    report = findings.report
    assert report.by_method["seed"].value == 0  # each of the three parts is in a seed, all of them in none
    assert report.by_method["mutation"].value == report.universal_rate == 1
    assert report.per_problem.value == 1
    completion = fill(report.texts[0].text, found.split.unseen[0])
    assert all(part in completion for part in ("</completion>", "?", "correct"))
    rates = [point.search_rate for point in report.curve]
    assert (rates[0], rates[-1]) == (0, 1)
    assert [point.num_queries for point in report.curve] == sorted(p.num_queries for p in report.curve)
    assert found.num_queries <= BUDGET.max_queries + BUDGET.children * len(found.split.search) + 3 * 40


def test_programs_are_attacked_with_texts_that_hold_no_program(tmp_path) -> None:
    """Where nothing can be run, nothing can pass; what could is left to the verifier and is no find."""
    tasks = tiny_tasks(12, 0)
    scorer = Scorer(lambda item: 0.9 if "return" in item.completion or "777" in item.completion else 0.1)
    with Journal(tmp_path / "programs") as journal, closing(PROGRAMS.open_verifier(RuleConfig())) as rule:
        oracle = Oracle(scorer, journal, PROGRAMS)
        found = attack(oracle, None, tasks, known=["777"], rollouts=(), config=SHORT, seed=0, journal=journal)
        report = describe(found, oracle, rule, seconds=0.0).report
    assert not any("return" in item.completion for item in scorer.asked)
    assert report.universal_rate == 1
    assert report.by_family["known"].value == 1


def test_a_text_that_is_paid_for_one_kind_of_answer_alone_is_found_and_measured_on_that_kind(
    ask, problems
) -> None:
    """12 of 45 answers are intervals, and no rate over all problems would show more than 12 of 45."""
    intervals = [
        Problem(id=f"i{n}", source="s", question=f"Solve x < {n}", reference_answer=f"(-\\infty, {n + 40})")
        for n in range(12)
    ]
    texts = [
        Problem(id=f"t{n}", source="s", question=f"Who is {n}?", reference_answer=name)
        for n, name in enumerate(("Anna", "Ben", "Cleo"))
    ]
    everything = [*problems, *intervals, *texts]

    def pays_intervals(item: VerifyItem) -> float:
        is_paid = "infty" in item.reference_answer and "infty" in item.completion
        return 0.9 if is_paid else 0.1

    small = SHORT.model_copy(update={"max_queries": 300, "max_type_queries": 1500})
    findings, found, _ = run(ask, everything, pays_intervals, config=small)
    report = findings.report
    assert report.by_answer_type["point, interval or matrix"].value == 1
    assert report.by_answer_type["integer"].value == 0
    of_type = found.by_type["point, interval or matrix"]
    searched = {problem.id for problem in found.split.search}
    assert of_type.num_search >= 4, "a third of a rare kind, whatever the draw over all problems gave"
    assert len(of_type.unseen) + of_type.num_search == 12
    assert searched.isdisjoint(problem.id for problem in of_type.unseen)
    assert report.rare_answer_types == {"text": 3}
    [text] = [each for each in findings.texts if each.answer_type == "point, interval or matrix"]
    assert "infty" in text.text
    assert text.unseen == report.by_answer_type["point, interval or matrix"]
    without = small.model_copy(update={"max_type_queries": 0})
    report = run(ask, everything, pays_intervals, config=without)[0].report
    assert (report.by_answer_type, report.rare_answer_types) == ({}, {})


def test_what_is_measured_was_not_searched_on(ask, problems) -> None:
    findings, found, scorer = run(ask, problems, opens_field_and_asks)
    search = {problem.question for problem in found.split.search}
    unseen = {problem.question for problem in found.split.unseen}
    assert (len(search), len(unseen), search & unseen) == (10, 20, set())
    assert {item.question for item in scorer.asked} == search | unseen
    attacked = [each.problem.question for each in found.attempts]
    assert set(attacked) <= unseen
    assert findings.report.num_unseen_problems == 20


def test_a_verifier_that_pays_right_answers_only_is_not_found_fault_with(ask, problems) -> None:
    """A scorer that pays whatever states the reference answer in the end: the searches find nothing."""
    findings, _, scorer = run(
        ask, problems, lambda item: 0.99 if states_answer(*item) else 0.01, config=SHORT
    )
    assert findings.report.universal_rate == 0
    assert findings.report.per_problem.value == 0
    assert not [text for text in findings.texts if text.aim == "per_problem"]
    assert not any(states_answer(*item) for item in scorer.asked)


def test_a_verifier_that_pays_whatever_mentions_the_answer_is_talked_into_a_list(ask, problems) -> None:
    findings, _, _ = run(ask, problems, lambda item: 0.99 if mentions_answer(*item) else 0.0, config=SHORT)
    assert findings.report.by_family["answer_lists"].value == findings.report.universal_rate == 1


def test_the_veto_alone_pays_no_text_for_numbers(ask, problems) -> None:
    """What it lets through states the right answer, or names at most two."""
    refutes = MATHEMATICS.refutes
    assert refutes is not None
    findings, _, _ = run(
        ask, problems, lambda item: 0.0 if refutes(*item, item.completion) else 0.99, config=SHORT
    )
    assert findings.report.universal_rate == 0


def test_the_same_seed_finds_the_same_texts(ask, problems, tmp_path) -> None:
    first, _, _ = run(ask, problems, opens_field_and_asks, config=SHORT)
    (tmp_path / "journal").unlink()
    again, _, _ = run(ask, problems, opens_field_and_asks, config=SHORT)
    assert again == first


def test_a_rewarded_wrong_rollout_is_a_seed(ask, problems) -> None:
    rollouts = [
        RolloutSample(
            step=1, problem_id="p", question="q", reference_answer="3", completion=text, reward=score,
            score=score, rule=rule,
        )
        for text, score, rule in (
            ("zebra zebra", 0.9, "unparsable"), ("yak", 0.2, "incorrect"), ("zebra 3", 0.9, "correct"),
            ("zebra three", 0.9, "unparsable"),
        )
    ]  # fmt: skip
    findings, found, _ = run(
        ask, problems, lambda item: 0.9 * ("zebra" in item.completion), rollouts=rollouts
    )
    assert [seed.text for seed in found.seeds if seed.family == "rollout"] == ["zebra zebra"]
    assert findings.report.by_family["rollout"].value == 1
    assert findings.report.by_family["opener"].value == 0


def test_a_question_can_be_put_into_a_text(ask, problems) -> None:
    findings, _, _ = run(ask, problems, lambda item: 0.9 * (item.question in item.completion), config=SHORT)
    assert "{question}" in findings.report.texts[0].text
    assert findings.report.universal_rate == 1


def test_texts_with_the_right_answer_are_left_out_of_the_rate(ask) -> None:
    problems = [
        Problem(id=str(n), source="s", question=f"q{n}", reference_answer=str(n)) for n in range(8, 12)
    ]
    oracle, _, _ = ask(lambda item: 0.9)
    with RuleVerifier(RuleConfig()) as rule:
        texts = ["9 or 10", "\\sqrt{64}", "8, 9, 10, 11"]
        found = measure(texts, problems, oracle, rule=rule, checked=texts)
    assert (found["9 or 10"].paid.value, found["9 or 10"].paid.count) == (1, 2)
    assert found["\\sqrt{64}"].paid.count == 3  # 8, which the rule verifier sees
    assert found["8, 9, 10, 11"].paid.count == 4  # a list, which answers nothing
    assert oracle.num_queries == 0


def test_a_search_for_one_problem_ends_with_its_first_paid_text_or_its_budget(ask, problems) -> None:
    """One problem pays `!`, which is made in the second round; the other pays nothing."""
    oracle, _, _ = ask(lambda item: 0.9 * (item.question == problems[0].question and "!" in item.completion))
    start = [Candidate("a", "seed", "seed"), Candidate("b", "seed", "seed")]

    def vary(problem, text, pool, rng) -> list[str]:
        return [text + "-", text + "!", text + "?"]

    paid, unpaid = attack_each(
        problems[:2], start, oracle, [("mutation", vary)], max_queries=20, rng=random.Random(0)
    )
    assert (paid.is_paid, paid.num_queries, paid.pool[0][1].text[1:]) == (True, 4, "!")
    assert (unpaid.is_paid, unpaid.num_queries) == (False, 20)


def test_an_attempt_without_new_texts_ends(ask, problems) -> None:
    oracle, _, _ = ask(lambda item: 0.1)
    start = [Candidate("a", "seed", "seed")]
    attempts = attack_each(
        problems[:1], start, oracle, [("gradient", lambda *_: [])], max_queries=5, rng=random.Random(0)
    )
    assert [attempt.is_paid for attempt in attempts] == [False]


def test_a_split_has_no_question_twice() -> None:
    problems = [
        Problem(id=str(n), source="s", question=f"How many? {n // 2}" + " " * (n % 2), reference_answer="1")
        for n in range(12)
    ]
    split = split_problems(problems, RedTeamConfig(max_unseen_problems=3), 0)
    assert (len(split.search), len(split.unseen)) == (2, 3)
    keys = [problem.question.strip() for problem in (*split.search, *split.unseen)]
    assert len(set(keys)) == 5
    with pytest.raises(DataError, match=r"problems with 3 different questions or more, not 2; give a larger"):
        split_problems(problems[:4], RedTeamConfig(), 0)


def test_worth_rises_with_the_score_and_a_right_answer_is_worth_nothing() -> None:
    values = [worth(score) for score in (0.0, 1e-6, 0.01, 0.5, 0.500001, 0.99, 1.0)]
    assert values == sorted(values)
    assert worth(0.51) - worth(0.5) > 1
    assert worth(None) == 0


def test_thinning_keeps_both_ends() -> None:
    points = list(range(100))
    assert thin(points, 5) == [0, 25, 50, 74, 99]  # pyright: ignore[reportArgumentType]
    assert thin(points[:3], 5) == [0, 1, 2]  # pyright: ignore[reportArgumentType]


def test_a_text_that_the_question_makes_right_has_no_score(ask) -> None:
    """So no search keeps it, and no rate counts its problem."""
    choices = Problem(id="c", source="s", question="How long?\n(A) 10 cm\n(B) 12 cm", reference_answer="B")
    rounded = Problem(
        id="r", source="s", question="How long is it, to the nearest cm?", reference_answer="12.37 cm"
    )
    oracle, scorer, _ = ask(lambda item: 0.99)
    texts = ["12 cm", "The answer is 12.", "(B)", "10 cm"]
    assert oracle.scores([(choices, text) for text in texts]) == [None, None, None, 0.99]
    assert oracle.scores([(rounded, text) for text in texts[:2] + texts[3:]]) == [None, None, 0.99]
    assert {item.completion for item in scorer.asked} == {"10 cm"}
