"""Jaeger's JSON: what its API, its UI and its files hold."""

from __future__ import annotations

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
    Operation,
    Process,
    lasting,
    nanoseconds,
    text,
)

if TYPE_CHECKING:
    from pag_graph.sources.spans.table import SpanRows

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
        processes = _processes(trace.get("processes"), rows)
        own = text(trace.get("traceID"))
        for span in trace["spans"]:
            if not isinstance(span, dict) or not _add(span, own, processes, rows):
                rows.drop("span_unreadable")


def _processes(stated: Any, rows: SpanRows) -> dict[str, tuple[int, str]]:
    """Return code and service of each process of a trace."""
    found = {}
    for key, process in stated.items() if isinstance(stated, dict) else ():
        if not isinstance(process, dict):
            continue
        service = text(process.get("serviceName")) or "unknown-service"
        tags = {text(tag.get("key")): text(tag.get("value")) for tag in _dicts(process.get("tags"))}
        name = tags.get("hostname") or tags.get("host.name") or ""
        instance = tags.get("service.instance.id") or tags.get("client-uuid") or ""
        place = Process(service, name or tags.get("ip", ""), instance, bool(name))
        found[key] = rows.processes.code(place), service
    return found


def _add(span: dict[str, Any], own: str, processes: dict[str, tuple[int, str]], rows: SpanRows) -> bool:
    """Add one span; returns whether it is one."""
    number, trace = text(span.get("spanID")), text(span.get("traceID")) or own
    start = nanoseconds(span.get("startTime", 0), TICK_NS)
    if not number or start is None:
        return False
    duration = nanoseconds(span.get("duration"), TICK_NS)
    times = lasting(start, duration)
    if times is None:
        return False
    process = processes.get(text(span.get("processID")))
    if process is None:
        # Some exporters write the process into the span.
        process = _processes({"": span.get("process") or {}}, rows)[""] if _is_inline(span) else _nobody(rows)
    kind, thread, flags = _tags(span.get("tags"), rows)
    if duration is None or duration < 0:
        flags |= NO_DURATION
    if _failed(span.get("logs")):
        flags |= ERROR
    row = rows.add(
        rows.traces.code(trace),
        number,
        kind,
        times,
        process[0],
        rows.operations.code(Operation(process[1], text(span.get("operationName")))),
        thread,
        flags,
    )
    for reference in _dicts(span.get("references")):
        other = text(reference.get("spanID"))
        if other:
            stated = _REFERENCES.get(text(reference.get("refType")), FOLLOWS_FROM)
            rows.refer(row, stated, rows.traces.code(text(reference.get("traceID")) or trace), other)
    parent = text(span.get("parentSpanID"))
    if parent and not span.get("references"):
        rows.refer(row, CHILD_OF, rows.traces.code(trace), parent)
    return True


def _is_inline(span: dict[str, Any]) -> bool:
    return isinstance(span.get("process"), dict)


def _nobody(rows: SpanRows) -> tuple[int, str]:
    return rows.processes.code(Process("unknown-service", "", "", host_named=False)), "unknown-service"


def _tags(tags: Any, rows: SpanRows) -> tuple[int, int, int]:
    """Return kind, thread and flags that tags state."""
    kind, thread, flags = INTERNAL, NO_THREAD, 0
    kind_stated = False
    for tag in _dicts(tags):
        key, value = tag.get("key"), tag.get("value")
        if type(key) is not str:
            continue
        if key == "span.kind" and not kind_stated:
            kind, kind_stated = KINDS.get(text(value).lower(), INTERNAL), True
        elif key == "thread.id":
            thread = rows.threads.code(text(value))
        elif key == "db.system":
            flags |= DATABASE
        elif _says_failed(key.lower(), text(tag.get("type")).lower(), value):
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
