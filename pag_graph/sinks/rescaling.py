"""Picture of a run that was rescaled: latencies over time, phases shaded, steps, shares and the state's size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.analyses.rescaling.latencies import RESPONSE
from pag_graph.formats import svg
from pag_graph.model.units import duration, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pag_graph.analyses.rescaling.report import Rescaling

    Row = Mapping[str, Any]

_SHADES = {"before": "#f4f4f8", "bootstrap": "#f6d5c4", "settling": "#fbeecb", "after": "#dcefe2"}
_WIDTH, _LEFT, _PLOT_WIDTH, _PLOT, _BAR = 940, 170, 740, 220, 18
_MOST = 20
"""Steps and readers that are drawn, the longest and the busiest; the others are counted."""


def rescaling_picture(answer: Rescaling) -> str:
    """Draw the operations of a run.

    Parameters
    ----------
    answer
        What to draw.

    Returns
    -------
    str
        An SVG document without references to anything outside: latency of each epoch over time with the phases
        shaded, the steps of the operations, which share of the records each worker read before and after, and the size
        of the progress state; what a run does not have is left out.
    """
    title = f"{answer.epochs.kind} times of {len(answer.epochs.epoch):,} epochs, {len(answer.courses)} operations"
    shapes = [svg.text(20, 24, title, font_weight=600)]
    entries = list(_SHADES.items())
    legend, high = svg.legend(entries, _LEFT, 40, _WIDTH)
    top = 40 + high + 16
    shapes += [*legend, *_latencies(answer, top)]
    y = top + _PLOT + 50
    sections: list[tuple[str, str, Callable[[Sequence[Row], int], list[str]], float]] = [
        ("steps", "steps", _steps, _BAR / 2)
    ]
    if answer.run.has_traffic:
        sections.append(("routing", "share of the records, before and after", _shares, _BAR * 2 / 3))
        sections.append(("state", "updates in the progress state", _sizes, _BAR / 2))
    for table, name, draw, high_of_shape in sections:
        drawn = draw(answer.named(table).to_pylist(), y + 22)
        if drawn:
            shapes += [svg.text(20, y + 4, name, font_weight=600), *drawn]
            y += 48 + round(len(drawn) * high_of_shape)
    return svg.document(shapes, _WIDTH, y, title=title)


def _latencies(answer: Rescaling, top: int) -> list[str]:
    """Draw a point per epoch, joined by a line, over the phases."""
    rows = answer.named("latency").to_pylist()
    last = answer.epochs.last_ns or 1
    highest = max((row["latency_ns"] for row in rows), default=0) or 1

    def x(t_ns: float) -> float:
        return _LEFT + _PLOT_WIDTH * t_ns / last

    def y(ns: float) -> float:
        return top + _PLOT * (1 - ns / highest)

    shapes = []
    for row in answer.named("phases").to_pylist():
        tooltip = f"operation {row['operation']}, {row['phase']}: {duration(row['end_ns'] - row['start_ns'])}"
        if row["p50_ns"] is not None:
            tooltip += f", median {duration(row['p50_ns'])}, 99 of 100 within {duration(row['p99_ns'])}"
        width = max(1.0, x(row["end_ns"]) - x(row["start_ns"]))
        shapes.append(svg.rect(x(row["start_ns"]), top, width, _PLOT, _SHADES[row["phase"]], title=tooltip))
    for tick in svg.ticks(0, highest):
        shapes.append(svg.line((_LEFT, y(tick)), (_LEFT + _PLOT_WIDTH, y(tick)), svg.GRID))
        shapes.append(svg.text(_LEFT - 6, y(tick) + 4, duration(tick), text_anchor="end", fill=svg.FAINT))
    ticks_y = top + _PLOT + 16
    shapes += [
        svg.text(x(tick), ticks_y, duration(tick), text_anchor="middle", fill=svg.FAINT) for tick in svg.ticks(0, last)
    ]
    points = [(x(row["end_ns"]), y(row["latency_ns"])) for row in rows]
    shapes.append(svg.polyline(points, svg.PALETTE[0]))
    begins_at = "from when its input was due" if answer.epochs.kind == RESPONSE else "from its first event"
    middle = _LEFT + _PLOT_WIDTH / 2
    caption = f"time of an epoch, {begins_at}, when it was complete"
    return [*shapes, svg.text(middle, top + _PLOT + 34, caption, text_anchor="middle", fill=svg.FAINT)]


def _bars(
    rows: Sequence[Row], top: int, label: Callable[[Row], str], ends: Callable[[Row], tuple[float, float]], colour: str
) -> list[str]:
    """Draw a bar per row between two instants, each with its label: two shapes per row."""
    bounds = [ends(row) for row in rows]
    low, high = min(start for start, _ in bounds), max(end for _, end in bounds)
    scale = _PLOT_WIDTH / ((high - low) or 1)
    shapes = []
    for place, (row, (start, end)) in enumerate(zip(rows, bounds, strict=True)):
        y = top + place * _BAR
        shown_label = svg.shortened(printable(label(row)), 24)
        shapes.append(svg.text(_LEFT - 6, y + 11, shown_label, text_anchor="end"))
        left, width = _LEFT + (start - low) * scale, max(1.0, (end - start) * scale)
        shapes.append(svg.rect(left, y, width, _BAR - 5, colour, title=f"{label(row)}: {duration(end - start)}"))
    return shapes


def _steps(rows: Sequence[Row], top: int) -> list[str]:
    """Draw when the longest steps of the first operation were taken."""
    first = [row for row in rows if row["operation"] == 0]
    longest = sorted(first, key=lambda row: -row["duration_ns"])[:_MOST]
    shown = sorted(longest, key=lambda row: (row["start_ns"], row["worker"]))
    if not shown:
        return []
    return _bars(
        shown,
        top,
        lambda row: f"worker {row['worker']} {row['side']}:{row['step']}",
        lambda row: (row["start_ns"], row["start_ns"] + row["duration_ns"]),
        svg.PALETTE[1],
    )


def _shares(rows: Sequence[Row], top: int) -> list[str]:
    """Draw the shares of the busiest readers of the first operation: three shapes per row."""
    first = [row for row in rows if row["operation"] == 0]
    shown = sorted(first, key=lambda row: -row["before_records"] - row["after_records"])[:_MOST]
    shapes = []
    for place, row in enumerate(sorted(shown, key=lambda row: (row["channel"] or 0, row["worker"]))):
        y = top + place * 2 * _BAR
        label = f"channel {row['channel']}, worker {row['worker']}"
        shapes.append(svg.text(_LEFT - 6, y + _BAR, label, text_anchor="end"))
        for shift, name, colour in ((0, "before", svg.PALETTE[7]), (_BAR - 5, "after", svg.PALETTE[2])):
            share = row[f"{name}_share"]
            width = max(1.0, share * _PLOT_WIDTH)
            shapes.append(svg.rect(_LEFT, y + shift, width, _BAR - 5, colour, title=f"{label}, {name}: {share:.1%}"))
    return shapes


def _sizes(rows: Sequence[Row], top: int) -> list[str]:
    """Draw the last sizes of the progress state that were measured: two shapes per row."""
    shown = [row for row in rows if row["updates"] is not None][-_MOST:]
    largest = max((row["updates"] for row in shown), default=0) or 1
    shapes = []
    for place, row in enumerate(shown):
        y = top + place * _BAR
        label = f"epoch {row['epoch']}, worker {row['worker']}"
        shapes.append(svg.text(_LEFT - 6, y + 11, label, text_anchor="end"))
        width = max(1.0, row["updates"] / largest * _PLOT_WIDTH)
        shapes.append(svg.rect(_LEFT, y, width, _BAR - 5, svg.PALETTE[4], title=f"{label}: {row['updates']:,} updates"))
    return shapes
