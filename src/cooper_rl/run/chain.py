"""The order of the stages, and which output is whose input: the one wiring of the method.

Pipelines make a KFP task of every step; the experiment runs the same steps on local files. An input is an
`Output` of a step before. The caller resolves those of other steps, such as a champion's models.

whole(), in this order:
    check_settings -> prepare_models, collect_problems            prepare()
      -> sample, label, train_verify_rm, evaluate_verify_rm       make_verify_rm()
      -> red_team on that VerifyRM, where it is asked for         attack_start()
      -> evaluate_policy (the starting point)
      -> (train_cooper -> evaluate_policy) x iterations           co_train()
         and beside it with a plain VerifyRM that never learns, where it is asked for: train_plain()
      -> red_team on the delivered one, where it is asked for     attack_end()
      -> report                                                   report()
"""

from collections.abc import Mapping
from typing import NamedTuple

from cooper_rl.schema.stages import Output, StageName

MODELS = Output("prepare_models", "models")
PROBLEMS = Output("collect_problems", "problems")
HELD_OUT = Output("collect_problems", "held_out")
COMPLETIONS = Output("sample_completions", "completions")
TRAIN = Output("label_completions", "train")
VALIDATION = Output("label_completions", "validation")
TEST = Output("label_completions", "test")
LABEL_REPORT = Output("label_completions", "report")
VERIFY_RM = Output("train_verify_rm", "verify_rm")
PLAIN_VERIFY_RM = Output("train_plain", "verify_rm")
VERIFY_RM_REPORT = Output("evaluate_verify_rm", "report")
FIRST_ATTACKS = Output("red_team_0", "texts")
RED_TEAM_REPORT = Output("red_team", "report")

FROZEN_ARM = "frozen"
"""`storage.arm` of the arm beside Cooper in a pipeline."""
FROZEN = ("cooper.reward.kind=verify_rm", "cooper.reward.update_verify_rm=false")
"""Settings of the arm whose VerifyRM never learns."""
PLAIN = ("verify_rm.num_decoys=0", "verify_rm.hostile_fraction=0")
"""Settings of a VerifyRM that is defended by nothing, as the paper's."""


class Step(NamedTuple):
    """One task."""

    name: str
    """Unique in a chain."""
    stage: StageName
    title: str
    """The text that a person reads in a dashboard."""
    inputs: Mapping[str, Output]
    """Parameter of the stage -> what it reads."""
    after: tuple[str, ...] = ()
    """Steps that must have ended, beside those whose outputs are read."""
    changes: tuple[str, ...] = ()
    """Settings of this step alone, which win over those of the run."""
    num_shards: int = 1
    """Tasks that do it side by side, each a shard; who reads an output then reads that of all of them."""


class Sources(NamedTuple):
    """The inputs that co-training and evaluation start from."""

    models: Output = MODELS
    problems: Output = PROBLEMS
    held_out: Output = HELD_OUT
    verify_rm: Output = VERIFY_RM
    test: Output = TEST
    """Labelled examples that VerifyRM has not seen."""
    replay: Output | None = TRAIN
    """Labelled examples that reward updates replay."""
    examples: Output | None = VALIDATION
    """Labelled examples that the gate and evaluations while training use."""
    attacks: Output | None = None
    """Texts of a red team, for negatives, the gate and evaluations."""


def whole(
    iterations: int, *, label_shards: int = 1, is_attacked: bool = False, has_frozen: bool = False
) -> list[Step]:
    """The method from problems to the page: the pipeline `end_to_end`, and what the experiment runs.

    Args:
        iterations: Of co-training.
        label_shards: Tasks that label, side by side.
        is_attacked: With the red team before co-training, which learns from its texts, and after it.
        has_frozen: With the arm that a plain VerifyRM pays, which never learns, before Cooper.
    """
    sources = Sources(attacks=FIRST_ATTACKS if is_attacked else None)
    return [
        *prepare(),
        *make_verify_rm(label_shards=label_shards),
        *([train_plain()] if has_frozen else []),
        *follow_policy(
            sources,
            iterations,
            is_attacked=is_attacked,
            frozen=PLAIN_VERIFY_RM if has_frozen else None,
        ),
    ]


def before_arms(*, label_shards: int = 1) -> list[Step]:
    """The steps of an experiment that all arms share: those of `whole` before co-training."""
    return _parted(label_shards)[0]


def of_arm() -> list[Step]:
    """The steps of each arm: training, and the evaluation where it ends."""
    return [step for step in _parted(1)[1] if step.stage != "report"]


def _parted(label_shards: int) -> tuple[list[Step], list[Step]]:
    steps = whole(1, label_shards=label_shards)
    first = next(place for place, step in enumerate(steps) if step.stage == "train_cooper")
    return steps[:first], steps[first:]


def compare_arms() -> Step:
    """The page of all arms, whose steps are those of `of_arm`, many times."""
    return Step(
        "compare_arms",
        "compare_arms",
        "Compare the arms",
        {
            "checkpoints": Output("train_cooper_1", "checkpoint"),
            "reports": Output("evaluate_policy_1", "report"),
            "completions": Output("evaluate_policy_1", "completions"),
            "start_report": Output("evaluate_policy_0", "report"),
            "start_completions": Output("evaluate_policy_0", "completions"),
        },
    )


def follow_policy(
    sources: Sources,
    iterations: int,
    *,
    is_attacked: bool,
    frozen: Output | None,
    label_report: Output | None = LABEL_REPORT,
) -> list[Step]:
    """The steps from an evaluated VerifyRM to the page.

    Args:
        sources: What co-training starts from.
        iterations: Of co-training.
        is_attacked: With the red team before and after.
        frozen: The VerifyRM that never learns and pays the arm before Cooper; None: there is no such arm.
        label_report: Where this run labelled.
    """
    beside = (
        [] if frozen is None else co_train(sources._replace(verify_rm=frozen), iterations, is_frozen=True)
    )
    return [
        *([attack_start(sources)] if is_attacked else []),
        *beside,
        *co_train(sources, iterations),
        *([attack_end(sources, iterations)] if is_attacked else []),
        report(iterations, label_report=label_report, is_attacked=is_attacked, has_frozen=frozen is not None),
    ]


def prepare() -> list[Step]:
    """Models and problems, once the settings are known to be right."""
    checked = ("check_settings",)
    return [
        Step("check_settings", "check_settings", "Check the settings", {}),
        Step("prepare_models", "prepare_models", "Prepare models", {}, after=checked),
        Step("collect_problems", "collect_problems", "Collect problems", {}, after=checked),
    ]


def make_verify_rm(
    *,
    models: Output = MODELS,
    problems: Output = PROBLEMS,
    frozen: Output | None = None,
    attacks: Output | None = None,
    label_shards: int = 1,
) -> list[Step]:
    """Sample, label, train and evaluate.

    Args:
        models: What to start from.
        problems: What to answer.
        frozen: Test examples of an earlier run.
        attacks: Texts of earlier red teams, learned as wrong.
        label_shards: Tasks that label side by side.
    """
    return [
        Step(
            "sample_completions",
            "sample_completions",
            "Sample completions",
            {"models": models, "problems": problems},
        ),
        *_label(problems, frozen, label_shards),
        Step(
            "train_verify_rm",
            "train_verify_rm",
            "Train VerifyRM",
            {
                "train": TRAIN,
                "validation": VALIDATION,
                "models": models,
                **({} if attacks is None else {"attacks": attacks}),
            },
        ),
        evaluate_verify_rm(verify_rm=VERIFY_RM, test=TEST),
    ]


def _label(problems: Output, frozen: Output | None, num_shards: int) -> list[Step]:
    """One step, or one of many tasks and one that merges them; the last one's name is the same."""
    inputs = {
        "problems": problems,
        "completions": COMPLETIONS,
        **({} if frozen is None else {"frozen": frozen}),
    }
    if num_shards == 1:
        return [Step("label_completions", "label_completions", "Label completions", inputs)]
    shards = {"shards": Output("label_shards", "labels"), "reports": Output("label_shards", "report")}
    return [
        Step("label_shards", "label_completions", "Label a shard", inputs, num_shards=num_shards),
        Step("label_completions", "merge_labels", "Merge the labels", inputs | shards),
    ]


def train_plain() -> Step:
    """VerifyRM once more from the same labels, without a defence."""
    inputs = {"train": TRAIN, "validation": VALIDATION, "models": MODELS}
    return Step("train_plain", "train_verify_rm", "Train a plain VerifyRM", inputs, changes=PLAIN)


def evaluate_verify_rm(*, verify_rm: Output, test: Output) -> Step:
    """VerifyRM on examples that it has not seen."""
    inputs = {"verify_rm": verify_rm, "examples": test}
    return Step("evaluate_verify_rm", "evaluate_verify_rm", "Evaluate VerifyRM", inputs)


def co_train(sources: Sources, iterations: int, *, is_frozen: bool = False) -> list[Step]:
    """Evaluate, then train and evaluate in turns; all evaluations see the same held-out data.

    No policy is trained before VerifyRM was evaluated, so that a bad one can be seen first.

    Args:
        sources: What both models start from.
        iterations: How often.
        is_frozen: VerifyRM never learns: the arm in which reward hacking is seen.
    """
    steps = [_evaluate_start(sources, is_frozen)]
    for iteration in range(1, iterations + 1):
        steps += [_train(sources, iteration, is_frozen), _evaluate(sources, iteration, is_frozen)]
    return steps


def attack_start(sources: Sources) -> Step:
    """The red team on VerifyRM before co-training, on problems that nobody trains on."""
    inputs = {"verify_rm": sources.verify_rm, "problems": sources.held_out}
    return Step("red_team_0", "red_team", "Attack VerifyRM", inputs, after=("evaluate_verify_rm",))


def attack_end(sources: Sources, iterations: int) -> Step:
    """The red team on the delivered VerifyRM, with the run's paid wrong rollouts."""
    inputs = {
        "verify_rm": sources.verify_rm,
        "problems": sources.held_out,
        "checkpoint": Output(f"train_cooper_{iterations}", "checkpoint"),
    }
    return Step("red_team", "red_team", "Attack the delivered VerifyRM", inputs)


def report(
    iterations: int,
    *,
    label_report: Output | None = LABEL_REPORT,
    is_attacked: bool = False,
    has_frozen: bool = False,
) -> Step:
    """The page of what the run has shown.

    Args:
        iterations: How many the run had.
        label_report: Where this run labelled.
        is_attacked: With what the red team found.
        has_frozen: With the frozen arm beside Cooper.
    """
    last = f"evaluate_policy_{iterations}"
    frozen = {
        "frozen_evaluations": Output(f"evaluate_frozen_{iterations}", "evaluations"),
        "frozen_completions": Output(f"evaluate_frozen_{iterations}", "completions"),
        "frozen_checkpoint": Output(f"train_frozen_{iterations}", "checkpoint"),
    }
    return Step(
        "report",
        "report",
        "Report",
        {
            "evaluations": Output(last, "evaluations"),
            "completions": Output(last, "completions"),
            "checkpoint": Output(f"train_cooper_{iterations}", "checkpoint"),
            "verify_rm_report": VERIFY_RM_REPORT,
            "start_completions": Output("evaluate_policy_0", "completions"),
            **({} if label_report is None else {"label_report": label_report}),
            **({"red_team": RED_TEAM_REPORT} if is_attacked else {}),
            **(frozen if has_frozen else {}),
        },
    )


def promote(sources: Sources, iterations: int, *, is_attacked: bool = False) -> Step:
    """The result against the registry's champion; `is_attacked`: with what the red team found."""
    last = f"evaluate_policy_{iterations}"
    return Step(
        "promote",
        "promote",
        "Promote or keep the champion",
        {
            "checkpoint": Output(f"train_cooper_{iterations}", "checkpoint"),
            "evaluations": Output(last, "evaluations"),
            "completions": Output(last, "completions"),
            "problems": sources.problems,
            "held_out": sources.held_out,
            "examples": sources.test,
            **({"red_team": RED_TEAM_REPORT} if is_attacked else {}),
        },
    )


def _train(sources: Sources, iteration: int, is_frozen: bool) -> Step:
    name, title = (
        ("train_frozen", "Train, VerifyRM frozen") if is_frozen else ("train_cooper", "Train Cooper")
    )
    optional = {"replay": sources.replay, "examples": sources.examples, "attacks": sources.attacks}
    before = {"start": Output(f"{name}_{iteration - 1}", "checkpoint")} if iteration > 1 else {}
    return Step(
        f"{name}_{iteration}",
        "train_cooper",
        f"{title}, iteration {iteration}",
        {
            "models": sources.models,
            "verify_rm": sources.verify_rm,
            "problems": sources.problems,
            "held_out": sources.held_out,
            "test": sources.test,
            **{name: reference for name, reference in optional.items() if reference is not None},
            **before,
        },
        after=("evaluate_verify_rm",),
        changes=(*FROZEN, f"storage.arm={FROZEN_ARM}") if is_frozen else (),
    )


def _evaluate_start(sources: Sources, is_frozen: bool) -> Step:
    """The policy before co-training; waits until VerifyRM was evaluated."""
    name, title = (
        ("evaluate_frozen_0", "Evaluate the starting point, plain VerifyRM")
        if is_frozen
        else ("evaluate_policy_0", "Evaluate the starting point")
    )
    return Step(name, "evaluate_policy", title, _evaluated(sources), after=("evaluate_verify_rm",))


def _evaluate(sources: Sources, iteration: int, is_frozen: bool) -> Step:
    trained, name, title = (
        ("train_frozen", "evaluate_frozen", "Evaluate with VerifyRM frozen, iteration")
        if is_frozen
        else ("train_cooper", "evaluate_policy", "Evaluate iteration")
    )
    return Step(
        f"{name}_{iteration}",
        "evaluate_policy",
        f"{title} {iteration}",
        {
            **_evaluated(sources),
            "checkpoint": Output(f"{trained}_{iteration}", "checkpoint"),
            "previous": Output(f"{name}_{iteration - 1}", "evaluations"),
        },
    )


def _evaluated(sources: Sources) -> dict[str, Output]:
    return {
        "models": sources.models,
        "verify_rm": sources.verify_rm,
        "problems": sources.held_out,
        "examples": sources.test,
        **({} if sources.attacks is None else {"attacks": sources.attacks}),
    }
