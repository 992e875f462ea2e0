"""OpenTelemetry's protocol as JSON: what the collector's file exporter writes, a line per export."""

from __future__ import annotations

import base64
import binascii
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from pag_graph.sources.spans.table import (
    CHILD_OF,
    DATABASE,
    ERROR,
    FEW,
    INTERNAL,
    KINDS,
    LATEST_NS,
    LINK,
    LONGEST_NS,
    NO_DURATION,
    NO_THREAD,
    Process,
    are_texts,
    are_times,
    lasting,
    nanoseconds,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pag_graph.sources.spans.span_rows import SpanRows
    from pag_graph.sources.spans.table import Place

    I64 = NDArray[np.int64]

FORMAT = "otlp"
TICK_NS = 1
STATUS_ERROR = 2
# No sets: what a document holds may be a list, which is in none.
_FAILED = (STATUS_ERROR, "STATUS_CODE_ERROR")
_DATABASE = ("db.system", "db.system.name")
"""Attributes of spans that talk to a database."""
_BASE64_LENGTHS = (12, 24)
"""Of ids of 8 and 16 bytes, which as hexadecimal digits are 16 and 32 long."""
_ID_DIGITS, _TRACE_DIGITS = 16, 32
_MOST_DIGITS = 20
_fields = itemgetter("spanId", "traceId", "name", "startTimeUnixNano", "endTimeUnixNano")
"""What nearly all spans state."""
_MAYBE = ("kind", "parentSpanId", "status", "links")
"""What may be absent."""


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
    spans: list[Any] = []
    places: list[Place] = []
    for resource_spans in record["resourceSpans"]:
        if not isinstance(resource_spans, dict):
            rows.drop("group_unreadable")
            continue
        resource = resource_spans.get("resource")
        process = resource_process(_attributes(resource.get("attributes") if isinstance(resource, dict) else None))
        spans += _spans(resource_spans, rows)
        places += [rows.place(process)] * (len(spans) - len(places))
    if len(spans) >= FEW and _add_together(spans, places, rows):
        return
    for span, place in zip(spans, places, strict=True):
        if not isinstance(span, dict) or not _add(span, place, rows):
            rows.drop("span_unreadable")


def resource_process(attributes: dict[str, str]) -> Process:
    """Return the process that a resource's attributes describe, by OpenTelemetry's semantic conventions.

    Host is ``host.name``, else ``host.ip``; namespace and instance of the service tell processes of one host apart.
    """
    name = attributes.get("host.name", "")
    spaces = [attributes.get(key, "") for key in ("service.namespace", "service.instance.id")]
    return Process(
        attributes.get("service.name") or "unknown-service",
        name or attributes.get("host.ip", ""),
        " ".join(space for space in spaces if space),
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
    return [entry for entries in lists for entry in entries]


def _add_together(spans: list[Any], places: list[Place], rows: SpanRows) -> bool:
    """Add spans column by column; returns False, and adds none, unless all state what is usual."""
    try:
        number, trace, name, *times = zip(*map(_fields, spans), strict=True)
        kinds, parents, statuses, linked = ([span.get(field) for span in spans] for field in _MAYBE)
        kind_of = {kind: _kind(kind) for kind in set(kinds)}
    except (AttributeError, KeyError, TypeError):
        return False
    if float in set(map(type, kinds)):
        # 2.0 is 2 for a dictionary, and no kind.
        return False
    if not are_texts(number, trace, name) or not _are_ids(number, _ID_DIGITS) or not _are_ids(trace, _TRACE_DIGITS):
        return False
    start, end = (_whole_numbers(column) for column in times)
    if start is None or end is None or (start > end).any() or int((end - start).max()) > LONGEST_NS:
        return False
    number, trace = (tuple(map(str.lower, ids)) for ids in (number, trace))
    thread, flags = _stated_together(spans, rows)
    for row, status in enumerate(statuses):
        if status and isinstance(status, dict) and status.get("code") in _FAILED:
            flags[row] |= ERROR
    operation = rows.operations_of(places, name)
    code = rows.traces.of_column(trace)
    rows.add_many(
        (
            *(code, number, [kind_of[kind] for kind in kinds], start, end),
            *([place.process for place in places], operation, thread, flags),
        ),
        _references_together(parents, linked, code, rows),
    )
    return True


def _references_together(
    parents: Sequence[Any], linked: Sequence[Any], code: list[int], rows: SpanRows
) -> Sequence[Sequence[Any]]:
    """Return the references of spans, parents before links: row among them, kind, code of the trace, and id."""
    owner = [row for row, parent in enumerate(parents) if parent]
    above = [parents[row] for row in owner]
    if not above or (are_texts(above) and _are_ids(above, _ID_DIGITS)):
        stated = [(row, CHILD_OF, code[row], parent.lower()) for row, parent in zip(owner, above, strict=True)]
    else:
        stated = [(row, CHILD_OF, code[row], parent) for row in owner if (parent := _id(parents[row]))]
    for row, links in enumerate(linked):
        if links:
            stated += [(row, LINK, trace_code, target) for trace_code, target in _links(links, code[row], rows)]
    return list(zip(*stated, strict=True)) or ((), (), (), ())


def _are_ids(column: Sequence[str], digits: int) -> bool:
    """Tell whether all texts of a column have as many digits as usual, and are not all zeros."""
    return set(map(len, column)) == {digits} and "0" * digits not in column


def _whole_numbers(column: Sequence[Any]) -> I64 | None:
    """Return times that are all whole numbers, or all digits; None for others."""
    if are_texts(column):
        digits = "".join(column)
        if not (digits.isascii() and digits.isdigit()) or "" in column or max(map(len, column)) > _MOST_DIGITS:
            return None
        column = list(map(int, column))
    return np.array(column, np.int64) if are_times(column, LATEST_NS) else None


def _stated_together(spans: list[dict[str, Any]], rows: SpanRows) -> tuple[list[int], list[int]]:
    """Return the threads and flags that attributes of spans state."""
    threads, flags = [NO_THREAD] * len(spans), [0] * len(spans)
    for row, span in enumerate(spans):
        if attributes := span.get("attributes"):
            threads[row], flags[row] = _stated(attributes, rows)
    return threads, flags


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
    for trace_code, target in _links(get("links"), code, rows):
        rows.refer(row, LINK, trace_code, target)
    return True


def _links(stated: Any, code: int, rows: SpanRows) -> list[tuple[int, str]]:
    """Return the links of a span: code of the trace, and id."""
    links = []
    for link in _dicts(stated):
        target, trace = _id(link.get("spanId")), _id(link.get("traceId"))
        if "startTimeUnixNano" in link:
            # A whole span, where none is looked for.
            rows.drop("span_unreadable")
        elif target:
            links.append((rows.traces.code(trace) if trace else code, target))
    return links


def _stated(attributes: Any, rows: SpanRows) -> tuple[int, int]:
    """Return the thread that attributes of a span state, and flags."""
    thread, flags = NO_THREAD, 0
    for attribute in attributes if type(attributes) is list else ():
        key = attribute.get("key") if type(attribute) is dict else None
        if key == "thread.id":
            thread = rows.threads.code(stated) if (stated := _value(attribute)) else thread
        elif key in _DATABASE and isinstance(attribute.get("value"), dict) and attribute["value"]:
            flags |= DATABASE
    return thread, flags


def _kind(value: Any) -> int:
    if type(value) is int:
        return value - 1 if 1 <= value <= len(KINDS) else INTERNAL
    return KINDS.get(text(value).removeprefix("SPAN_KIND_").lower(), INTERNAL)


def _id(value: Any) -> str:
    """Return an id as small hexadecimal digits: OTLP's JSON has digits of either case, plain protobuf JSON base64."""
    if type(value) is not str:
        return ""
    if len(value) in _BASE64_LENGTHS:
        try:
            decoded = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return value.lower()
        return decoded.hex() if any(decoded) else ""
    return value.lower() if value.strip("0") else ""


def _attributes(stated: Any) -> dict[str, str]:
    """Return attributes that are text, numbers or truths, as text."""
    valued = [
        attribute for attribute in _dicts(stated) if isinstance(attribute.get("value"), dict) and attribute["value"]
    ]
    return {text(attribute.get("key")): _value(attribute) for attribute in valued}


def _value(attribute: dict[str, Any]) -> str:
    """Return the value of an attribute as text; empty for what is no text or number."""
    value = attribute.get("value")
    if isinstance(value, dict) and "bytesValue" in value:
        return ""
    for stated in value.values() if isinstance(value, dict) else ():
        return stated if type(stated) is str else text(stated)
    return ""


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
