"""Files of spans: which format they have, and reading them into one table."""

from __future__ import annotations

import codecs
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import orjson

from pag_graph.errors import TraceFormatError
from pag_graph.model.enums import Severity
from pag_graph.sources.collector import without_collector
from pag_graph.sources.foreign_files import unreadable
from pag_graph.sources.spans import jaeger_json, otlp_json, otlp_protobuf, zipkin_json
from pag_graph.sources.spans.documents import SLICE, filled, following, is_slice, records
from pag_graph.sources.spans.span_rows import SpanRows
from pag_graph.sources.spark.codecs import decode
from pag_graph.store.capacity import lacking
from pag_graph.store.findings import findings
from pag_graph.store.safe_files import check_folder, check_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from pag_graph.sources.spans.table import SpanParts
    from pag_graph.sources.spark.codecs import Stopped

_HEAD: Final = 1 << 16
_NEEDED: Final = 1 << 28
"""Bytes of memory that a slice takes as objects, and the columns of its spans."""
_PER_SPAN: Final = 100
"""Bytes that stay in memory per span where requests are made part by part: what sums are made of."""
HELD: Final = 1 << 17
"""How many spans memory holds at a time where requests are made part by part."""
_CHECKED_EACH: Final = 1 << 26
_CONTROL = bytes(set(range(32)) - {9, 10, 13})


class _Form(NamedTuple):
    is_record: Callable[[Any], bool]
    read: Callable[[Any, SpanRows], None]
    tick_ns: int


FORMS: Final[dict[str, _Form]] = {
    jaeger_json.FORMAT: _Form(jaeger_json.is_record, jaeger_json.read, jaeger_json.TICK_NS),
    otlp_json.FORMAT: _Form(otlp_json.is_record, otlp_json.read, otlp_json.TICK_NS),
    zipkin_json.FORMAT: _Form(zipkin_json.is_record, zipkin_json.read, zipkin_json.TICK_NS),
}
"""The formats by name."""


def form_of(file: Path) -> str | None:
    """Return the name of the format that a file looks to be in; None if it looks like none.

    Only its first 64 KiB are looked at; what does not keep to it is refused when it is read.
    """
    try:
        head = next(_decoded(file, []), b"")[:_HEAD]
    except OSError:
        return None
    if _is_binary(head):
        return otlp_json.FORMAT if otlp_protobuf.looks_binary(head) else None
    begin, text = head.lstrip()[:1], head.lstrip()
    if begin == b"[":
        fits = b'"traceId"' in text and b'"id"' in text and b'"resourceSpans"' not in text
        return zipkin_json.FORMAT if fits else None
    if begin != b"{":
        return None
    if b'"resourceSpans"' in text:
        return otlp_json.FORMAT
    if (b'"data"' in text or b'"traceID"' in text) and (b'"spans"' in text or b'"processes"' in text):
        return jaeger_json.FORMAT
    return zipkin_json.FORMAT if b'"traceId"' in text and b'"id"' in text and b'"localEndpoint"' in text else None


def span_files(source: Path) -> list[Path]:
    """Return the files of spans at a place: itself, or those in a folder, by name.

    Raises
    ------
    TraceFormatError
        If a pipe, socket or device is there, or a folder cannot be listed.
    """
    check_regular([source])
    if not source.is_dir():
        return [source] if source.is_file() else []
    check_folder(source)
    return [file for file in sorted(source.iterdir()) if file.is_file() and form_of(file) is not None]


@contextmanager
def read_parts(sources: Sequence[Path], *, form: str | None = None, held: int = HELD) -> Iterator[SpanParts]:
    """Read the spans of files and folders into parts that hold whole traces, of which one at a time is in memory.

    Parameters
    ----------
    sources
        Files, or folders whose files that look like spans are read; plain, gzip or zstd.
    form
        Name of the format; found out when absent.
    held
        How many spans memory is to hold; more go to files in the folder for temporary ones.

    Yields
    ------
    SpanParts
        To be used inside: the files go at the end. What could not be read is counted in `dropped` of each part, and is
        a finding.

    Raises
    ------
    TraceFormatError
        If there is no file or no span, a file is damaged as a whole, files or their parts are in two formats, or there
        is not enough memory; names the file.
    StoreError
        If the folder for temporary files has no room.
    """
    rows = SpanRows(held)
    try:
        yield rows.parts(*_read_all(sources, form, rows))
    finally:
        rows.close()


def _read_all(sources: Sequence[Path], form: str | None, rows: SpanRows) -> tuple[str, int, list[pa.Table]]:
    """Add the spans of files and folders; returns the format, its tick, and findings."""
    files = [file for source in sources for file in span_files(source)]
    if not files:
        places = ", ".join(str(source) for source in sources)
        message = f"There are no files of spans at {places}."
        raise TraceFormatError(message, "Give files of Jaeger JSON, OTLP or Zipkin v2.", {"file": places})
    names = {file: form or form_of(file) for file in files}
    unknown = next((file for file, name in names.items() if name is None), None)
    if unknown is not None:
        _refuse_unknown(unknown)
    chosen, tables = str(names[files[0]]), []
    for file in files:
        if names[file] != chosen:
            message = f"{file} is in the format {names[file]}, and {files[0]} in the format {chosen}."
            raise TraceFormatError(message, "Ask for one format at a time.", {"file": str(file)})
        with without_collector():
            tables += read_file(file, chosen, rows)
        _check_memory(file, _PER_SPAN * rows.rows)
    if not rows.rows:
        message = f"{files[0]} holds no spans that can be read."
        raise TraceFormatError(message, None, {"file": str(files[0]), "dropped": rows.dropped})
    tables += [
        findings(reason, Severity.WARNING, "left out", observed=count, unit="spans")
        for reason, count in rows.dropped.items()
    ]
    return chosen, FORMS[chosen].tick_ns, tables


def _refuse_unknown(file: Path) -> NoReturn:
    """Say why a file that was named is in none of the formats."""
    stops: list[Stopped] = []
    try:
        head = next(_decoded(file, stops), b"")
    except OSError as error:
        raise TraceFormatError(*unreadable(file, "spans", error)) from error
    message = f"{file} is in none of the formats {', '.join(FORMS)}."
    if not head:
        message = f"{file} holds nothing: it is {stops[0].reason if stops else 'empty'}."
    raise TraceFormatError(message, "Give files of Jaeger JSON, OTLP or Zipkin v2.", {"file": str(file)})


def _decoded(file: Path, stops: list[Stopped]) -> Iterator[bytes]:
    """Yield the content of a file without the mark of its encoding that some programs write before JSON."""
    pieces = decode(file, stopped=stops.append)
    yield next(pieces, b"").removeprefix(codecs.BOM_UTF8)
    yield from pieces


def read_file(file: Path, name: str, rows: SpanRows) -> list[pa.Table]:
    """Add the spans of a file.

    Parameters
    ----------
    file
        Plain, gzip or zstd.
    name
        Of its format.
    rows
        Where to add them; entries that are no spans are counted there.

    Returns
    -------
    list of pa.Table
        Findings: records that are damaged, and where the file ends too early.

    Raises
    ------
    TraceFormatError
        If it is damaged as a whole, in two formats, or larger than memory; names it. Some spans may have been added.
    """
    stops: list[Stopped] = []
    try:
        pieces = _checked(file, _decoded(file, stops))
        head = next(pieces, b"")
        if name == otlp_json.FORMAT and _is_binary(head[:_HEAD]):
            damaged = sum(otlp_protobuf.read(content, rows) for content in otlp_protobuf.slices(head, pieces))
        else:
            damaged = _read_json(file, name, head, pieces, rows)
    except OSError as error:
        raise TraceFormatError(*unreadable(file, "spans", error)) from error
    tables = []
    if damaged:
        action = "left out from where it is damaged on"
        tables.append(
            findings("record_damaged", Severity.WARNING, action, file=file.name, observed=damaged, unit="records")
        )
    for stop in stops:
        action = f"{stop.reason} there: read what is before"
        tables.append(
            findings("log_cut_short", Severity.WARNING, action, file=file.name, observed=stop.offset, unit="bytes")
        )
    return tables


def _checked(file: Path, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pass on what is decoded while memory is left: a few bytes can stand for terabytes, and spans are kept."""
    unchecked = 0
    for piece in pieces:
        unchecked += len(piece)
        if unchecked >= _CHECKED_EACH:
            unchecked = 0
            _check_memory(file, _NEEDED)
        yield piece


def _check_memory(file: Path, needed: int) -> None:
    if (lack := lacking(needed)) is not None:
        message = f"{file} takes {lack}."
        raise TraceFormatError(message, "Give the process more memory, or a part of the spans.", {"file": str(file)})


def _read_json(file: Path, name: str, head: bytes, pieces: Iterator[bytes], rows: SpanRows) -> int:
    """Add the spans of a JSON document, or of lines of JSON; returns how many lines are damaged."""
    content = filled(head, pieces, SLICE)
    is_large = len(content) >= SLICE
    while (
        name == otlp_json.FORMAT
        and b"\n" not in content
        and (appended := filled(b"", pieces, following(content, SLICE)))
    ):
        # A line per export, as long as it may be.
        content += appended
    lines = content.lstrip().split(b"\n", 2)
    if len(lines) > 1 and _parsed(lines[0]) is not None:
        return _read_lines(file, name, _lines(content, pieces), rows)
    if is_large and len(lines) > 2 and FORMS[name].is_record(_parsed(lines[1])):  # noqa: PLR2004 a whole second line
        return _read_lines(file, name, _lines(content, pieces), rows)
    try:
        if is_large:
            _take_slices(file, name, records(name, content, pieces), rows)
        else:
            _take(file, name, orjson.loads(content), rows)
    except orjson.JSONDecodeError as error:
        if not is_large and content.count(b"\n", 0, len(content.rstrip())):
            return _read_lines(file, name, iter(content.splitlines()), rows, document_error=error)
        raise TraceFormatError(*unreadable(file, "JSON", error)) from error
    return 0


def _read_lines(
    file: Path, name: str, lines: Iterator[bytes], rows: SpanRows, document_error: Exception | None = None
) -> int:
    damaged = record_count = 0
    for line in lines:
        if not line.strip():
            continue
        record = _parsed(line)
        if record is None:
            damaged += 1
            continue
        # Of a damaged document a line may be JSON by itself, and then is no record.
        if document_error is not None and not FORMS[name].is_record(record):
            continue
        record_count += 1
        _take(file, name, record, rows)
    if not record_count and document_error is not None:
        raise TraceFormatError(*unreadable(file, "JSON", document_error)) from document_error
    return damaged


def _lines(head: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    open_line = [head]
    for piece in pieces:
        cut = piece.rfind(b"\n")
        if cut < 0:
            open_line.append(piece)
            continue
        yield from (b"".join(open_line) + piece[:cut]).splitlines()
        open_line = [piece[cut + 1 :]]
    yield from b"".join(open_line).splitlines()


def _parsed(line: bytes) -> Any:
    """Return what a line of JSON says; None if it is none."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _take(file: Path, name: str, record: Any, rows: SpanRows) -> None:
    form = FORMS[name]
    if form.is_record(record):
        form.read(record, rows)
        return
    other_form = next((other_form for other_form, candidate in FORMS.items() if candidate.is_record(record)), None)
    if other_form is not None:
        message = f"{file} holds records of two formats: {name} and {other_form}."
        raise TraceFormatError(message, "Write each format to files of its own.", {"file": str(file)})
    rows.drop("record_unknown")


def _take_slices(file: Path, name: str, slices: Iterator[Any], rows: SpanRows) -> None:
    """Add the slices of one document: whether it is a record they say together, as if it were in one piece."""
    form, dropped, is_record = FORMS[name], dict(rows.dropped), False
    record: Any = None
    for record in slices:
        is_record = is_record or form.is_record(record)
        if is_record or is_slice(name, record):
            form.read(record, rows)
    if not is_record:
        rows.dropped = dropped
        _take(file, name, record, rows)


def _is_binary(head: bytes) -> bool:
    return len(head.translate(None, _CONTROL)) < len(head)
