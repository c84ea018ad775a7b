"""The sub-command `watch`: the page of a run while it goes on."""

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from cooper_rl.errors import DataError

PORT = 8808


def add_watch(commands: Any) -> None:
    """Its options."""
    command = commands.add_parser(
        "watch",
        help="Show a run or an experiment in a browser while it goes on.",
        description="Serve one page on 127.0.0.1 that follows the runs below a folder: the --output of a "
        "local pipeline or of an experiment, or where a --checkpoint is. Ctrl-C ends only the page.",
        allow_abbrev=False,
    )
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder of the runs")
    command.add_argument("--port", type=int, default=PORT, help=f"0 takes a free one (default: {PORT})")
    command.add_argument(
        "--write", type=Path, metavar="PATH", help="write the page as it is now to a file, and end"
    )
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> str:
    if options.write:
        return _write(options.folder, options.write)
    from cooper_rl.report.watch import Watcher

    with Watcher(options.folder, port=options.port) as watcher:
        sys.stderr.write(f"watching {options.folder} at {watcher.address} until Ctrl-C\n")
        with suppress(KeyboardInterrupt):
            watcher.serve_forever()
    return ""


def _write(folder: Path, path: Path) -> str:
    from cooper_rl.records.files import write_text
    from cooper_rl.report.live import check_folder, live_page

    check_folder(folder)
    page = live_page(folder)
    if page is None:
        raise DataError(
            f"{folder}: no run below it has begun to train; wait for the first step of train-cooper"
        )
    write_text(path, page)
    return f"page: {path}\n"
