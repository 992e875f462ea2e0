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
    Process,
    lasting,
    nanoseconds,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spans.table import Place, SpanRows

FORMAT = "otlp"
TICK_NS = 1
STATUS_ERROR = 2
# No sets: what a document holds may be a list, which is in none.
_FAILED = (STATUS_ERROR, "STATUS_CODE_ERROR")
_DATABASE = ("db.system", "db.system.name")
"""Attributes of spans that talk to a database."""
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
        place = rows.place(process)
        for span in _spans(resource_spans, rows):
            if not isinstance(span, dict) or not _add(span, place, rows):
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


def _add(span: dict[str, Any], place: Place, rows: SpanRows) -> bool:
    get = span.get
    number, trace = _id(get("spanId")), _id(get("traceId"))
    start, end = nanoseconds(get("startTimeUnixNano"), TICK_NS), nanoseconds(get("endTimeUnixNano"), TICK_NS)
    times = None if start is None else lasting(start, None if end is None else end - start)
    if not number or not trace or start is None or times is None:
        return False
    thread, flags = _stated(get("attributes"), rows)
    if end is None or end < start:
        flags |= NO_DURATION
    status = get("status")
    if isinstance(status, dict) and status.get("code") in _FAILED:
        flags |= ERROR
    name = get("name")
    name = name if type(name) is str else text(name)
    operation = place.operations.get(name)
    if operation is None:
        operation = rows.operation(place, name)
    code = rows.traces.code(trace)
    row = rows.add(code, number, _kind(get("kind")), times, place.process, operation, thread, flags)
    if parent := _id(get("parentSpanId")):
        rows.refer(row, CHILD_OF, code, parent)
    for link in _dicts(get("links")):
        other, where = _id(link.get("spanId")), _id(link.get("traceId"))
        if "startTimeUnixNano" in link:
            # A whole span, where none is looked for.
            rows.drop("span_unreadable")
        elif other:
            rows.refer(row, LINK, rows.traces.code(where) if where else code, other)
    return True


def _stated(attributes: Any, rows: SpanRows) -> tuple[int, int]:
    """Return the thread that attributes of a span state, and flags."""
    thread, flags = NO_THREAD, 0
    for attribute in attributes if isinstance(attributes, list) else ():
        key = attribute.get("key") if type(attribute) is dict else None
        if key == "thread.id":
            thread = rows.threads.code(stated) if (stated := _value(attribute)) else NO_THREAD
        elif key in _DATABASE and isinstance(attribute.get("value"), dict) and attribute["value"]:
            flags |= DATABASE
    return thread, flags


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
    known = [
        attribute for attribute in _dicts(stated) if isinstance(attribute.get("value"), dict) and attribute["value"]
    ]
    return {text(attribute.get("key")): _value(attribute) for attribute in known}


def _value(attribute: dict[str, Any]) -> str:
    """Return the value of an attribute as text; empty for what is no text or number."""
    value = attribute.get("value")
    return text(next(iter(value.values()))) if isinstance(value, dict) and value else ""


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
