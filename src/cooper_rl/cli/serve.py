"""The sub-commands `serve-verify-rm` and `serve --learn`: no stages, they answer until they are stopped."""

import argparse
from pathlib import Path
from typing import Any

from cooper_rl.cli.options import add_overrides
from cooper_rl.cli.settings import describe_server
from cooper_rl.config.load import load_learn, load_serve
from cooper_rl.config.serve import LearnConfig, ServeConfig
from cooper_rl.errors import ConfigError, how_to_install

SERVER = "serve-verify-rm"
REWARDS = "serve"


def add_servers(commands: Any) -> None:
    """Their options."""
    command = commands.add_parser(
        SERVER,
        help="Answer scoring requests over HTTP (needs the extra `serve`).",
        description="Score completions over HTTP until SIGTERM: POST /v1/score.",
        epilog=describe_server(ServeConfig),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=_serve_scores)
    command.add_argument("--verify-rm", type=Path, required=True, metavar="PATH", help="Folder of VerifyRM")
    add_overrides(command, "change the server, e.g. --set port=9000")

    command = commands.add_parser(
        REWARDS,
        help="Answer with rewards over HTTP, and learn from the requests (needs the extra `serve`).",
        description="Reward batches of completions over HTTP until SIGTERM, and train VerifyRM on each: POST "
        "/v1/runs/RUN/rewards. What VerifyRM learned is kept in --state; the same command goes on there.",
        epilog=describe_server(LearnConfig),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=_serve_rewards)
    command.add_argument(
        "--learn", action="store_true", required=True, help=f"Train VerifyRM; {SERVER} only scores"
    )
    command.add_argument("--verify-rm", type=Path, required=True, metavar="PATH", help="Folder of VerifyRM")
    command.add_argument(
        "--state", type=Path, required=True, metavar="DIR", help="Folder that keeps the runs"
    )
    command.add_argument(
        "--replay", type=Path, metavar="FILE", help="Labelled completions that VerifyRM keeps training on"
    )
    command.add_argument(
        "--held-out", type=Path, metavar="FILE", help="Labelled completions of other questions, for the gate"
    )
    add_overrides(command, "change server or learning, e.g. --set cooper.reward.lr=1e-5")


def _serve_scores(options: argparse.Namespace) -> str:
    config = load_serve(options.overrides)
    from cooper_rl.machine.device import pick_device
    from cooper_rl.models.verify_rm import load_verify_rm

    try:
        from cooper_rl.servers.verify_rm_http import serve
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    serve(load_verify_rm(options.verify_rm, device=pick_device()), config, name=options.verify_rm.name)
    return ""


def _serve_rewards(options: argparse.Namespace) -> str:
    config = load_learn(options.overrides)
    from cooper_rl.api.reward_config import make_settings
    from cooper_rl.models.verify_rm import load_verify_rm

    try:
        from cooper_rl.service.http import serve
        from cooper_rl.service.runs import Start
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    settings = make_settings(
        config.cooper,
        rule=config.rule,
        replay=options.replay or (),
        held_out=options.held_out or (),
        seed=config.seed,
        device=None,
        domain=config.domain,
    )
    load_verify_rm(options.verify_rm, device=settings.device)  # what cannot be loaded must not be served
    serve(Start(options.verify_rm, settings, options.state), config)
    return ""


def _missing(error: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f"{error}; install the server's libraries: {how_to_install('serve')}")
