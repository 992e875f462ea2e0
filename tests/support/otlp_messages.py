"""Our reader of OTLP's protocol buffers beside OpenTelemetry's own classes, on random exports.

``python -m tests.support.otlp_messages PYTHON`` wants an interpreter that has ``opentelemetry-proto``. That package
writes each export as protocol buffers, with all fields there are, and as JSON; both must give the same spans. Says how
many agree, and ends with 1 if one does not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.simulated_spans import read_spans

if TYPE_CHECKING:
    from pag_graph.sources.spans.table import SpanTable

_WRITE = """
import random, struct, sys
from pathlib import Path
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData

def attribute(into, draw):
    pair = into.add()
    pair.key = draw.choice(["thread.id", "db.system", "db.system.name", "peer", "é"])
    kind = draw.randrange(6)
    if kind == 0: pair.value.string_value = draw.choice(["main", "7", ""])
    elif kind == 1: pair.value.int_value = draw.choice([7, -1, 1 << 40])
    elif kind == 2: pair.value.double_value = 0.5
    elif kind == 3: pair.value.bool_value = True
    elif kind == 4: pair.value.array_value.values.add().string_value = "main"
    else: pair.value.bytes_value = b"main"

def number(draw, size):
    return draw.choice([b"", bytes(size), draw.randbytes(size), draw.randbytes(size), draw.randbytes(size)])

def span(into, draw, traces, ids):
    one = into.add()
    one.trace_id, one.span_id = draw.choice(traces), draw.choice(ids)
    one.parent_span_id = draw.choice([b"", *ids])
    one.name, one.kind = draw.choice(["a", "é", ""]), draw.randrange(6)
    one.start_time_unix_nano = draw.choice([1, 1_700_000_000_000_000_000 + draw.randrange(1_000)])
    one.end_time_unix_nano = one.start_time_unix_nano + draw.choice([0, 5, 10**6])
    one.trace_state, one.flags = "k=v", draw.choice([0, 1, 1 << 31])
    one.dropped_attributes_count = draw.choice([0, 3])
    for _ in range(draw.randrange(3)): attribute(one.attributes, draw)
    for _ in range(draw.randrange(2)):
        event = one.events.add()
        event.name, event.time_unix_nano = "event", one.start_time_unix_nano
        attribute(event.attributes, draw)
    for _ in range(draw.randrange(3)):
        link = one.links.add()
        link.trace_id, link.span_id, link.trace_state = draw.choice(traces), draw.choice(ids), "x"
    if draw.random() < 0.3: one.status.code, one.status.message = draw.randrange(3), "text"

folder, count = Path(sys.argv[1]), int(sys.argv[2])
for case in range(count):
    draw = random.Random(case)
    exports = []
    traces, ids = ([number(draw, size) for _ in range(4)] + [draw.randbytes(size)] for size in (16, 8))
    for _ in range(draw.randint(1, 3)):
        export = TracesData()
        for _ in range(draw.randint(1, 3)):
            group = export.resource_spans.add()
            group.schema_url = "url"
            for key in ("service.name", "host.name", "service.instance.id"):
                if draw.random() < 0.6:
                    pair = group.resource.attributes.add()
                    pair.key, pair.value.string_value = key, draw.choice(["x", "y"])
            for _ in range(draw.randint(0, 2)):
                scope = group.scope_spans.add()
                scope.scope.name, scope.scope.version = "library", "1"
                for _ in range(draw.randint(0, 12)): span(scope.spans, draw, traces, ids)
        exports.append(export)
    texts = [MessageToJson(export, indent=None).encode() for export in exports]
    (folder / f"{case}.jsonl").write_bytes(b"\\n".join(texts) + b"\\n")
    binary = [export.SerializeToString() for export in exports]
    if len(exports) > 1 or case % 2:
        binary = [struct.pack(">I", len(part)) + part for part in binary]
    (folder / f"{case}.pb").write_bytes(b"".join(binary))
"""


def content(table: SpanTable) -> tuple[Any, ...]:
    """Return everything that is read of spans but where it stood."""
    names = table.traces, table.processes, table.operations, table.threads
    return table.spans.rows(), table.references.sort("row", maintain_order=True).rows(), names, table.dropped


def read(file: Path) -> tuple[Any, ...] | str:
    """Return what a file says, or why it says nothing."""
    from pag_graph.errors import TraceFormatError

    try:
        return content(read_spans([file]))
    except TraceFormatError as error:
        return type(error).__name__


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python", metavar="PYTHON", help="an interpreter that has opentelemetry-proto")
    parser.add_argument("--exports", type=int, default=2_000, help="how many files (default: 2,000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.python, "-c", _WRITE, folder, str(options.exports)], check=True)
        pairs = [[read(Path(folder) / f"{case}.{end}") for end in ("pb", "jsonl")] for case in range(options.exports)]
    wrong = [case for case, (binary, text) in enumerate(pairs) if binary != text]
    spans = sum(len(text[0]) for _, text in pairs if isinstance(text, tuple))
    sys.stdout.write(f"{len(pairs) - len(wrong):,} of {len(pairs):,} exports, {spans:,} spans\n")
    for case in wrong[:3]:
        sys.stdout.write(f"  {case}\n    buffers {pairs[case][0]}\n    JSON    {pairs[case][1]}\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
