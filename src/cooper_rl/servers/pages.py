"""Pages that every server of ours has beside its own requests: health, metrics, and refusals."""

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, model_validator

from cooper_rl.servers.numbers import HttpNumbers

MAX_FAULTS = 10
"""Faults of a request that its refusal names."""
LIMITS = {
    ("string_too_long", "question"): "max_chars_per_field",
    ("string_too_long", "reference_answer"): "max_chars_per_field",
    ("string_too_long", "completion"): "max_chars_per_field",
    ("too_long", "items"): "max_items_per_request",
}
"""Kind of fault and field -> the server's key that sets the limit."""


class Message(BaseModel):
    """Why a request was not answered."""

    detail: str


class RequestPart(BaseModel):
    """An object in a request: strict in its types, and without keys that are not known."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, found: Any) -> Any:
        """Leave out all but the first unknown keys: each is a fault of a kilobyte, and a body has room for
        millions."""
        if (
            not isinstance(found, dict)
            or len(cast("dict[str, Any]", found)) <= len(cls.model_fields) + MAX_FAULTS
        ):
            return found
        values = cast("dict[str, Any]", found)
        unknown = islice((key for key in values if key not in cls.model_fields), MAX_FAULTS)
        return {key: values[key] for key in (*(values.keys() & cls.model_fields), *unknown)}


def add_pages(
    app: FastAPI, numbers: HttpNumbers, *, is_stuck: Callable[[], bool], is_ready: Callable[[], bool]
) -> None:
    """Add GET /healthz, /readyz and /metrics, and the refusal of a request that does not fit its model.

    Args:
        app: Where.
        numbers: What /metrics shows.
        is_stuck: Whether something takes longer than it ever should.
        is_ready: Whether requests can be answered now.
    """

    @app.get("/healthz", response_class=PlainTextResponse, responses={503: {"description": "stuck"}})
    async def healthz() -> PlainTextResponse:
        """The process answers, and nothing that it does takes for ever."""
        stuck = is_stuck()
        return PlainTextResponse("stuck" if stuck else "ok", 503 if stuck else 200)

    @app.get("/readyz", response_class=PlainTextResponse, responses={503: {"description": "not ready"}})
    async def readyz() -> PlainTextResponse:
        """The start is over, and the server is not shutting down."""
        ready = is_ready()
        return PlainTextResponse("ready" if ready else "not ready", 200 if ready else 503)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Prometheus text format."""
        return PlainTextResponse(numbers.text())

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: Exception) -> JSONResponse:
        # Without the input, which may be anything: NaN has no JSON, and a text may be huge.
        found = error.errors() if isinstance(error, RequestValidationError) else []
        shown = [
            {"loc": item["loc"], "msg": item["msg"] + _limit_of(item), "type": item["type"]}
            for item in found[:MAX_FAULTS]
        ]
        return JSONResponse({"detail": shown}, 422)


def _limit_of(fault: Mapping[str, Any]) -> str:
    key = LIMITS.get((fault["type"], str(fault["loc"][-1])))
    return "" if key is None else f" ({key} of the server)"
