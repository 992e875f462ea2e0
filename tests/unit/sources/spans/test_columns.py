"""Spans of Zipkin and OTLP that are added column by column: the same as one by one, whatever is odd about them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from pag_graph.sources.spans import otlp_json, otlp_protobuf, zipkin_json
from pag_graph.sources.spans.span_rows import SpanRows
from pag_graph.sources.spans.table import KINDS
from pag_graph.testing.span_traces import otlp, simulate, zipkin
from tests.support.mutated import mutate_value, tries

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Change = Callable[[dict[str, Any]], object]

TRIES = tries(80)
SPANS = simulate(5, 3).spans
FORMS: dict[str, tuple[ModuleType, Any]] = {
    "zipkin": (zipkin_json, json.loads(zipkin(SPANS))),
    "otlp": (
        otlp_json,
        {"resourceSpans": [group for line in otlp(SPANS).splitlines() for group in json.loads(line)["resourceSpans"]]},
    ),
}


def content(form: ModuleType, record: Any) -> tuple[Any, ...] | None:
    """Return everything that is read of a record; None where there is no span."""
    rows = SpanRows()
    form.read(record, rows)
    if not rows.rows:
        return None
    (whole,) = rows.parts(form.FORMAT, form.TICK_NS, []).tables
    table = whole()
    references = table.references.sort("row", maintain_order=True).rows()
    names = table.traces, table.processes, table.operations, table.threads
    return table.spans.rows(), references, names, table.dropped


def one_by_one(form: ModuleType, record: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...] | None:
    with monkeypatch.context() as patch:
        patch.setattr(form, "_add_together", lambda *_: False)
        return content(form, record)


def parsed(text: bytes) -> Any:
    """Return what the reader's parser makes of a document; None of one that it refuses."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


@pytest.mark.parametrize("name", FORMS)
def test_mutated_documents(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, sound = FORMS[name]
    read = 0
    for number in TRIES:
        record = parsed(mutate_value(json.loads(json.dumps(sound)), random.Random(number)))
        if form.is_record(record):
            assert content(form, record) == one_by_one(form, record, monkeypatch), number
            read += 1
    assert read > len(TRIES) // 2


@pytest.mark.parametrize("name", FORMS)
def test_usual_documents_are_read_in_columns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, sound = FORMS[name]
    monkeypatch.setattr(form, "_add", None)
    rows = SpanRows()
    form.read(sound, rows)
    assert rows.rows == len(SPANS)


LINK = {"spanId": "00000000000000a7", "traceId": "0" * 31 + "7"}
ZIPKIN: dict[str, Change] = {
    "no name": lambda span: span.pop("name"),
    "no duration": lambda span: span.pop("duration"),
    "a negative duration": lambda span: span.update(duration=-1),
    "a fraction": lambda span: span.update(timestamp=span["timestamp"] + 0.5),
    "digits": lambda span: span.update(timestamp=str(span["timestamp"])),
    "a kind of another case": lambda span: span.update(kind="Server"),
    "a kind that is a number": lambda span: span.update(kind=1),
    "a kind that is a list": lambda span: span.update(kind=[]),
    "a shared id": lambda span: span.update(shared=True),
    "an id that is a number": lambda span: span.update(id=17),
    "an empty id": lambda span: span.update(id=""),
    "a parent that is a number": lambda span: span.update(parentId=17),
    "an empty parent": lambda span: span.update(parentId=""),
    "no endpoint": lambda span: span.pop("localEndpoint"),
    "an endpoint that is a list": lambda span: span.update(localEndpoint=[1]),
    "a service that is a list": lambda span: span.update(localEndpoint={"serviceName": ["a"]}),
    "a service that is a number": lambda span: span.update(localEndpoint={"serviceName": 1}),
    "a service that is a truth": lambda span: span.update(localEndpoint={"serviceName": True}),
    "addresses": lambda span: span.update(localEndpoint={"serviceName": "s", "ipv6": "::1", "ipv4": ""}, tags={}),
    "tags that are a list": lambda span: span.update(tags=["error"]),
    "an error and a database": lambda span: span["tags"].update({"error": "", "db.system": "x"}),
    "a thread that is a number": lambda span: span["tags"].update({"thread.id": 3}),
    "an instance": lambda span: span["tags"].update({"service.instance.id": "i"}),
}
OTLP: dict[str, Change] = {
    "times that are numbers": lambda span: span.update({name: int(span[name]) for name in span if "Time" in name}),
    "a time of odd digits": lambda span: span.update(startTimeUnixNano="1_0"),
    "a time that is empty": lambda span: span.update(startTimeUnixNano=""),
    "a time that is negative": lambda span: span.update(startTimeUnixNano="-5"),
    "a time of too many digits": lambda span: span.update(endTimeUnixNano="0" * 30 + span["endTimeUnixNano"]),
    "an end before the start": lambda span: span.update(endTimeUnixNano="7"),
    "no end": lambda span: span.pop("endTimeUnixNano"),
    "a span of a century": lambda span: span.update(endTimeUnixNano=str((1 << 61) - 1)),
    "an id in base64": lambda span: span.update(spanId="AAAAAAAAAAc="),
    "an id of zeros": lambda span: span.update(spanId="0" * 16),
    "a trace of zeros": lambda span: span.update(traceId="0" * 32),
    "a short id": lambda span: span.update(spanId="a7"),
    "ids in capitals": lambda span: span.update({name: span[name].upper() for name in ("spanId", "traceId")}),
    "a parent of zeros": lambda span: span.update(parentSpanId="0" * 16),
    "a parent in base64": lambda span: span.update(parentSpanId="AAAAAAAAAAc="),
    "a parent that is a list": lambda span: span.update(parentSpanId=["a"]),
    "a kind by name": lambda span: span.update(kind="SPAN_KIND_SERVER"),
    "a kind with a fraction": lambda span: span.update(kind=2.0),
    "a kind that is an object": lambda span: span.update(kind={}),
    "links": lambda span: span.update(links=[LINK, {**LINK, "traceId": ""}, 7, {**LINK, "startTimeUnixNano": "1"}]),
    "links that are an object": lambda span: span.update(links=LINK),
    "a status by name": lambda span: span.update(status={"code": "STATUS_CODE_ERROR"}),
    "a status that is a list": lambda span: span.update(status=[2]),
    "a database": lambda span: span["attributes"].append({"key": "db.system", "value": {"stringValue": "x"}}),
    "attributes that are none": lambda span: span.update(attributes={"key": "thread.id"}),
}
CASES = [("zipkin", case) for case in ZIPKIN] + [("otlp", case) for case in OTLP]


def spans_of(name: str, record: Any) -> list[dict[str, Any]]:
    if name == "zipkin":
        return list(record)
    return [span for group in record["resourceSpans"] for scope in group["scopeSpans"] for span in scope["spans"]]


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize(("name", "case"), CASES)
def test_odd_spans(name: str, case: str, monkeypatch: pytest.MonkeyPatch, *, every: bool) -> None:
    form, sound = FORMS[name]
    record = json.loads(json.dumps(sound))
    change = {"zipkin": ZIPKIN, "otlp": OTLP}[name][case]
    for span in spans_of(name, record)[slice(None) if every else slice(3, 4)]:
        change(span)
    assert content(form, record) == one_by_one(form, record, monkeypatch)


# As `opentelemetry/proto/trace/v1/trace.proto` numbers them.
NUMBERS = {0: "internal", 1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer", 6: "internal"}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("count", [1, 20])
def test_kinds_of_otlp_have_the_numbers_of_its_schema(number: int, count: int) -> None:
    times = {"startTimeUnixNano": "5", "endTimeUnixNano": "7"}
    spans = [
        {"traceId": "a" * 32, "spanId": f"{place + 1:016x}", "name": "n", "kind": number, **times}
        for place in range(count)
    ]
    text, binary = SpanRows(), SpanRows()
    otlp_json.read({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, text)
    span = b"\x0a\x10" + b"a" * 16 + b"\x12\x08" + b"b" * 8 + bytes([0x30, number])
    span += b"\x39" + (5).to_bytes(8, "little") + b"\x41" + (7).to_bytes(8, "little")
    scope = b"\x12" + bytes([len(span)]) + span
    group = b"\x12" + bytes([len(scope)]) + scope
    otlp_protobuf.read(b"\x0a" + bytes([len(group)]) + group, binary)
    for rows in (text, binary):
        (whole,) = rows.parts(otlp_json.FORMAT, otlp_json.TICK_NS, []).tables
        assert set(whole().spans["kind"]) == {KINDS[NUMBERS[number]]}
