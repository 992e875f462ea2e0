"""Spans: how fast files of each format are read, and requests with their paths made of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import orjson

from bench.harness import Bench, Session, Yardstick

if TYPE_CHECKING:
    from pathlib import Path

_REQUESTS = 4_000
_QUICK_REQUESTS = 200
_SIBLINGS = 10_000


def make(name: str, target: Path, requests: int) -> None:
    """Write so many simulated requests in a form: ``jaeger``, ``zipkin``, ``otlp`` or ``protobuf``."""
    from pag_graph.testing import span_traces

    forms = {
        "jaeger": span_traces.jaeger,
        "zipkin": span_traces.zipkin,
        "otlp": span_traces.otlp,
        "protobuf": span_traces.otlp_protobuf,
    }
    target.write_bytes(forms[name](span_traces.simulate(1, requests).spans))


def wide(target: Path) -> None:
    """Write a request whose root calls so many others one after the other."""
    spans = [{"spanID": "r", "startTime": 1, "duration": 5 * _SIBLINGS, "references": []}]
    for number in range(_SIBLINGS):
        reference = {"refType": "CHILD_OF", "traceID": "t", "spanID": "r"}
        spans.append({"spanID": f"{number:x}.", "startTime": 2 + 4 * number, "duration": 3, "references": [reference]})
    named_spans = [{"operationName": "o", "processID": "p", **span} for span in spans]
    target.write_bytes(orjson.dumps({"traceID": "t", "spans": named_spans, "processes": {"p": {"serviceName": "s"}}}))


def deep(target: Path) -> None:
    """Write a request of so many spans, each inside the one before it."""
    spans = [
        {
            "spanID": f"{number:x}.",
            "startTime": 1 + number,
            "duration": 3 * _SIBLINGS - 2 * number,
            "references": [{"refType": "CHILD_OF", "traceID": "t", "spanID": f"{number - 1:x}."}] if number else [],
        }
        for number in range(_SIBLINGS)
    ]
    named_spans = [{"operationName": "o", "processID": "p", **span} for span in spans]
    target.write_bytes(orjson.dumps({"traceID": "t", "spans": named_spans, "processes": {"p": {"serviceName": "s"}}}))


def _slack(file: Path, session: Session) -> int:
    """Make a graph of a request, and say how long each activity could take longer."""
    from pag_graph import api

    folder = session.new_folder("slack")
    api.convert(file, folder / "trace")
    api.build(folder / "trace", folder / "pag", engine="local")
    return int(api.open(folder / "pag").slack(epoch=2).num_rows)


def _answered(file: Path) -> int:
    from pag_graph.diagnosis.spans.answer import answer

    with answer([file]) as span_answer:
        return span_answer.requests.spans


def _parsed(file: Path) -> Yardstick:
    def run() -> int:
        return len([orjson.loads(line) for line in file.read_bytes().splitlines()])

    return Yardstick(name="orjson parses the same file", run=run)


def run(session: Session) -> None:
    """Measure."""
    count = _QUICK_REQUESTS if session.quick else _REQUESTS
    for name in ("jaeger", "zipkin", "otlp", "protobuf"):
        file = session.fixed(f"spans-{name}-{count}-v1", lambda path, name=name: make(name, path, count))
        spans = _answered(file)
        session.measure(
            f"read and sum {name}",
            lambda file=file: _answered(file),
            against=None if name == "protobuf" else _parsed(file),
            items=spans,
            unit="spans",
            repeat=3,
            target="100,000 spans/s, 3 x orjson's time",
        )
    for shape, write, aim in (("siblings", wide, "0.5 s (CRISP 2.8 s)"), ("levels", deep, "0.5 s (CRISP 19 s)")):
        request = session.fixed(f"spans-{shape}-v1", write)
        session.measure(
            f"a request of {_SIBLINGS:,} {shape}",
            partial(_answered, request),
            against=_parsed(request),
            items=_SIBLINGS,
            unit="spans",
            repeat=3,
            target=aim,
        )
        session.measure(
            f"its graph and slack, {shape}",
            partial(_slack, request, session),
            items=_SIBLINGS,
            unit="spans",
            repeat=3,
            target=aim,
        )


BENCH = Bench(
    name="spans",
    title="Spans",
    run=run,
    about=(
        "Simulated requests (`pag_graph.testing.span_traces`) are read, made into requests with their paths, and"
        " summed by operation, class of latency and call path, in one process on one core."
    ),
)
