"""Schedules: one recurring run by name, made, compared and made again through the API.

A recurring run holds the pipeline as it was compiled, so a changed pipeline needs a new one; `apply` notices.
`pipelines/remote/submit.py` uploads the pipeline that runs.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TextIO

from cooper_rl.errors import ConfigError, ServerError
from cooper_rl.schema.texts import in_one_line
from pipelines.remote.cron import Cron, parse_cron
from pipelines.remote.server import Server, is_status
from pipelines.remote.submit import FINAL_STATES, Version, find_experiment

PAGE_SIZE = 100
TICK_SECONDS = 1.1
"""Kubeflow knows the second in which a schedule was made. In the next one, another is newer."""
MAX_TRIES = 3
ENABLED = "ENABLE"


class Wish(NamedTuple):
    """A schedule as it should be."""

    name: str
    cron: Cron
    max_concurrency: int
    experiment: str


def apply(server: Server, wish: Wish, version: Version, screen: TextIO) -> None:
    """Make the schedule what it should be; does nothing where it is that already.

    Its ScheduledWorkflow in the cluster is what starts runs. Kubeflow's database does not know that it is
    gone, as after a restore on another cluster (KFP 2.17), and the schedule is made again then.

    Raises:
        ConfigError: `max_concurrency` is out of range.
        ServerError: the server cannot be used.
    """
    if not 1 <= wish.max_concurrency <= 10:
        raise ConfigError(f"--max-concurrency {wish.max_concurrency}: choose 1 to 10")
    for _ in range(MAX_TRIES):
        if _apply(server, wish, version, screen):
            return
        time.sleep(TICK_SECONDS)
    raise ServerError(
        f"cannot replace schedule {wish.name!r}: by the server's clock, which may have been set back, the "
        "old one is newer than one that is made now; `schedule delete` it, and give the command again"
    )


def _apply(server: Server, wish: Wish, version: Version, screen: TextIO) -> bool:
    """False: one that was there before counts as newer than the one that was made, which is gone again.

    To keep the newer one all the same could cost both: somebody else who applies now goes by the clock too.
    """
    experiment_id = find_experiment(server, wish.experiment)
    present = _of_name(server, wish.name, "list schedules")
    newest = present[-1] if present else None
    reasons = [] if newest is None else _differences(newest, wish, version, experiment_id)
    if newest is not None and not reasons:
        if _switch(server, newest, f"resume schedule {wish.name!r}", on=True):
            screen.write(f"{wish.name}: {'unchanged' if str(newest.mode) == ENABLED else 'resumed'}\n")
            num_deleted = _remove_older(server, present)
            if num_deleted:
                screen.write(f"{wish.name}: {num_deleted} more of this name deleted\n")
            screen.write(describe(wish.cron))
            return True
        reasons = ["the cluster has lost it"]
    made = _create(server, wish, version, experiment_id)
    before = {run.recurring_run_id for run in present}
    present = _of_name(
        server, wish.name, f"look for older schedules {wish.name!r}, which stay beside the new one"
    )
    # Only now the others: a failure leaves a schedule too many, never none.
    _remove_older(server, present)
    if not present:
        raise ServerError(f"somebody deleted schedule {wish.name!r} as it was made; give the command again")
    if present[-1].recurring_run_id == made:
        why = f" again ({', '.join(reasons)})" if reasons else ""
        screen.write(f"{wish.name}: created{why}\n")
    elif present[-1].recurring_run_id in before:
        return False
    elif theirs := _differences(present[-1], wish, version, experiment_id):
        raise ServerError(
            f"somebody else made another schedule {wish.name!r} at the same time, and the newer one stays, "
            f"which is theirs ({', '.join(theirs)}); give the command again to replace it, or another --name"
        )
    else:
        screen.write(f"{wish.name}: somebody else made the same one at the same time, which stays\n")
    screen.write(describe(wish.cron))
    return True


def _create(server: Server, wish: Wish, version: Version, experiment_id: str) -> str:
    with server.explained(f"create schedule {wish.name!r}"):
        made = server.client.create_recurring_run(
            experiment_id,
            wish.name,
            cron_expression=wish.cron.text,
            max_concurrency=wish.max_concurrency,
            no_catchup=True,
            params=version.parameters,
            pipeline_id=version.pipeline_id,
            version_id=version.version_id,
        )
    return server.id_of(made, "recurring_run_id")


def _remove_older(server: Server, present: Sequence[Any]) -> int:
    """Delete all but the last of these schedules; returns how many.

    Of several people who apply a schedule at once each makes one. Whoever sees several keeps the newest, so
    that none deletes what another one keeps.
    """
    for run in present[:-1]:
        name = str(run.display_name)
        _remove(server, run, f"delete the old schedule {name!r}, which stays beside the right one")
    return len(present[:-1])


def _of_name(server: Server, name: str, what: str) -> list[Any]:
    """The schedules of a name in the order in which they were made."""
    found = [run for run in _all(server, what) if run.display_name == name]
    return sorted(found, key=lambda run: (str(run.created_at or ""), str(run.recurring_run_id)))


def show(server: Server, screen: TextIO) -> None:
    """One paragraph per schedule."""
    found = sorted(_all(server, "list schedules"), key=lambda run: str(run.display_name))
    if not found:
        screen.write("no schedules\n")
    for run in found:
        version = in_one_line(getattr(run.pipeline_version_reference, "pipeline_version_id", None))
        state = "active" if str(run.mode) == ENABLED else "paused"
        name, most = in_one_line(run.display_name), in_one_line(run.max_concurrency)
        screen.write(f"{name}: {state}, version {version}, at most {most} at a time\n")
        screen.write(_describe_trigger(run))


def pause(server: Server, name: str, screen: TextIO) -> None:
    """Keep the schedule, start nothing.

    Raises:
        ServerError: there is none of this name.
    """
    for run in _named(server, name):
        with server.explained(f"pause schedule {name!r}"):
            server.client.disable_recurring_run(str(run.recurring_run_id))
    screen.write(f"{in_one_line(name)}: paused\n")


def delete(server: Server, name: str, screen: TextIO) -> None:
    """Remove the schedule and the pods of its runs, which stay listed.

    Raises:
        ServerError: there is none of this name, or a run of it is in progress.
    """
    for run in _named(server, name):
        _remove(server, run, f"delete schedule {name!r}")
    screen.write(f"{in_one_line(name)}: deleted\n")


def describe(cron: Cron) -> str:
    """The schedule in words, with the next three times."""
    times = ", ".join(f"{moment:%a %Y-%m-%d %H:%M:%S}" for moment in cron.next_times(datetime.now(UTC), 3))
    return f"  {cron.text}  {cron.words()} (UTC)\n  next: {times}\n"


def _describe_trigger(run: Any) -> str:
    """Describe a schedule's trigger. The dashboard also makes schedules with intervals and with crons that
    `schedule apply` refuses."""
    if periodic := getattr(run.trigger, "periodic_schedule", None):
        return f"  every {in_one_line(periodic.interval_second)} s\n"
    try:
        return describe(parse_cron(_cron_of(run)))
    except ConfigError as error:
        return f"  {error}\n"


def _differences(run: Any, wish: Wish, version: Version, experiment_id: str) -> list[str]:
    """The differences from how it should be, in words."""
    runtime = run.runtime_config
    differing = {
        "pipeline changed": getattr(run.pipeline_version_reference, "pipeline_version_id", None)
        != version.version_id,
        "time changed": _cron_of(run) != wish.cron.text,
        "parameters changed": ((runtime.parameters if runtime else None) or {}) != version.parameters,
        "concurrency changed": str(run.max_concurrency or 1) != str(wish.max_concurrency),
        "it would catch up": not run.no_catchup,
        "experiment changed": run.experiment_id != experiment_id,
    }
    return [reason for reason, differs in differing.items() if differs]


def _cron_of(run: Any) -> str:
    schedule = getattr(run.trigger, "cron_schedule", None)
    return str(getattr(schedule, "cron", None) or "")


def _named(server: Server, name: str) -> list[Any]:
    every = _all(server, "list schedules")
    found = [run for run in every if run.display_name == name]
    if not found:
        names = ", ".join(sorted(in_one_line(run.display_name) for run in every)) or "none"
        raise ServerError(f"{server.place.host}: no schedule {name!r}; there are: {names}")
    return found


def _all(server: Server, what: str) -> list[Any]:
    pages = _pages(server, what, server.client.list_recurring_runs, namespace=server.place.namespace)
    return [each for page in pages for each in page.recurring_runs or []]


def _pages(server: Server, what: str, ask: Callable[..., Any], **where: Any) -> Iterator[Any]:
    """The answers of a question whose answer comes in pages."""
    token, seen = "", {""}
    while True:
        with server.explained(what):
            page = ask(page_token=token, page_size=PAGE_SIZE, **where)
        yield page
        token = page.next_page_token or ""
        if not token:
            return
        if token in seen:
            raise ServerError(f"{server.place.host}: cannot {what}: gives the same page again; check --host")
        seen.add(token)


def _remove(server: Server, run: Any, what: str) -> None:
    """Delete a schedule, unless somebody else has meanwhile.

    Kubernetes deletes the workflows of its runs with it (seen with KFP 2.17): one in progress is waited for.

    Raises:
        ServerError: a run is in progress, and the schedule is only paused; or the server cannot be used.
    """
    try:
        # First: the clock could start a run between the look at its runs and the deletion.
        _switch(server, run, what, on=False)
        running = _run_in_progress(server, run)
        if running is None:
            with server.explained(what):
                server.client.delete_recurring_run(str(run.recurring_run_id))
    except ServerError as error:
        if is_status(error.__cause__, 404):
            return
        raise ServerError(f"{error}; the schedule may be paused: give the command again") from error
    if running is not None:
        raise ServerError(
            f"cannot {what}: its run {running} is in progress and would end with it; the schedule is "
            "paused; give the command again when that run has ended, or terminate it first"
        )


def _switch(server: Server, run: Any, what: str, *, on: bool) -> bool:
    """Let a schedule start runs, or no more; returns False if the cluster has no object of it.

    Raises:
        ServerError: the server cannot be used.
    """
    change = server.client.enable_recurring_run if on else server.client.disable_recurring_run
    try:
        with server.explained(what):
            change(str(run.recurring_run_id))
    except ServerError as error:
        if not _is_lost(error.__cause__, with_404=on):
            raise
        return False
    return True


def _is_lost(error: BaseException | None, *, with_404: bool) -> bool:
    """True if Kubeflow did not find the schedule's object in the cluster, or found another one of its name.

    It answers 500 with Kubernetes' words to the first, and 404 to the second (`ChangeJobMode`, KFP 2.17).
    """
    said = str(getattr(error, "body", ""))
    is_gone = is_status(error, 500) and "scheduledworkflows.kubeflow.org" in said and "not found" in said
    return is_gone or (with_404 and is_status(error, 404))


def _run_in_progress(server: Server, schedule: Any) -> str | None:
    try:
        return _find_in_progress(server, schedule, experiment_id=schedule.experiment_id)
    except ServerError as error:
        if not is_status(error.__cause__, 404):
            raise
        # Somebody deleted the experiment; its schedules and runs are still there (KFP 2.17).
        return _find_in_progress(server, schedule, namespace=server.place.namespace)


def _find_in_progress(server: Server, schedule: Any, **where: str | None) -> str | None:
    """The id of the schedule's run in progress, among all runs: others are newer than a training of days."""
    for page in _pages(server, "list runs", server.client.list_runs, sort_by="created_at desc", **where):
        for run in page.runs or []:
            if run.recurring_run_id == schedule.recurring_run_id and run.state not in FINAL_STATES:
                return in_one_line(run.run_id)
    return None
