"""One run of the service: a thread that takes requests in their order.

For each it scores, writes the answer into the journal, lets it be sent, and then learns, while the trainer
updates its policy. So every answer comes from a VerifyRM that has learned from all steps before, as with
`CooperReward`, and `tests/service/` holds both equal. After a kill the steps that the newest checkpoint lacks
are taken again.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from cooper_rl.api.reward_run import RewardRun, ScoredRows
from cooper_rl.api.rows import Row
from cooper_rl.config.serve import LearnConfig
from cooper_rl.errors import CooperError, DataError, ServerError, StorageError
from cooper_rl.servers.batcher import MAX_RETRY_SECONDS, QueueFullError
from cooper_rl.service.journal import Entry, Journal
from cooper_rl.service.numbers import RewardNumbers
from cooper_rl.service.requests import ConflictError, Request, RunStoppedError, Waiting, regroup

logger = logging.getLogger(__name__)

JUDGE_PAUSE_SECONDS = 10.0
"""Between two tries of a step whose judge is away."""

SHUTTING_DOWN = "the server is shutting down; send the request again when it is back"
MAX_ITEMS_SCORED_TOGETHER = 256
"""Of requests that need no step between them."""


class ServedRun:
    """Opens in its own thread; requests wait until it has."""

    def __init__(
        self,
        name: str,
        folder: Path,
        config: LearnConfig,
        *,
        make: Callable[[Path], RewardRun],
        numbers: RewardNumbers,
    ) -> None:
        self.name = name
        self._folder = folder
        self._config = config
        self._make = make
        self._numbers = numbers
        self._changed = threading.Condition()
        """Guards everything below that callers and the thread share."""
        self._queue: deque[Waiting] = deque()
        self._under_way: dict[str, Waiting] = {}
        self._is_closing = False
        self._stopped: str | None = None
        self._journal: Journal | None = None
        self._run: RewardRun | None = None
        self._busy_since: float | None = None
        self._seconds_per_item = 0.0
        self._collected: list[tuple[Row, ...]] = []
        """Requests of the step that is being collected, which `learn=later` adds to."""
        self._taken: list[Waiting] = []
        self._needless_step = 0
        """The step up to which the journal need hold no completions."""
        self.num_waiting = 0
        """Completions that wait or are being scored."""
        self.opened: Future[None] = Future()
        """Done when the run takes requests, or is stopped."""
        self._thread = threading.Thread(target=self._work, name=f"run {name}", daemon=True)
        self._thread.start()

    @property
    def busy_seconds(self) -> float:
        """Seconds that the request or step of the moment has taken; 0 without one."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def describe(self) -> dict[str, object]:
        """For people and trainers; the metrics are the last step's."""
        run = self._run
        return {
            "run": self.name,
            "step": run.step if run else 0,
            "saved_step": run.saved_step if run else 0,
            "waiting_items": self.num_waiting,
            "collected_items": self._num_collected,
            "stopped": self._stopped,
            "metrics": run.metrics[-1].flat() if run and run.metrics else {},
        }

    def submit(self, request: Request) -> Future[Entry]:
        """The answer to a request that was checked, at once or when it is there; of a repeated one the answer
        that it had.

        Raises:
            ConflictError: a request id that stands for another request.
            QueueFullError: too many completions wait already.
            RunStoppedError: the run takes no more requests.
            ServerError: the server is shutting down.
        """
        with self._changed:
            # Before the limits: a repeated request costs nothing, and refusing it would make the client
            # repeat it for ever.
            if request.id is not None and (found := self._find(request)) is not None:
                self._numbers.repeated.labels(self.name).inc()
                return found
            if self._stopped is not None:
                raise RunStoppedError(self._stopped)
            if self._is_closing:
                raise ServerError(SHUTTING_DOWN)
            if self.num_waiting + len(request.rows) > self._config.max_waiting_items:
                seconds = min(MAX_RETRY_SECONDS, 1 + int(self.num_waiting * self._seconds_per_item))
                raise QueueFullError(
                    f"{self.num_waiting} completions wait and at most {self._config.max_waiting_items} may; "
                    f"try again in {seconds} s",
                    retry_seconds=seconds,
                )
            waiting = Waiting(request)
            if request.id is not None:
                self._under_way[request.id] = waiting
            self._queue.append(waiting)
            self.num_waiting += len(request.rows)
            self._changed.notify()
            return waiting.answer

    def close(self, *, seconds: float) -> bool:
        """Refuse what waits, finish and save what is under way; whether that ended in time."""
        with self._changed:
            self._is_closing = True
            refused = list(self._queue)
            self._queue.clear()
            self._changed.notify()
        for waiting in refused:
            self._finish(waiting, ServerError(SHUTTING_DOWN))
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _find(self, request: Request) -> Future[Entry] | None:
        assert request.id is not None
        waiting = self._under_way.get(request.id)
        entry = None if waiting or self._journal is None else self._journal.find(request.id)
        if waiting is None and entry is None:
            return None
        digest = waiting.request.digest if waiting else entry.digest if entry else ""
        if digest != request.digest:
            raise ConflictError(
                f"request_id={request.id[:80]!r}: the run {self.name!r} has answered it with other content; "
                "give every request an id of its own, such as a UUID"
            )
        if waiting:
            return waiting.answer
        done: Future[Entry] = Future()
        done.set_result(entry)  # pyright: ignore[reportArgumentType] not None here
        return done

    def _work(self) -> None:
        """The thread."""
        try:
            run, journal = self._open()
            self.opened.set_result(None)
            # One thread for one run: rewards depend on all updates before, so that requests have an order.
            while batch := self._take():
                self._busy_since = time.monotonic()
                self._answer(batch, run, journal)
                self._busy_since = None
            saved_step = run.saved_step
            run.close()
            self._tidy(run, journal, before=saved_step)
            journal.close()
        except Exception as error:  # whatever it is, the callers must hear of it
            self._stop(error)

    def _open(self) -> tuple[RewardRun, Journal]:
        """The newest checkpoint, and then the steps that it lacks."""
        self._folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(self._folder, kept_rewards=self._config.kept_rewards)
        self._run = run = self._make(self._folder / "checkpoints")
        past = run.past
        self._numbers.open_run(self.name, run.metrics, num_pairs=past.num_pairs, num_alarms=past.num_alarms)
        self._show(run)
        for entry in journal.unlearned:
            if entry.step is None or entry.step <= run.step:
                continue
            # A gap means that a step was learned from completions that are lost; going on would be another
            # run.
            if entry.step != run.step + 1:
                raise DataError(
                    f"{self._folder}: the journal goes on with step {entry.step} and the newest checkpoint "
                    f"ends at step {run.step}; restore the whole folder from one copy, or begin a run with "
                    "another name"
                )
            self._collected.append(entry.rows)
            if entry.ends_step:
                self._learn(run, journal)
        journal.unlearned.clear()
        if run.stopped_step is not None:
            raise RunStoppedError(_describe_alarm(run.stopped_step))
        with self._changed:
            self._journal = journal
            early, self._queue = self._queue, deque()
            self._under_way.clear()
            self.num_waiting = 0
        for waiting in early:  # they came before the answered ones were known
            self._submit_again(waiting)
        logger.info("run %s: takes requests after step %d", self.name, run.step)
        return run, journal

    def _submit_again(self, waiting: Waiting) -> None:
        try:
            again = self.submit(waiting.request)
        except CooperError as error:
            waiting.answer.set_exception(error)
            return
        again.add_done_callback(lambda done: _copy(done, waiting.answer))

    def _take(self) -> list[Waiting]:
        """The next request with `learn=now`, or those up to it that need no step between them; none: the
        end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_closing)
            self._taken = []
            size, collected = 0, self._num_collected
            while self._queue:
                request = self._queue[0].request
                size += len(request.rows)
                # A request that is a step begins a batch: `_answer` looks at the first one to know it.
                if self._taken and (request.learn == "now" or size > MAX_ITEMS_SCORED_TOGETHER):
                    break
                self._taken.append(self._queue.popleft())
                collected += len(request.rows) if request.learn == "later" else 0
                if request.learn == "now" or collected >= (self._config.collect_items or math.inf):
                    break
            return self._taken

    def _answer(self, batch: list[Waiting], run: RewardRun, journal: Journal) -> None:
        """Score, write, answer; then learn, where a step is complete."""
        started = time.monotonic()
        # A request that is a whole step is learned from these scores; collected ones are scored again
        # together.
        is_step = batch[0].request.learn == "now" and not self._collected
        rows = [row for waiting in batch for row in waiting.request.rows]
        try:
            scored = run.score(rows if is_step else regroup(rows), is_training=is_step)
            entries = self._make_entries(batch, scored.rewards, run)
            journal.append([entry for entry in entries if entry.rows or entry.id is not None])
        except CooperError as error:  # nothing has happened: each may be sent again
            logger.error("run %s: %s", self.name, error)  # noqa: TRY400 one line says it
            for waiting in batch:
                self._finish(waiting, error)
            return
        speed = (time.monotonic() - started) / max(1, len(rows))
        self._seconds_per_item = 0.8 * (self._seconds_per_item or speed) + 0.2 * speed
        # Before the answers: who has one and asks for the run must find its completions counted.
        self._collected.extend(entry.rows for entry in entries if entry.rows)
        for waiting, entry in zip(batch, entries, strict=True):
            self._finish(waiting, entry)
        if journal.is_long:  # a run that is only asked for scores has no checkpoints
            self._compact(journal)
        if entries[-1].ends_step:
            self._learn(run, journal, scored=scored if is_step else None)

    def _make_entries(self, batch: list[Waiting], rewards: list[float], run: RewardRun) -> list[Entry]:
        entries: list[Entry] = []
        collected, start = self._num_collected, 0
        for waiting in batch:
            request = waiting.request
            end = start + len(request.rows)
            is_learned = request.learn != "never"
            collected += len(request.rows) if is_learned else 0
            entry = Entry(
                id=request.id,
                digest=request.digest,
                rewards=tuple(rewards[start:end]),
                verify_rm_step=run.step,
                staleness=run.staleness,
                step=run.step + 1 if is_learned else None,
                ends_step=is_learned
                and (request.learn == "now" or collected >= (self._config.collect_items or math.inf)),
                rows=request.rows if is_learned else (),
            )
            entries.append(entry)
            start = end
        return entries

    @property
    def _num_collected(self) -> int:
        return sum(map(len, self._collected))

    def _step_rows(self) -> list[Row]:
        """Rows of the step that was collected; one request's stay in their order, as with `CooperReward`."""
        rows = [row for request in self._collected for row in request]
        return rows if len(self._collected) == 1 else regroup(rows)

    def _learn(self, run: RewardRun, journal: Journal, *, scored: ScoredRows | None = None) -> None:
        """Take the step of the completions that were collected.

        Args:
            run: Whose step it is.
            journal: Told of a checkpoint.
            scored: They are one request's, just scored.
        """
        step, saved_step = run.step + 1, run.saved_step
        scored = scored or self._score_again(run)
        started = time.monotonic()
        try:
            run.learn(scored)
        except (DataError, StorageError) as error:
            if run.step != step:
                raise
            # The step is done, its checkpoint could not be written: the journal stands in for it.
            logger.error("run %s: step %d: %s", self.name, step, error)  # noqa: TRY400 one line says it
        finally:
            # Also the step at which the monitor stops the run: it counts, and its alarm has to be seen.
            if run.step == step:
                self._numbers.add_step(self.name, run.metrics[-1])
                self._numbers.learn_seconds.labels(self.name).observe(time.monotonic() - started)
                self._show(run)
        self._collected = []
        self._tidy(run, journal, before=saved_step)

    def _score_again(self, run: RewardRun) -> ScoredRows:
        """Score a collected step, whose requests were answered; a judge that is away is waited for.

        Raises:
            ServerError: it was away until the server ended; the next start takes the step from the journal.
        """
        while True:
            try:
                return run.score(self._step_rows(), is_training=True)
            except ServerError as error:
                logger.error(  # noqa: TRY400 one line says it
                    "run %s: step %d waits, asked again in %g s: %s",
                    self.name, run.step + 1, JUDGE_PAUSE_SECONDS, error,
                )  # fmt: skip
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_closing, JUDGE_PAUSE_SECONDS):
                        raise
                if self._busy_since is not None:  # each try is work of its own to /healthz
                    self._busy_since = time.monotonic()

    def _show(self, run: RewardRun) -> None:
        self._numbers.staleness.labels(self.name).set(run.staleness)
        # Also where no checkpoint was ever written, which is when an alert has to see it.
        self._numbers.saved_step.labels(self.name).set(run.saved_step)

    def _tidy(self, run: RewardRun, journal: Journal, *, before: int) -> None:
        """After a checkpoint: the journal need not go back beyond the one before, should the last be
        damaged."""
        if run.saved_step == before:
            return
        self._numbers.saved_step.labels(self.name).set(run.saved_step)
        self._needless_step = before
        self._compact(journal)

    def _compact(self, journal: Journal) -> None:
        try:
            journal.compact(self._needless_step)
        except DataError as error:
            logger.error("run %s: %s", self.name, error)  # noqa: TRY400 the next checkpoint tries again

    def _finish(self, waiting: Waiting, result: Entry | Exception) -> None:
        with self._changed:
            if waiting.request.id is not None:
                self._under_way.pop(waiting.request.id, None)
            self.num_waiting -= len(waiting.request.rows)
        if isinstance(result, Exception):
            waiting.answer.set_exception(result)
        else:
            self._numbers.items.inc(len(result.rewards))
            waiting.answer.set_result(result)

    def _stop(self, error: Exception) -> None:
        """The run ends here; its folder is as it was after the last answer."""
        if isinstance(error, CooperError):
            logger.error("run %s stopped: %s", self.name, error)
        else:
            logger.error("run %s stopped", self.name, exc_info=error)
        # The thread ends here: a run that does nothing is not stuck, and /healthz speaks of all runs.
        self._busy_since = None
        reason = f"the run {self.name!r} has stopped: {error}"
        with self._changed:
            self._stopped = reason
            waiting = [each for each in (*self._taken, *self._queue) if not each.answer.done()]
            self._queue.clear()
        for each in waiting:
            self._finish(each, RunStoppedError(reason))
        self._numbers.is_stopped.labels(self.name).set(1)
        if self._run is not None:
            self._run.close(saves=False)
        if not self.opened.done():
            self.opened.set_result(None)


def _copy(done: Future[Entry], answer: Future[Entry]) -> None:
    error = done.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())


def _describe_alarm(step: int) -> str:
    return (
        f"the monitor found reward hacking at step {step}; look at the policy's completions, and begin a run "
        "with other settings or with cooper.monitor.action=rule or warn"
    )
