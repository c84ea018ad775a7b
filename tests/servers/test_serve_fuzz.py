"""The scoring server, a real process, fuzzed from the OpenAPI document that it serves itself."""

import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

ITEM = {"question": "Tom has 7 apples.", "reference_answer": "7", "completion": "The answer is 7."}
SURROGATE = json.dumps({"items": [{**ITEM, "question": "\ud800"}]}).encode()
# Every valid body fits into max_body_bytes: 4 * 3 texts of 50 characters, 12 bytes each when escaped.
LIMITS = ("max_items_per_request=4", "max_chars_per_field=50", "max_body_bytes=8000", "max_wait_seconds=0")
# schemathesis does not count 413 among refusals; an invalid body may be too large as well.
REFUSALS = [400, 404, 405, 406, 413, 415, 422]
CONFIG = schemathesis.Config.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}}
)


@pytest.fixture(scope="module")
def url(serve) -> str:
    address, _ = serve(*LIMITS)
    return address


VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("/v1/score", VALID),
        ("/v1/score", INVALID),
        ("/healthz", VALID),  # these take no input that could be wrong
        ("/readyz", VALID),
        ("/metrics", VALID),
    ],
)
def test_every_answer_is_what_the_document_says(url: str, path: str, mode: GenerationMode) -> None:
    """Bodies, headers and queries that fit the schema are accepted, others refused, and nothing is a 500.

    schemathesis also holds status, content type and body of every answer to the document.
    """
    document = schemathesis.openapi.from_url(f"{url}/openapi.json", config=CONFIG)
    (operation,) = [found.ok() for found in document.get_all_operations() if found.ok().path == path]

    @settings(max_examples=50, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def talk(case: Any) -> None:
        answer = case.call_and_validate()
        if answer.status_code == 200 and path == "/v1/score":
            assert len(answer.json()["scores"]) == len(case.body["items"])

    talk()


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 422), (b"{", 422), (b'{"items": NaN}', 422), (SURROGATE, 422), (b"\xff\n\xff", 400)],
)
def test_what_is_no_json_is_refused(url: str, body: bytes, status: int) -> None:
    answer = httpx.post(
        f"{url}/v1/score", content=body, headers={"content-type": "application/json"}, timeout=60
    )
    assert answer.status_code == status
