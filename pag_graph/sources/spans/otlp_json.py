"""OpenTelemetry's protocol as JSON: what the collector's file exporter writes, a line per export."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from pag_graph.sources.spans.table import (
    CHILD_OF,
    DATABASE,
    ERROR,
    INTERNAL,
    KINDS,
    LINK,
    NO_DURATION,
    NO_THREAD,
    Operation,
    Process,
    lasting,
    nanoseconds,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spans.table import SpanRows

FORMAT = "otlp"
TICK_NS = 1
STATUS_ERROR = 2
_BASE64_LENGTHS = (12, 24)
"""Of ids of 8 and 16 bytes, which as hexadecimal digits are 16 and 32 long."""


def is_record(record: Any) -> bool:
    """Tell whether a JSON value is an export of spans."""
    return isinstance(record, dict) and isinstance(record.get("resourceSpans"), list)


def read(record: dict[str, Any], rows: SpanRows) -> None:
    """Add the spans of one record.

    Parameters
    ----------
    record
        For which `is_record` holds.
    rows
        Where to add them; entries that are no spans are counted there.
    """
    for resource_spans in record["resourceSpans"]:
        if not isinstance(resource_spans, dict):
            rows.drop("group_unreadable")
            continue
        resource = resource_spans.get("resource")
        process = resource_process(_attributes(resource.get("attributes") if isinstance(resource, dict) else None))
        code = rows.processes.code(process)
        for span in _spans(resource_spans, rows):
            if not isinstance(span, dict) or not _add(span, code, process.service, rows):
                rows.drop("span_unreadable")


def resource_process(attributes: dict[str, str]) -> Process:
    """Return the process that a resource's attributes describe."""
    name = attributes.get("host.name", "")
    spaces = [attributes.get(key, "") for key in ("service.namespace", "service.instance.id")]
    return Process(
        attributes.get("service.name") or "unknown-service",
        name or attributes.get("host.ip", ""),
        " ".join(part for part in spaces if part),
        bool(name),
    )


def _spans(resource_spans: dict[str, Any], rows: SpanRows) -> Iterator[Any]:
    for scope in _listed(resource_spans, ("scopeSpans", "instrumentationLibrarySpans"), rows):
        if isinstance(scope, dict):
            yield from _listed(scope, ("spans",), rows)
        else:
            rows.drop("group_unreadable")


def _listed(owner: dict[str, Any], names: tuple[str, ...], rows: SpanRows) -> list[Any]:
    """Return what lists of some names hold, which may be absent; what stands in their place is counted."""
    lists = [owner[name] for name in names if isinstance(owner.get(name), list)]
    if any(owner.get(name) is not None and not isinstance(owner[name], list) for name in names):
        rows.drop("group_unreadable")
    elif not lists and any(isinstance(value, list) for value in owner.values()):
        # A list of another name: misspelt, or of another version of the protocol.
        rows.drop("group_unreadable")
    return [entry for listed in lists for entry in listed]


def _add(span: dict[str, Any], process: int, service: str, rows: SpanRows) -> bool:
    number, trace = _id(span.get("spanId")), _id(span.get("traceId"))
    start = nanoseconds(span.get("startTimeUnixNano"), TICK_NS)
    if not number or not trace or start is None:
        return False
    end = nanoseconds(span.get("endTimeUnixNano"), TICK_NS)
    times = lasting(start, None if end is None else end - start)
    if times is None:
        return False
    flags = NO_DURATION if end is None or end < start else 0
    attributes = _attributes(span.get("attributes"))
    if "db.system" in attributes or "db.system.name" in attributes:
        flags |= DATABASE
    status = span.get("status")
    if isinstance(status, dict) and status.get("code") in {STATUS_ERROR, "STATUS_CODE_ERROR"}:
        flags |= ERROR
    thread, code = attributes.get("thread.id"), rows.traces.code(trace)
    row = rows.add(
        code,
        number,
        _kind(span.get("kind")),
        times,
        process,
        rows.operations.code(Operation(service, text(span.get("name")))),
        rows.threads.code(thread) if thread else NO_THREAD,
        flags,
    )
    if parent := _id(span.get("parentSpanId")):
        rows.refer(row, CHILD_OF, code, parent)
    for link in _dicts(span.get("links")):
        other, where = _id(link.get("spanId")), _id(link.get("traceId"))
        if other:
            rows.refer(row, LINK, rows.traces.code(where) if where else code, other)
    return True


def _kind(value: Any) -> int:
    if type(value) is int:
        return value - 1 if 1 <= value <= len(KINDS) else INTERNAL
    return KINDS.get(text(value).removeprefix("SPAN_KIND_").lower(), INTERNAL)


def _id(value: Any) -> str:
    """Return an id as hexadecimal digits: OTLP's JSON has those, and plain protobuf JSON has base64."""
    if type(value) is not str:
        return ""
    if len(value) in _BASE64_LENGTHS:
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return value
        return decoded.hex() if any(decoded) else ""
    return value if value.strip("0") else ""


def _attributes(stated: Any) -> dict[str, str]:
    """Return attributes that are text, numbers or truths, as text."""
    found = {}
    for attribute in _dicts(stated):
        value = attribute.get("value")
        if isinstance(value, dict) and value:
            found[text(attribute.get("key"))] = text(next(iter(value.values())))
    return found


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
