"""Simulated spans, read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.sources.spans.agreement import agree
from pag_graph.sources.spans.files import read_parts
from pag_graph.sources.spans.requests import make_requests, prepare
from pag_graph.testing import span_traces

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from pag_graph.sources.spans.requests import Requests
    from pag_graph.sources.spans.table import SpanTable

FORMS = {
    "jaeger.json": span_traces.jaeger,
    "zipkin.json": span_traces.zipkin,
    "otlp.jsonl": span_traces.otlp,
    "otlp.pb": span_traces.otlp_protobuf,
}


def read_spans(sources: Sequence[Path]) -> SpanTable:
    """Read the spans of a few files into one table."""
    with read_parts(sources) as parts:
        (read_table,) = parts.tables
        return read_table()


def requests(table: SpanTable, *, sync: Collection[str] = ()) -> Requests:
    """Make requests of spans that are all."""
    prepared = prepare(table)
    return make_requests(table, prepared, agree(table, [prepared.evidence]), sync=sync)


def table_of(spans: Iterable[span_traces.SimulatedSpan], folder: Path, name: str = "jaeger.json") -> SpanTable:
    """Write spans in a form, and read them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(FORMS[name](spans))
    return read_spans([folder / name])


def requests_of(
    spans: Iterable[span_traces.SimulatedSpan],
    folder: Path,
    name: str = "jaeger.json",
    sync: Collection[str] = (),
) -> Requests:
    """Write spans in a form, and make requests of them."""
    return requests(table_of(spans, folder, name), sync=sync)


def seen(made: Requests) -> dict[str, Any]:
    """Return what is found out about spans, without what depends on rows."""
    table = made.table
    return {
        "id": table.spans["id"].gather(made.row).to_list(),
        "start": made.spans.start.tolist(),
        "end": made.spans.end.tolist(),
        "parent": made.spans.parent.tolist(),
        "called": made.spans.called.tolist(),
        "returned": made.returned.tolist(),
        "lane": made.lane.tolist(),
        "nested": made.nested.tolist(),
        "certain": made.certain.tolist(),
        "own": made.own.tolist(),
        "process": [table.processes[code].label for code in made.process.tolist()],
        "operation": [table.operations[code].label for code in made.operation.tolist()],
        "path": [column.tolist() for column in made.path],
    }


def path_of(made: Requests, number: int = 0) -> list[tuple[str, int, int]]:
    """Return the path of a request, last part first: (span, begin, end); a message is of the span that is called."""
    low, high = made.begins[number], made.begins[number + 1]
    ids = made.table.spans["id"].gather(made.row).to_list()
    path = made.path
    return [(ids[path.span[i]], int(path.begin[i]), int(path.end[i])) for i in range(low, high)]


def span(name: str, parent: str | None, start: int, end: int, **more: Any) -> span_traces.SimulatedSpan:
    """Return a span, times in microseconds; ids are hexadecimal digits."""
    usual: dict[str, Any] = {
        "trace": "a1", "service": "s", "host": "h", "operation": f"op-{name}", "kind": "internal", "thread": None,
    }  # fmt: skip
    times = {"start": start * 1_000, "end": end * 1_000}
    return span_traces.SimulatedSpan(id=name, parent=parent, **{**usual, **times, **more})
