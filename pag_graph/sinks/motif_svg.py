"""A picture of one match of a motif: lanes for workers, circles for vertices, lines for edges, all with their names.

``python -m pag_graph.sinks.motif_svg docs/pictures`` draws a match of every named pattern out of a bundled trace.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pag_graph.formats import svg
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType
from pag_graph.model.ids import worker_of
from pag_graph.model.units import duration
from pag_graph.motif.patterns import PATTERNS
from pag_graph.motif.polars_query import MotifQuery
from pag_graph.motif.query import ask
from pag_graph.motif.shape import PAG_SHAPE
from pag_graph.motif.store import graph_of_run
from pag_graph.sinks.timeline import lane_label
from pag_graph.store.in_place import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pag_graph.graph.run import Run
    from pag_graph.motif.syntax import Motif

PICTURED: dict[str, tuple[str, dict[str, int]]] = {
    "wait_ended_by_data": ("bfs", {"min_ns": 20_000}),
    # Workers of the bundled traces wait in turns, not in chains: the second wait begins after the first.
    "wait_chain": ("skewed", {"gap_ns": 10_000_000}),
    "fan_in": ("skewed", {}),
    "ping_pong": ("bfs", {"within_ns": 100_000}),
    "late_sender": ("skewed", {"min_ns": 1_000_000}),
    "late_receiver": ("triangles", {}),
    "message_burst": ("triangles", {}),
    "idle_beside_backlog": ("skewed", {}),
}
"""Per named pattern: the bundled trace that its picture is from, and the parameters."""

_WIDTH, _LEFT, _TOP, _LANE, _BOTTOM, _RIGHT = 760, 100, 104, 104, 14, 60
_NARROWEST = 62.0
"""Least distance between two instants, in pixels."""
_WAITING, _WORK, _DATA, _OTHER = "#d62828", "#2a9d8f", "#1d6fa5", "#8a8a8a"
_IDLE = {ActivityType.WAITING, ActivityType.INPUT_WAIT, ActivityType.IDLE}
_MESSAGES = {str(kind) for kind in MESSAGE_TYPES}
_STYLE = "text { paint-order: stroke; stroke: #ffffff; stroke-width: 3px }\n.small { font-size: 11px; fill: #555555 }"
_NOTE = "red: nothing to do; green: work; blue: data; grey: other messages; gaps in time by their square roots"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    name: str
    kind: str
    src: int
    dst: int
    start_ns: int
    end_ns: int


def match_picture(
    motif: Motif,
    row: Mapping[str, Any],
    title: str,
    purpose: str = "",
    *,
    names_of_workers: Mapping[int, str] | None = None,
) -> str:
    """Draw one match.

    Parameters
    ----------
    motif
        The motif; its edges have names.
    row
        One row of its answer, with all columns of its edges.
    title, purpose
        Stand above the picture.
    names_of_workers
        As they can be printed, by number.

    Returns
    -------
    str
        An SVG document. Gaps in time are drawn by their square roots, so that short ones can be seen.
    """
    lines = [
        _Line(
            name=name,
            kind=row[name]["type"],
            src=row[name]["src"],
            dst=row[name]["dst"],
            start_ns=row[name]["start_ns"],
            end_ns=row[name]["start_ns"] + row[name]["duration_ns"],
        )
        for name in motif.edges
    ]
    times = {line.src: line.start_ns for line in lines} | {line.dst: line.end_ns for line in lines}
    workers = sorted({worker_of(vertex) for vertex in times})
    lanes = {worker: _TOP + index * _LANE for index, worker in enumerate(workers)}
    x = _places(sorted(set(times.values())), _WIDTH - _LEFT - _RIGHT)
    points = {vertex: (_LEFT + x[t_ns], lanes[worker_of(vertex)]) for vertex, t_ns in times.items()}
    names: dict[int, list[str]] = {}
    for edge in motif.edges.values():
        for name, end in ((edge.src, "src"), (edge.dst, "dst")):
            names_of_vertex = names.setdefault(row[edge.name][end], [])
            if name in motif.columns and name not in names_of_vertex:
                names_of_vertex.append(name)
    height = _TOP + len(workers) * _LANE + _BOTTOM
    drawn = [
        svg.text(12, 20, title, font_weight=600),
        svg.text(12, 38, purpose),
        svg.text(12, 56, str(motif), class_="small"),
    ]
    for worker, y in lanes.items():
        drawn.append(lane_label(names_of_workers or {}, worker, 12, y + 4))
        drawn.append(svg.line((_LEFT - 8, y), (_WIDTH - 12, y), "#e4e4e4"))
    for line in lines:
        drawn += _edge(line, points[line.src], points[line.dst])
    # Names stand where no message leaves or arrives.
    labelled_above = {line.src for line in lines if points[line.src][1] < points[line.dst][1]}
    labelled_above |= {line.dst for line in lines if points[line.dst][1] < points[line.src][1]}
    first = min(times.values())
    for vertex, (left, y) in points.items():
        name_y, time_y = (y - 26, y - 13) if vertex in labelled_above else (y + 20, y + 33)
        drawn.append(svg.circle(left, y, 5, "#ffffff", stroke=svg.INK, stroke_width=1.6))
        if label := ", ".join(names.get(vertex, [])):
            drawn.append(svg.text(left, name_y, label, text_anchor="middle"))
        elapsed = f"+{duration(times[vertex] - first)}"
        drawn.append(svg.text(left, time_y, elapsed, text_anchor="middle", class_="small"))
    drawn.append(svg.text(12, height - 12, _NOTE, class_="small"))
    return svg.document(drawn, _WIDTH, height, style=_STYLE)


def _edge(line: _Line, begin: tuple[float, int], end: tuple[float, int]) -> list[str]:
    message = line.kind in _MESSAGES
    if message:
        colour = _DATA if line.kind == ActivityType.DATA_MESSAGE else _OTHER
    else:
        colour = _WAITING if line.kind in _IDLE else _WORK
    (x1, y1), (x2, y2) = begin, end
    label = f"{line.name}: {line.kind.replace('_', ' ')}"
    title = f"{label}, {duration(line.end_ns - line.start_ns)}"
    drawn = svg.line(begin, end, colour, stroke_width=1.8 if message else 5, title=title)
    if message:
        # Nearer to the sender, where messages are further apart.
        return [drawn, svg.text(x1 + (x2 - x1) * 0.4 + 8, y1 + (y2 - y1) * 0.4 + 4, line.name, fill=colour)]
    # Where no name of a vertex stands: these are at the ends.
    middle = (x1 + x2) / 2
    if abs(x2 - x1) > svg.LETTER * len(label):
        return [drawn, svg.text(middle, y1 - 9, label, text_anchor="middle", fill=colour)]
    return [drawn, svg.text(middle, y1 + 16, line.name, text_anchor="middle", fill=colour)]


def _places(times: Sequence[int], width: float) -> dict[int, float]:
    """Return how far right each instant is; equal instants are one."""
    gaps = [sqrt(later - earlier) for earlier, later in pairwise(times)]
    free = width - _NARROWEST * len(gaps)
    scale = max(free, 0.0) / sum(gaps) if sum(gaps) else 0.0
    places, x = {times[0]: 0.0}, 0.0
    for t_ns, gap in zip(times[1:], gaps, strict=True):
        x += _NARROWEST + gap * scale
        places[t_ns] = x
    return places


def pattern_picture(run: Run, name: str, parameters: Mapping[str, int]) -> str:
    """Draw the first match of a named pattern in a run.

    Parameters
    ----------
    run
        A committed run that has one.
    name, parameters
        Of the pattern, with the parameters that differ from its defaults.

    Returns
    -------
    str
        An SVG document.
    """
    pattern = PATTERNS[name]
    question = ask(pattern.motif, pattern.where, PAG_SHAPE, parameters=pattern.values(parameters))
    (row,) = MotifQuery(question=question, graph=graph_of_run(run), limit=1).frame().to_dicts()
    return match_picture(question.motif, row, name, pattern.purpose, names_of_workers=run.worker_names)


def draw_all(folder: Path, runs: Mapping[str, Run]) -> list[Path]:
    """Write the picture of every named pattern, ``motif-<name>.svg``.

    Parameters
    ----------
    folder
        Where to.
    runs
        The bundled traces' runs, by name of the trace.

    Returns
    -------
    list of Path
        One file per pattern.
    """
    files = []
    for name, (sample, parameters) in PICTURED.items():
        file = folder / f"motif-{name.replace('_', '-')}.svg"
        write_whole(file, pattern_picture(runs[sample], name, parameters))
        files.append(file)
    return files


def _main() -> None:
    from pag_graph.builder.build import build
    from pag_graph.engines.local import LocalEngine
    from pag_graph.graph.run import Run

    samples = Path(__file__).parents[1] / "samples"
    with tempfile.TemporaryDirectory() as scratch:
        runs = {}
        for name in sorted({sample for sample, _ in PICTURED.values()}):
            build(samples / name, Path(scratch) / name, engine=LocalEngine())
            runs[name] = Run(Path(scratch) / name)
        draw_all(Path(sys.argv[1]), runs)


if __name__ == "__main__":
    _main()
