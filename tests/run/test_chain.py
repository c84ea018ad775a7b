"""The one wiring of the method, which pipelines and the experiment share."""

import pytest

from cooper_rl.experiment import jobs
from cooper_rl.run import chain
from cooper_rl.run.chain import Sources, Step
from cooper_rl.stages import STAGES, read_signature

WHOLE = [
    *chain.prepare(),
    *chain.make_verify_rm(),
    chain.evaluate_start(Sources()),
    *chain.co_train(Sources(), 3, is_frozen=True),
    *chain.co_train(Sources(), 3),
    chain.report(3, has_frozen=True),
    chain.promote(Sources(), 3),
]


def test_every_reference_names_an_output_of_a_step_before() -> None:
    known: set[str] = set()
    for step in WHOLE:
        assert set(step.inputs.values()) <= known
        assert set(step.after) <= {reference.partition(".")[0] for reference in known}
        known |= {f"{step.name}.{p.name}" for p in read_signature(step.stage).parameters if p.is_output}


@pytest.mark.parametrize("step", WHOLE, ids=lambda step: step.name)
def test_a_step_gives_its_stage_everything_that_it_requires_and_nothing_unknown(step: Step) -> None:
    inputs = [p for p in read_signature(step.stage).parameters if not p.is_output]
    assert set(step.inputs) <= {p.name for p in inputs}
    assert {p.name for p in inputs if p.is_required} <= set(step.inputs)


def test_no_stage_is_left_out_of_the_chain() -> None:
    """The pipelines add the registry's first stage and the exit task; the red team is run on its own."""
    assert {step.stage for step in WHOLE} == set(STAGES) - {"take_champion", "summarise_run", "red_team"}


def test_the_experiment_runs_the_chain_of_the_pipeline() -> None:
    """Everything but the page, of which the experiment has its own."""
    assert [step.stage for step in (*jobs.START, *jobs.ARM)] == [
        "check_settings",
        "prepare_models",
        "collect_problems",
        "sample_completions",
        "label_completions",
        "train_verify_rm",
        "evaluate_verify_rm",
        "evaluate_policy",
        "train_cooper",
        "evaluate_policy",
    ]


def test_the_frozen_arm_is_cooper_but_for_its_name_and_a_verify_rm_that_never_learns() -> None:
    arms = [chain.co_train(Sources(), 2, is_frozen=is_frozen) for is_frozen in (False, True)]
    for step, frozen in zip(*arms, strict=True):
        assert frozen.stage == step.stage
        assert frozen.inputs.keys() == step.inputs.keys()
        shared = {name for name, reference in step.inputs.items() if "cooper" not in reference}
        assert all(frozen.inputs[name] == step.inputs[name] for name in shared - {"previous"})
    changes = [step.changes for step in arms[1] if step.stage == "train_cooper"]
    assert changes == [(*chain.FROZEN, "storage.arm=frozen")] * 2
    assert not {step.name for step in arms[0]} & {step.name for step in arms[1]}
    assert arms[1][1].inputs["previous"] == arms[0][1].inputs["previous"] == "evaluate_policy_0.evaluations"
