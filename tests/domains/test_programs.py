"""The domain of programs: what it calls wrong is wrong, and its laptop world fits its verifier."""

import random

import pytest

from cooper_rl.config.load import load
from cooper_rl.domains.open import find_domain
from cooper_rl.domains.programs import ATTACKS, perturb
from cooper_rl.errors import ConfigError
from cooper_rl.negatives.canaries import wrong_references
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.schema.data import VerifyExample
from cooper_rl.tiny.tasks import (
    FORMATS,
    Habits,
    Task,
    Term,
    evaluate,
    generate_problems,
    generate_tasks,
    solve,
)
from cooper_rl.tiny.world import find_world
from cooper_rl.training.fitting.curriculum import swap_references
from cooper_rl.verdicts.hybrid import JudgeItem

CONFIG = load("programs_laptop")
DOMAIN = find_domain("programs")
NO_HABITS = Habits(slip=0, skip=0)


@pytest.fixture(scope="module")
def verifier():
    opened = DOMAIN.open_verifier(CONFIG.labeling.rule)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def examples() -> list[VerifyExample]:
    rng = random.Random(0)
    return [
        VerifyExample(
            question=task.question,
            reference_answer=task.tests,
            completion=solve(task, rng, habits=NO_HABITS).text,
            label=1,
        )
        for task in generate_tasks(24, rng)
    ]


def test_a_task_is_the_same_in_words_in_code_and_in_its_tests() -> None:
    """Twice 1 plus 2 minus 3 is 1, twice 3 plus 5 minus 3 is 8, twice 7 plus 4 minus 3 is 15."""
    task = Task((Term("+", 2, "a"), Term("+", 1, "b"), Term("-", 3, "")))
    assert task.question == "Write f(a, b): twice a plus b minus 3."
    assert task.expression == "2 * a + b - 3"
    assert task.tests == "f(a=1, b=2) == 1\nf(a=3, b=5) == 8\nf(a=7, b=4) == 15"
    assert generate_problems(5, 0) == generate_problems(5, 0)
    assert evaluate("__import__('os').getpid()", a=1, b=1) is None
    assert evaluate("9999 * 9999", a=1, b=1) is None


def test_the_verifier_reads_half_of_the_formats_and_the_exact_judge_all(verifier) -> None:
    world = find_world("programs")
    (task,) = generate_tasks(1, random.Random(3))
    texts = [shape.format(task.expression) for shape, _ in FORMATS]
    found = [check.verdict for check in verifier.verify([(task.tests, text) for text in texts])]
    assert found == ["correct", "correct", "correct", "unparsable", "unparsable"]
    wrong = [shape.format(f"{task.expression} + 1") for shape, _ in FORMATS]
    assert "correct" not in [
        check.verdict for check in verifier.verify([(task.tests, text) for text in wrong])
    ]
    for text, verdict in [(each, "correct") for each in texts] + [(each, "incorrect") for each in wrong]:
        assert world.judge(JudgeItem(task.question, task.tests, text)).verdict == verdict
    assert world.judge(JudgeItem("", task.tests, "I do not know")).verdict == "incorrect"


def test_no_canary_passes_the_tests(verifier, examples) -> None:
    found = DOMAIN.make_canaries(examples, max_problems=12, rng=random.Random(0))
    assert {canary.attack for canary in found} == set(ATTACKS)
    items = [(canary.example.reference_answer, canary.example.completion) for canary in found]
    assert "correct" not in [check.verdict for check in verifier.verify(items)]
    assert {canary.example.label for canary in found} == {0}


def test_other_references_make_right_programs_wrong(verifier, examples) -> None:
    swapped = wrong_references(examples, random.Random(0), DOMAIN.is_other_answer)
    assert len(swapped) > len(examples) / 2
    items = [(example.reference_answer, example.completion) for example in swapped]
    assert "correct" not in [check.verdict for check in verifier.verify(items)]
    wrong = [example.model_copy(update={"label": 0}) for example in examples]
    assert list(swap_references(wrong, random.Random(0), DOMAIN)) == [], "a program states no tests"


def test_perturbation_and_assistant_change_one_piece_of_the_code(verifier, examples) -> None:
    items = [
        RewriteItem(str(number), each.question, each.reference_answer, each.completion)
        for number, each in enumerate(examples)
    ]
    for writer in (DOMAIN.perturber, find_world("programs").assistant):
        texts = writer.rewrite(items, seed=0)
        assert texts == writer.rewrite(items, seed=0)
        for item, text in zip(items, texts, strict=True):
            assert text is not None
            assert text != item.solution
            assert abs(len(text) - len(item.solution)) <= 1
    rewrites = [
        (item.reference_answer, text) for item, text in zip(items, texts, strict=True) if text is not None
    ]
    assert "correct" not in [check.verdict for check in verifier.verify(rewrites)]
    assert perturb("no code here, 3 times", random.Random(0)) is not None
    assert perturb("none", random.Random(0)) is None


def test_a_text_without_a_program_is_rejected_where_the_verifier_abstains() -> None:
    assert DOMAIN.check_mention("q", "f(1) == 1", "The answer is 1.") == "incorrect"
    assert DOMAIN.check_mention("q", "f(1) == 1", "f = lambda a: 1") == "unparsable"


def test_prompts_hold_the_three_texts_between_tags_of_their_own() -> None:
    for make in (DOMAIN.judge_prompt, DOMAIN.assistant_prompt):
        prompt = make("THE TASK", "THE TESTS", "THE PROGRAM", nonce="n0nce")
        for text in ("THE TASK", "THE TESTS", "THE PROGRAM"):
            assert f"-n0nce>\n{text}\n</" in prompt.user
        assert "n0nce" in prompt.system
    assert "VERDICT-n0nce" in DOMAIN.judge_prompt("", "", "", nonce="n0nce").system


def test_reference_faults_and_names_of_verdicts() -> None:
    assert DOMAIN.find_reference_fault("f(a=1) == 2") is None
    assert "no test of plain values" in (DOMAIN.find_reference_fault("42") or "")
    assert "python=3." in DOMAIN.name_verdicts(CONFIG.labeling.rule)


def test_a_setting_of_the_other_laptop_world_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tiny_blind_share=0\.5: the laptop world of .*=programs has no"):
        find_world("programs", blind_share=0.5)
    assert find_world("mathematics", blind_share=0.5).has_blind_kinds


def test_a_domain_without_a_laptop_world_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"problems\.domain=law has no laptop world, which mathematics and"):
        find_world("law")
