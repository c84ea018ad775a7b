"""The one wiring of the method, which pipelines and the experiment share."""

from itertools import product
from typing import get_args

import pytest

from cooper_rl.experiment import jobs
from cooper_rl.run import chain
from cooper_rl.run.chain import Sources, Step
from cooper_rl.schema.stages import Output, OutputName, StageName
from cooper_rl.stages import STAGES, read_signature
from pipelines.resources import HOURS, UNCACHED
from pipelines.steps import TAKES_RUN_KEY

WHOLE = [*chain.whole(3, is_attacked=True, has_frozen=True), chain.promote(Sources(), 3)]


@pytest.mark.parametrize(("is_attacked", "has_frozen"), list(product([False, True], repeat=2)))
def test_every_input_is_an_output_of_a_step_before(is_attacked: bool, has_frozen: bool) -> None:
    known = set()
    steps = chain.whole(3, is_attacked=is_attacked, has_frozen=has_frozen)
    for step in [*steps, chain.promote(Sources(), 3, is_attacked=is_attacked)]:
        assert set(step.inputs.values()) <= known
        assert set(step.after) <= {output.step for output in known}
        known |= {p.as_output(step.name) for p in read_signature(step.stage).parameters if p.is_output}


def test_the_names_of_the_type_checker_are_those_of_the_stages() -> None:
    parameters = [p for stage in STAGES for p in read_signature(stage).parameters]
    assert set(get_args(StageName)) == set(STAGES)
    assert set(get_args(OutputName)) == {parameter.name for parameter in parameters if parameter.is_output}
    assert HOURS.keys() | UNCACHED | TAKES_RUN_KEY <= set(STAGES)


@pytest.mark.parametrize("step", WHOLE, ids=lambda step: step.name)
def test_a_step_gives_its_stage_everything_that_it_requires_and_nothing_unknown(step: Step) -> None:
    inputs = [p for p in read_signature(step.stage).parameters if not p.is_output]
    assert set(step.inputs) <= {p.name for p in inputs}
    assert {p.name for p in inputs if p.is_required} <= set(step.inputs)


def test_no_stage_is_left_out_of_the_chain() -> None:
    """The pipelines add the registry's first stage and the exit task; labels are merged where several pods
    made them, arms are compared where there are several."""
    more = [*chain.whole(1, label_shards=2), chain.compare_arms()]
    assert {step.stage for step in [*WHOLE, *more]} == set(STAGES) - {"take_champion", "summarise_run"}


def test_the_experiment_runs_every_step_of_the_pipeline_but_its_page() -> None:
    steps = [*jobs.START, *jobs.ARM]
    assert steps == [step for step in chain.whole(1) if step.stage != "report"]
    assert {step.stage for step in jobs.ARM} == {"train_cooper", "evaluate_policy"}


def test_the_frozen_arm_is_cooper_but_for_its_name_and_a_plain_verify_rm_that_never_learns() -> None:
    steps = chain.whole(2, has_frozen=True)
    own, frozen = (
        [step for step in steps if step.name.startswith(names)]
        for names in (("train_cooper", "evaluate_policy"), ("train_frozen", "evaluate_frozen"))
    )
    assert [step.stage for step in own] == [step.stage for step in frozen]
    for step, other in zip(own, frozen, strict=True):
        assert other.inputs.keys() == step.inputs.keys()
        assert other.inputs["verify_rm"] == chain.PLAIN_VERIFY_RM
        shared = {name for name, given in step.inputs.items() if given.step in {s.name for s in steps[:6]}}
        assert shared >= {"models", "verify_rm"}
        assert all(other.inputs[name] == step.inputs[name] for name in shared - {"verify_rm"})
    changes = [step.changes for step in frozen if step.stage == "train_cooper"]
    assert changes == [(*chain.FROZEN, "storage.arm=frozen")] * 2
    assert frozen[2].inputs["previous"] == Output("evaluate_frozen_0", "evaluations")


def test_the_plain_verify_rm_is_the_other_one_without_a_defence() -> None:
    steps = {step.name: step for step in chain.whole(1, has_frozen=True)}
    assert steps["train_plain"].inputs == steps["train_verify_rm"].inputs
    assert steps["train_plain"].changes == ("verify_rm.num_decoys=0", "verify_rm.hostile_fraction=0")
    assert "train_plain" not in {step.name for step in chain.whole(1)}
