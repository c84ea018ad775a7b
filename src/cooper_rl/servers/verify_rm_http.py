"""VerifyRM behind HTTP: POST /v1/score, GET /healthz, /readyz, /metrics, /openapi.json.

FastAPI because requests are checked against the same pydantic models that the OpenAPI document is made from;
uvicorn because it drains requests on SIGTERM. `servers/guard.py` sees requests first.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from cooper_rl.config.serve import ServeConfig
from cooper_rl.errors import CooperError, ServerError
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.servers.batcher import QueueFullError, ScoreBatcher
from cooper_rl.servers.guard import Guard
from cooper_rl.servers.listening import check_listening, end_at_once, listen, rest_of_grace
from cooper_rl.servers.numbers import ServerNumbers
from cooper_rl.servers.pages import Message, RequestPart, add_pages

logger = logging.getLogger(__name__)


class ScoreResponse(BaseModel):
    """Scores in the order of the items."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scores": [0.97], "model": "verify_rm"}]})

    scores: list[Annotated[float, Field(ge=0, le=1)]]
    """VerifyRM's belief that the completion's final answer means the reference answer."""
    model: str
    """The folder's name."""


def make_app(verify_rm: VerifyRM, config: ServeConfig, *, name: str) -> FastAPI:
    """The application; scoring starts and ends with its lifespan. `app.state.batcher` is its ScoreBatcher."""
    numbers = ServerNumbers()

    def observe(num_items: int, num_tokens: int) -> None:
        numbers.batch_items.observe(num_items)
        numbers.batch_tokens.observe(num_tokens)

    batcher = ScoreBatcher(
        lambda items: verify_rm.score(items, max_tokens_per_batch=config.max_tokens_per_batch),
        max_items=config.max_items_per_batch,
        max_tokens=config.max_tokens_per_batch,
        max_wait_seconds=config.max_wait_seconds,
        max_waiting=config.max_waiting_items,
        on_batch=observe,
    )
    numbers.waiting.set_function(lambda: batcher.num_waiting)
    is_ready = False

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        nonlocal is_ready
        await batcher.start()
        await batcher.submit(
            [VerifyItem("1+1?", "2", "2")], [1]
        )  # a model that cannot score must not get ready
        is_ready = True
        yield
        is_ready = False
        await batcher.close(seconds=rest_of_grace(app, config))

    app = FastAPI(title="VerifyRM", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.batcher, app.state.numbers = batcher, numbers
    app.add_middleware(Guard, config=config, numbers=numbers)
    _add_scoring(app, verify_rm, batcher, numbers, config=config, name=name)
    _add_errors(app, numbers)
    add_pages(
        app,
        numbers,
        is_stuck=lambda: batcher.batch_seconds > config.stuck_seconds,
        is_ready=lambda: is_ready,
    )
    return app


def _add_scoring(
    app: FastAPI,
    verify_rm: VerifyRM,
    batcher: ScoreBatcher,
    numbers: ServerNumbers,
    *,
    config: ServeConfig,
    name: str,
) -> None:
    text = Annotated[str, Field(max_length=config.max_chars_per_field)]

    class ScoreItem(RequestPart):
        """One completion."""

        question: text  # pyright: ignore[reportInvalidTypeForm] the limit is configuration
        reference_answer: text  # pyright: ignore[reportInvalidTypeForm]
        completion: text  # pyright: ignore[reportInvalidTypeForm]

    class ScoreRequest(RequestPart):
        """Completions to score."""

        items: Annotated[list[ScoreItem], Field(min_length=1, max_length=config.max_items_per_request)]

    @app.post(
        "/v1/score",
        responses={
            400: {"model": Message, "description": "the body is not UTF-8"},
            401: {"model": Message, "description": "no valid token"},
            413: {"model": Message, "description": "body too large, or too many tokens"},
            429: {"model": Message, "description": "too much waits; the header Retry-After says how long"},
            500: {"model": Message, "description": "the model cannot score"},
            503: {"model": Message, "description": "shutting down"},
        },
    )
    async def score(request: ScoreRequest, raw: Request) -> ScoreResponse:
        """Score completions against their reference answers."""
        items = [VerifyItem(item.question, item.reference_answer, item.completion) for item in request.items]
        # Under overload most requests are refused: tokenizing them first would cost the others their turn.
        batcher.check_room(len(items))
        # In a thread: while texts are tokenized, the event loop would answer nobody, health checks included.
        num_tokens = await asyncio.to_thread(lambda: [len(ids) for ids in verify_rm.encode(items)])
        facts = raw.state.facts
        facts.update(items=len(items), tokens=sum(num_tokens))
        if sum(num_tokens) > config.max_tokens_per_request:
            raise HTTPException(
                413,
                f"the items have {sum(num_tokens)} tokens and may have {config.max_tokens_per_request}; "
                "send fewer items",
            )
        scored = await batcher.submit(items, num_tokens)
        facts["queue_seconds"] = round(scored.queue_seconds, 4)
        numbers.queue_seconds.observe(scored.queue_seconds)
        numbers.items.inc(len(items))
        return ScoreResponse(scores=scored.scores, model=name)


def _add_errors(app: FastAPI, numbers: ServerNumbers) -> None:
    @app.exception_handler(HTTPException)
    async def reject(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if error.status_code == 413:
            numbers.rejected.labels("tokens").inc()
        return JSONResponse({"detail": error.detail}, error.status_code)

    @app.exception_handler(CooperError)
    async def explain(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, QueueFullError):
            numbers.rejected.labels("queue").inc()
            headers = {"Retry-After": str(error.retry_seconds)}
            return JSONResponse({"detail": str(error)}, 429, headers=headers)
        if isinstance(error, ServerError):
            numbers.rejected.labels("shutdown").inc()
            return JSONResponse({"detail": str(error)}, 503, headers={"Retry-After": "1"})
        logger.error("%s", error)
        return JSONResponse({"detail": str(error)}, 500)


def serve(verify_rm: VerifyRM, config: ServeConfig, *, name: str) -> None:
    """Answer requests until SIGTERM or Ctrl-C, then finish what is in progress.

    Raises:
        ConfigError: the address, a token, certificate or key cannot be used.
    """
    check_listening(config)
    app = make_app(verify_rm, config, name=name)
    listen(app, config, app.state.numbers)
    if app.state.batcher.is_stuck:
        logger.error("a batch was still being scored at the end of grace_seconds=%g", config.grace_seconds)
        end_at_once()
