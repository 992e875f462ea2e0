"""Jaeger's JSON: what its API, its UI and its files hold."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from pag_graph.sources.spans.table import (
    CHILD_OF,
    DATABASE,
    ERROR,
    FOLLOWS_FROM,
    INTERNAL,
    KINDS,
    LATEST_NS,
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
    from collections.abc import Sequence

    from pag_graph.sources.spans.span_rows import SpanRows
    from pag_graph.sources.spans.table import Place

FORMAT = "jaeger"
TICK_NS = 1_000
_REFERENCES = {"CHILD_OF": CHILD_OF, "FOLLOWS_FROM": FOLLOWS_FROM}
_FAILED = 400
_ABSENT: dict[str, Any] = {
    "spanID": None,
    "traceID": None,
    "operationName": None,
    "startTime": 0,
    "duration": None,
    "processID": None,
    "references": None,
    "tags": None,
}
_NOT_STATED = -1
_REFERENCE = ("refType", "traceID", "spanID")
_reference_fields = itemgetter(*_REFERENCE)
_fields = itemgetter(*_ABSENT)
"""What is looked at in every span; what may be absent has the value beside it."""
_LATEST, _LONGEST = LATEST_NS // TICK_NS, LONGEST_NS // TICK_NS
"""Whole numbers below these are times and lengths of spans."""


def is_record(record: Any) -> bool:
    """Tell whether a JSON value is a trace of Jaeger, or an answer of its API."""
    if not isinstance(record, dict):
        return False
    traces = record.get("data")
    if isinstance(traces, list):
        return not traces or any(map(_holds_spans, traces))
    return isinstance(record.get("spans"), list) and ("processes" in record or "traceID" in record)


def _holds_spans(trace: Any) -> bool:
    return isinstance(trace, dict) and isinstance(trace.get("spans"), list)


def read(record: dict[str, Any], rows: SpanRows) -> None:
    """Add the spans of one record.

    Parameters
    ----------
    record
        For which `is_record` holds.
    rows
        Where to add them; entries that are no spans are counted there.
    """
    stated = record["data"] if isinstance(record.get("data"), list) else [record]
    traces = [trace for trace in stated if _holds_spans(trace)]
    for _ in range(len(stated) - len(traces)):
        rows.drop("group_unreadable")
    places = [_places(trace.get("processes"), rows) for trace in traces]
    if _add_together([trace["spans"] for trace in traces], places, rows):
        return
    for trace, processes in zip(traces, places, strict=True):
        trace_id = text(trace.get("traceID"))
        for span in trace["spans"]:
            if not isinstance(span, dict) or not _add(span, trace_id, processes, rows):
                rows.drop("span_unreadable")


def _add_together(lists: list[list[Any]], places: list[dict[str, Place]], rows: SpanRows) -> bool:
    """Add the spans of some traces column by column; returns False, and adds none, unless all state what is usual."""
    spans = list(chain.from_iterable(lists))
    try:
        columns = list(zip(*map(_fields, spans), strict=True))
    except (KeyError, TypeError):
        return False
    if not columns:
        return True
    number, trace, name, start, duration, process, references, tags = columns
    if not are_texts(number, trace, name, process) or "" in number or "" in trace:
        return False
    if not are_times(start, _LATEST) or not are_times(duration, _LONGEST):
        return False
    owners = chain.from_iterable(
        repeat(places_of_trace, len(spans_of_trace))
        for places_of_trace, spans_of_trace in zip(places, lists, strict=True)
    )
    place = [
        places_of_trace.get(key) or _place_inside(span, rows)
        for places_of_trace, key, span in zip(owners, process, spans, strict=True)
    ]
    operation = rows.operations_of(place, name)
    kind, thread, flags = _tags_together(tags, rows)
    for row, span in enumerate(spans):
        if "logs" in span and (logs := span["logs"]) and _failed(logs):
            flags[row] |= ERROR
    code = rows.traces.of_column(trace)
    starts = np.array(start, np.int64) * TICK_NS
    ends = starts + np.array(duration, np.int64) * TICK_NS
    stated = _references_together(spans, references, trace, code, rows)
    processes = [one_place.process for one_place in place]
    rows.add_many((code, number, kind, starts, ends, processes, operation, thread, flags), stated)
    return True


def _references_together(
    spans: list[Any], stated: Sequence[Any], trace: Sequence[str], code: list[int], rows: SpanRows
) -> tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[str]]:
    """Return the references of spans: row among them, kind, code of the trace, and id."""
    owners = [row for row, references in enumerate(stated) if references]
    if len(owners) == len(spans) or not any("parentSpanID" in span for span in spans):
        try:
            single = [references[0] for references in stated if references]
            kinds, traces, targets = zip(*map(_reference_fields, single), strict=True)
            usual = max(map(len, stated)) == 1 and set(map(len, single)) == {len(_REFERENCE)}
        except (KeyError, TypeError, ValueError):
            usual = False
        usual = usual and are_texts(kinds, targets) and "" not in targets and _REFERENCES.keys() >= set(kinds)
        if usual and traces == tuple([trace[row] for row in owners]):
            return owners, [_REFERENCES[kind] for kind in kinds], [code[row] for row in owners], targets
    stated_rows = [
        (row, *reference)
        for row, (span, references, trace_id, own_code) in enumerate(zip(spans, stated, trace, code, strict=True))
        for reference in (_stated(references, trace_id, own_code, rows) if references else _above(span, own_code))
    ]
    row, kind, trace_codes, target = zip(*stated_rows, strict=True) if stated_rows else ((), (), (), ())
    return row, kind, trace_codes, target


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


def _add(span: dict[str, Any], default_trace: str, places: dict[str, Place], rows: SpanRows) -> bool:
    """Add one span; returns whether it is one. `default_trace` is of the trace that it stands in; empty without one."""
    try:
        number, trace, name, start, duration, process, references, tags = _fields(span)
    except KeyError:
        number, trace, name, start, duration, process, references, tags = _fields({**_ABSENT, **span})
    # What nearly all spans have, text as text and times as numbers, takes no call.
    number = number if type(number) is str else text(number)
    trace = (trace if type(trace) is str else text(trace)) or default_trace
    name = name if type(name) is str else text(name)
    flags = 0
    if type(start) is type(duration) is int and 0 <= start < _LATEST and 0 <= duration < _LONGEST:
        times: tuple[int, int] | None = (start * TICK_NS, (start + duration) * TICK_NS)
    else:
        begin, length = nanoseconds(start, TICK_NS), nanoseconds(duration, TICK_NS)
        times = None if begin is None else lasting(begin, length)
        if length is None or length < 0:
            flags = NO_DURATION
    if not number or not trace or times is None:
        return False
    place = places.get(process if type(process) is str else text(process)) or _place_inside(span, rows)
    kind, thread, stated = _tags(tags, rows)
    flags |= stated
    if (logs := span.get("logs")) and _failed(logs):
        flags |= ERROR
    code = rows.traces.code(trace)
    operation = place.operations.get(name)
    if operation is None:
        operation = rows.operation(place, name)
    row = rows.add(code, number, kind, times, place.process, operation, thread, flags)
    for kind_of, trace_code, target in _stated(references, trace, code, rows) if references else _above(span, code):
        rows.refer(row, kind_of, trace_code, target)
    return True


def _above(span: dict[str, Any], code: int) -> Sequence[tuple[int, int, str]]:
    """Return the parent of a span without references, as some exporters write it, as a reference."""
    parent = text(span.get("parentSpanID"))
    return [(CHILD_OF, code, parent)] if parent else ()


def _stated(references: Any, trace: str, code: int, rows: SpanRows) -> list[tuple[int, int, str]]:
    """Return the references of a span: kind, code of the trace, and id."""
    valid = []
    for reference in references if type(references) is list else ():
        if type(reference) is not dict:
            continue
        target, target_trace = reference.get("spanID"), reference.get("traceID")
        if not (target := target if type(target) is str else text(target)):
            continue
        if "startTime" in reference:
            # A whole span, where none is looked for.
            rows.drop("span_unreadable")
            continue
        stated = reference.get("refType")
        kind = _REFERENCES.get(stated if type(stated) is str else text(stated), FOLLOWS_FROM)
        target_trace = target_trace if type(target_trace) is str else text(target_trace)
        if not target_trace or target_trace == trace:
            valid.append((kind, code, target))
        else:
            valid.append((kind, rows.traces.code(target_trace), target))
    return valid


def _place_inside(span: dict[str, Any], rows: SpanRows) -> Place:
    """Return the process that stands in the span itself, as some exporters write it; else one of nobody."""
    inside = _places({"": span.get("process")}, rows)
    return inside[""] if inside else rows.place(Process("unknown-service", "", "", host_named=False))


@lru_cache(1 << 12)
def _role(key: Any) -> str:
    """Return what a tag is looked at for; empty if it is not."""
    if type(key) is not str or key in {"span.kind", "thread.id", "db.system"}:
        return key if type(key) is str else ""
    return key.lower() if key.lower() in {"error", "http.status_code", "grpc.status"} else ""


def _tags_together(tag_lists: Sequence[Any], rows: SpanRows) -> tuple[list[int], list[int], list[int]]:
    """Return kinds, threads and flags that the tags of spans state."""
    kinds, threads, flags = [INTERNAL] * len(tag_lists), [NO_THREAD] * len(tag_lists), [0] * len(tag_lists)
    for row, tags in enumerate(tag_lists):
        if tags:
            kinds[row], threads[row], flags[row] = _tags(tags, rows)
    return kinds, threads, flags


def _tags(tags: Any, rows: SpanRows) -> tuple[int, int, int]:
    """Return kind, thread and flags that tags state."""
    kind, thread, flags = _NOT_STATED, NO_THREAD, 0
    for tag in tags if type(tags) is list else ():
        try:
            role = _role(tag["key"])
        except (KeyError, TypeError):
            continue  # no tag
        if not role:
            continue
        value = tag.get("value")
        if role == "span.kind":
            if kind == _NOT_STATED:
                kind = _kind(value if type(value) is str else text(value))
        elif role == "thread.id":
            thread = rows.threads.code(value if type(value) is str else text(value))
        elif role == "db.system":
            flags |= DATABASE
        elif _says_failed(role, text(tag.get("type")).lower(), value):
            flags |= ERROR
    return INTERNAL if kind == _NOT_STATED else kind, thread, flags


@lru_cache(1 << 8)
def _kind(value: str) -> int:
    return KINDS.get(value.lower(), INTERNAL)


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
