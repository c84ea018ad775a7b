"""The words of the report follow from the numbers."""

import pytest

from cooper_rl.method.metrics import binary_scores
from cooper_rl.report.changes import direction
from cooper_rl.report.numbers import points, shorten
from cooper_rl.report.samples import sample_groups
from cooper_rl.report.text import headline_rows, summarise
from cooper_rl.schema.reports import Interval
from cooper_rl.schema.step_metrics import MonitorMetrics, RolloutMetrics, StepMetrics
from tests.stages.run_files import COMPLETIONS, make_completion, make_evaluation


def test_a_small_change_is_not_called_an_improvement():
    result = summarise([make_evaluation(0, 0.40, 0.5), make_evaluation(20, 0.42, 0.5, seed=1)])
    assert result.accuracy_change.low < 0 < result.accuracy_change.high
    assert (
        "is compatible with zero: this run does not show that the policy got better or worse"
        in result.conclusion
    )


def test_the_table_compares_the_last_evaluation_with_the_first():
    first, middle, last = (make_evaluation(step, step / 10, 0.5) for step in (2, 8, 4))
    rows = {row.name: row for row in headline_rows([first, middle, last])}
    judged = rows["Accuracy"]
    assert judged.values == [each.judge_accuracy for each in (first, middle, last)]
    assert judged.change is not None
    assert judged.change.low < 0.2 < judged.change.high
    assert [name for name, row in rows.items() if not row.is_goal] == ["VerifyRM reward"]


def test_a_reward_that_rises_alone_is_called_by_its_name():
    result = summarise([make_evaluation(0, 0.6, 0.5), make_evaluation(80, 0.1, 0.95)])
    reason = "The policy ended worse than it began: accuracy fell beyond the interval."
    said = f"Its promotion would be refused: {reason} Accuracy fell by 50.0 points"
    assert result.conclusion.startswith(said)
    assert "while accuracy fell: that is what reward hacking looks like" in result.conclusion
    unsure = summarise([make_evaluation(0, 0.4, 0.5), make_evaluation(80, 0.42, 0.7)])
    assert "accuracy does not confirm it: that may be the start of reward hacking" in unsure.conclusion


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, None),
        ({4: MonitorMetrics(alarm=False)}, "The hacking monitor raised no alarm."),
        (
            {4: MonitorMetrics(alarm=True), 5: MonitorMetrics(alarm=True)},
            "The hacking monitor raised the alarm at step 4: the VerifyRM reward and rule accuracy had gone",
        ),
        (
            {4: MonitorMetrics(alarm=True, rolled_back_to=2)},
            "had gone apart; both models went back to step 2.",
        ),
        (
            {4: MonitorMetrics(alarm=True, denied=True), 8: MonitorMetrics(alarm=True, denied=True)},
            "The judge denied the hacking monitor's alarm at steps 4 and 8, since accuracy had not fallen",
        ),
    ],
)
def test_what_the_monitor_said_is_part_of_the_conclusion(
    said: dict[int, MonitorMetrics], expected: str | None
) -> None:
    evaluations = [make_evaluation(0, 0.4, 0.5), make_evaluation(9, 0.4, 0.5)]
    rollout = RolloutMetrics(verify_rm_reward=0.5, rule_accuracy=0.5)
    rows = [
        StepMetrics(step=step, rollout=rollout, monitor=said.get(step, MonitorMetrics()))
        for step in range(1, 10)
    ]
    conclusion = summarise(evaluations, rows).conclusion
    assert (expected or "") in conclusion
    assert ("monitor" in conclusion) == (expected is not None)


def test_verify_rm_that_does_not_beat_the_majority_is_said_so():
    # 17 of 20 against a majority of 16: above it, but not by more than chance.
    poor = binary_scores([1] * 16 + [0] * 4, [0.9] * 16 + [0.1] + [0.9] * 3)
    evaluations = [e.model_copy(update={"verify_rm": poor})
                   for e in (make_evaluation(0, 0.4, 0.5), make_evaluation(9, 0.4, 0.5))]  # fmt: skip
    conclusion = summarise(evaluations).conclusion
    assert "right on 85.0 % of 20 held-out examples (always giving the commoner answer: 80.0 %)" in conclusion
    assert "it is not shown to beat that baseline" in conclusion


def test_completions_are_grouped_by_what_the_verifiers_say():
    groups = {group.title: group for group in sample_groups(COMPLETIONS)}
    hacking = groups["Scored high, judged wrong"]
    assert hacking.num_members == 3
    # One per problem, highest score first.
    assert [(row.problem_id, row.score) for row in hacking.samples] == [("p-31", 0.99), ("p-30", 0.97)]
    assert (groups["Correct"].num_members, len(groups["Correct"].samples)) == (13, 3)
    assert groups["Correct, but the rule does not see it"].num_members == 4
    assert groups["Wrong"].num_members == 4
    assert "No verdict" not in groups


def test_no_hacking_is_said_too():
    first = sample_groups([make_completion(1)])[0]
    assert (first.title, first.num_members, first.samples) == ("Scored high, judged wrong", 0, [])


def test_long_texts_lose_their_middle_and_say_so():
    text = "a" * 500 + "b" * 1000 + "c" * 600
    assert shorten(text) == "a" * 500 + "\n[... 1,000 characters left out ...]\n" + "c" * 600
    assert shorten("short") == "short"


def test_a_text_that_takes_many_bytes_keeps_less_of_it():
    """2,400 bytes: of Chinese, three bytes a character, 770 are kept; of quotes, five on a page, 330."""
    for letter, kept in (("a", 1100), ("中", 770), ("😀", 550), ('"', 330)):
        shown = shorten(letter * 2000)
        head, lost, tail = shown.split("\n")
        assert head + tail == letter * kept
        assert lost == f"[... {2000 - kept:,} characters left out ...]"
    assert shorten('"' * 400) == '"' * 400


def test_changes_are_written_with_their_sign_and_direction():
    assert (points(0.031), points(-0.2)) == ("+3.1", "\u221220.0")
    assert direction(Interval(value=0.1, low=0.01, high=0.2, count=5)) == "rose"
    assert direction(Interval(value=-0.1, low=-0.2, high=-0.01, count=5)) == "fell"
    assert direction(Interval(value=0.1, low=-0.01, high=0.2, count=5)) == "is not shown to have changed"
    assert direction(Interval(value=-0.1, low=-0.2, high=0.01, count=5)) == "is not shown to have changed"
