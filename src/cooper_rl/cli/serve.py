"""The sub-command `serve-verify-rm`: no stage, it answers until it is stopped and writes no report."""

import argparse
from pathlib import Path
from typing import Any

from cooper_rl.cli.options import add_overrides
from cooper_rl.cli.settings import describe_server
from cooper_rl.config.load import load_serve
from cooper_rl.errors import ConfigError

SERVER = "serve-verify-rm"


def add_server(commands: Any) -> None:
    """Its options."""
    command = commands.add_parser(
        SERVER,
        help="Answer scoring requests over HTTP (needs the extra `serve`).",
        description="Score completions over HTTP until SIGTERM: POST /v1/score.",
        epilog=describe_server(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=_run)
    command.add_argument("--verify-rm", type=Path, required=True, metavar="PATH", help="Folder of VerifyRM")
    add_overrides(command, "change the server, e.g. --set port=9000")


def _run(options: argparse.Namespace) -> str:
    config = load_serve(options.overrides)
    from cooper_rl.machine.device import pick_device
    from cooper_rl.models.verify_rm import load_verify_rm

    try:
        from cooper_rl.servers.verify_rm_http import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{error}; install the server's libraries: pip install 'cooper-rl[serve]'"
        ) from error
    serve(load_verify_rm(options.verify_rm, device=pick_device()), config, name=options.verify_rm.name)
    return ""
