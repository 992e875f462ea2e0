"""A picture of a window: one lane per worker, activities as boxes, messages as lines, the critical path on top."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pag_graph.analyses.critical_path import critical_path
from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.model.ids import worker_of
from pag_graph.model.units import duration, in_html

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pag_graph.graph.snapshot import Snapshot

COLOURS: dict[str, str] = {
    ActivityType.PROCESSING: "#2a9d8f",
    ActivityType.SPINNING: "#a8dadc",
    ActivityType.BUSY: "#b8b8c8",
    ActivityType.WAITING: "#f4d6d6",
    ActivityType.WAKE_UP: "#e9c46a",
    ActivityType.INPUT_WAIT: "#d8c8e8",
    ActivityType.IDLE: "#ececec",
    ActivityType.UNKNOWN: "#707070",
    ActivityType.DATA_MESSAGE: "#1d6fa5",
    ActivityType.PROGRESS_MESSAGE: "#9a9a9a",
}
"""Colours by edge type, the same in every picture."""

_LEFT, _TOP, _LANE, _BOX, _LEGEND = 80, 34, 54, 22, 44
_LOCAL = {str(kind) for kind in LOCAL_TYPES}
_MOST_EDGES = 20_000
_NAME = 11
"""Letters of a worker's name that fit before its lane."""


def timeline(snapshot: Snapshot, *, width: int = 1100) -> str:
    """Draw a window.

    Parameters
    ----------
    snapshot
        Of a run with aligned clocks.
    width
        In pixels.

    Returns
    -------
    str
        An SVG document; every shape has a tooltip with type, times and operator. Of a window with very many edges only
        the longest are drawn, and the picture says so.
    """
    window, workers = snapshot.window, snapshot.run.workers
    names = {row["operator"]: row["name"] for row in snapshot.run.operators.iter_rows(named=True)}
    scale = (width - _LEFT - 20) / max(window.span_ns, 1)
    lanes = {worker: _TOP + index * _LANE for index, worker in enumerate(workers)}
    height = _TOP + len(workers) * _LANE + _LEGEND

    def x(t_ns: int) -> float:
        return _LEFT + (min(max(t_ns, window.start_ns), window.end_ns) - window.start_ns) * scale

    edges = snapshot.edges.sort("duration_ns", descending=True)
    left_out = max(edges.height - _MOST_EDGES, 0)
    boxes, lines = [], []
    for edge in edges.head(_MOST_EDGES).iter_rows(named=True):
        begin, end = edge["start_ns"], edge["start_ns"] + edge["duration_ns"]
        kind, colour = edge["type"], COLOURS.get(edge["type"], "#000000")
        what = f"{kind} {duration(edge['duration_ns'])}"
        if edge["operator"] is not None:
            what += f", {names.get(edge['operator'], edge['operator'])}"
        if edge["records"] is not None:
            what += f", {edge['records']:,} records"
        title = f"<title>{in_html(what)}</title>"
        if kind in _LOCAL:
            y = lanes[worker_of(edge["dst"])]
            boxes.append(
                f'<rect x="{x(begin):.2f}" y="{y}" width="{max(x(end) - x(begin), 0.3):.2f}" height="{_BOX}"'
                f' fill="{colour}">{title}</rect>'
            )
        else:
            y1, y2 = (lanes[worker_of(edge[side])] + _BOX / 2 for side in ("src", "dst"))
            thick = 1.4 if kind == ActivityType.DATA_MESSAGE else 0.5
            lines.append(
                f'<line x1="{x(begin):.2f}" y1="{y1}" x2="{x(end):.2f}" y2="{y2}" stroke="{colour}"'
                f' stroke-width="{thick}">{title}</line>'
            )
    path = []
    for step in critical_path(snapshot).steps.to_pylist():
        y1, y2 = (lanes[step[side]] + _BOX + 5 for side in ("worker", "to_worker"))
        path.append(f"{x(step['start_ns']):.2f},{y1} {x(step['start_ns'] + step['duration_ns']):.2f},{y2}")
    labels = [lane_label(snapshot.run.worker_names, worker, 6, y + _BOX - 6) for worker, y in lanes.items()]
    note = f"; the {left_out:,} shortest of {edges.height:,} edges are not drawn" if left_out else ""
    heading = f"{window.name}: {duration(window.span_ns)}; red: the critical path{note}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
            "<style>text { font-size: 12px }</style>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            f'<text x="{_LEFT}" y="20" font-weight="600">{in_html(heading)}</text>',
            *boxes,
            *lines,
            f'<polyline points="{" ".join(path)}" fill="none" stroke="#d62828" stroke-width="3"/>',
            *labels,
            *_legend(height - 16),
            "</svg>",
            "",
        ]
    )


def lane_label(names: Mapping[int, str], worker: int, x: float, y: float) -> str:
    """Return the label of a worker's lane: its name, if it has one, with its number below; a tooltip has it whole."""
    if worker not in names:
        return f'<text x="{x}" y="{y}" font-weight="600">worker {worker}</text>'
    name = names[worker]
    shown = name if len(name) <= _NAME else f"{name[: _NAME - 3]}..."
    return (
        f'<g><title>{in_html(name)}</title><text x="{x}" y="{y}" font-weight="600">{in_html(shown)}</text>'
        f'<text x="{x}" y="{y + 14}" font-size="10">worker {worker}</text></g>'
    )


def _legend(y: int) -> list[str]:
    result, x = [], _LEFT
    for kind, colour in COLOURS.items():
        result.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        result.append(f'<text x="{x + 14}" y="{y}">{kind.replace("_", " ")}</text>')
        x += 26 + 7 * len(kind)
    return result
