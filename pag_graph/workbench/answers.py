"""What the pages show: answers of analyses, exactly as every other surface gives them, and what a click asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import orjson
import polars as pl

from pag_graph.analyses import Analysis, Scope, find_analysis, table_of
from pag_graph.analyses.what_if import WhatIfParameters, what_if
from pag_graph.errors import InvalidParameterError
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.names import with_worker_names
from pag_graph.model.units import short
from pag_graph.sinks.charts import picture
from pag_graph.sinks.csv_tables import csv_text
from pag_graph.sinks.provenance_walks import rows_of_steps
from pag_graph.workbench.paths import DrawnPath

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pag_graph.analyses import Report
    from pag_graph.api import Pag
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.workbench.library import Opened

PATHS = 32
"""Critical paths of a run that are kept."""
MOST_MATCHES = 500
"""Matches of a motif that a page shows."""
HOPS = 5
"""Hops before the end of an activity that a click shows."""
MOST_HOPS = 12
LETTERS = 2_000
"""Of a text in an answer; the CSV has all of it."""
_Assumed = tuple[Literal["closed", "open"], Literal["shortest", "read"]]
_USUAL: list[_Assumed] = [("closed", "shortest")]
_OTHERS: list[_Assumed] = [("closed", "read"), ("open", "shortest"), ("open", "read")]
ASSUMPTIONS = {"all": _USUAL + _OTHERS, "usual": _USUAL, "others": _OTHERS}
"""About input and arrivals: what a replay can assume where the log leaves it open."""
_OF_WORKER = 1 << POSITION_BITS
"""Vertices of a worker have ids in its own range; what remains is a position, with which a page can count exactly."""
_LEAST_SHOWN = 200
"""Rows of an answer that a page gets at first; the CSV has all."""


def choice(epoch: int | None, begin_ns: int | None, end_ns: int | None) -> dict[str, Any]:
    """Return the choice of a window as arguments of `Pag`.

    Parameters
    ----------
    epoch
        Number of an epoch.
    begin_ns, end_ns
        Ends of a free window, instead.

    Returns
    -------
    dict
        Empty for the slowest round.

    Raises
    ------
    InvalidParameterError
        If there is an end without the other one, or an epoch beside them.
    """
    if (begin_ns is None) != (end_ns is None) or (epoch is not None and begin_ns is not None):
        message = "A window is an epoch, or has both a start and an end."
        raise InvalidParameterError(message)
    if begin_ns is not None:
        return {"between": (begin_ns, end_ns)}
    return {} if epoch is None else {"epoch": epoch}


def in_bytes(value: Any) -> bytes:
    """Return an answer as JSON."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY, default=str)


class Answer:
    """What an analysis says of a window, or of a run.

    Parameters
    ----------
    opened
        The run.
    name
        Of the analysis.
    chosen
        The window, as from `choice`; not looked at by an analysis of a whole run.
    values
        Its parameters, as texts.
    against
        For a comparison: the other run, and its window with names that begin with ``against_``.

    Raises
    ------
    InvalidParameterError
        If there is no such analysis, window or parameter.
    UnsupportedPlanError
        If the analysis has no meaning for this run.
    """

    def __init__(
        self,
        opened: Opened,
        name: str,
        chosen: Mapping[str, Any],
        values: Mapping[str, Any],
        against: tuple[Pag | None, Mapping[str, Any]] = (None, {}),
    ) -> None:
        self.pag, self.analysis = opened.pag, find_analysis(name)
        self.parameters = self.analysis.make_parameters(_converted(self.analysis, values))
        options: dict[str, Any] = {}
        if self.analysis.scope is not Scope.RUN:
            options = dict(chosen)
        if self.analysis.scope is Scope.PAIR:
            other_pag, other_window = against
            options |= {"against": other_pag, **{f"against_{key}": value for key, value in other_window.items()}}
        self.result: pa.Table | Report = self.pag.analyse(name, self.parameters, **options)
        self.window = self.pag.run.choose(**chosen) if self.analysis.scope is Scope.WINDOW else None

    @property
    def table(self) -> pa.Table:
        """Its rows."""
        return table_of(self.result)

    def as_json(self, most: int | None = _LEAST_SHOWN) -> dict[str, Any]:
        """Return what ``--format json`` prints, and besides ``columns``, ``count`` and ``headline``.

        Texts have `LETTERS` at most.

        Parameters
        ----------
        most
            Rows; all where absent.

        Returns
        -------
        dict
            Plain values; the rows under their own name, with names of workers in ``labels``.
        """
        report: Report | None = None if self.result is self.table else self.result
        plain = self.analysis.plain(self.result, self.parameters, self.window, most=most)
        name = self.analysis.rows
        return {
            **plain,
            name: [{column: short(value, LETTERS) for column, value in row.items()} for row in plain[name]],
            "rows_name": name,
            "columns": list(self.analysis.columns) or self.table.column_names,
            "count": self.table.num_rows,
            "headline": report.headline() if report else "",
            "text": (report.text(top=20) or "") if report else "",
        }

    def as_csv(self) -> str:
        """Return all rows as ``--format csv`` prints them."""
        return csv_text(self.table.to_pylist(), self.table.column_names)

    def as_svg(self) -> str:
        """Return the picture of the answer (see `pag_graph.sinks.charts.picture`)."""
        snapshot = None if self.window is None else self.pag.run.snapshot(self.window)
        return picture(self.analysis, self.result, run=self.pag.run, snapshot=snapshot)


def _converted(analysis: Analysis[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Give texts of an address the types of parameters; what is unknown is refused where they are made."""
    parameter_of_name = {parameter.name: parameter for parameter in analysis.parameter_list}
    return {
        name: (value if parameter_of_name[name].many else value[-1]) if name in parameter_of_name else value
        for name, value in values.items()
    }


def why(opened: Opened, chosen: Mapping[str, Any], top: int = 5) -> dict[str, Any]:
    """Return the report of a window: its sections, and whether anything is wrong with it.

    Parameters
    ----------
    opened
        The run.
    chosen
        The window, as from `choice`.
    top
        Most statements of each topic.

    Returns
    -------
    dict
        ``window``: its facts; ``heading`` and ``cause``: the first statement and those that stand under no title
        either; ``alarm``: whether somebody could do something about the cause; ``sections``: a ``title`` with
        ``statements`` each.

    Raises
    ------
    InvalidParameterError
        If there is no such window.
    UnsupportedPlanError
        If the run's clocks are not aligned.
    """
    report: Any = opened.pag.why(**chosen)
    (_, first), *sections = report.sections(top=top)
    return {
        "window": report.window.facts,
        "heading": first[0],
        "cause": first[1:],
        "alarm": bool(report.alarm),
        "sections": [{"title": title, "statements": statements} for title, statements in sections],
    }


def path(opened: Opened, chosen: Mapping[str, Any], shown: tuple[int, int] | None, pixels: int) -> dict[str, Any]:
    """Return the critical path of a window, as far as it can be told apart at some width.

    Parameters
    ----------
    opened
        The run.
    chosen
        The window of which the path is asked for.
    shown
        What of it is drawn, in nanoseconds from the origin; all where absent.
    pixels
        How wide.

    Returns
    -------
    dict
        ``by_type``, which sums to ``span_ns``, and ``steps``: per column a list.
    """
    window = opened.pag.run.choose(**chosen)
    key = (window.start_ns, window.end_ns, window.epoch)
    with opened.lock:
        drawn = opened.paths.get(key)
        if drawn is None:
            drawn = opened.paths[key] = DrawnPath.of(opened.pag.run, window)
            while len(opened.paths) > PATHS:
                opened.paths.popitem(last=False)
    steps = drawn.columns(*(shown or (window.start_ns, window.end_ns)), pixels)
    return {**window.facts, "by_type": drawn.by_type, "steps": steps}


def activity(opened: Opened, chosen: Mapping[str, Any], worker: int, position: int, hops: int) -> dict[str, Any]:
    """Return what a click on an activity shows.

    Parameters
    ----------
    opened
        The run.
    chosen
        The window in which its slack is asked for.
    worker, position
        Of the vertex that it ends with.
    hops
        How far back its causes are followed, at most `MOST_HOPS`.

    Returns
    -------
    dict
        ``edge``: its row; ``operator``; ``slack_ns``, null where it has none; ``ended_by``: the messages that arrived
        with its end; ``hops``: edges that lead to its end in so many steps, each with its ``hop``; ``log``: the rows of
        the trace's files that it was made of (see `pag_graph.sinks.provenance_walks.rows_of_steps`).

    Raises
    ------
    InvalidParameterError
        If the window shows no such activity.
    """
    asked_window = opened.ask(chosen)
    snapshot = asked_window.snapshot
    vertex = worker * _OF_WORKER + position
    activity_rows = snapshot.local.filter(pl.col("dst") == vertex)
    if not activity_rows.height:
        message = f"{snapshot.window.name} shows no activity of worker {worker} that ends with its event {position}."
        raise InvalidParameterError(message)
    edge = activity_rows.row(0, named=True)
    if not 0 <= hops <= MOST_HOPS:
        message = f"{hops} hops: there must be 0 to {MOST_HOPS}."
        raise InvalidParameterError(message)
    operators = {row["operator"]: row for row in opened.pag.run.operators.iter_rows(named=True)}
    return {
        "edge": edge,
        "operator": operators.get(edge["operator"]),
        "slack_ns": _slack_of(asked_window.slack, edge),
        "ended_by": _with_places(opened.pag.run, snapshot.enders.filter(pl.col("dst") == vertex)),
        "hops": _with_places(opened.pag.run, _hops(snapshot, vertex, hops)),
        "log": rows_of_steps(opened.pag.run, _as_step(edge)).to_dicts(),
    }


def _as_step(edge: Mapping[str, Any]) -> pl.DataFrame:
    """Return an activity as a critical path has its steps."""
    worker = edge["src"] // _OF_WORKER
    step = {"step": 0, "type": edge["type"], "worker": worker, "to_worker": worker}
    types = {"step": pl.Int64, "type": pl.String, "worker": pl.Int32, "to_worker": pl.Int32}
    ends = {"edge_src": edge["src"], "edge_dst": edge["dst"]}
    return pl.DataFrame([step | ends], schema=types | dict.fromkeys(ends, pl.Int64))


def _slack_of(rows: pl.DataFrame, edge: Mapping[str, Any]) -> int | None:
    edge_rows = rows.filter((pl.col("dst") == edge["dst"]) & (pl.col("src") == edge["src"]))
    value = edge_rows["slack_ns"][0] if edge_rows.height else None
    return None if value is None else int(value)


def _hops(snapshot: Snapshot, vertex: int, hops: int) -> pl.DataFrame:
    """Return the edges that lead to a vertex in at most so many steps, each with the least number as ``hop``."""
    edges = snapshot.edges.with_row_index("edge")
    reached, front = [edges.head(0).with_columns(hop=pl.lit(0))], [vertex]
    edges_seen: set[int] = set()
    for hop in range(1, hops + 1):
        step = edges.filter(pl.col("dst").is_in(front) & ~pl.col("edge").is_in(list(edges_seen)))
        if not step.height:
            break
        edges_seen |= set(step["edge"].to_list())
        reached.append(step.with_columns(hop=pl.lit(hop)))
        front = step["src"].unique().to_list()
    return pl.concat(reached).drop("edge")


def _with_places(run: Run, edges: pl.DataFrame) -> list[dict[str, Any]]:
    places = {worker: place for place, worker in enumerate(run.workers)}
    return [{**row, **_place_of(row, places)} for row in edges.to_dicts()]


def replays(
    opened: Opened, chosen: Mapping[str, Any], changes: Sequence[str], assumptions: str = "all"
) -> dict[str, Any]:
    """Replay a window with changes, under each assumption about input and arrivals.

    Parameters
    ----------
    opened
        The run.
    chosen
        The window.
    changes
        As `WhatIfParameters.change` takes them; none replays the recording.
    assumptions
        ``all`` of them, the ``usual`` ones, which are quick, or the ``others``.

    Returns
    -------
    dict
        What ``what-if`` answers, under its defaults where they are among the assumptions, and ``least_ns`` and
        ``most_ns`` over the assumptions: what the log does not say is an interval.

    Raises
    ------
    InvalidParameterError
        If a change is not understood, or there are no such assumptions.
    """
    if assumptions not in ASSUMPTIONS:
        message = f"There are no assumptions {assumptions!r}; there are {', '.join(ASSUMPTIONS)}."
        raise InvalidParameterError(message)
    snapshot = opened.ask(chosen).snapshot
    spans = {}
    answer: dict[str, Any] = {}
    for loop, arrival in ASSUMPTIONS[assumptions]:
        parameters = WhatIfParameters(change=tuple(changes), loop=loop, arrival=arrival)
        replay = what_if(snapshot, parameters if changes else None)
        spans[f"{loop}, {arrival}"] = replay.span_ns
        if not answer:
            answer = {**snapshot.window.facts, **replay.summary(), "path": replay.table.to_pylist()}
    return {**answer, "spans": spans, "least_ns": min(spans.values()), "most_ns": max(spans.values())}


def epochs_between(opened: Opened, first: int | None, last: int | None) -> list[int] | None:
    """Return the epochs of a run from one to another.

    Parameters
    ----------
    opened
        The run.
    first
        Number of the first; those up to `last` where absent.
    last
        Number of the last; only the first where absent.

    Returns
    -------
    list of int or None
        Ascending, those that the run has; a single one is not looked up. None, which is all of them, where both are
        absent.
    """
    if last is None or first == last:
        return None if first is None else [first]
    return [epoch for epoch in opened.pag.run.epochs["epoch"] if epoch <= last and (first is None or first <= epoch)]


def motif(
    opened: Opened, pattern: str, where: str | None, epochs: Sequence[int] | None, limit: int = MOST_MATCHES
) -> dict[str, Any]:
    """Return matches of a motif, with the edges of each to be lit up.

    Parameters
    ----------
    opened
        The run.
    pattern
        A motif, or the name of one.
    where
        What must hold of a match.
    epochs
        In which edges must end; any where absent.
    limit
        Most matches.

    Returns
    -------
    dict
        ``total``, ``rows`` as `pag motif` prints them, and ``edges``: per match the edges that it names, each as
        places of its workers and positions of its events.
    """
    query = opened.pag.motif(pattern, where, epochs=epochs, limit=min(limit, MOST_MATCHES))
    rows = query.table().to_pylist()
    places = {worker: place for place, worker in enumerate(opened.pag.run.workers)}
    names = [name for name, value in (rows[0] if rows else {}).items() if isinstance(value, dict) and "dst" in value]
    edges = [[_place_of(row[name], places) for name in names if row[name] is not None] for row in rows]
    flat = [_flat(row) for row in rows]
    return {
        "total": query.total,
        "rows": with_worker_names(flat, opened.pag.run.worker_names),
        "edges": edges,
        "columns": list(flat[0]) if flat else [],
    }


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a match with a column for each of its elements' columns."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{column}": part for column, part in value.items()}
        else:
            flat[name] = value
    return flat


def _place_of(edge: Mapping[str, Any], places: Mapping[int, int]) -> dict[str, Any]:
    """Return where an edge is drawn."""
    return {
        "source": places[edge["src"] // _OF_WORKER],
        "target": places[edge["dst"] // _OF_WORKER],
        "sent": edge["src"] % _OF_WORKER,
        "position": edge["dst"] % _OF_WORKER,
        "begin": edge["start_ns"],
        "end": edge["start_ns"] + edge["duration_ns"],
    }
