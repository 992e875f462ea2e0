"""OpenTelemetry's protocol as protocol buffers: a bare export, or exports with their lengths before them.

The schema is read level by level, all messages of a level at once: nothing recurs, and depth is the schema's own. Field
numbers are those of ``opentelemetry/proto/trace/v1/trace.proto``, version 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from pag_graph.kernels.protobuf import BYTES, FIXED64, VARINT, Fields, fields
from pag_graph.sources.spans.documents import SLICE, filled, following
from pag_graph.sources.spans.otlp_json import STATUS_ERROR, resource_process
from pag_graph.sources.spans.table import (
    CHILD_OF,
    DATABASE,
    ERROR,
    INTERNAL,
    KINDS,
    LATEST_NS,
    LINK,
    LONGEST_NS,
    NO_DURATION,
    NO_THREAD,
    Operation,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pag_graph.sources.spans.span_rows import SpanRows

    I64 = NDArray[np.int64]
    U8 = NDArray[np.uint8]

_RESOURCE_SPANS, _RESOURCE, _SCOPE_SPANS, _SPANS = 1, 1, 2, 2
_TRACE, _ID, _PARENT, _NAME, _KIND, _START, _END, _ATTRIBUTES, _LINKS, _STATUS = 1, 2, 4, 5, 6, 7, 8, 9, 13, 15
_TEXT, _WHOLE = 1, 3
"""Of a value: as text, as a whole number."""
_WANTED = (b"thread.id", b"db.system", b"db.system.name")
_ABSENT = -(1 << 63)
_PREFIX = 4
_LONGEST_ID = 16


class _Ranges(NamedTuple):
    """Bytes of messages or texts, each part of an `owner`."""

    owner: I64
    begin: I64
    end: I64


class _Level:
    """Fields of all messages of one kind."""

    def __init__(self, data: U8, ranges: _Ranges) -> None:
        self.data, self.size = data, len(ranges.begin)
        self.fields, self.damaged = fields(data, ranges.begin, ranges.end)

    def messages(self, number: int) -> _Ranges:
        """Return the ranges of a repeated field."""
        rows = self._rows(number, BYTES)
        return _Ranges(self.fields.message[rows], self.fields.value[rows], self.fields.end[rows])

    def number(self, number: int, wire: int, default: int = 0) -> I64:
        """Return a number of each message: the last one stated, as the protocol has it."""
        rows = self._rows(number, wire)
        values = np.full(self.size, default, np.int64)
        values[self.fields.message[rows]] = self.fields.value[rows]
        return values

    def bytes_of(self, number: int) -> _Ranges:
        """Return a text of each message; of no bytes where it is absent."""
        rows = self._rows(number, BYTES)
        begin, end = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        begin[self.fields.message[rows]] = self.fields.value[rows]
        end[self.fields.message[rows]] = self.fields.end[rows]
        return _Ranges(np.arange(self.size), begin, end)

    def _rows(self, number: int, wire: int) -> I64:
        all_fields: Fields = self.fields
        return np.flatnonzero((all_fields.number == number) & (all_fields.wire == wire))


def split(data: bytes) -> tuple[_Ranges, int]:
    """Return the exports in a file's bytes, and how many bytes at its end are no whole export.

    The collector's file exporter writes a big-endian length before each; a bare export has none.
    """
    begins, ends, place = [], [], 0
    while place + _PREFIX <= len(data):
        size = int.from_bytes(data[place : place + _PREFIX], "big")
        if place + _PREFIX + size > len(data) or (size and data[place + _PREFIX] != _RESOURCE_SPANS << 3 | BYTES):
            break
        begins.append(place + _PREFIX)
        ends.append(place + _PREFIX + size)
        place += _PREFIX + size
    if not begins:
        begins, ends, place = [0], [len(data)], len(data)
    count = np.arange(len(begins))
    return _Ranges(count, np.array(begins, np.int64), np.array(ends, np.int64)), len(data) - place


def slices(head: bytes, pieces: Iterator[bytes], *, slice_bytes: int = SLICE) -> Iterator[bytes]:
    """Yield a file's bytes in slices of whole exports, where it has lengths; a bare export is one slice.

    Parameters
    ----------
    head, pieces
        The file's beginning, and the rest.
    slice_bytes
        About how long a slice is.
    """
    content = head
    while appended := filled(b"", pieces, following(content, slice_bytes)):
        content += appended
        exports, unfinished = split(content)
        if exports.begin[0]:
            exports_end = len(content) - unfinished
            yield content[:exports_end]
            content = content[exports_end:]
    if content:
        yield content


def looks_binary(head: bytes) -> bool:
    """Tell whether a file's first bytes begin an export."""
    tag = _RESOURCE_SPANS << 3 | BYTES
    return head[:1] == bytes([tag]) or (len(head) > _PREFIX and head[_PREFIX] == tag)


def read(content: bytes, rows: SpanRows) -> int:
    """Add the spans of a file; returns how many messages or ends of them are damaged.

    Parameters
    ----------
    content
        Of the whole file.
    rows
        Where to add them; spans without ids or times are counted there.

    Notes
    -----
    Linear; about 250 bytes per span while it runs.
    """
    octets = np.frombuffer(content, np.uint8)
    exports, unfinished = split(content)
    top = _Level(octets, exports)
    groups = _Level(octets, top.messages(_RESOURCE_SPANS))
    process_codes, services = _processes(content, groups, rows)
    scope_ranges = groups.messages(_SCOPE_SPANS)
    scopes = _Level(octets, scope_ranges)
    span_ranges = scopes.messages(_SPANS)
    spans = _Level(octets, span_ranges)
    owner = scope_ranges.owner[span_ranges.owner]
    _add(content, spans, (process_codes[owner], services, owner), rows)
    return sum(int(level.damaged.sum()) for level in (top, groups, scopes, spans)) + bool(unfinished)


def _processes(content: bytes, groups: _Level, rows: SpanRows) -> tuple[I64, list[str]]:
    """Return code and service of the process of each group of spans."""
    resources = groups.messages(_RESOURCE)
    level = _Level(groups.data, resources)
    pairs = level.messages(1)
    attributes: list[dict[str, str]] = [{} for _ in range(groups.size)]
    for pair, key, value in _attributes(content, groups.data, pairs):
        attributes[resources.owner[pairs.owner[pair]]][_text(key)] = value
    processes = [resource_process(stated) for stated in attributes]
    codes = np.array([rows.processes.code(process) for process in processes], np.int64)
    return codes, [process.service for process in processes]


def _attributes(
    content: bytes, data: U8, pairs: _Ranges, keys_wanted: tuple[bytes, ...] | None = None
) -> list[tuple[int, bytes, str]]:
    """Return index, key and value as text of attributes; with `keys_wanted`, of those keys alone."""
    level = _Level(data, pairs)
    keys, values = level.bytes_of(1), level.bytes_of(2)
    chosen = np.arange(level.size)
    if keys_wanted is not None:
        sizes = np.array([len(key) for key in keys_wanted])
        chosen = np.flatnonzero(np.isin(keys.end - keys.begin, sizes))
    keyed = [(index, content[keys.begin[index] : keys.end[index]]) for index in chosen.tolist()]
    keyed = [(index, key) for index, key in keyed if keys_wanted is None or key in keys_wanted]
    index = np.array([index for index, _ in keyed], np.int64)
    stated = _Level(data, _Ranges(index, values.begin[index], values.end[index]))
    texts, numbers = stated.bytes_of(_TEXT), stated.number(_WHOLE, VARINT, _ABSENT)
    attributes = []
    for place, (pair, key) in enumerate(keyed):
        as_text = _text(content[texts.begin[place] : texts.end[place]])
        attributes.append((pair, key, as_text or (str(numbers[place]) if numbers[place] != _ABSENT else "")))
    return attributes


def _add(content: bytes, spans: _Level, of_process: tuple[I64, list[str], I64], rows: SpanRows) -> None:
    processes, services, owner = of_process
    ids, traces = _hex(content, spans.bytes_of(_ID)), _hex(content, spans.bytes_of(_TRACE))
    names = spans.bytes_of(_NAME)
    start, end = spans.number(_START, FIXED64), spans.number(_END, FIXED64)
    good = np.array([bool(number and trace) for number, trace in zip(ids, traces, strict=True)], bool)
    good &= (start > 0) & (start < LATEST_NS) & (end - np.maximum(start, 0) <= LONGEST_NS)
    if unreadable := int((~good).sum()):
        rows.drop("span_unreadable", unreadable)
    good_rows = np.flatnonzero(good)
    row_of = np.cumsum(good) - 1
    short = end < start
    flags = np.where(short, NO_DURATION, 0)
    status_ranges = spans.messages(_STATUS)
    failed = _Level(spans.data, status_ranges).number(3, VARINT) == STATUS_ERROR
    flags[status_ranges.owner[failed]] |= ERROR
    threads = np.full(spans.size, NO_THREAD, np.int64)
    pairs = spans.messages(_ATTRIBUTES)
    for pair, key, value in _attributes(content, spans.data, pairs, _WANTED):
        span = pairs.owner[pair]
        if key != b"thread.id":
            flags[span] |= DATABASE
        elif value and good[span]:
            threads[span] = rows.threads.code(value)
    kinds = spans.number(_KIND, VARINT) - 1
    kinds[(kinds < 0) | (kinds >= len(KINDS))] = INTERNAL
    texts: dict[bytes, str] = {}
    operations = []
    name_columns = (names.begin[good_rows], names.end[good_rows], owner[good_rows])
    for begin, until, group in zip(*(column.tolist() for column in name_columns), strict=True):
        name = content[begin:until]
        if name not in texts:
            texts[name] = _text(name)
        operations.append(rows.operations.code(Operation(services[group], texts[name])))
    codes = [rows.traces.code(trace) if sound else 0 for trace, sound in zip(traces, good.tolist(), strict=True)]
    trace_codes = np.array(codes, np.int64)
    parents = _hex(content, spans.bytes_of(_PARENT))
    references = _references(content, spans, (trace_codes, parents, good), rows)
    rows.add_columns(
        {
            "trace": trace_codes[good_rows],
            "id": [ids[index] for index in good_rows.tolist()],
            "kind": kinds[good_rows],
            "start": start[good_rows],
            "end": np.where(short, start, end)[good_rows],
            "process": processes[good_rows],
            "operation": np.array(operations, np.int64),
            "thread": threads[good_rows],
            "flags": flags[good_rows],
        },
        references.with_columns(row=pl.Series(row_of[references["row"].to_numpy()])),
    )


def _references(
    content: bytes, spans: _Level, of_spans: tuple[I64, list[str], NDArray[np.bool_]], rows: SpanRows
) -> pl.DataFrame:
    """Return the references of good spans, parents before links, by index of the span."""
    traces, parents, good = of_spans
    stated = [(row, CHILD_OF, int(traces[row]), parent) for row, parent in enumerate(parents) if parent and good[row]]
    ranges = spans.messages(_LINKS)
    links = _Level(spans.data, ranges)
    targets, target_traces = _hex(content, links.bytes_of(_ID)), _hex(content, links.bytes_of(_TRACE))
    for row, target, trace in zip(ranges.owner.tolist(), targets, target_traces, strict=True):
        if target and good[row]:
            stated.append((row, LINK, rows.traces.code(trace) if trace else int(traces[row]), target))
    schema = {"row": pl.Int64, "type": pl.Int8, "trace": pl.Int32, "id": pl.String}
    return pl.DataFrame(stated, schema=schema, orient="row")


def _hex(content: bytes, ranges: _Ranges) -> list[str]:
    """Return ids as hexadecimal digits; nothing for zeros."""
    digits = []
    for begin, end in zip(ranges.begin.tolist(), ranges.end.tolist(), strict=True):
        number = content[begin:end]
        digits.append(number.hex() if end - begin <= _LONGEST_ID and any(number) else "")
    return digits


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")
