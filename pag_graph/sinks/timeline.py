"""A picture of a window: one lane per worker, activities as boxes, messages as lines, the critical path on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.analyses.critical_path import critical_path
from pag_graph.formats import svg
from pag_graph.model.enums import LOCAL_TYPES, ActivityType
from pag_graph.model.ids import worker_of
from pag_graph.model.units import duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pag_graph.graph.snapshot import Snapshot

COLOURS: dict[str, str] = {
    ActivityType.PROCESSING: "#2a9d8f",
    ActivityType.SPINNING: "#9be2f0",
    ActivityType.BUSY: "#b8b8c8",
    ActivityType.PROGRAM: "#a2b9a6",
    ActivityType.WAITING: "#f4d6d6",
    ActivityType.WAKE_UP: "#e9c46a",
    ActivityType.INPUT_WAIT: "#aab7de",
    ActivityType.IDLE: "#f0e2c2",
    ActivityType.UNKNOWN: "#707070",
    ActivityType.DATA_MESSAGE: "#1d6fa5",
    ActivityType.PROGRESS_MESSAGE: "#9a9a9a",
}
"""Colours by edge type, the same in every picture."""

_LEFT, _TOP, _LANE, _BOX, _BELOW = 80, 34, 54, 22, 28
_PATH = "#d62828"
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

    def x(t_ns: int) -> float:
        return _LEFT + (min(max(t_ns, window.start_ns), window.end_ns) - window.start_ns) * scale

    edges = snapshot.edges.sort("duration_ns", descending=True, maintain_order=True)
    left_out = max(edges.height - _MOST_EDGES, 0)
    boxes, messages = [], []
    for edge in edges.head(_MOST_EDGES).iter_rows(named=True):
        begin, end = x(edge["start_ns"]), x(edge["start_ns"] + edge["duration_ns"])
        colour, title = COLOURS.get(edge["type"], "#000000"), _tooltip(edge, names)
        if edge["type"] in _LOCAL:
            lane = lanes[worker_of(edge["dst"])]
            boxes.append(svg.rect(begin, lane, max(end - begin, 0.3), _BOX, colour, title=title))
        else:
            sender, receiver = (lanes[worker_of(edge[side])] + _BOX / 2 for side in ("src", "dst"))
            thick = 1.4 if edge["type"] == ActivityType.DATA_MESSAGE else 0.5
            messages.append(svg.line((begin, sender), (end, receiver), colour, stroke_width=thick, title=title))
    points = []
    for step in critical_path(snapshot).steps.to_pylist():
        points.append((x(step["start_ns"]), lanes[step["worker"]] + _BOX + 5))
        points.append((x(step["start_ns"] + step["duration_ns"]), lanes[step["to_worker"]] + _BOX + 5))
    note = f"; the {left_out:,} shortest of {edges.height:,} edges are not drawn" if left_out else ""
    bottom = _TOP + len(workers) * _LANE + _BELOW
    kinds = [(kind.replace("_", " "), colour) for kind, colour in COLOURS.items()]
    legend, high = svg.legend(kinds, _LEFT, bottom, width)
    shapes = [
        svg.text(
            _LEFT, 20, f"{window.name}: {duration(window.span_ns)}; red: the critical path{note}", font_weight=600
        ),
        *boxes,
        *messages,
        svg.polyline(points, _PATH, stroke_width=3),
        *(lane_label(snapshot.run.worker_names, worker, 6, lane + _BOX - 6) for worker, lane in lanes.items()),
        *legend,
    ]
    return svg.document(shapes, width, bottom + high)


def _tooltip(edge: Mapping[str, Any], names: Mapping[int, str]) -> str:
    words = f"{edge['type']} {duration(edge['duration_ns'])}"
    if edge["operator"] is not None:
        words += f", {names.get(edge['operator'], edge['operator'])}"
    if edge["records"] is not None:
        words += f", {edge['records']:,} records"
    return words


def lane_label(names: Mapping[int, str], worker: int, x: float, y: float) -> str:
    """Return the label of a worker's lane: its name, if it has one, with its number below; a tooltip has it whole.

    Parameters
    ----------
    names
        Names of workers by number; not all need to have one.
    worker
        Its number.
    x, y
        Where the first line begins, in pixels; the second line is 14 pixels lower.

    Returns
    -------
    str
        A text of SVG, or a group of two. Of a longer name, eight letters and three dots are shown.
    """
    number = f"worker {worker}"
    if worker not in names:
        return svg.text(x, y, number, font_weight=600)
    name = names[worker]
    shown = svg.text(x, y, svg.shortened(name, _NAME), font_weight=600)
    return svg.group(shown, svg.text(x, y + 14, number, font_size=10), title=name)
