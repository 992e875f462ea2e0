"""Picture of a scaling study: stacked columns per number of workers, absolute and relative, and the ideal line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pag_graph.analyses.profile import OTHER
from pag_graph.analyses.scaling import TOTAL
from pag_graph.formats import svg
from pag_graph.model.units import duration
from pag_graph.sinks.timeline import COLOURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pag_graph.analyses.scaling import Scaling

    Row = Mapping[str, Any]

_REST = "#e2e2ea"
_WIDTH, _LEFT, _PLOT_WIDTH, _PLOT, _GAP = 940, 80, 360, 200, 100


def scaling_picture(study: Scaling) -> str:
    """Draw a scaling study.

    Parameters
    ----------
    study
        What to draw.

    Returns
    -------
    str
        An SVG document without references to anything outside. Per division a pair of plots: time on the path as
        stacked columns, with the deviation of the whole and the ideal line, and the shares.
    """
    rows = study.table.to_pylist()
    total_rows = [row for row in rows if row["by"] == TOTAL]
    title = f"Critical paths of {len(study.rounds):,} rounds, {len(study.runs)} runs"
    shapes = [svg.text(20, 24, title, font_weight=600)]
    y = 44
    for division in dict.fromkeys(row["by"] for row in rows if row["by"] != TOTAL):
        of_division = [row for row in rows if row["by"] == division]
        colours = _colours(list(dict.fromkeys(row["key"] for row in of_division)))
        shapes.append(svg.text(20, y + 4, f"by {division}", font_weight=600))
        entries = [(svg.shortened(key.replace("_", " "), 40), colour) for key, colour in colours.items()]
        legend, high = svg.legend(entries, _LEFT, y + 4, _WIDTH)
        top = y + max(high, svg.LINE) + 16
        shapes += [*legend, *_plot(of_division, total_rows, colours, _LEFT, top, absolute=True)]
        shapes += _plot(of_division, total_rows, colours, _LEFT + _PLOT_WIDTH + _GAP, top, absolute=False)
        y = top + _PLOT + 60
    return svg.document(shapes, _WIDTH, y, title=title)


def _colours(keys: Sequence[str]) -> dict[str, str]:
    chosen = {key: COLOURS.get(key, svg.PALETTE[place % len(svg.PALETTE)]) for place, key in enumerate(keys)}
    return chosen | ({OTHER: _REST} if OTHER in chosen else {})


def _plot(
    rows: Sequence[Row], total_rows: Sequence[Row], colours: Mapping[str, str], left: int, top: int, *, absolute: bool
) -> list[str]:
    """Draw a column per number of workers; of times also the deviation of the whole, and what would be ideal."""
    column = "mean_ns" if absolute else "share"
    show: Callable[[float], str] = (lambda v: duration(round(v))) if absolute else (lambda v: f"{v:.0%}")
    tops = (max(row["mean_ns"] + (row["deviation_ns"] or 0), row["ideal_ns"]) for row in total_rows)
    highest = max(tops) if absolute else 1.0
    numbers = [row["workers"] for row in total_rows]
    wide = _PLOT_WIDTH / len(numbers)

    def y(value: float) -> float:
        return top + _PLOT * (1 - value / (highest or 1.0))

    shapes = []
    for tick in svg.ticks(0, highest or 1.0):
        shapes.append(svg.line((left, y(tick)), (left + _PLOT_WIDTH, y(tick)), svg.GRID))
        shapes.append(svg.text(left - 6, y(tick) + 4, show(tick), text_anchor="end", fill=svg.FAINT))
    for place, workers in enumerate(numbers):
        x, stacked = left + (place + 0.5) * wide, 0.0
        for row in rows:
            if row["workers"] != workers or not row[column]:
                continue
            tooltip = f"{workers} workers, {row['key']}: {show(row[column])}"
            upper = y(stacked + row[column])
            shapes.append(svg.rect(x - 18, upper, 36, y(stacked) - upper, colours[row["key"]], title=tooltip))
            stacked += row[column]
        shapes.append(svg.text(x, top + _PLOT + 16, str(workers), text_anchor="middle"))
        spread = total_rows[place]["deviation_ns"]
        if absolute and spread is not None:
            low, high = total_rows[place]["mean_ns"] - spread, total_rows[place]["mean_ns"] + spread
            shapes.append(svg.line((x, y(low)), (x, y(high)), svg.INK, stroke_width=1.5))
    if absolute:
        points = [(left + (place + 0.5) * wide, y(row["ideal_ns"])) for place, row in enumerate(total_rows)]
        shapes.append(svg.polyline(points, svg.INK, stroke_dasharray="5 4", title="ideal"))
        shapes.append(svg.text(points[-1][0] + 22, points[-1][1] + 4, "ideal", fill=svg.FAINT))
    measure = "time on the path" if absolute else "share of the path"
    middle = left + _PLOT_WIDTH / 2
    return [*shapes, svg.text(middle, top + _PLOT + 34, f"workers ({measure})", text_anchor="middle", fill=svg.FAINT)]
