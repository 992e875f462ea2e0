"""Jaeger's JSON: what its API, its UI and its files hold."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pag_graph.sources.spans.table import (
    CHILD_OF,
    DATABASE,
    ERROR,
    FOLLOWS_FROM,
    INTERNAL,
    KINDS,
    NO_DURATION,
    NO_THREAD,
    Process,
    lasting,
    nanoseconds,
    text,
)

if TYPE_CHECKING:
    from pag_graph.sources.spans.table import Place, SpanRows

FORMAT = "jaeger"
TICK_NS = 1_000
_REFERENCES = {"CHILD_OF": CHILD_OF, "FOLLOWS_FROM": FOLLOWS_FROM}
_FAILED = 400


def is_record(record: Any) -> bool:
    """Tell whether a JSON value is a trace of Jaeger, or an answer of its API."""
    if not isinstance(record, dict):
        return False
    traces = record.get("data")
    if isinstance(traces, list):
        return all(isinstance(trace, dict) and isinstance(trace.get("spans"), list) for trace in traces)
    return isinstance(record.get("spans"), list) and ("processes" in record or "traceID" in record)


def read(record: dict[str, Any], rows: SpanRows) -> None:
    """Add the spans of one record.

    Parameters
    ----------
    record
        For which `is_record` holds.
    rows
        Where to add them; entries that are no spans are counted there.
    """
    traces = record["data"] if isinstance(record.get("data"), list) else [record]
    for trace in traces:
        places = _places(trace.get("processes"), rows)
        own = text(trace.get("traceID"))
        for span in trace["spans"]:
            if not isinstance(span, dict) or not _add(span, own, places, rows):
                rows.drop("span_unreadable")


def _places(stated: Any, rows: SpanRows) -> dict[str, Place]:
    """Return the processes of a trace."""
    places = {}
    for key, process in stated.items() if isinstance(stated, dict) else ():
        if isinstance(process, dict):
            service = text(process.get("serviceName")) or "unknown-service"
            tags = {text(tag.get("key")): text(tag.get("value")) for tag in _dicts(process.get("tags"))}
            name = tags.get("hostname") or tags.get("host.name") or ""
            instance = tags.get("service.instance.id") or tags.get("client-uuid") or ""
            places[key] = rows.place(Process(service, name or tags.get("ip", ""), instance, bool(name)))
    return places


def _add(span: dict[str, Any], own: str, places: dict[str, Place], rows: SpanRows) -> bool:
    """Add one span; returns whether it is one."""
    get = span.get
    number, trace, name = get("spanID"), get("traceID"), get("operationName")
    # What nearly all spans have as text takes no call.
    number = number if type(number) is str else text(number)
    trace = trace if type(trace) is str else text(trace)
    name = name if type(name) is str else text(name)
    start, duration = nanoseconds(get("startTime", 0), TICK_NS), nanoseconds(get("duration"), TICK_NS)
    times = None if start is None else lasting(start, duration)
    if not number or times is None:
        return False
    process = get("processID")
    place = places.get(process if type(process) is str else text(process)) or _place_inside(span, rows)
    kind, thread, flags = _tags(get("tags"), rows)
    if duration is None or duration < 0:
        flags |= NO_DURATION
    if (logs := get("logs")) and _failed(logs):
        flags |= ERROR
    code = rows.traces.code(trace or own)
    operation = place.operations.get(name)
    if operation is None:
        operation = rows.operation(place, name)
    row = rows.add(code, number, kind, times, place.process, operation, thread, flags)
    references = get("references")
    for reference in references if isinstance(references, list) else ():
        if type(reference) is dict and (other := text(reference.get("spanID"))):
            if "startTime" in reference:
                # A whole span, where none is looked for.
                rows.drop("span_unreadable")
                continue
            kind_of = _REFERENCES.get(text(reference.get("refType")), FOLLOWS_FROM)
            where = text(reference.get("traceID"))
            rows.refer(row, kind_of, rows.traces.code(where) if where and where != trace else code, other)
    if not references and (parent := text(get("parentSpanID"))):
        rows.refer(row, CHILD_OF, code, parent)
    return True


def _place_inside(span: dict[str, Any], rows: SpanRows) -> Place:
    """Return the process that stands in the span itself, as some exporters write it; else one of nobody."""
    inside = _places({"": span.get("process")}, rows)
    return inside[""] if inside else rows.place(Process("unknown-service", "", "", host_named=False))


@lru_cache(1 << 12)
def _role(key: str) -> str:
    """Return what a tag is looked at for; empty if it is not."""
    if key in {"span.kind", "thread.id", "db.system"}:
        return key
    return key.lower() if key.lower() in {"error", "http.status_code", "grpc.status"} else ""


def _tags(tags: Any, rows: SpanRows) -> tuple[int, int, int]:
    """Return kind, thread and flags that tags state."""
    kind, thread, flags = INTERNAL, NO_THREAD, 0
    kind_stated = False
    for tag in tags if isinstance(tags, list) else ():
        key = tag.get("key") if type(tag) is dict else None
        role = _role(key) if type(key) is str else ""
        if not role:
            continue
        value = tag.get("value")
        if role == "span.kind":
            if not kind_stated:
                kind, kind_stated = KINDS.get(text(value).lower(), INTERNAL), True
        elif role == "thread.id":
            thread = rows.threads.code(text(value))
        elif role == "db.system":
            flags |= DATABASE
        elif _says_failed(role, text(tag.get("type")).lower(), value):
            flags |= ERROR
    return kind, thread, flags


def _says_failed(key: str, kind: str, value: Any) -> bool:
    """Tell whether a tag says that the span failed, as CRISP reads tags."""
    if key == "error":
        return kind == "string" or bool(value)
    if key == "http.status_code":
        status = nanoseconds(value, 1)
        return status is not None and status >= _FAILED
    return key == "grpc.status" and bool(value) and value != "OK"


def _failed(logs: Any) -> bool:
    """Tell whether a log of a span says that it failed, as CRISP reads logs."""
    for entry in _dicts(logs):
        for tag in _dicts(entry.get("fields")):
            key, value = text(tag.get("key")).lower(), text(tag.get("value")).lower()
            if key == "error.object" or (key == "event" and value == "error"):
                return True
            if key == "error" and text(tag.get("type")).lower() == "string":
                return True
    return False


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
