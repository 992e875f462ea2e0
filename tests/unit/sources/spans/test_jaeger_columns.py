"""Jaeger's spans that are added column by column: the same as one by one, whatever is odd about them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from pag_graph.sources.spans import jaeger_json
from pag_graph.sources.spans.span_rows import SpanRows
from pag_graph.testing.span_traces import jaeger, simulate
from tests.support.mutated import mutate_value, tries
from tests.support.span_policies import random_trace

if TYPE_CHECKING:
    from collections.abc import Callable

TRIES = tries(60)
TEXT = jaeger(simulate(5, 3).spans)


def told(record: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return everything that is read of a record; None where there is no span."""
    rows = SpanRows()
    jaeger_json.read(record, rows)
    if not rows.rows:
        return None
    (whole,) = rows.parts(jaeger_json.FORMAT, jaeger_json.TICK_NS, []).tables
    table = whole()
    references = table.references.sort("row", maintain_order=True).rows()
    names = table.traces, table.processes, table.operations, table.threads
    return table.spans.rows(), references, names, table.dropped


def one_by_one(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...] | None:
    with monkeypatch.context() as patch:
        patch.setattr(jaeger_json, "_add_together", lambda *_: False)
        return told(record)


def test_mutated_documents_and_random_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = 0
    for number in TRIES:
        try:
            record = orjson.loads(mutate_value(json.loads(TEXT), random.Random(number)))
        except orjson.JSONDecodeError:
            record = None
        if number % 4 == 0:
            record = random_trace(number)
        if jaeger_json.is_record(record):
            assert told(record) == one_by_one(record, monkeypatch), number
            apart += 1
    assert apart > len(TRIES) // 2


def spans(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [span for trace in record["data"] for span in trace["spans"]]


def each(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], None]:
    def of(record: dict[str, Any]) -> None:
        for span in spans(record):
            change(span)

    return of


def one(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], None]:
    return lambda record: (change(spans(record)[3]), None)[1]


ODD: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": each(lambda span: span),
    "no spans": lambda record: [trace.update(spans=[]) for trace in record["data"][1:]],
    "spans that name no trace": each(lambda span: span.pop("traceID")),
    "spans without a list of references": each(lambda span: span.pop("references")),
    "a parent without references": one(lambda span: span.update(references=[], parentSpanID="0000010000000001")),
    "an empty list of references": one(lambda span: span.update(references=[])),
    "two references": one(lambda span: span["references"].append({"refType": "FOLLOWS_FROM", "spanID": "5"})),
    "a reference to another trace": one(lambda span: span["references"][0].update(traceID="77")),
    "a reference of an unknown kind": one(lambda span: span["references"][0].update(refType="LIKES")),
    "a reference that is a span": one(lambda span: span["references"][0].update(startTime=1)),
    "a reference with more": one(lambda span: span["references"][0].update(span=None)),
    "ids that are numbers": each(lambda span: span.update(spanID=int(span["spanID"], 16))),
    "a log of an error": one(lambda span: span.update(logs=[{"fields": [{"key": "event", "value": "error"}]}])),
    "logs of nothing": one(lambda span: span.update(logs=[{"fields": []}])),
    "a process inside": one(lambda span: span.update(processID="none", process={"serviceName": "inside"})),
    "no process": one(lambda span: span.update(processID="none")),
    "a fraction": one(lambda span: span.update(duration=1.5)),
    "a negative duration": one(lambda span: span.update(duration=-1)),
    "a start that is too late": one(lambda span: span.update(startTime=1 << 60)),
    "tags that are none": one(lambda span: span.update(tags=[1, None, {}, {"key": 1}, {"key": []}])),
    "two kinds": one(lambda span: span["tags"].extend({"key": "span.kind", "value": kind} for kind in ("X", "server"))),
    "an error": one(lambda span: span["tags"].append({"key": "error", "type": "bool", "value": True})),
    "no list of tags": one(lambda span: span.update(tags={"key": "error"})),
    "an id that is empty": one(lambda span: span.update(spanID="")),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("times", [1, 12])
def test_odd_spans(name: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [trace for _ in range(times) for trace in json.loads(TEXT)["data"]]
    record: dict[str, Any] = {"data": traces}
    ODD[name](record)
    found = told(record)
    assert found is not None
    assert found == one_by_one(record, monkeypatch)


def test_spans_of_no_trace_are_left_out_and_counted() -> None:
    """They were joined into one trace, in which spans of several had one id."""
    record = json.loads(TEXT)
    for trace in record["data"]:
        del trace["traceID"]
        for span in trace["spans"]:
            del span["traceID"]
    assert told(record) is None
    record["data"][0]["traceID"] = "f"
    found = told(record)
    assert found is not None
    rows, _, names, dropped = found
    assert len(rows) == len(record["data"][0]["spans"])
    assert {names[0][row[0]] for row in rows} == {"f"}
    assert dropped == {"span_unreadable": sum(len(trace["spans"]) for trace in record["data"][1:])}


def test_usual_documents_are_read_in_columns() -> None:
    traces, rows = json.loads(TEXT)["data"], SpanRows()
    places = [jaeger_json._places(trace["processes"], rows) for trace in traces]
    assert jaeger_json._add_together([trace["spans"] for trace in traces], places, rows)
    assert rows.rows == sum(len(trace["spans"]) for trace in traces)
