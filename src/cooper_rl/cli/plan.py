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
        help="What co-training needs of a GPU's memory, before anything is loaded.",
        description="Add up what train-cooper holds on each GPU in its largest phase; exit 2: too much. With "
        "--seconds: reckon where the seconds of a step go instead, from FLOPs and bytes.",
        allow_abbrev=False,
    )
    command.set_defaults(run=_run)
    add_configuration(command)
    command.add_argument("--policy", metavar="MODEL", help="folder or hub id; absent: models.policy")
    command.add_argument(
        "--verify-rm", metavar="MODEL", help="VerifyRM or its backbone; absent: models.backbone"
    )
    command.add_argument("--processes", type=count, default=1, help="that train together")
    command.add_argument("--gpu-gib", type=size, default=80.0, help="memory of each GPU")
    command.add_argument("--seconds", action="store_true", help="where a step's seconds go, reckoned")
    command.add_argument("--prompt-tokens", type=count, default=100, help="for --seconds, of a prompt")
    command.add_argument(
        "--tflops", type=size, default=989.0, help="for --seconds, dense bf16; 989: H100 SXM"
    )
    command.add_argument("--tb-per-second", type=size, default=3.35, help="for --seconds; 3.35: H100 SXM")


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
