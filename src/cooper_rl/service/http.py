"""The HTTP side of the service: POST /v1/runs/RUN/rewards and /v1/runs/RUN/openrlhf, GET /v1/runs, /healthz,
/readyz, /metrics, /openapi.json.

`servers/guard.py` sees requests first, as before VerifyRM's server.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import IO, Annotated, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from cooper_rl.api.rows import Row
from cooper_rl.config.serve import LearnConfig
from cooper_rl.errors import CooperError, DataError, ServerError
from cooper_rl.servers.batcher import QueueFullError
from cooper_rl.servers.guard import Guard
from cooper_rl.servers.listening import check_listening, end_at_once, listen, rest_of_grace
from cooper_rl.servers.pages import Message, RequestPart, add_pages
from cooper_rl.service import requests
from cooper_rl.service.journal import Entry
from cooper_rl.service.numbers import RewardNumbers
from cooper_rl.service.openrlhf import OpenRLHFRequest, OpenRLHFResponse, read_openrlhf
from cooper_rl.service.requests import ConflictError, Learn, RunStoppedError
from cooper_rl.service.runs import ServedRuns, Start, take_state

logger = logging.getLogger(__name__)

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": Message, "description": "the completions cannot be used"},
    401: {"model": Message, "description": "no valid token"},
    409: {"model": Message, "description": "contradicts what the run has, or the run has stopped"},
    413: {"model": Message, "description": "body too large"},
    429: {"model": Message, "description": "too much waits; the header Retry-After says how long"},
    500: {"model": Message, "description": "VerifyRM cannot score"},
    503: {"model": Message, "description": "shutting down, or the judge cannot be reached"},
}


class RewardResponse(BaseModel):
    """Rewards in the order of the items."""

    rewards: list[float]
    run: str
    request_id: str
    step: int
    """Steps that VerifyRM had learned from when it scored."""
    staleness: int
    """Earlier steps that it had not learned from; at most `cooper.pairs.max_staleness`."""
    learned_by_step: int | None
    """The step that learns from the items; null: they were only scored."""


def make_app(start: Start, config: LearnConfig, *, held: IO[str] | None = None) -> FastAPI:
    """The application. Its runs open with its lifespan and are saved at the end of it, as
    `app.state.is_stuck` says. `held`: see `ServedRuns`."""
    numbers = RewardNumbers()
    runs: ServedRuns | None = None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        nonlocal runs
        app.state.runs = runs = ServedRuns(start, config, numbers, held=held)
        yield
        seconds = rest_of_grace(app, config)
        app.state.is_stuck = not await asyncio.to_thread(runs.close, seconds=seconds)
        runs = None

    app = FastAPI(title="Cooper rewards", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.numbers, app.state.is_stuck = numbers, False
    app.add_middleware(Guard, config=config, numbers=numbers)
    _add_rewards(app, config)
    _add_errors(app, numbers)
    add_pages(
        app,
        numbers,
        is_stuck=lambda: (
            runs is not None and any(run.busy_seconds > config.stuck_seconds for run in runs.all())
        ),
        is_ready=lambda: runs is not None and runs.is_ready,
    )
    return app


def _add_rewards(app: FastAPI, config: LearnConfig) -> None:
    short = Annotated[str, Field(min_length=1, max_length=config.max_chars_per_field)]

    class RewardItem(RequestPart):
        """One completion."""

        question: short  # pyright: ignore[reportInvalidTypeForm] the limit is configuration
        reference_answer: short  # pyright: ignore[reportInvalidTypeForm]
        completion: Annotated[str, Field(max_length=config.max_chars_per_field)]
        group: Annotated[str, Field(min_length=1, max_length=200)] | None = None
        """Equal for the completions of one problem; null: neighbours with one question are a group."""
        is_cut: bool = False
        """The completion reached the limit of its length, so that a number at its end may be half of one."""

    class RewardRequest(RequestPart):
        """Completions to reward, and to learn from."""

        request_id: Annotated[str, Field(min_length=1, max_length=200)]
        """The client's own, such as a UUID. A repeated request has the same, and gets the same answer."""
        learn: Learn = "now"
        """now: the items are one step; later: part of the step of `collect_items`; never: only score."""
        items: Annotated[list[RewardItem], Field(min_length=1, max_length=config.max_items_per_request)]

    listed = Field(max_length=config.max_items_per_request)
    texts = Annotated[list[str], listed]
    answers = Annotated[list[str | int | float], listed]

    class CollectedRequest(OpenRLHFRequest):
        """At most as many as any request may have."""

        query: texts  # pyright: ignore[reportInvalidTypeForm] the limit is configuration
        prompts: texts  # pyright: ignore[reportInvalidTypeForm]
        labels: answers  # pyright: ignore[reportInvalidTypeForm]

    @app.post("/v1/runs/{run}/rewards", responses=ERRORS)
    async def rewards(run: str, request: RewardRequest, raw: Request) -> RewardResponse:
        """Rewards of a batch from VerifyRM as it is; it learns from the batch when the answer is sent."""
        rows = tuple(
            Row(i.question, i.reference_answer, i.completion, i.group, i.is_cut) for i in request.items
        )
        entry = await _ask(raw, run, requests.Request(request.request_id, rows, request.learn), config)
        return RewardResponse(
            rewards=list(entry.rewards),
            run=run,
            request_id=request.request_id,
            step=entry.verify_rm_step,
            staleness=entry.staleness,
            learned_by_step=entry.step,
        )

    @app.post("/v1/runs/{run}/openrlhf", responses=ERRORS)
    async def openrlhf(run: str, request: CollectedRequest, raw: Request) -> OpenRLHFResponse:
        """OpenRLHF's protocol; what it sends is collected into steps of `collect_items` completions."""
        entry = await _ask(raw, run, requests.Request(None, read_openrlhf(request, config), "later"), config)
        return OpenRLHFResponse(rewards=list(entry.rewards), scores=list(entry.rewards))

    @app.get("/v1/runs", responses={401: ERRORS[401]})
    async def list_runs(raw: Request) -> list[dict[str, Any]]:
        """Every run: steps, what waits, why it stopped, the last step's metrics."""
        return [run.describe() for run in raw.app.state.runs.all()]


async def _ask(raw: Request, name: str, request: requests.Request, config: LearnConfig) -> Entry:
    raw.state.facts.update(run=name[:80], items=len(request.rows), learn=request.learn)
    requests.check(request, config)
    answer = raw.app.state.runs.get(name).submit(request)
    # A client that goes away takes back nothing: it will ask again.
    return await asyncio.shield(asyncio.wrap_future(answer))


def _add_errors(app: FastAPI, numbers: RewardNumbers) -> None:
    @app.exception_handler(CooperError)
    async def explain(request: Request, error: Exception) -> JSONResponse:
        detail = {"detail": str(error)}
        if isinstance(error, QueueFullError):
            numbers.rejected.labels("queue").inc()
            return JSONResponse(detail, 429, headers={"Retry-After": str(error.retry_seconds)})
        if isinstance(error, ServerError):
            numbers.rejected.labels("server").inc()
            return JSONResponse(detail, 503, headers={"Retry-After": "1"})
        if isinstance(error, ConflictError | RunStoppedError):
            numbers.rejected.labels("conflict").inc()
            return JSONResponse(detail, 409)
        if isinstance(error, DataError):
            return JSONResponse(detail, 400)
        return JSONResponse(detail, 500)


def serve(start: Start, config: LearnConfig) -> None:
    """Answer requests until SIGTERM or Ctrl-C, then finish what is under way and save.

    Raises:
        ConfigError: the address, a token, certificate or key cannot be used.
        DataError: the folder of the runs cannot be used.
    """
    check_listening(config)
    # Before uvicorn, which makes a traceback of what its lifespan raises.
    app = make_app(start, config, held=take_state(start.state))
    listen(app, config, app.state.numbers)
    if app.state.is_stuck:
        logger.error(
            "a step was still under way at the end of grace_seconds=%g; the next start takes it again",
            config.grace_seconds,
        )
        end_at_once()
