"""Documents of spans that are read in slices: the same spans as in one piece, and damage is not overlooked."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from pag_graph.errors import TraceFormatError
from pag_graph.sources.spans import documents, files, jaeger_json, otlp_json, otlp_protobuf
from pag_graph.sources.spans.documents import records
from pag_graph.sources.spans.files import FORMS, read_parts
from pag_graph.sources.spans.span_rows import SpanRows
from pag_graph.testing import span_traces
from pag_graph.testing.span_traces import simulate
from tests.support.simulated_spans import FORMS as WRITTEN
from tests.support.simulated_spans import read_spans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pag_graph.sources.spans.table import SpanTable

SPANS = simulate(3, 3).spans


def one_document(name: str) -> bytes:
    """Spans as one document without a line break."""
    if name == "otlp":
        exports = [json.loads(line)["resourceSpans"] for line in span_traces.otlp(SPANS).splitlines()]
        groups = [group for export in exports for group in export]
        return json.dumps({"a": '["{', "resourceSpans": groups, "b": [1]}).encode()
    return {"jaeger": span_traces.jaeger, "zipkin": span_traces.zipkin}[name](SPANS)


def in_pieces(text: bytes, size: int) -> Iterator[bytes]:
    return (text[place : place + size] for place in range(0, len(text), size))


def spans_of(name: str, parts: list[Any]) -> list[Any]:
    """Return what arrays of records hold, one after the other."""
    keys = {"jaeger": "data", "otlp": "resourceSpans"}
    assert all(FORMS[name].is_record(part) for part in parts)
    return [one for part in parts for one in (part if name == "zipkin" else part[keys[name]])]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("size", [64, 1_000, 1 << 20])
def test_slices_hold_what_the_document_holds(name: str, size: int) -> None:
    text = one_document(name)
    pieces = in_pieces(text, 50)
    parts = list(records(name, documents.filled(b"", pieces, size), pieces, slice_bytes=size))
    assert spans_of(name, parts) == spans_of(name, [orjson.loads(text)])
    assert (len(parts) > 1) == (size < len(text))


@pytest.mark.parametrize("name", FORMS)
def test_a_document_that_is_cut_anywhere_is_no_json(name: str) -> None:
    text = one_document(name)[-700:] if name == "zipkin" else one_document(name)
    text = b"[" + text[text.index(b"{") :] if name == "zipkin" else text
    for place in range(1, len(text), 1 if len(text) < 1_000 else 97):
        pieces = in_pieces(text[:place], 50)
        with pytest.raises(orjson.JSONDecodeError):
            list(records(name, documents.filled(b"", pieces, 100), pieces, slice_bytes=100))


@pytest.mark.parametrize("text", ["[{},,{}]", "[{} {}]", "[{},]", "[,{}]", "[{}}]", "[{}]]", "[{}] {}", '[{"a}]'])
def test_what_a_parser_refuses_is_refused_in_slices(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(text)
    for size in range(1, len(text)):
        pieces = in_pieces(text.encode(), 1)
        with pytest.raises(orjson.JSONDecodeError):
            list(records("zipkin", documents.filled(b"", pieces, size), pieces, slice_bytes=size))


def test_slices_of_exports_with_lengths_are_whole_exports() -> None:
    text = span_traces.otlp_protobuf(SPANS)
    parts = list(otlp_protobuf.slices(text[:10], in_pieces(text[10:], 40), slice_bytes=200))
    assert b"".join(parts) == text
    assert len(parts) > 1
    assert all(otlp_protobuf.split(part)[1] == 0 for part in parts)
    bare = span_traces.otlp_protobuf(SPANS, lengths=False)
    assert list(otlp_protobuf.slices(bare[:10], in_pieces(bare[10:], 40), slice_bytes=200)) == [bare]


def test_large_files_give_the_spans_that_small_ones_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, written in WRITTEN.items():
        (tmp_path / name).write_bytes(written(SPANS))
        whole = read_spans([tmp_path / name])
        with monkeypatch.context() as patched:
            # The first slice is one piece of a file; what follows is as large as it is.
            patched.setattr(files, "SLICE", 1_000)
            sliced = read_spans([tmp_path / name])
        assert sliced.spans.equals(whole.spans)
        assert sliced.references.equals(whole.references)


@pytest.mark.parametrize("name", ["jaeger", "zipkin"])
@pytest.mark.parametrize("place", [0, 1, None])
@pytest.mark.parametrize("odd", [{"traceID": "x", "spans": None, "pad": "p" * 400}, None, [], 5])
def test_what_is_no_span_of_a_large_document_is_counted_as_in_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: int | None, odd: Any
) -> None:
    """A slice that begins with something else was left out with all spans in it."""
    document = json.loads(one_document(name))
    elements = document["data"] if name == "jaeger" else document
    place = len(elements) if place is None else place
    elements[place:place] = [odd] * 30
    (tmp_path / "a.json").write_text(json.dumps(document))

    def read() -> SpanTable:
        with read_parts([tmp_path / "a.json"], form=name) as parts:
            (read_table,) = parts.tables
            return read_table()

    whole = read()
    monkeypatch.setattr(files, "SLICE", 1)
    monkeypatch.setattr(files, "records", partial(records, slice_bytes=500))
    monkeypatch.setattr(files, "_decoded", lambda file, _: in_pieces(file.read_bytes(), 500))
    sliced = read()
    assert whole.spans.height == len(SPANS)
    assert (sliced.dropped, sliced.spans.height) == (whole.dropped, whole.spans.height)
    assert sliced.spans.equals(whole.spans)


def test_spans_that_memory_does_not_hold_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spans.json").write_bytes(span_traces.jaeger(SPANS))
    monkeypatch.setattr(files, "_PER_SPAN", 1 << 50)
    with pytest.raises(TraceFormatError, match=r"spans\.json takes .* of memory"):
        read_spans([tmp_path / "spans.json"])


@pytest.mark.parametrize("odd", [{}, [], [1], {"a": 1}, None, True, 2**70, "x"])
@pytest.mark.parametrize("name", ["status", "kind", "attributes", "links", "name", "parentSpanId"])
def test_a_span_whose_parts_are_of_any_type_is_a_span(name: str, odd: Any) -> None:
    span = {"spanId": "a1", "traceId": "b1", "startTimeUnixNano": "5", "endTimeUnixNano": "7", name: odd}
    more = {**span, "spanId": "a2", name: {"code": odd}, "attributes": [{"key": odd, "value": odd}, odd]}
    rows = SpanRows()
    otlp_json.read({"resourceSpans": [{"scopeSpans": [{"spans": [span, more]}]}]}, rows)
    assert (rows.rows, rows.dropped) == (2, {})


def test_a_span_among_the_references_of_another_one_is_counted() -> None:
    """Where a bracket is missing, the rest of a trace stands in a list of references."""
    otlp, jaeger = SpanRows(), SpanRows()
    exported = {"spanId": "a1", "traceId": "b1", "startTimeUnixNano": "5", "endTimeUnixNano": "7"}
    stated = {**exported, "links": [{**exported, "spanId": "a2"}]}
    otlp_json.read({"resourceSpans": [{"scopeSpans": [{"spans": [stated]}]}]}, otlp)
    shown = {"spanID": "a1", "traceID": "b1", "startTime": 5, "duration": 2}
    jaeger_json.read({"traceID": "b1", "spans": [{**shown, "references": [{**shown, "spanID": "a2"}]}]}, jaeger)
    for rows in (otlp, jaeger):
        assert (rows.rows, rows.dropped) == (1, {"span_unreadable": 1})


@pytest.mark.parametrize("odd", [None, 5, {}, {"spans": None}, {"traceID": "b2", "spans": {}}])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_no_trace_among_traces_of_jaeger_is_counted(tmp_path: Path, odd: Any, place: int) -> None:
    spans = [{"spanID": "a1", "traceID": "b1", "startTime": 5, "duration": 2}]
    traces = [{"traceID": "b1", "spans": spans}]
    traces.insert(place, odd)
    (tmp_path / "a.json").write_text(json.dumps({"data": traces}))
    assert files.form_of(tmp_path / "a.json") == "jaeger"
    found = read_spans([tmp_path / "a.json"])
    assert (found.spans.height, found.dropped) == (1, {"group_unreadable": 1})


@pytest.mark.parametrize("nested", [False, True])
def test_what_is_nothing_before_spans_of_zipkin_is_counted(tmp_path: Path, nested: Any) -> None:
    spans = [None, {"id": "a1", "traceId": "b1", "timestamp": 5, "duration": 2}]
    (tmp_path / "a.json").write_text(json.dumps([[], spans] if nested else spans))
    assert files.form_of(tmp_path / "a.json") == "zipkin"
    found = read_spans([tmp_path / "a.json"])
    assert (found.spans.height, found.dropped) == (1, {"span_unreadable": 1})


@pytest.mark.parametrize("name", ["jaeger", "otlp", "zipkin"])
def test_a_mark_of_the_encoding_is_no_part_of_the_document(tmp_path: Path, name: str) -> None:
    for mark in ("", "\ufeff"):
        (tmp_path / f"{len(mark)}.json").write_bytes(mark.encode() + one_document(name))
    plain, marked = (read_spans([tmp_path / f"{length}.json"]) for length in (0, 1))
    assert files.form_of(tmp_path / "1.json") == name
    assert marked.spans.equals(plain.spans)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "holds nothing: it is empty"),
        (b"\x1f\x8b no gzip", "holds nothing: it is damaged"),
        (b"a", "is in none of"),
    ],
)
def test_a_file_without_spans_is_told_what_it_is(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "spans.json"
    file.write_bytes(content)
    with pytest.raises(TraceFormatError, match=f"{file} {problem}"), read_parts([file]):
        pass


def test_a_file_that_may_not_be_read_is_not_said_to_have_another_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "spans.json"
    file.write_bytes(one_document("zipkin"))

    def refused(*_: Any, **__: Any) -> Iterator[bytes]:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(files, "decode", refused)
    with pytest.raises(TraceFormatError, match=r"cannot be read as spans: .*Permission denied"), read_parts([file]):
        pass
