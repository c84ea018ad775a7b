"""The sub-command `plan`: what co-training needs of a GPU, and where a step's seconds go."""

import argparse
from typing import Any

from cooper_rl.cli.options import add_configuration, count, size
from cooper_rl.config.load import load
from cooper_rl.errors import ConfigError


def add_plan(commands: Any) -> None:
    """Its options."""
    command = commands.add_parser(
        "plan",
        help="Estimate the GPU memory of co-training before anything is loaded.",
        description="Add up the memory that train-cooper needs on each GPU in its largest phase; the exit "
        "status is 2 if it does not fit. With --seconds, estimate instead where the seconds of a step go, "
        "from FLOPs and bytes.",
        allow_abbrev=False,
    )
    command.set_defaults(run=_run)
    add_configuration(command)
    command.add_argument(
        "--policy", metavar="MODEL", help="folder or hub id of the policy (default: models.policy)"
    )
    command.add_argument(
        "--verify-rm", metavar="MODEL", help="VerifyRM or its backbone (default: models.backbone)"
    )
    command.add_argument(
        "--processes", type=count, default=1, help="processes that train together (default: 1)"
    )
    command.add_argument(
        "--gpu-gib", type=size, default=80.0, help="memory of each GPU, in GiB (default: 80)"
    )
    command.add_argument("--seconds", action="store_true", help="estimate where a step's seconds go")
    command.add_argument(
        "--prompt-tokens", type=count, default=100, help="for --seconds: tokens of a prompt (default: 100)"
    )
    command.add_argument(
        "--tflops",
        type=size,
        default=989.0,
        help="for --seconds: the GPU's dense bf16 TFLOP/s (default: 989, an H100 SXM)",
    )
    command.add_argument(
        "--tb-per-second",
        type=size,
        default=3.35,
        help="for --seconds: the GPU's memory bandwidth in TB/s (default: 3.35, an H100 SXM)",
    )


def _run(options: argparse.Namespace) -> str:
    config = load(options.preset, options.overrides)
    names = (options.policy or config.models.policy, options.verify_rm or config.models.backbone)
    if not all(names):
        raise ConfigError(f"preset {options.preset!r} names no models: give --policy and --verify-rm")
    from cooper_rl.models.budget import Card
    from cooper_rl.run.memory import explain_memory, explain_seconds

    policy, verify_rm = map(str, names)
    if options.seconds:
        card = Card(options.tflops * 1e12, options.tb_per_second * 1e12)
        return explain_seconds(config, policy, verify_rm, card, prompt_tokens=options.prompt_tokens)
    return explain_memory(config, policy, verify_rm, options.processes, options.gpu_gib)
