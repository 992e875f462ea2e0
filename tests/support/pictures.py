"""Pictures of the model, drawn from small traces that are built like any others.

``python -m tests.support.pictures`` draws them. `docs/model.md` shows them; a test draws them again and compares.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pag_graph import api
from pag_graph.analyses.critical_path import critical_path
from pag_graph.formats import svg
from pag_graph.model.enums import LOCAL_TYPES, ActivityType, RuleSet
from pag_graph.model.ids import worker_of
from pag_graph.testing.span_traces import SimulatedSpan, otlp
from pag_graph.testing.traces import draw

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pag_graph.api import Pag, Snapshot
    from pag_graph.testing.traces import SmallTrace

FOLDER = Path("docs") / "pictures"

EXAMPLE = draw(
    """0 start 1 | 30 send 3>1 *8 | 45 stop 1 | 50 park | 135 unpark
    140 start 2 | 145 recv 3<1 *8 | 170 stop 2 | 180 end""",
    """0 park | 42 unpark | 48 start 1 | 52 recv 3<0 *8 | 85 stop 1
    90 start 2 | 115 send 3>0 *8 | 125 stop 2 | 130 park | 170 unpark | 172 start 2 | 176 stop 2 | 180 end""",
)
"""Two workers: each waits for the other, once; the last park of worker 1 nobody explains."""

SLICED = draw(
    """0 start 1 =processing | 30 send 3>1 #0 | 60 stop 1
    60 start 2 =waiting | 100 recv 3<1 #0 | 100 stop 2
    100 start 1 =processing | 120 send 3>1 #1 | 130 stop 1 | 130 exit""",
    """0 start 1 =processing | 50 recv 3<0 #0 | 70 send 3>0 #0 | 70 stop 1
    70 start 2 =waiting | 140 recv 3<0 #1 | 140 stop 2
    140 start 1 =processing | 150 stop 1""",
    rules=RuleSet.STATED,
)
"""The example of Sager 2016, Fig. 3.1 to 3.4, as far as its text tells: two workers; at 85 both wait and one message is
under way, which wakes a worker at 100; G[85,150] has one critical path; in G[0,85] a worker's own activity and a
message meet at 50. The other times are chosen."""

CUT_NS = 85

LIFE = draw(
    "0 start 1 =processing | 30 spawn 1 | 140 stop 1 | 140 exit",
    "60 start 2 =deserialization | 90 stop 2 | 90 start 1 =processing | 180 stop 1",
    rules=RuleSet.STATED,
)
"""Worker 0 starts worker 1, and ends before the run does."""

_FILL = {
    ActivityType.PROCESSING: "#8fd3c8",
    ActivityType.SPINNING: "#d5edee",
    ActivityType.BUSY: "#d4d4de",
    ActivityType.WAITING: "#f7dcdc",
    ActivityType.WAKE_UP: "#f3dca0",
    ActivityType.INPUT_WAIT: "#e4d9f0",
    ActivityType.UNKNOWN: "#b0b0b0",
    ActivityType.IO: "#c9def2",
    ActivityType.DESERIALIZATION: "#dbe8b8",
}
_SHORT = {ActivityType.PROCESSING: "work", ActivityType.DESERIALIZATION: "deserialize", ActivityType.WAKE_UP: "wake"}
_LEFT, _TOP, _LANE, _BOX, _SCALE = 84, 64, 104, 30, 4.6
_MESSAGE = "#1d6fa5"
_LOCAL = {str(kind) for kind in LOCAL_TYPES}
_STYLE = (
    ".b { font-weight: 600 } .m { text-anchor: middle }\n"
    ".t { font-size: 10px; fill: #333; text-anchor: middle; paint-order: stroke; stroke: #ffffff; stroke-width: 3px }\n"
    ".e { font-size: 11px; fill: #1d6fa5; paint-order: stroke; stroke: #ffffff; stroke-width: 3px }"
)
_HEAD = svg.arrow_head("head", _MESSAGE)


_AT = 1_700_000_000_000_000_000
REQUEST = [
    SimulatedSpan(
        trace=f"{1:032x}",
        id=f"{number:016x}",
        parent=f"{parent:016x}" if parent else None,
        service=service,
        host=service,
        operation=operation,
        kind=kind,
        thread=None,
        start=_AT + start,
        end=_AT + end,
    )
    for number, parent, service, operation, kind, start, end in (
        (1, 0, "shop", "buy", "server", 0, 180),
        (2, 1, "shop", "ask stock", "client", 20, 90),
        (3, 2, "stock", "count", "server", 30, 80),
        (4, 1, "shop", "ask bank", "client", 25, 150),
        (5, 4, "bank", "pay", "server", 40, 135),
    )
]


def picture(snapshot: Snapshot, title: str, *, path: bool = False, segments: bool = False) -> str:
    """Draw a small graph: a lane per worker, a box per activity, an arrow per message, a dot per vertex with its time.

    Parameters
    ----------
    snapshot
        A window of a run with aligned clocks; its edges are cut at the borders.
    title
        Heading.
    path, segments
        Whether to draw the critical path, and the segments, too.

    Returns
    -------
    str
        An SVG document; the same for the same graph.
    """
    window = snapshot.window
    workers = snapshot.run.workers
    lanes = {worker: _TOP + place * _LANE for place, worker in enumerate(workers)}
    width = _LEFT + 72 + window.span_ns * _SCALE
    height = _TOP + len(workers) * _LANE - 40
    rows = snapshot.projection().to_dicts()
    # Lines over boxes, and what has no length under everything.
    rows.sort(key=lambda row: (row["type"] not in _LOCAL, -row["duration_ns"], row["edge_dst"], row["edge_src"]))
    body: list[str] = []
    for row in rows:
        body += (_box if row["type"] in _LOCAL else _arrow)(row, lanes, window.start_ns)
    if segments:
        body += _segments(snapshot, lanes)
    if path:
        body += _path(snapshot, lanes)
    body += _dots(rows, lanes, window.start_ns)
    labels = [svg.text(8, y + 20, f"worker {worker}", class_="b") for worker, y in lanes.items()]
    shapes = [_HEAD, svg.text(8, 22, title, class_="b"), *labels, *body]
    return svg.document(shapes, round(width), height, style=_STYLE)


def _x(t_ns: int, origin: int) -> float:
    return _LEFT + (t_ns - origin) * _SCALE


def _box(row: dict[str, int | str], lanes: dict[int, int], origin: int) -> list[str]:
    start, length, kind = int(row["start_ns"]), int(row["duration_ns"]), ActivityType(str(row["type"]))
    if not length:
        return []
    x, y, wide = _x(start, origin), lanes[worker_of(int(row["edge_dst"]))], length * _SCALE
    name = _SHORT.get(kind, str(kind).replace("_", " "))
    fill = _FILL.get(kind, "#eeeeee")
    lines = [svg.rect(x, y, wide, _BOX, fill, stroke="#888888", title=f"{kind}, {length} ns")]
    label = next((text for text in (f"{name} {length}", name) if len(text) * svg.LETTER + 12 < wide), "")
    if label:
        lines.append(svg.text(x + wide / 2, y + 20, label, class_="m"))
    return lines


def _arrow(row: dict[str, int | str], lanes: dict[int, int], origin: int) -> list[str]:
    start, length = int(row["start_ns"]), int(row["duration_ns"])
    src, dst = (lanes[worker_of(int(row[name]))] for name in ("edge_src", "edge_dst"))
    down = src < dst
    y1, y2 = (src + _BOX, dst) if down else (src, dst + _BOX)
    x1, x2 = _x(start, origin), _x(start + length, origin)
    kind = str(row["type"]).replace("_", " ")
    look = {"stroke_width": 1.6, "marker_end": "url(#head)", "title": f"{kind}, {length} ns"}
    return [
        svg.line((x1, y1), (x2, y2), _MESSAGE, **look),
        svg.text((x1 + x2) / 2 + 7, round((y1 + y2) / 2 + 4), kind, class_="e"),
    ]


def _dots(rows: Iterable[dict[str, int | str]], lanes: dict[int, int], origin: int) -> list[str]:
    """Draw vertices: full ones are events, empty ones were made by the window's cut."""
    ends: dict[tuple[int, int], bool] = {}
    for row in rows:
        if row["type"] in _LOCAL:
            worker, start = worker_of(int(row["edge_dst"])), int(row["start_ns"])
            for t, name in ((start, "src"), (start + int(row["duration_ns"]), "dst")):
                ends[worker, t] = ends.get((worker, t), False) or int(row[name]) >= 0
    lines, last = [], (-1, -100.0)
    for (worker, t), real in sorted(ends.items()):
        x, y = _x(t, origin), lanes[worker]
        fill = "#333333" if real else "#ffffff"
        lines.append(svg.circle(x, y + _BOX / 2, 3, fill, stroke="#333333"))
        if last[0] != worker or x - last[1] > 21:
            lines.append(svg.text(x, y + _BOX + 12, str(t), class_="t"))
            last = (worker, x)
    return lines


def _segments(snapshot: Snapshot, lanes: dict[int, int]) -> list[str]:
    """Draw a bar over what each segment comprises."""
    spans: dict[int, list[int]] = {}
    segment = dict(zip(*(snapshot.run.scan("vertices").collect()[name] for name in ("id", "segment")), strict=True))
    for row in snapshot.local.iter_rows(named=True):
        # The edge after a wait is the first of its segment; a wait belongs to the one that it ends.
        number = segment[row["src"]]
        span = spans.setdefault(number, [row["start_ns"], row["end_ns"]])
        span[1] = max(span[1], row["end_ns"])
    lines = []
    for number, (low, high) in sorted(spans.items()):
        x1, x2 = (_x(t, snapshot.window.start_ns) for t in (low, high))
        y = lanes[worker_of(number)] - 8
        steps = [("M", (x1 + 2, y + 5)), ("V", (y,)), ("H", (x2 - 2,)), ("V", (y + 5,))]
        lines.append(svg.path(steps, "#7a4fa3", stroke_width=2))
        lines.append(svg.text((x1 + x2) / 2, y - 4, "segment", class_="m", fill="#7a4fa3"))
    return lines


def _path(snapshot: Snapshot, lanes: dict[int, int]) -> list[str]:
    """Draw the critical path under the lanes, and along its messages."""
    points = []
    for step in critical_path(snapshot).steps.to_pylist():
        for t, name in ((step["start_ns"], "worker"), (step["start_ns"] + step["duration_ns"], "to_worker")):
            points.append((_x(t, snapshot.window.start_ns), lanes[step[name]] + _BOX + 18))
    return [svg.polyline(points, "#d62828", stroke_width=3, opacity=0.8)]


def draw_all() -> dict[str, str]:
    """Build the examples and draw them.

    Returns
    -------
    dict
        File name to SVG document.
    """
    with tempfile.TemporaryDirectory() as folder:
        traces = {"example": EXAMPLE, "sliced": SLICED, "life": LIFE}
        example, sliced, life = (_built(trace, Path(folder) / name) for name, trace in traces.items())
        end = sliced.run.end_ns
        example_graph, life_graph = (pag.snapshot(between=(0, pag.run.end_ns)) for pag in (example, life))
        before, after = (sliced.snapshot(between=window) for window in ((0, CUT_NS), (CUT_NS, end)))
        return {
            "model-graph.svg": picture(
                example_graph, "Two workers of one process: what they did, and what they sent (times in ns)"
            ),
            "model-segments.svg": picture(
                example_graph, "The same graph: a segment ends where a wait does", segments=True
            ),
            "model-path.svg": picture(example_graph, "The same graph: its critical path, in red", path=True),
            "model-before.svg": picture(
                before, f"The window from 0 to {CUT_NS}: cut at its end (empty dots)", path=True
            ),
            "model-after.svg": picture(after, f"The window from {CUT_NS} to {end}: cut at its start", path=True),
            "model-life.svg": picture(
                life_graph, "Worker 1 is born by a message; worker 0 ends before the run does", path=True
            ),
        }


def draw_spans() -> dict[str, str]:
    """Build a request of five spans and draw it.

    Returns
    -------
    dict
        File name to SVG document.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "request.jsonl").write_bytes(otlp(REQUEST))
        api.convert(Path(folder) / "request.jsonl", Path(folder) / "trace")
        api.build(Path(folder) / "trace", Path(folder) / "store", engine="local")
        snapshot = api.open(Path(folder) / "store").snapshot(epoch=2)
        return {
            "spans-request.svg": picture(snapshot, "A request: the shop calls, and waits for, two others", path=True)
        }


def _built(trace: SmallTrace, place: Path) -> Pag:
    trace.write(place / "trace")
    api.build(place / "trace", place / "store", rules=trace.rules, engine="local")
    return api.open(place / "store")


def main() -> None:
    """Draw all pictures into the documentation."""
    for name, text in (draw_all() | draw_spans()).items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
