"""Zipkin's JSON, version 2."""

from __future__ import annotations

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
    LONGEST_NS,
    NO_DURATION,
    NO_THREAD,
    SHARED,
    Process,
    are_texts,
    are_times,
    lasting,
    nanoseconds,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pag_graph.sources.spans.span_rows import SpanRows
    from pag_graph.sources.spans.table import Place

FORMAT = "zipkin"
TICK_NS = 1_000
_fields = itemgetter("id", "traceId", "name", "timestamp", "duration")
"""What nearly all spans state."""
_NOTHING: dict[str, Any] = {}


def is_record(record: Any) -> bool:
    """Tell whether a JSON value is a span of Zipkin, or a list with such, or a list of lists, one per trace."""
    if isinstance(record, list):
        # What else is among them is counted as it is read.
        spans = (span for entry in record for span in (entry if isinstance(entry, list) else [entry]))
        return any(not isinstance(span, list) and is_record(span) for span in spans)
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
    spans = list(_spans(record))
    if len(spans) >= FEW and _add_together(spans, rows):
        return
    for span in spans:
        if not isinstance(span, dict) or not _add(span, rows):
            rows.drop("span_unreadable")


def _spans(record: Any) -> Iterator[Any]:
    for entry in record if isinstance(record, list) else [record]:
        if isinstance(entry, list):
            yield from entry
        else:
            yield entry


def _add_together(spans: list[Any], rows: SpanRows) -> bool:
    """Add spans column by column; returns False, and adds none, unless all state what is usual."""
    try:
        number, trace, name, start, duration = zip(*map(_fields, spans), strict=True)
        kinds = [span.get("kind") for span in spans]
        parents = [span.get("parentId") for span in spans]
        kind_of = {kind: KINDS.get(text(kind).lower(), INTERNAL) for kind in set(kinds)}
    except (AttributeError, KeyError, TypeError):
        return False
    if not are_texts(number, trace, name) or "" in number or "" in trace:
        return False
    if not are_times(start, LATEST_NS // TICK_NS) or not are_times(duration, LONGEST_NS // TICK_NS):
        return False
    place, thread, flags = _stated_together(spans, rows)
    operation = rows.operations_of(place, name)
    code = rows.traces.of_column(trace)
    begin = np.array(start, np.int64) * TICK_NS
    end = begin + np.array(duration, np.int64) * TICK_NS
    owner = [row for row, parent in enumerate(parents) if text(parent)]
    above = [text(parents[row]) for row in owner]
    rows.add_many(
        (
            *(code, number, [kind_of[kind] for kind in kinds], begin, end),
            *([one_place.process for one_place in place], operation, thread, flags),
        ),
        (owner, [CHILD_OF] * len(owner), [code[row] for row in owner], above),
    )
    return True


def _stated_together(spans: list[dict[str, Any]], rows: SpanRows) -> tuple[list[Place], list[int], list[int]]:
    """Return the places, threads and flags that endpoints and tags of spans state."""
    tags, endpoints = (
        [stated if type(stated) is dict else _NOTHING for stated in [span.get(field) for span in spans]]
        for field in ("tags", "localEndpoint")
    )
    # Errors and databases are rare, and so are shared ids.
    flags = [(ERROR if "error" in stated else 0) | (DATABASE if "db.system" in stated else 0) for stated in tags]
    for row in [row for row, span in enumerate(spans) if "shared" in span]:
        flags[row] |= SHARED if spans[row]["shared"] is True else 0
    threads = [stated.get("thread.id") for stated in tags]
    if set(map(type, threads)) <= {str, type(None)} and "" not in threads:
        code_of = {name: rows.threads.code(name) for name in dict.fromkeys(threads) if name is not None}
        numbers = [code_of.get(name, NO_THREAD) for name in threads]
    else:
        numbers = [rows.threads.code(name) if (name := text(stated)) else NO_THREAD for stated in threads]
    return _places_together(endpoints, tags, rows), numbers, flags


def _places_together(endpoints: list[dict[str, Any]], tags: list[dict[str, Any]], rows: SpanRows) -> list[Place]:
    """Return the process of each span; what one was made of is looked at once."""
    keys = list(
        zip(
            *([endpoint.get(field) for endpoint in endpoints] for field in ("serviceName", "ipv4", "ipv6")),
            *([stated.get(field) for stated in tags] for field in ("host.name", "service.instance.id")),
            strict=True,
        )
    )
    try:
        rows_of = {key: row for row, key in enumerate(keys)}
        place_of = {key: _place(endpoints[row], tags[row], rows) for key, row in rows_of.items()}
        usual = all(key_field is None or type(key_field) is str for key in place_of for key_field in key)
    except TypeError:  # lists and objects are no names
        usual = False
    if usual:
        return [place_of[key] for key in keys]
    # True and 1 are one key, and two texts.
    return [_place(endpoint, stated, rows) for endpoint, stated in zip(endpoints, tags, strict=True)]


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
