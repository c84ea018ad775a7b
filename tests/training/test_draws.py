"""What a seed draws stays: a run that a later version continues meets the problems that it began with.

A draw that came out otherwise would deal problems twice, judge VerifyRM by another gate than at the start,
and teach in another order, with no error. Whoever changes one on purpose says so in the changelog.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from cooper_rl.config.cooper import GateConfig
from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.domains.open import default_domain
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.training.fitting.curriculum import plan_lessons
from cooper_rl.training.gate import make_gate
from cooper_rl.training.reward_learner import step_seed
from cooper_rl.training.step import step_problems
from tests.training.fitting.test_fit_verify_rm import examples, read_in
from tests.training.pairs.test_pairing import RIGHT, W12, Noting, make, rollouts
from tests.training.rollouts.test_refill import refill
from tests.training.test_step import learned

ROWS = [
    VerifyExample(question=f"Q{n}", reference_answer=str(n), completion=f"#### {n}", label=1)
    for n in range(20, 60)
]


def questions(rows: list[VerifyExample]) -> str:
    return " ".join(row.question.removeprefix("Q") for row in rows)


def added(**values) -> list[VerifyExample]:
    """What a configuration of VerifyRM's training adds to its examples."""
    attacks = values.pop("attacks", [])
    config = VerifyRMConfig.model_validate(values)
    (lesson,) = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0, attacks=attacks)
    return lesson.examples[len(ROWS) :]


def test_the_problems_of_steps() -> None:
    problems = [Problem(id=str(n), source="t", question="q", reference_answer="1") for n in range(7)]
    met = [p.id for step in (1, 2, 3, 4) for p in step_problems(problems, step, count=3, seed=0)]
    assert " ".join(met) == "0 5 1 3 6 2 4 2 5 4 1 3"


def test_what_a_step_draws_with() -> None:
    """Rollouts, pairs, refills and replay follow from it."""
    assert [step_seed(0, 1), step_seed(0, 2)] == [7045538490750221097, 3593467510681869143]


def test_the_problems_and_the_seed_of_a_refill() -> None:
    assert refill({"p1": [1.0, 1.0], "p2": [0.0, 0.0]}, seed=5)[1] == [(["p6", "p8"], 5485667731924832484)]


def test_positives_sources_and_seeds_of_rewrites(rule) -> None:
    other = "5*2=10. #### 10"
    groups = [rollouts(RIGHT, other, W12, name=f"p{place}") for place in range(8)]
    pairs = make(rule, groups, negatives={"perturb": 1, "rollout": 1}, seed=1).pairs
    assert "".join("ab"[pair.positive == other] for pair in pairs) == "aaaababb"
    assert "".join(pair.source[0] for pair in pairs) == "rrrrpprr"
    assistant = Noting()
    make(rule, groups[:1], assistant=assistant, negatives={"assistant": 1}, pairs__max_attempts=2, seed=1)
    assert assistant.seeds == [1151760377274162788, 4886689737128272233]


def test_the_gates_examples(make_verify_rm) -> None:
    gate = make_gate(GateConfig(num_examples=6), make_verify_rm(0), ROWS, seed=0, starts=[])
    assert questions(list(gate.examples)) == "30 20 41 58 26 51"


def test_replayed_examples_and_hostile_texts_of_a_step(make_policy, make_verify_rm, rule) -> None:
    found = learned(make_policy, make_verify_rm, rule, step=1, seed=0, fraction=0.5)
    assert [int(text.strip("It is.")) for text in found[:6]] == [37, 97, 60, 30, 86, 81]
    assert found[6:] == ["?)NHQZ89]_kwMj]@I=58+w~\\uDHDzzalhi2MAUri", "It is 97.", "It is 30."]


def test_the_order_of_an_epoch(make_verify_rm) -> None:
    rows = examples(8)
    numbers = {row.question: str(n) for n, row in enumerate(rows)}
    order = read_in(make_verify_rm, rows, num_epochs=2)
    assert "".join(numbers[question] for question in order) == "6241503735716024"


def test_what_is_learned_beside_the_examples() -> None:
    assert (
        " ".join(row.reference_answer for row in added(swapped_references=True)[:8])
        == "51 23 54 33 50 54 48 59"
    )
    assert questions([row for row in added(num_canary_problems=3) if row.completion == ""]) == "37 42 57"
    assert questions(added(hostile_fraction=0.2)) == "57 31 45 27 56 43 32 28"
    assert questions(added(num_attack_problems=3, attacks=["777777", "@@"])) == "29 51 55 51 28 54"


def test_what_is_learned_before_them() -> None:
    def draw(count: int, rng: random.Random, solved: Sequence[VerifyExample]) -> list[VerifyExample]:
        return [ROWS[0].model_copy(update={"completion": str(rng.randrange(1000))}) for _ in range(count)]

    config = VerifyRMConfig.model_validate({"scratch": {"num_matching_examples": 4}})
    domain = replace(default_domain(), make_matching=draw)
    matching, _ = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0, domain=domain)
    assert [row.completion for row in matching.examples] == ["822", "641", "888", "263"]
