"""The commands that talk to a KFP API server: `submit` and `schedule`. kfp is imported when one runs."""

import argparse
import os
import re
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cooper_rl.addresses import redact
from cooper_rl.config.load import settings_of
from cooper_rl.errors import ConfigError
from pipelines.options import add_arguments, add_pipeline, check_namespace, check_no_secret, read_parameters

if TYPE_CHECKING:
    from pipelines.remote.server import Server
    from pipelines.remote.submit import Version

EXIT_RUN_FAILED = 1
MAX_NAME = 255
"""No name of a run or schedule needs more."""


def add_submit(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The options of `submit`."""
    submit = commands.add_parser(
        "submit", help="upload a pipeline to a KFP API server and start a run", allow_abbrev=False
    )
    submit.set_defaults(
        action=_submit,
        when_interrupted="a run that has started goes on: look at the list of runs before you start another",
    )
    add_pipeline(submit, profile="cluster")
    add_arguments(submit, preset=None)
    _add_server(submit)
    submit.add_argument(
        "--experiment", default="cooper-rl", help="where the run is listed (default: cooper-rl)"
    )
    submit.add_argument(
        "--no-cache",
        action="store_true",
        help="run every task; needed once where outputs of earlier runs were removed from the store",
    )
    submit.add_argument("--wait", action="store_true", help="follow the run; exit status 1 if it fails")
    submit.add_argument(
        "--every-seconds",
        type=_seconds,
        default=10.0,
        help="pause between two looks with --wait (default: 10)",
    )


def add_schedule(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The options of `schedule` and its actions."""
    schedule = commands.add_parser("schedule", help="runs that start by the clock", allow_abbrev=False)
    actions = schedule.add_subparsers(dest="schedule", metavar="ACTION", required=True)
    apply = actions.add_parser(
        "apply", help="make a schedule, or make it again where something changed", allow_abbrev=False
    )
    add_pipeline(apply, profile="cluster")
    add_arguments(apply, preset=None)
    apply.add_argument(
        "--cron", required=True, help="six fields, seconds first, in UTC: '0 0 2 * * *' is every day at 02:00"
    )
    apply.add_argument("--max-concurrency", type=int, default=1, help="runs at a time, 1 to 10 (default: 1)")
    apply.add_argument("--experiment", default="cooper-rl", help="where runs are listed (default: cooper-rl)")
    apply.add_argument("--name", help="of the schedule (default: the pipeline's)")
    apply.set_defaults(action=_schedule_apply)
    listing = actions.add_parser("list", help="show every schedule with its next times", allow_abbrev=False)
    listing.set_defaults(action=_schedule_list)
    pause = actions.add_parser("pause", help="keep a schedule, start nothing", allow_abbrev=False)
    delete = actions.add_parser(
        "delete",
        help="remove a schedule and its runs' pods; the runs stay listed",
        allow_abbrev=False,
    )
    for command, action in ((pause, _schedule_pause), (delete, _schedule_delete)):
        command.add_argument("name", help="of the schedule")
        command.set_defaults(action=action)
    for command in (apply, listing, pause, delete):
        _add_server(command)


def _add_server(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", help="address of the dashboard (default: $KF_PIPELINES_ENDPOINT)")
    command.add_argument("--namespace", help="yours on a Kubeflow for many users; leave out elsewhere")
    command.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="bearer token; read anew when the server refuses it (default: $KFP_TOKEN, if set)",
    )
    command.add_argument("--ca-bundle", type=Path, metavar="FILE", help="authorities to trust (PEM)")
    command.add_argument(
        "--timeout-seconds",
        type=_seconds,
        default=30.0,
        help="how long the server may say nothing (default: 30)",
    )


_MAX_SECONDS = 86400
"""A day. The system counts milliseconds, and refuses to wait for more than 24 days of them."""


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= _MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is no time; give seconds above 0, up to {_MAX_SECONDS}")
    return seconds


def _submit(options: argparse.Namespace) -> int:
    from pipelines.remote.submit import follow, start

    _check_name(options.experiment, option="--experiment")
    server, version = _upload(options, cache=not options.no_cache)
    run_id = start(server, version, experiment=options.experiment)
    sys.stdout.write(f"run {run_id}\n{server.link('runs', 'details', run_id)}\n")
    sys.stdout.flush()
    if not options.wait:
        return 0
    return 0 if follow(server, run_id, sys.stdout, pause_seconds=options.every_seconds) else EXIT_RUN_FAILED


def _schedule_apply(options: argparse.Namespace) -> int:
    from pipelines.profile import load_profile
    from pipelines.remote.cron import parse_cron
    from pipelines.remote.schedule import Wish, apply

    name = options.pipeline.replace("_", "-") if options.name is None else options.name
    _check_name(name, option="--name")
    _check_name(options.experiment, option="--experiment")
    cron = parse_cron(options.cron)  # before anything is uploaded
    settings = [*load_profile(options.profile).overrides, *options.overrides]
    named = [each for each in settings if "storage.run_key" in settings_of(each)]
    if named or read_parameters(options.parameters).get("run_key"):
        raise ConfigError(
            f"{named[0] if named else '--param run_key'}: every run of a schedule would go on with the "
            "checkpoints of the first; leave it out, and each run's checkpoints are named by its own id"
        )
    server, version = _upload(options)
    wish = Wish(name, cron, options.max_concurrency, options.experiment)
    apply(server, wish, version, sys.stdout)
    return 0


def _schedule_list(options: argparse.Namespace) -> int:
    from pipelines.remote.schedule import show

    show(_connect(options), sys.stdout)
    return 0


def _schedule_pause(options: argparse.Namespace) -> int:
    from pipelines.remote.schedule import pause

    pause(_connect(options), options.name, sys.stdout)
    return 0


def _schedule_delete(options: argparse.Namespace) -> int:
    from pipelines.remote.schedule import delete

    delete(_connect(options), options.name, sys.stdout)
    return 0


def _upload(options: argparse.Namespace, *, cache: bool = True) -> "tuple[Server, Version]":
    """Connect and upload; without `cache`, a pipeline whose every task runs, whatever the profile says."""
    from pipelines.compile import check_settings
    from pipelines.profile import load_profile
    from pipelines.remote.submit import upload

    profile = load_profile(options.profile)
    if not cache:
        profile = profile.model_copy(update={"cache": False})
    preset = options.preset or profile.preset
    given: dict[str, Any] = {"preset": preset, "overrides": options.overrides}
    given |= read_parameters(options.parameters)
    check_no_secret(given, place="--set or --param")
    if not preset.endswith(".toml"):  # a file lies in the image, whose first task reads it
        check_settings(options.pipeline, preset, options.overrides, given, profile=profile)
    server = _connect(options)
    version = upload(
        server, options.pipeline, profile=profile, iterations=options.iterations, parameters=given
    )
    word = "uploaded" if version.is_new else "there already"
    sys.stdout.write(f"version {version.name} ({word})\n")
    return server, version


def _check_host(host: str) -> None:
    try:
        parts = urlsplit(host)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port or an address of IPv6
        has_place = False
    if not has_place or not re.fullmatch(r"[!-~]+", host):
        raise ConfigError(f"--host {host!r}: is no address; write https://name or https://name:port")
    if "?" in host or "#" in host:
        raise ConfigError(
            f"--host {redact(host)!r}: leave out what begins with {'?' if '?' in host else '#'}, "
            "which is a page of the dashboard"
        )


def _check_authorities(bundle: Path) -> None:
    try:
        ssl.create_default_context(cafile=str(bundle))
    except OSError as error:  # ssl.SSLError is one
        reason = "holds no certificates" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"--ca-bundle {bundle}: {reason}; give a file of certificates (PEM)") from error


def _check_name(name: str, *, option: str) -> None:
    """Refuse what a dashboard cannot show, and a database not keep, before anything is uploaded."""
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise ConfigError(
            f"{option} {name[:100]!r}: is no name; write 1 to {MAX_NAME} characters that can be printed"
        )


def _connect(options: argparse.Namespace) -> "Server":
    from pipelines.remote.server import HOST_ENV, Place, Server

    host = options.host or os.environ.get(HOST_ENV)
    if not host:
        raise ConfigError(f"no server: give --host, the dashboard's address, or set ${HOST_ENV}")
    if not host.startswith(("http://", "https://")):
        raise ConfigError(f"--host {host!r}: write it with http:// or https://")
    if "@" in host:  # not shown: it may hold a password
        raise ConfigError(f"--host or ${HOST_ENV} must be an address without user or password")
    _check_host(host)
    if options.namespace:
        check_namespace(options.namespace)
    if options.ca_bundle is not None:
        _check_authorities(options.ca_bundle)
    return Server(
        Place(
            host=host,
            namespace=options.namespace,
            token_file=options.token_file,
            ca_bundle=options.ca_bundle,
            timeout_seconds=options.timeout_seconds,
        )
    )
