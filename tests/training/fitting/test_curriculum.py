"""What VerifyRM is shown before whole completions: generated pairs, answer spans, swapped references."""

import random
from dataclasses import replace
from typing import Any

import pytest

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.domains.programs import PROGRAMS
from cooper_rl.errors import ConfigError
from cooper_rl.negatives.matching import matching_examples
from cooper_rl.schema.data import VerifyExample
from cooper_rl.training.fitting import curriculum
from cooper_rl.training.fitting.curriculum import plan_lessons, swap_references

ROWS = [
    VerifyExample(question="Q1", reference_answer="12", completion="3*4=12\n#### 12", label=1),
    VerifyExample(question="Q2", reference_answer="7", completion="So the answer is 9", label=0),
    VerifyExample(question="Q3", reference_answer="5", completion="", label=0),
]


def test_a_swapped_reference_turns_the_label_where_it_can() -> None:
    """The correct one gets another answer, the wrong one its own; an empty or rambling one states none."""
    rambling = ROWS[1].model_copy(update={"completion": "#### " + "and 9 " * 20})
    swapped = list(swap_references([*ROWS, rambling], random.Random(0)))
    assert [(row.question, row.label) for row in swapped] == [("Q1", 0), ("Q2", 1)]
    assert swapped[0].reference_answer in {"5", "7"}
    assert swapped[1].reference_answer == "9"


def test_swapped_references_are_learned_beside_the_examples() -> None:
    config = VerifyRMConfig(swapped_references=True)
    (lesson,) = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0)
    assert lesson.examples[: len(ROWS)] == ROWS
    assert [(row.question, row.label) for row in lesson.examples[len(ROWS) :]] == [("Q1", 0), ("Q2", 1)]


def test_one_reference_answer_alone_cannot_be_swapped() -> None:
    assert list(swap_references(ROWS[:1], random.Random(0))) == []


def test_an_equal_answer_in_another_spelling_does_not_turn_the_label() -> None:
    halves = [
        VerifyExample(question=answer, reference_answer=answer, completion=f"#### {answer}", label=1)
        for answer in (r"\frac12", "0.5", r"50\%")
    ]
    assert list(swap_references(halves, random.Random(0))) == []


def test_the_papers_recipe_has_one_lesson() -> None:
    config = VerifyRMConfig()
    (lesson,) = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0)
    assert (lesson.examples, lesson.config) == (ROWS, config)


def test_a_scratch_model_gets_its_lessons_in_order() -> None:
    config = VerifyRMConfig.model_validate({"scratch": {"num_matching_examples": 9}, "answer_spans": [2, 5]})
    lessons = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0)
    names = ["matching", "last 2 characters", "last 5 characters", "completions"]
    assert [lesson.name for lesson in lessons] == names
    matching, spans, longer, _ = lessons
    assert len(matching.examples) == 9
    assert matching.config == config.model_copy(update={"num_epochs": 1, "lr": config.scratch.matching_lr})
    assert [row.completion for row in spans.examples] == ["12", " 9", ""]
    assert {row.question for row in spans.examples} == {""}
    assert spans.config.num_epochs == 1
    assert all(
        row.completion.endswith(short.completion)
        for row, short in zip(longer.examples, spans.examples, strict=True)
    )
    with_backbone = plan_lessons(ROWS, config=config, is_from_scratch=False, seed=0)
    assert [lesson.name for lesson in with_backbone] == names[1:]


def test_canaries_of_the_training_problems_are_learned_as_wrong() -> None:
    config = VerifyRMConfig(num_canary_problems=2)
    (lesson,) = plan_lessons(ROWS, config=config, is_from_scratch=True, seed=0)
    added = lesson.examples[len(ROWS) :]
    assert {row.label for row in added} == {0}
    assert len({row.question for row in added}) == 2
    assert {"canary:empty", "canary:injected_instructions"} <= {row.source for row in added}


def test_hostile_texts_are_learned_as_wrong_as_many_as_configured() -> None:
    """Half as many as four examples."""
    rows = [*ROWS, ROWS[0].model_copy(update={"question": "Q4"})]
    config = VerifyRMConfig(hostile_fraction=0.5)
    (lesson,) = plan_lessons(rows, config=config, is_from_scratch=True, seed=0)
    assert lesson.examples[:4] == rows
    assert [(row.label, row.source) for row in lesson.examples[4:]] == [(0, "hostile")] * 2


def test_matching_texts_stand_among_the_examples_of_a_pre_trained_start_too() -> None:
    """Twice as many as three examples: right and wrong by turns, some of them after a right completion."""
    config = VerifyRMConfig(matching_fraction=2, answer_spans=(40,))
    spans, whole = plan_lessons(ROWS, config=config, is_from_scratch=False, seed=0)
    added = whole.examples[len(ROWS) :]
    assert [(row.label, row.source) for row in added] == [(1, "generated"), (0, "generated")] * 3
    assert {row.question for row in added} == {"", "Q1"}
    for right, wrong in zip(added[::2], added[1::2], strict=True):
        assert (right.completion == wrong.completion) != (right.reference_answer == wrong.reference_answer)
    assert len(spans.examples) == len(whole.examples)


def test_the_red_teams_texts_are_learned_as_wrong_on_as_many_problems_as_configured() -> None:
    """Each of two texts on two of three problems."""
    (lesson,) = plan_lessons(
        ROWS, config=VerifyRMConfig(num_attack_problems=2), is_from_scratch=True, seed=0,
        attacks=["777777", "@@"],
    )  # fmt: skip
    added = lesson.examples[len(ROWS) :]
    assert [(row.completion, row.label, row.source) for row in added] == [
        (text, 0, "red_team") for text in ("777777", "777777", "@@", "@@")
    ]
    assert len({row.question for row in added[:2]}) == len({row.question for row in added[2:]}) == 2


def test_of_many_examples_texts_are_made_of_as_many_as_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curriculum, "MAX_DRAWN_FROM", 2)
    config = VerifyRMConfig(hostile_fraction=1, num_canary_problems=9)
    (lesson,) = plan_lessons(MANY, config=config, is_from_scratch=True, seed=0)
    added = lesson.examples[len(MANY) :]
    assert 0.7 * len(MANY) < sum(row.source == "hostile" for row in added) <= len(MANY)
    assert len({row.question for row in added}) == 2


MANY = [
    VerifyExample(question=f"Q{n}", reference_answer=str(n), completion=f"#### {n}", label=1)
    for n in range(20, 60)
]
ADDITIONS: list[dict[str, Any]] = [
    {"scratch": {"num_matching_examples": 4}},
    {"swapped_references": True},
    {"num_canary_problems": 2},
    {"hostile_fraction": 0.5},
    {"matching_fraction": 0.5},
    {},
]
"""Each is drawn; the last one is the red team's texts alone."""


def drawn(values: dict[str, Any], seed: int, domain: Domain | None = None) -> list[VerifyExample]:
    """What a configuration adds to the examples."""
    lessons = plan_lessons(
        MANY, config=VerifyRMConfig.model_validate(values), is_from_scratch=True, seed=seed, domain=domain,
        attacks=["777777"],
    )  # fmt: skip
    *before, last = [lesson.examples for lesson in lessons]
    assert last[: len(MANY)] == MANY
    return [row for rows in before for row in rows] + last[len(MANY) :]


@pytest.mark.parametrize("values", ADDITIONS)
def test_what_is_added_is_drawn_by_the_seed(values: dict[str, Any]) -> None:
    assert drawn(values, 0) == drawn(values, 0)
    assert len({str(drawn(values, seed)) for seed in range(3)}) == 3


def test_an_addition_leaves_the_draws_of_the_others_as_they_were() -> None:
    everything = drawn({key: value for each in ADDITIONS for key, value in each.items()}, 0)
    for values in ADDITIONS:
        assert all(row in everything for row in drawn(values, 0))


def test_what_is_added_is_the_domains_own() -> None:
    """Of a domain without texts and canaries, that holds every text for right and knows no other answer."""
    domain = replace(
        default_domain(), make_matching=lambda *_: [], make_canaries=lambda *_, **__: [],
        holds_answer=lambda *_: True, lists_answer=None, is_other_answer=lambda *_: False,
    )  # fmt: skip
    everything = {key: value for each in ADDITIONS for key, value in each.items()}
    assert drawn(everything, 0, domain) == []


@pytest.mark.parametrize("values", [{"scratch": {"num_matching_examples": 4}}, {"matching_fraction": 0.5}])
def test_texts_that_a_domain_cannot_generate_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"problems\.domain=programs: no texts .*; set verify_rm\.\S+ to 0"):
        drawn(values, 0, PROGRAMS)


def test_the_answer_that_a_wrong_completion_states_is_the_domains_to_find() -> None:
    domain = replace(default_domain(), find_stated_answer=lambda _: "stated")
    swapped = list(swap_references(ROWS[1:], random.Random(0), domain))
    assert [(row.reference_answer, row.label) for row in swapped] == [("stated", 1)] * 2


def test_generated_pairs_are_the_same_for_the_same_seed() -> None:
    assert matching_examples(20, random.Random(3)) == matching_examples(20, random.Random(3))
