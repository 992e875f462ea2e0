"""Zipkin's JSON, version 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.sources.spans.table import (
    CHILD_OF,
    DATABASE,
    ERROR,
    INTERNAL,
    KINDS,
    NO_DURATION,
    NO_THREAD,
    SHARED,
    Process,
    lasting,
    nanoseconds,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spans.table import Place, SpanRows

FORMAT = "zipkin"
TICK_NS = 1_000


def is_record(record: Any) -> bool:
    """Tell whether a JSON value is a span of Zipkin, or a list of such, or a list of lists, one per trace."""
    if isinstance(record, list):
        inner = next((part for part in record if part != []), None)
        return is_record(inner[0] if isinstance(inner, list) and inner else inner)
    return isinstance(record, dict) and "traceId" in record and "id" in record and "resourceSpans" not in record


def read(record: Any, rows: SpanRows) -> None:
    """Add the spans of one record.

    Parameters
    ----------
    record
        For which `is_record` holds.
    rows
        Where to add them; entries that are no spans are counted there.
    """
    for span in _spans(record):
        if not isinstance(span, dict) or not _add(span, rows):
            rows.drop("span_unreadable")


def _spans(record: Any) -> Iterator[Any]:
    for part in record if isinstance(record, list) else [record]:
        if isinstance(part, list):
            yield from part
        else:
            yield part


def _add(span: dict[str, Any], rows: SpanRows) -> bool:
    get = span.get
    number, trace, name = text(get("id")), text(get("traceId")), text(get("name"))
    start, duration = nanoseconds(get("timestamp"), TICK_NS), nanoseconds(get("duration"), TICK_NS)
    times = None if start is None else lasting(start, duration)
    if not number or not trace or times is None:
        return False
    tags, endpoint = get("tags"), get("localEndpoint")
    stated = tags if isinstance(tags, dict) else {}
    place = _place(endpoint if isinstance(endpoint, dict) else {}, stated, rows)
    flags = (
        (NO_DURATION if duration is None or duration < 0 else 0)
        | (ERROR if "error" in stated else 0)
        | (DATABASE if "db.system" in stated else 0)
        | (SHARED if get("shared") is True else 0)
    )
    thread = text(stated.get("thread.id"))
    operation = place.operations.get(name)
    if operation is None:
        operation = rows.operation(place, name)
    code = rows.traces.code(trace)
    row = rows.add(
        code,
        number,
        KINDS.get(text(get("kind")).lower(), INTERNAL),
        times,
        place.process,
        operation,
        rows.threads.code(thread) if thread else NO_THREAD,
        flags,
    )
    if parent := text(get("parentId")):
        rows.refer(row, CHILD_OF, code, parent)
    return True


def _place(endpoint: dict[str, Any], stated: dict[str, Any], rows: SpanRows) -> Place:
    """Return the process that an endpoint and tags describe."""
    name = text(stated.get("host.name"))
    host = name or text(endpoint.get("ipv4")) or text(endpoint.get("ipv6"))
    service = text(endpoint.get("serviceName")) or "unknown-service"
    return rows.place(Process(service, host, text(stated.get("service.instance.id")), bool(name)))
