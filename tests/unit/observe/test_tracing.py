"""Spans as a collector gets them, and how little happens when nobody asked for any."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.base.holder import new_holder
from headwater.catalog import records as r
from headwater.catalog.commit import open_store
from headwater.catalog.history import pond_runs
from headwater.catalog.queue import jobs
from headwater.freshness.events import Completed, Demand
from headwater.freshness.graph import PondSpec, RippleNode
from headwater.observe import otel
from headwater.observe.tracing import asked_exporters, shutdown, trace_id_of, tracing
from headwater.runtime.compile import Compiled, CompiledPipeline
from headwater.runtime.engine import open_engine
from headwater.runtime.traced import traced_commit
from otlp_receiver import Receiver, otlp_receiver

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def nobody_asks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    shutdown()
    yield
    shutdown()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with otlp_receiver() as started:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", started.endpoint)
        yield started
        shutdown()


@pytest.mark.parametrize(
    ("environ", "exporters"),
    [
        ({}, ()),
        ({"OTEL_SERVICE_NAME": "shop"}, ()),
        ({"OTEL_TRACES_EXPORTER": ""}, ()),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, ()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, ("otlp",)),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ()),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, ("console",)),
        ({"OTEL_TRACES_EXPORTER": "otlp, Console,otlp"}, ("otlp", "console")),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": " True"}, ()),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "false"}, ("otlp",)),
    ],
)
def test_the_environment_decides(environ: Mapping[str, str], exporters: tuple[str, ...]) -> None:
    assert asked_exporters(environ) == exporters


UNASKED = """
import json, os, sys
from headwater.base.errors import HeadwaterError
from headwater.observe.tracing import shutdown, tracing

def use():
    with tracing().span("ripple", {"headwater.rows": 1}, parent=None) as span:
        span.add({"headwater.rows": 2})
        span.fail(ValueError())
    tracing().end_run("r", "success")
    made = tracing().begin_run("orders", "r")
    shutdown()
    return made, sorted(name for name in sys.modules if name.startswith("opentelemetry"))

said = [use()]
for asked in ({"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}):
    os.environ.update(asked)
    said.append(use())
os.environ["OTEL_SDK_DISABLED"] = "false"
sys.modules["opentelemetry.sdk"] = None
try:
    use()
except HeadwaterError as error:
    said.append((error.code, error.hint))
print(json.dumps(said))
"""


def test_off_imports_nothing_and_asked_for_without_the_packages_says_what_to_install() -> None:
    child = subprocess.run([sys.executable, "-c", UNASKED], capture_output=True, text=True, check=True)
    *off, (code, hint) = json.loads(child.stdout)
    assert off == [[None, []]] * 3
    assert code == "HW-U01"
    assert "pip install 'headwater[otel]'" in hint


IN_ANOTHER_PROCESS = """
import sys
from headwater.observe.tracing import tracing

with tracing().span("ripple", {"headwater.ripple": "top"}, parent=sys.argv[1]):
    with tracing().span("commit", {}):
        pass
"""


def test_spans_of_another_process_are_children_of_the_run_and_leave_when_it_ends(receiver: Receiver) -> None:
    parent = tracing().begin_run("orders", "run-1")
    assert parent is not None
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS, parent], check=True)
    tracing().end_run("run-1", "success")
    shutdown()
    run, ripple, commit = (receiver.named(name) for name in ("run", "ripple", "commit"))
    assert run.attributes == {
        "headwater.pipeline": "orders",
        "headwater.run_id": "run-1",
        "headwater.state": "success",
    }
    assert (run.parent, ripple.parent, commit.parent) == ("", run.span_id, ripple.span_id)
    assert {run.trace_id, ripple.trace_id, commit.trace_id} == {trace_id_of(parent)}
    assert (run.failed, run.service) == (False, "headwater")


def test_a_thread_is_in_its_own_span_and_begins_a_trace_if_it_is_in_none(receiver: Receiver) -> None:
    def elsewhere() -> None:
        with tracing().span("elsewhere", {}):
            pass

    with tracing().span("outer", {"headwater.ripples": ("a", "b")}):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with tracing().span("inner", {}) as inner:
            inner.add({"headwater.rows": 3})
        tracing().begin_run("orders", "r")
    shutdown()
    outer = receiver.named("outer")
    assert outer.attributes == {"headwater.ripples": ["a", "b"]}
    assert (receiver.named("inner").parent, receiver.named("inner").attributes) == (
        outer.span_id,
        {"headwater.rows": 3},
    )
    assert receiver.named("elsewhere").parent == receiver.named("run").parent == ""
    assert receiver.named("run").trace_id != outer.trace_id


@pytest.mark.parametrize("parent", ["", "nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01"])
def test_a_parent_that_is_none_begins_a_trace(receiver: Receiver, parent: str) -> None:
    with tracing().span("ripple", {}, parent=parent):
        pass
    shutdown()
    assert receiver.named("ripple").parent == ""


def test_an_error_is_told_by_its_code_and_never_by_its_words(receiver: Receiver) -> None:
    with pytest.raises(HeadwaterError), tracing().span("ripple", {}):
        raise HeadwaterError("HW-R01", "row with token hunter2", hint="hunter2", detail={"row": "hunter2"})
    with pytest.raises(ZeroDivisionError), tracing().span("slice", {}):
        raise ZeroDivisionError("hunter2")
    with tracing().span("look", {}) as look:
        look.fail(OSError("hunter2"))
    shutdown()
    ripple = receiver.named("ripple")
    assert (ripple.failed, ripple.says, ripple.attributes) == (True, "a run failed", {"error.type": "HW-R01"})
    slice_ = receiver.named("slice")
    assert (slice_.failed, slice_.says, slice_.attributes) == (True, "", {"error.type": "ZeroDivisionError"})
    assert receiver.named("look").attributes == {"error.type": "OSError"}
    assert all(span.events == 0 for span in receiver.spans())
    assert b"hunter2" not in b"".join(receiver.bodies)


def test_runs_end_as_they_ended_and_those_that_go_on_elsewhere_as_unfinished(receiver: Receiver) -> None:
    for run_id in ("good", "bad", "idle", "open"):
        tracing().begin_run("orders", run_id)
    tracing().end_run("good", "success")
    tracing().end_run("bad", "failed")
    tracing().end_run("idle", None)
    tracing().end_run("of another process", "success")
    shutdown()
    ended = {
        span.attributes["headwater.run_id"]: (span.attributes["headwater.state"], span.failed)
        for span in receiver.spans()
    }
    assert ended == {
        "good": ("success", False),
        "bad": ("failed", True),
        "idle": ("passed", False),
        "open": ("unfinished", False),
    }


def test_runs_under_way_are_bounded(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRACED_RUNS", 2)
    for run_id in ("1", "2", "3"):
        tracing().begin_run("orders", run_id)
        tracing().end_run("1" if run_id == "3" else "", "success")
    shutdown()
    states = {span.attributes["headwater.run_id"]: span.attributes["headwater.state"] for span in receiver.spans()}
    assert states == {"1": "unknown", "2": "unfinished", "3": "unfinished"}


def test_the_rest_of_the_environment_is_honoured(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t0ken")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    with tracing().span("ripple", {}):
        pass
    shutdown()
    assert receiver.named("ripple").service == "shop"
    assert receiver.headers[0]["authorization"] == "Bearer t0ken"
    assert receiver.headers[0]["content-encoding"] == "gzip"


def test_a_run_that_is_not_sampled_takes_its_spans_along(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    parent = tracing().begin_run("orders", "r")
    assert parent is not None
    with tracing().span("ripple", {}, parent=parent) as span:
        span.add({"headwater.rows": 1})
    with tracing().span("sampled elsewhere", {}, parent=TRACEPARENT):
        pass
    tracing().end_run("r", "failed")
    shutdown()
    assert [(span.name, span.trace_id) for span in receiver.spans()] == [
        ("sampled elsewhere", trace_id_of(TRACEPARENT))
    ]


def test_the_console_is_stderr(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    with tracing().span("ripple", {"headwater.rows": 2}):
        pass
    shutdown()
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert json.loads(line)["attributes"] == {"headwater.rows": 2}


@pytest.mark.parametrize(
    "asked",
    [
        {"OTEL_TRACES_EXPORTER": "telegraph"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
    ],
)
def test_what_cannot_be_done_is_refused_before_the_work(asked: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(HeadwaterError) as refused:
        tracing()
    assert refused.value.code == "HW-U01"
    assert refused.value.hint
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert tracing().begin_run("orders", "r") is None


def test_a_collector_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "TRACE_FLUSH_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with tracing().span("ripple", {}):
            pass
        shutdown()
    assert "could not be sent within 0.05 seconds" in caplog.text


def test_a_collector_that_refuses_is_told_of_once_and_without_its_words(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{receiver.endpoint}/lost?token=hunter2")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    monkeypatch.setattr(otel.logging.getLogger("opentelemetry"), "handlers", [])
    for _ in range(3):
        with tracing().span("ripple", {}):
            pass
    shutdown()
    (said,) = caplog.messages
    assert "could not be sent" in said and "hunter2" not in said


def test_a_commit_is_a_span_with_its_sequence_or_its_refusal(receiver: Receiver, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", project="shop")
    with tracing().span("slice", {}):
        created = r.TableCreated(table="t", pipeline="orders", mode="append")
        seq = traced_commit(store, r.Commit(changes=(created,), actor="test"))
        moved = r.CursorIs(pipeline="orders", table="t", version=7)
        with pytest.raises(HeadwaterError):
            traced_commit(store, r.Commit(changes=(), requires=(moved,), actor="test"))
    store.close()
    shutdown()
    landed, refused = sorted((s for s in receiver.spans() if s.name == "commit"), key=lambda s: s.failed)
    assert landed.attributes == {"headwater.changes": 1, "headwater.seq": seq}
    assert refused.attributes == {"headwater.changes": 0, "error.type": "HW-T02"}
    assert {landed.parent, refused.parent} == {receiver.named("slice").span_id}


def test_the_record_of_a_run_leads_to_its_trace(receiver: Receiver, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", project="shop")
    graph = Compiled({"shop": CompiledPipeline("shop", PondSpec("shop", (RippleNode("a", fingerprint="1"),)))})
    engine = open_engine(store, graph, holder=new_holder())
    assert engine is not None
    engine.advance([Demand("shop", "pulse")])
    with store.catalog.snapshot() as connection:
        (run,), (job,) = pond_runs(connection), jobs(connection)
    assert run.trace_id is not None and job.trace_id == run.trace_id
    engine.advance([Completed("shop", "a", job.freshness_us, 1)])
    store.close()
    shutdown()
    span = receiver.named("run")
    assert span.attributes["headwater.run_id"] == run.run_id
    assert span.attributes["headwater.state"] == "success"
    assert span.trace_id == trace_id_of(run.trace_id)


def test_the_trace_id_is_what_tools_show() -> None:
    assert trace_id_of(TRACEPARENT) == "0af7651916cd43dd8448eb211c80319c"
    assert trace_id_of("something else") == "something else"
