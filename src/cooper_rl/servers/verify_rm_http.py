"""VerifyRM behind HTTP: POST /v1/score, GET /healthz, /readyz, /metrics, /openapi.json.

FastAPI because requests are checked against the same pydantic models that the OpenAPI document is made from;
uvicorn because it drains requests on SIGTERM. Deliberately left out: authentication and TLS, which belong to
the cluster's gateway.
"""

import logging
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field

from cooper_rl.config.models import ServeConfig
from cooper_rl.errors import CooperError, ServerError
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.servers.batcher import ScoreBatcher

logger = logging.getLogger(__name__)


class Message(BaseModel):
    """Why a request was not answered."""

    detail: str


class ScoreResponse(BaseModel):
    """Scores in the order of the items."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"scores": [0.97], "model": "verify_rm"}]})

    scores: list[Annotated[float, Field(ge=0, le=1)]]
    """VerifyRM's belief that the completion's final answer means the reference answer."""
    model: str
    """The folder's name."""


class _Numbers:
    """What Prometheus reads; a registry of its own, so that two apps in a process do not clash."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("verify_rm_requests", "Requests to /v1/score by status.", ["status"], **named)
        self.items = Counter("verify_rm_items", "Items scored.", **named)
        self.seconds = Histogram("verify_rm_request_seconds", "Time from request to answer.", **named)
        sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
        self.batches = Histogram("verify_rm_batch_items", "Items scored together.", buckets=sizes, **named)
        self.waiting = Gauge("verify_rm_waiting_items", "Items that wait or are being scored.", **named)


def make_app(verify_rm: VerifyRM, config: ServeConfig, *, name: str) -> FastAPI:
    """The application; scoring starts and ends with its lifespan."""
    numbers = _Numbers()
    batcher = ScoreBatcher(
        verify_rm.score,
        max_items=config.max_items_per_batch,
        max_wait_seconds=config.max_wait_seconds,
        max_waiting=config.max_waiting_items,
        on_batch=numbers.batches.observe,
    )
    numbers.waiting.set_function(lambda: batcher.num_waiting)
    is_ready = False

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        nonlocal is_ready
        await batcher.start()
        await batcher.submit([VerifyItem("1+1?", "2", "2")])  # a model that cannot score must not get ready
        is_ready = True
        yield
        is_ready = False
        await batcher.close()

    app = FastAPI(title="VerifyRM", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    _add_scoring(app, batcher, numbers, config=config, name=name)

    @app.get("/healthz", response_class=PlainTextResponse)
    async def healthz() -> str:
        """The process answers."""
        return "ok"

    @app.get("/readyz", response_class=PlainTextResponse, responses={503: {"description": "not ready"}})
    async def readyz() -> PlainTextResponse:
        """The model has scored, and the server is not shutting down."""
        return PlainTextResponse("ready" if is_ready else "not ready", 200 if is_ready else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Prometheus text format."""
        return PlainTextResponse(generate_latest(numbers.registry))

    return app


def _add_scoring(
    app: FastAPI, batcher: ScoreBatcher, numbers: _Numbers, *, config: ServeConfig, name: str
) -> None:
    text = Annotated[str, Field(max_length=config.max_chars_per_field)]

    class ScoreItem(BaseModel):
        """One completion."""

        model_config = ConfigDict(extra="forbid", strict=True)

        question: text  # pyright: ignore[reportInvalidTypeForm] the limit is configuration
        reference_answer: text  # pyright: ignore[reportInvalidTypeForm]
        completion: text  # pyright: ignore[reportInvalidTypeForm]

    class ScoreRequest(BaseModel):
        """Completions to score."""

        model_config = ConfigDict(extra="forbid", strict=True)

        items: Annotated[list[ScoreItem], Field(min_length=1, max_length=config.max_items_per_request)]

    @app.middleware("http")
    async def limit_and_count(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        started = time.monotonic()
        if await _is_too_large(request, config.max_body_bytes):
            response: Response = JSONResponse(
                {"detail": f"the body is over {config.max_body_bytes} bytes; send fewer items"}, 413
            )
        else:
            response = await answer(request)
        if request.url.path == "/v1/score":
            numbers.requests.labels(str(response.status_code)).inc()
            numbers.seconds.observe(time.monotonic() - started)
        return response

    @app.post(
        "/v1/score",
        responses={
            400: {"model": Message, "description": "the body is not UTF-8"},
            413: {"model": Message, "description": "body too large"},
            500: {"model": Message, "description": "the model cannot score"},
            503: {"model": Message, "description": "too many items wait, or shutting down"},
        },
    )
    async def score(request: ScoreRequest) -> ScoreResponse:
        """Score completions against their reference answers."""
        items = [VerifyItem(item.question, item.reference_answer, item.completion) for item in request.items]
        scores = await batcher.submit(items)
        numbers.items.inc(len(items))
        return ScoreResponse(scores=scores, model=name)

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: Exception) -> JSONResponse:
        # Without the input, which may be anything: NaN has no JSON, and a text may be huge.
        found = error.errors() if isinstance(error, RequestValidationError) else []
        shown = [{"loc": item["loc"], "msg": item["msg"], "type": item["type"]} for item in found[:10]]
        return JSONResponse({"detail": shown}, 422)

    @app.exception_handler(CooperError)
    async def explain(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, ServerError):
            return JSONResponse({"detail": str(error)}, 503, headers={"Retry-After": "1"})
        logger.error("%s", error)
        return JSONResponse({"detail": str(error)}, 500)


async def _is_too_large(request: Request, max_bytes: int) -> bool:
    """Whether the body exceeds the limit; it is read no further than that, declared or not."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        return True
    size = 0
    chunks: list[bytes] = []
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            return True
        chunks.append(chunk)
    request._body = b"".join(chunks)  # pyright: ignore[reportPrivateUsage] as Request.body() caches it
    return False


def serve(verify_rm: VerifyRM, config: ServeConfig, *, name: str) -> None:
    """Answer requests until SIGTERM or Ctrl-C, then finish what is in progress."""
    # uvicorn drains, then raises the signal again for whoever handled it before: without a handler the
    # process would end as if killed.
    signal.signal(signal.SIGTERM, lambda *_: None)
    uvicorn.run(
        make_app(verify_rm, config, name=name),
        host=config.host,
        port=config.port,
        timeout_graceful_shutdown=round(config.grace_seconds),
        log_config=None,
        access_log=False,
    )
