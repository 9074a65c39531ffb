"""Requests of every kind that the OpenAPI document allows, and many that it does not: the server answers each of them as
the document says, and never with an error of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unit.interfaces.http.served import Running, running, served_project, serving

if TYPE_CHECKING:
    from schemathesis import APIOperation, Case, GenerationMode

EXAMPLES = 20
STREAMS = frozenset({"/v1/events"})
"""What goes on for ever: `unit/interfaces/http/test_paths.py` listens to it."""
KNOWN = {"table": ("events", "orders", "s-1"), "id": ("orders", "pulsed", "totals")}
"""Names that are there, so that not every request ends at its name."""
ANSWER_SECONDS = 120


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(served_project(tmp_path_factory.mktemp("fuzzed") / "shop")) as found:
        yield found


@pytest.fixture(scope="module")
def document(engine: Running) -> Iterator[dict[str, Any]]:
    """The description as the running server gives it, with its address."""
    with serving(engine.workspace) as client:
        found: dict[str, Any] = client.get("/openapi.json").json()
        yield {**found, "servers": [{"url": str(client.base_url).rstrip("/")}]}


@pytest.mark.parametrize("valid", [True, False], ids=["requests that it allows", "requests that it does not"])
def test_every_answer_is_as_the_document_says(document: dict[str, Any], valid: bool) -> None:
    import schemathesis
    from schemathesis import GenerationMode

    schemathesis.serializer("application/x-ndjson")(_as_it_is)
    mode = GenerationMode.POSITIVE if valid else GenerationMode.NEGATIVE
    asked = set()
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = found.ok()
        free = operation.body or operation.query or operation.headers
        # A name in the path alone cannot be wrong: any text is one.
        if operation.path in STREAMS or not (valid or free):
            continue
        _fuzz(operation, mode, document["servers"][0]["url"])
        asked.add(operation.path)
    assert {"/v1/ingest/{table}", "/v1/query", "/v1/pipelines/{id}/tide"} <= asked


def _fuzz(operation: APIOperation[Any, Any, Any, Any], mode: GenerationMode, url: str) -> None:
    import requests
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]
    session = requests.Session()
    session.trust_env = False

    @settings(
        max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(operation.as_strategy(generation_mode=mode), st.data())
    def ask(case: Case, data: st.DataObject) -> None:
        for name, known in KNOWN.items():
            if name in (case.path_parameters or {}) and data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(known))
        answer = case.call(base_url=url, session=session, timeout=ANSWER_SECONDS)
        # `/health` answers 503 without an engine, and a query that was given too little time 504; else a server that
        # works has no such error.
        expected = {"/health": 503, "/v1/query": 504}.get(operation.path)
        assert answer.status_code < 500 or answer.status_code == expected, case.as_curl_command()
        case.validate_response(answer, checks=checks)

    with session:
        ask()


def _as_it_is(_context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
