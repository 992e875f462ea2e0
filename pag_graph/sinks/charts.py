"""Pictures of results, drawn as their definitions say: bars, waterfalls, lines, matrices, and timelines of a window.

A result is small, so its picture is text (`pag_graph.formats.svg`), the same for the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pag_graph.analyses.expressions import operator_labels
from pag_graph.analyses.result_tables import table_of
from pag_graph.errors import InvalidParameterError
from pag_graph.formats import svg
from pag_graph.model.units import duration, short
from pag_graph.sinks.timeline import COLOURS, timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pag_graph.analyses.definition import Analysis, Chart
    from pag_graph.analyses.reports import Report
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot

    Row = Mapping[str, Any]

_OTHERS = "#b8b8c8"
_BARS, _SERIES = 16, 10
"""Most bars and series that a picture shows; the rest is summed up, or left out and counted."""
_NAMES, _RIGHT, _ROW = 250, 110, 24
_PLOT = 260
_CELL, _CELLS = 64, 24
_SUM, _MORE, _LESS = "#8a8a94", "#e07a1f", "#1d6fa5"
"""Colours of a waterfall: of what it begins and ends with, and of differences that add to it and take from it."""
_CUT = 2
"""A waterfall begins behind 0 where its sums are so many times what they differ by."""
_LETTERS = 300
"""Longest name that is drawn; the rows have all of it."""


def picture(analysis: Analysis[Any], result: pa.Table | Report, *, run: Run, snapshot: Snapshot | None = None) -> str:
    """Draw the result of an analysis.

    Parameters
    ----------
    analysis
        Its definition says how.
    result
        What it returned.
    run
        The run, for the names of its operators.
    snapshot
        The window that it looked at; none for an analysis of the whole run.

    Returns
    -------
    str
        An SVG document without references to anything outside; shapes have tooltips, and names are escaped.

    Raises
    ------
    InvalidParameterError
        If the analysis has no picture.
    """
    chart = analysis.chart
    if chart is None or (chart.kind == "timeline" and snapshot is None):
        message = f"{analysis.name} has no picture: its rows say more than a drawing of them would."
        raise InvalidParameterError(message)
    if chart.kind == "timeline":
        assert snapshot is not None  # noqa: S101  (checked above)
        return timeline(snapshot)
    window_title = "" if snapshot is None else f", {snapshot.window.name} ({duration(snapshot.window.span_ns)})"
    rows = [{name: short(value, _LETTERS) for name, value in row.items()} for row in table_of(result).to_pylist()]
    labels, workers = (
        {number: short(name, _LETTERS) for number, name in names.items()}
        for names in (operator_labels(run), run.worker_names)
    )
    return draw(chart, rows, title=f"{analysis.name}{window_title}", labels=labels, workers=workers)


def draw(
    chart: Chart,
    rows: Sequence[Row],
    *,
    title: str,
    labels: Mapping[int, str] | None = None,
    workers: Mapping[int, str] | None = None,
) -> str:
    """Draw rows as bars, a waterfall, lines or a matrix.

    Parameters
    ----------
    chart
        Which columns, and how.
    rows
        What to draw.
    title
        Its first line.
    labels, workers
        Names of operators and of workers, by number.

    Returns
    -------
    str
        An SVG document.
    """
    make = {"bars": _bars, "lines": _lines, "matrix": _matrix, "waterfall": _waterfall}[chart.kind]
    names = _Names(operators=dict(labels or {}), workers=dict(workers or {}))
    drawn = make(chart, rows, names) if rows else _Drawn([_text(20, 50, "no rows")], 900, 70)
    return svg.document([_text(20, 20, title, bold=True), *drawn.shapes], drawn.width, drawn.height)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Names:
    operators: dict[int, str]
    workers: dict[int, str]

    def worker(self, number: int) -> str:
        """Return a worker's name with its number, or its number alone."""
        return f"{self.workers[number]} ({number})" if number in self.workers else str(number)


@dataclass(frozen=True, slots=True)
class _Drawn:
    shapes: list[str]
    width: int
    height: int


def _text(x: float, y: float, words: str, *, anchor: str | None = None, bold: bool = False, fill: str = svg.INK) -> str:
    return svg.text(x, y, words, font_weight=600 if bold else None, text_anchor=anchor, fill=fill)


def _shown(column: str) -> Callable[[float], str]:
    """Return how numbers of a column are written."""
    if column.endswith("_ns"):
        return duration
    if column.endswith("_percent"):
        return lambda value: f"{value:.4g} %"
    if column in {"share", "participation"} or column.endswith("_share"):
        return lambda value: f"{100 * value:.3g} %"
    return lambda value: f"{value:,.4g}" if isinstance(value, float) and not value.is_integer() else f"{int(value):,}"


def _titled(column: str) -> str:
    """Return a column's name as people read it; units stand at the numbers."""
    for ending in ("_ns", "_percent"):
        column = column.removesuffix(ending)
    return column.replace("_", " ")


def _name(row: Row, columns: Iterable[str], names: _Names) -> str:
    """Return what the columns say together; what is null says nothing."""
    parts = []
    for column in columns:
        value = row[column]
        if value is None:
            continue
        if column == "operator":
            parts.append(names.operators.get(value, f"operator {value}"))
        elif column.endswith("worker") and value in names.workers:
            parts.append(f"to {names.worker(value)}" if column == "to_worker" else names.worker(value))
        elif isinstance(value, str):
            parts.append(value.replace("_", " "))
        else:
            parts.append(f"{'to' if column == 'to_worker' else _titled(column)} {value}")
    return ", ".join(parts) or "(none)"


def _colour(series: str, place: int) -> str:
    if series == "(other)":
        return _OTHERS
    return COLOURS.get(series.replace(" ", "_"), svg.PALETTE[place % len(svg.PALETTE)])


def _legend(series: Sequence[str], x: float, y: float, width: int) -> tuple[list[str], int]:
    entries = [(svg.shortened(name, 40), _colour(name, place)) for place, name in enumerate(series)]
    return svg.legend(entries, x, y, width)


@dataclass(slots=True)
class _Bar:
    """One bar: the parts that are stacked in it, per measure, and the interval around it."""

    parts: list[dict[str, float]]
    low: float | None = None
    high: float | None = None

    @property
    def size(self) -> float:
        return max(sum(abs(value) for value in measure.values()) for measure in self.parts)


def _bars(chart: Chart, rows: Sequence[Row], names: _Names) -> _Drawn:
    width, y = 900, 44
    panels: dict[Any, list[Row]] = {}
    for row in rows:
        panels.setdefault(row[chart.panel] if chart.panel else None, []).append(row)
    series = _series_of(chart, rows, names)
    shown = series if chart.colour else [_titled(column) for column in chart.y]
    shapes, high = _legend(shown, _NAMES, y, width) if len(shown) > 1 else ([], 0)
    y += high + 8
    if not high:
        shapes.append(_text(_NAMES, y - 10, _titled(chart.y[0]), fill=svg.FAINT))
    for panel, members in panels.items():
        if chart.panel:
            shapes.append(_text(20, y + 8, f"by {panel}" if chart.panel == "by" else str(panel), bold=True))
            y += 20
        unit = members[0][chart.unit] if chart.unit else None
        drawn, y = _panel(chart, _collected(chart, members, series, names), series, y, width, unit)
        shapes += drawn
    return _Drawn(shapes, width, y + 4)


def _series_of(chart: Chart, rows: Sequence[Row], names: _Names) -> list[str]:
    """Return the names of the stacked series, largest first; too many become `(other)`."""
    if not chart.colour:
        return []
    sums: dict[str, float] = {}
    for row in rows:
        name = _name(row, chart.colour, names)
        sums[name] = sums.get(name, 0) + sum(abs(row[column] or 0) for column in chart.y)
    ordered = sorted(sums, key=lambda name: (-sums[name], name))
    return ordered if len(ordered) <= _SERIES else [*ordered[: _SERIES - 1], "(other)"]


def _collected(chart: Chart, rows: Sequence[Row], series: Sequence[str], names: _Names) -> dict[str, _Bar]:
    """Sum rows to bars: largest first, but in the order of numbers where the names are such; the rest as `(other)`."""
    bars: dict[str, _Bar] = {}
    order: dict[str, float] = {}
    for row in rows:
        name = _name(row, chart.x, names)
        bar = bars.setdefault(name, _Bar([{} for _ in chart.y]))
        if len(chart.x) == 1 and isinstance(row[chart.x[0]], int) and chart.x[0] != "operator":
            order[name] = row[chart.x[0]]
        part = _name(row, chart.colour, names) if chart.colour else ""
        part = part if part in series or not series else "(other)"
        for measure, column in zip(bar.parts, chart.y, strict=True):
            measure[part] = measure.get(part, 0) + (row[column] or 0)
        if chart.interval:
            bar.low, bar.high = (row[column] for column in chart.interval)
    ranked = sorted(bars, key=lambda name: (order.get(name, 0), -bars[name].size, name))
    shown, other_names = ranked[:_BARS], ranked[_BARS:]
    result = {name: bars[name] for name in shown}
    if other_names:
        bar_of_others = _Bar([{} for _ in chart.y])
        for name in other_names:
            for measure, amounts in zip(bar_of_others.parts, bars[name].parts, strict=True):
                for part, value in amounts.items():
                    measure[part] = measure.get(part, 0) + value
        result[f"({len(other_names)} others)"] = bar_of_others
    return result


def _panel(
    chart: Chart, bars: Mapping[str, _Bar], series: Sequence[str], y: int, width: int, unit: str | None
) -> tuple[list[str], int]:
    """Draw bars below each other; returns the shapes and where they end."""
    show = _shown(chart.y[0] if unit is None else f"{unit}_ns" if unit == "ns" else unit)
    low, high = _span(bars.values())
    scale = (width - _NAMES - _RIGHT) / (high - low)
    count = len(chart.y)
    row_height = max(_ROW, 13 * count + 8)
    bottom = y + len(bars) * row_height

    def x(value: float) -> float:
        return _NAMES + (value - low) * scale

    shapes = svg.marks([(x(tick), show(tick)) for tick in svg.ticks(low, high)], bottom + svg.LINE - 2, top=y)
    thick = (row_height - 6) / count
    for place, (name, bar) in enumerate(bars.items()):
        top = y + place * row_height
        label = _text(_NAMES - 8, top + row_height / 2 + 4, svg.shortened(name, 36), anchor="end")
        shapes.append(svg.group(label, title=name))
        for number, (column, measure) in enumerate(zip(chart.y, bar.parts, strict=True)):
            upper = top + 3 + number * thick
            end = 0.0
            for part, begin, value in _stacked(measure, series):
                colour = _colour(part, series.index(part)) if series else svg.PALETTE[number]
                title = ", ".join(words for words in (name, part, f"{_titled(column)} {show(value)}") if words)
                left = min(x(begin), x(begin + value))
                shapes.append(svg.rect(left, upper, abs(value) * scale, thick - 1, colour, title=title))
                end = max(end, begin + value)
            edge = max(x(end), x(bar.high) if bar.high is not None else 0)
            shapes.append(_text(edge + 5, upper + thick / 2 + 3.5, show(sum(measure.values())), fill=svg.FAINT))
        if bar.low is not None and bar.high is not None:
            shapes.append(_interval(x(bar.low), x(bar.high), top + row_height / 2))
    shapes.append(svg.line((x(0), y), (x(0), bottom), svg.FAINT))
    return shapes, bottom + 34


def _span(bars: Iterable[_Bar]) -> tuple[float, float]:
    """Return from where to where the axis of some bars goes: 0 and all of their ends are in it."""
    ends = [0.0]
    for bar in bars:
        for measure in bar.parts:
            ends += [sum(v for v in measure.values() if v > 0), sum(v for v in measure.values() if v < 0)]
        ends += [value for value in (bar.low, bar.high) if value is not None]
    low, high = min(ends), max(ends)
    return low, high if high > low else low + 1


def _stacked(measure: Mapping[str, float], series: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """Yield the parts of a bar with where they begin: what is positive goes to the right, the rest to the left."""
    positive = negative = 0.0
    for part in series or [""]:
        value = measure.get(part, 0)
        if value > 0:
            yield part, positive, value
            positive += value
        elif value < 0:
            yield part, negative, value
            negative += value


def _interval(low: float, high: float, y: float) -> str:
    steps = [("M", (low, y - 5)), ("v", (10,)), ("M", (low, y)), ("H", (high,)), ("M", (high, y - 5)), ("v", (10,))]
    return svg.path(steps, svg.INK, stroke_width=1.5)


def _waterfall(chart: Chart, rows: Sequence[Row], names: _Names) -> _Drawn:
    """Draw how the differences, largest first, lead from the sum before to the sum after."""
    assert chart.ends is not None  # noqa: S101  (every definition of a waterfall has them)
    before, after = (sum(row[column] or 0 for row in rows) for column in chart.ends)
    bars = [(_titled(chart.ends[0]), 0.0, float(before), _SUM)]
    reached = float(before)
    for name, bar in _collected(chart, rows, [], names).items():
        change = sum(bar.parts[0].values())
        bars.append((name, reached, reached + change, _MORE if change > 0 else _LESS))
        reached += change
    bars.append((_titled(chart.ends[1]), 0.0, float(after), _SUM))
    ends = [end for _, _, end, _ in bars]
    low, high = min(ends), max(ends)
    spread = max(high - low, 1.0)
    low = low - spread / 4 if low > _CUT * spread else min(low, 0.0)
    width, show = 900, _shown(chart.y[0])
    scale = (width - _NAMES - _RIGHT) / max(high - low, 1.0)
    shapes, legend_high = svg.legend([("more", _MORE), ("less", _LESS)], _NAMES, 44, width)
    top = 44 + legend_high + 8
    bottom = top + len(bars) * _ROW

    def x(value: float) -> float:
        return _NAMES + (max(value, low) - low) * scale

    shapes += svg.marks([(x(tick), show(tick)) for tick in svg.ticks(low, high)], bottom + svg.LINE - 2, top=top)
    for place, (name, begin, end, colour) in enumerate(bars):
        y = top + place * _ROW
        left, right = sorted((x(begin), x(end)))
        words = show(end) if colour == _SUM else f"{'+' if end > begin else ''}{show(end - begin)}"
        label = _text(_NAMES - 8, y + _ROW / 2 + 4, svg.shortened(name, 36), anchor="end")
        bar_shapes = [label, svg.rect(left, y + 3, max(right - left, 1), _ROW - 7, colour)]
        shapes.append(svg.group(*bar_shapes, title=f"{name}, {words}"))
        shapes.append(_text(right + 5, y + _ROW / 2 + 3.5, words, fill=svg.FAINT))
        if place < len(bars) - 1:
            shapes.append(svg.line((x(end), y + 3), (x(end), y + _ROW + 3), svg.FAINT))
    if low > 0:
        shapes.append(_text(20, bottom + svg.LINE - 2, f"the axis begins at {show(low)}", fill=svg.FAINT))
    return _Drawn(shapes, width, bottom + 34)


def _lines(chart: Chart, rows: Sequence[Row], names: _Names) -> _Drawn:
    """Draw the series that reach farthest; how many are left out is said."""
    width, left = 900, 90
    (across,), (measure,) = chart.x, chart.y
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row[across] is not None and row[measure] is not None:
            series.setdefault(_name(row, chart.colour, names), []).append((row[across], row[measure]))
    farthest = sorted(series, key=lambda name: (-max(abs(value) for _, value in series[name]), name))
    shown = farthest[:_SERIES]
    legend, high_legend = _legend(shown, left, 44, width)
    top = 44 + high_legend + 8
    bottom, right = top + _PLOT, width - 30
    points = [point for name in shown for point in series[name]]
    low_x, high_x = min(p[0] for p in points), max(p[0] for p in points)
    low_y, high_y = min(0.0, *(p[1] for p in points)), max(p[1] for p in points)
    high_y = high_y if high_y > low_y else low_y + 1

    def place(point: tuple[float, float]) -> tuple[float, float]:
        share = (point[0] - low_x) / (high_x - low_x) if high_x > low_x else 0.5
        return left + share * (right - left), bottom - (point[1] - low_y) / (high_y - low_y) * _PLOT

    show_x, show_y = _shown(across), _shown(measure)
    across_marks = [(place((tick, low_y))[0], show_x(tick)) for tick in svg.ticks(low_x, high_x, 10)]
    shapes = [*legend, *svg.marks(across_marks, bottom + 16)]
    for tick in svg.ticks(low_y, high_y):
        _, y = place((low_x, tick))
        shapes.append(svg.line((left, y), (right, y), svg.GRID))
        shapes.append(_text(left - 8, y + 4, show_y(tick), anchor="end", fill=svg.FAINT))
    shapes.append(_text((left + right) / 2, bottom + 34, _titled(across), anchor="middle", fill=svg.FAINT))
    shapes.append(_text(20, top - 6, _titled(measure), fill=svg.FAINT))
    for number, name in enumerate(shown):
        ordered = sorted(series[name])
        colour = _colour(name, number)
        if len({x for x, _ in ordered}) == len(ordered):
            # Where there are several values at one place, points without a line between say it better.
            shapes.append(svg.polyline(map(place, ordered), colour, stroke_width=2))
        for point in ordered:
            title = f"{name}: {show_y(point[1])} at {_titled(across)} {show_x(point[0])}"
            shapes.append(svg.circle(*place(point), 3, colour, title=title))
    if len(farthest) > len(shown):
        note = f"{len(farthest) - len(shown)} others, nearer to 0, are not drawn"
        shapes.append(_text(right, bottom + 34, note, anchor="end", fill=svg.FAINT))
    return _Drawn(shapes, width, bottom + 48)


def _matrix(chart: Chart, rows: Sequence[Row], names: _Names) -> _Drawn:
    """Draw a heat map; the value stands in every cell, or that it is not known where no row of the cell tells it."""
    (across,), (row_column,), value = chart.x, chart.y, chart.value
    assert value is not None  # noqa: S101  (every definition of a matrix has one)
    sums: dict[tuple[int, int], float] = {}
    unknown: set[tuple[int, int]] = set()
    for row in rows:
        if row[across] is not None and row[row_column] is not None:
            cell = (row[row_column], row[across])
            if row[value] is None:
                unknown.add(cell)
            else:
                sums[cell] = sums.get(cell, 0) + row[value]
    unknown -= sums.keys()
    keys = sorted({key for cell in (*sums, *unknown) for key in cell})
    shown, show = keys[:_CELLS], _shown(value)
    left, top = 150, 84
    largest = max((amount for cell, amount in sums.items() if set(cell) <= set(shown)), default=0) or 1
    shapes = [
        _text(left, 42, f"{_titled(value)} ({_titled(row_column)} down, {_titled(across)} across)", fill=svg.FAINT),
        *(
            _text(
                left + (column + 0.5) * _CELL,
                top - 8,
                svg.shortened(names.workers.get(key, str(key)), 10),
                anchor="middle",
            )
            for column, key in enumerate(shown)
        ),
        _text(left - 30, top - 8, _titled(row_column), anchor="end", fill=svg.FAINT),
    ]
    for row_number, key_row in enumerate(shown):
        y = top + row_number * _CELL * 0.6
        shapes.append(_text(left - 10, y + _CELL * 0.3 + 4, svg.shortened(names.worker(key_row), 20), anchor="end"))
        for column, key in enumerate(shown):
            amount = sums.get((key_row, key), 0)
            share = amount / largest
            # From white to a dark blue; the writing turns white where it is dark.
            shade = "#" + "".join(f"{round(255 - share * (255 - full)):02x}" for full in (0x1D, 0x4F, 0x7C))
            x = left + column * _CELL
            said = "not known" if (key_row, key) in unknown else show(amount)
            tooltip = f"{_titled(row_column)} {names.worker(key_row)}, {_titled(across)} {names.worker(key)}: {said}"
            ink = "#ffffff" if share > 0.55 else svg.INK  # noqa: PLR2004
            cell_shapes = [svg.rect(x, y, _CELL - 2, _CELL * 0.6 - 2, shade, stroke=svg.GRID)]
            words = "?" if (key_row, key) in unknown else _short(amount, show) if amount else ""
            if words:
                cell_shapes.append(_text(x + _CELL / 2, y + _CELL * 0.3 + 4, words, anchor="middle", fill=ink))
            shapes.append(svg.group(*cell_shapes, title=tooltip))
    bottom = int(top + len(shown) * _CELL * 0.6) + 8
    if len(keys) > len(shown):
        shapes.append(_text(left, bottom + 10, f"{len(keys) - len(shown)} more workers are not drawn", fill=svg.FAINT))
        bottom += 16
    return _Drawn(shapes, max(left + len(shown) * _CELL + 20, 460), bottom + 8)


def _short(amount: float, show: Callable[[float], str]) -> str:
    """Return a number that fits into a cell."""
    text = show(amount)
    if len(text) <= 8:  # noqa: PLR2004
        return text
    for (limit, _), (next_limit, unit) in pairwise(((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))):
        if amount < next_limit * 1000 or unit == "T":
            return f"{amount / next_limit:.3g}{unit}" if amount >= next_limit else f"{amount / limit:.3g}"
    return text
