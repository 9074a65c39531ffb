"""docs/reference/http.md says what the API says, and its commands print what it shows."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from docs.pages import ROOT, differs, read_page, steps
from docs.test_reference import column, rows, sections
from headwater.app.access import Access
from headwater.app.health import NO_QUEUE, Gauges
from headwater.base.errors import CODES, HeadwaterError
from headwater.interfaces.http.api import api
from headwater.interfaces.http.demand import TriggerBody
from headwater.interfaces.http.openmetrics import openmetrics
from headwater.interfaces.http.problems import status_of
from headwater.interfaces.http.read_routes import QueryBody
from headwater.observe.counters import LABELS, Counters
from unit.interfaces.http.served import running, served_project, serving

PAGE = "http.md"
ADDRESS = "http://127.0.0.1:8372"
OF_HTTP = {403, 404, 405, 408, 413, 415, 422, 429}
"""The statuses of requests that never reached an operation."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server as the page has it: without a token, with the page's secret for webhooks."""
    with (
        running(served_project(tmp_path_factory.mktemp("page") / "shop")) as engine,
        serving(engine.workspace, Access(webhook_secret="the secret")) as found,
    ):
        yield found


def test_the_commands_of_the_page_print_what_it_shows(client: httpx.Client) -> None:
    blocks = [block for block in read_page(ROOT / "docs" / "reference" / PAGE).blocks if block.kind == "picture"]
    commands = [step for block in blocks for step in steps(block)]
    assert len(commands) >= 8
    for step in commands:
        printed = _curl(client, shlex.split(step.command.replace("\\\n", " ")))
        assert not differs(step.expected, printed), f"{PAGE}:{step.line} prints otherwise:\n{printed}"


def test_a_webhook_that_is_signed_as_the_page_says_is_taken(client: httpx.Client) -> None:
    (program,) = [block for block in read_page(ROOT / "docs" / "reference" / PAGE).blocks if block.kind == "python"]
    found: dict[str, Any] = {}
    exec(program.text, found)
    for demand in ("tap", "pulse"):
        headers = found["signed_headers"](b"the secret", int(time.time()), "orders", demand, b"any body")
        path = f"/v1/pipelines/orders/events?demand={demand}"
        assert client.post(path, content=b"any body", headers=headers).status_code == 202


def _curl(client: httpx.Client, words: Sequence[str]) -> str:
    """What `curl` does with the options that the page uses."""
    assert words[0] == "curl"
    method, content, headers, address, stays = "", None, {}, "", False
    left = iter(words[1:])
    for word in left:
        match word:
            case "-X":
                method = next(left)
            case "-H":
                name, _, value = next(left).partition(": ")
                headers[name] = value
            case "-d" | "--json":
                content = next(left)
                headers["Content-Type"] = (
                    "application/json" if word == "--json" else "application/x-www-form-urlencoded"
                )
            case "-N":
                stays = True
            case _:
                assert word.startswith(ADDRESS), word
                address = word.removeprefix(ADDRESS)
    with client.stream(method or ("POST" if content else "GET"), address, content=content, headers=headers) as answer:
        if not stays:
            return answer.read().decode()
        printed: list[str] = []
        for line in answer.iter_lines():
            printed.append(line)
            if '"pipeline": "orders"' in line:
                return "\n".join(printed)
    raise AssertionError("the stream ended")


def test_every_path_is_documented() -> None:
    documented = {(row[0], row[1].strip("`")) for row in rows(sections(PAGE)["Paths"]) if len(row) == 3}
    described: dict[str, Any] = api(_nothing).openapi()["paths"]
    assert documented == {(method.upper(), path) for path, methods in described.items() for method in methods}


def test_every_key_of_a_body_is_documented() -> None:
    assert column(sections(PAGE)["Paths"], "key") == list(TriggerBody.model_fields)
    found = {row[0].strip("`"): row[1:3] for row in rows(sections(PAGE)["Queries"])}
    schema = QueryBody.model_json_schema()["properties"]
    assert found.keys() == schema.keys()
    for key in ("limit", "timeout_seconds"):
        said = [float(text.replace(",", "")) for text in found[key]]
        assert said == [schema[key]["default"], schema[key]["maximum"]]


def test_every_header_of_a_push_is_documented() -> None:
    parameters = api(_nothing).openapi()["paths"]["/v1/ingest/{table}"]["post"]["parameters"]
    described = {parameter["name"].lower() for parameter in parameters if parameter["in"] == "header"}
    documented = {name.lower() for name in column(sections(PAGE)["Pushed rows"], "header")}
    assert documented == described | {"content-encoding"}


def test_every_status_is_documented() -> None:
    documented = {int(row[0]) for row in rows(sections(PAGE)["Errors over HTTP"])}
    assert documented == OF_HTTP | {status_of(HeadwaterError(code, "")) for code in CODES}


def test_every_figure_is_documented_with_its_labels() -> None:
    counters = Counters()
    for kind, labels in LABELS.items():
        counters.add(kind, *labels)
    text = openmetrics(Gauges({"orders": 1.0}, {"idle": 1}, NO_QUEUE, engine_owned=True), counters).decode()
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(headwater_\w+)(\{.*\})? ", text, re.MULTILINE):
        found[name] = set(re.findall(r"(\w+)=", labels))
    documented = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows(sections(PAGE)["Metrics"])}
    assert documented == found


def _nothing() -> Any:
    raise AssertionError("nobody is asked")
