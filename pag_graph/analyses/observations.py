"""What `invariants` needs to know of every round: what exceeds a limit, and the largest of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.analyses.expressions import delivered_ns, worker_of
from pag_graph.analyses.view import IS_LOCAL, end_ns
from pag_graph.analyses.view import delivered_ns as delivered
from pag_graph.analyses.view import worker_of as worker_in
from pag_graph.graph.columns import integers
from pag_graph.graph.tiling import is_type, ranks, read_members
from pag_graph.kernels.arranging import arrange, largest
from pag_graph.kernels.compiling import read_only
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType
from pag_graph.runtime import threads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pag_graph.analyses.invariants import InvariantsParameters
    from pag_graph.analyses.view import Frame, View
    from pag_graph.graph.run import Run
    from pag_graph.graph.window import Window

    I64 = NDArray[np.int64]

_COLUMNS = ("operator", "channel", "activation")
_OF_READS = ("read", "receive_buffer_ns")
"""What tells of edges how long after its arrival a message was read; of the rule set `st2` they end at the read."""
_LEAVES = (ActivityType.PROCESSING, ActivityType.SPINNING)
_INVARIANTS = ("epoch_max", "message_max", "operator_max", "progress_max", "some_progress")
NAMES: pl.DataType = pl.Enum(sorted([*map(str, ActivityType), *_INVARIANTS]))
KEY = ["invariant", "worker", "to_worker", "type", "operator", "channel"]
_SPARSE = 4
"""Numbers up to so many times as many as there are rows are ranked fast."""
_COLUMN_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "invariant": NAMES,
    "worker": pl.Int32,
    "to_worker": pl.Int32,
    "type": NAMES,
    "operator": pl.Int64,
    "channel": pl.Int64,
    "src": pl.Int64,
    "dst": pl.Int64,
    "start_ns": pl.Int64,
    "observed": pl.Int64,
}
SEEN = pl.Schema(_COLUMN_TYPES)
"""What is said of everything that is observed."""


def round_observations(view: View, parameters: InvariantsParameters) -> pl.DataFrame:
    """Return what `invariants` needs to know of rounds: what exceeds a limit, and the largest of each kind.

    Parameters
    ----------
    view
        Of rounds.
    parameters
        Limits.

    Returns
    -------
    DataFrame
        One row per window and violation of a given limit (`fixed`), and one per window and key of a learned one.
    """
    if view.spread is not None:
        return _candidates(view, parameters)
    edges, window = read_members(view.run, view.windows, _columns(view.run), "labels")
    return _observations(view, edges, window, parameters)


def _columns(run: Run) -> tuple[str, ...]:
    return _COLUMNS + _of_reads(run)


def _of_reads(run: Run) -> tuple[str, ...]:
    return _OF_READS if run.aligned else ()


def _observations(view: View, edges: pl.DataFrame, window: I64, parameters: InvariantsParameters) -> pl.DataFrame:
    """Return the same of edges in memory, of which `window` says the places of their windows."""
    finders = {
        "epoch_max": lambda: _epochs(view.run, view.windows, *_last(view, edges, window)),
        "message_max": lambda: _messages(view.run, edges, window),
        "operator_max": lambda: _activations(len(view.windows), edges, window),
    }
    frames = threads.each(lambda find: find(), list(finders.values()))
    return _reduced(dict(zip(finders, frames, strict=True)), parameters)


def _last(view: View, edges: pl.DataFrame, window: I64) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return the local edge of each window that ends last, and where epochs are islands also the ends of its edges."""
    local = np.flatnonzero(~is_type(edges, *MESSAGE_TYPES))
    src, dst, start, duration = (edges[name].to_numpy() for name in ("src", "dst", "start_ns", "duration_ns"))
    end, after = start[local] + duration[local], -dst[local]
    rows = largest(window[local], len(view.windows), *read_only(end, after, after))
    rows = local[rows[rows >= 0]]
    last = pl.DataFrame({"window": window[rows], "src": src[rows], "dst": dst[rows]})
    if not view.run.epochs_are_islands:
        return last, None
    ends = pl.DataFrame({"window": window, "start_ns": start, "end_ns": start + duration})
    return last, ends.group_by("window").agg(pl.col("start_ns").min(), pl.col("end_ns").max())


def _candidates(view: View, parameters: InvariantsParameters) -> pl.DataFrame:
    """Do the same as `_observations` where only what may be among the answers can be brought here.

    In memory kernels find the largest of each kind in one pass; here every kind is some joins.
    """
    edges = view.engine.settle(
        view.labelled("operator", "channel", "activation", *_OF_READS).select(
            "src",
            "dst",
            "type",
            "start_ns",
            *_COLUMNS,
            *_OF_READS,
            end_ns=end_ns(),
            worker=worker_in("src"),
            to_worker=worker_in("dst"),
            delivered_ns=delivered(view.run),
        )
    )
    window = pl.lit(0, pl.Int64)
    extent = None
    if view.run.epochs_are_islands:
        ends_of_edges = view.collect(edges.select(nw.col("start_ns").min(), nw.col("end_ns").max()))
        extent = ends_of_edges.with_columns(window=window).drop_nulls()
    local = edges.filter(IS_LOCAL)
    last = view.collect(local.select(nw.col("end_ns").max()))["end_ns"].item()
    ends = view.collect(local.filter(nw.col("end_ns") == nw.lit(-1 if last is None else last)).select("src", "dst"))
    ended = ends.sort("dst").tail(1).with_columns(window=window)
    epochs = _epochs(view.run, view.windows, ended, extent)
    messages = edges.filter(~IS_LOCAL).with_columns(observed=nw.col("delivered_ns"))
    leaves = nw.col("type").is_in([str(kind) for kind in _LEAVES]) & ~nw.col("activation").is_null()
    activations = (
        edges.filter(leaves)
        .group_by("activation", "type", "operator")
        .agg(nw.col("src", "start_ns").min(), nw.col("dst", "end_ns").max())
        .with_columns(observed=nw.col("end_ns") - nw.col("start_ns"), worker=worker_in("src"))
    )
    observed = {
        name: _first_of_all(view, candidates, keys, limit).with_columns(window=window)
        for candidates, keys, limit, name in (
            (messages, ["worker", "to_worker", "type", "channel"], parameters.message_max_ns, "message_max"),
            (activations, ["worker", "type", "operator"], parameters.operator_max_ns, "operator_max"),
        )
    }
    return _reduced({"epoch_max": epochs, **observed}, parameters)


def _first_of_all(view: View, candidates: Frame, keys: list[str], limit: int | None) -> pl.DataFrame:
    """Return the rows that exceed a limit, and of each key those with the largest value and lowest `src` and `dst`."""
    # Joins do not find null; numbers of operators and channels are not negative.
    candidates = view.engine.settle(
        candidates.select(*keys, "src", "dst", "start_ns", "observed").with_columns(
            nw.col(name).fill_null(-1) for name in keys if name != "type"
        )
    )
    first = candidates
    for column, best in (("observed", "max"), ("src", "min"), ("dst", "min")):
        best_rows = first.group_by(keys).agg(getattr(nw.col(column), best)().alias("best"))
        first = first.join(best_rows, on=keys, how="inner").filter(nw.col(column) == nw.col("best")).drop("best")
    rows = [view.collect(first)]
    if limit is not None:
        rows.append(view.collect(candidates.filter(nw.col("observed") > limit)))
    absent = [pl.when(pl.col(name) >= 0).then(name).alias(name) for name in keys if name != "type"]
    return pl.concat(rows).unique().with_columns(absent)


def _reduced(observed: Mapping[str, pl.DataFrame], parameters: InvariantsParameters) -> pl.DataFrame:
    """Return what is observed, by invariant, where it exceeds a limit, and the largest of each key."""
    limits = dict(limits_given(parameters).iter_rows())
    parts = [SEEN.to_frame().with_columns(window=pl.lit(0, pl.Int64), fixed=pl.lit(value=False)).clear().lazy()]
    for name, frame in observed.items():
        key, keys = numbered(frame, "window", *(column for column in KEY if column in frame.columns))
        largest_rows = largest(
            key, keys, *read_only(*(frame[column].to_numpy() for column in ("observed", "src", "dst")))
        )
        chosen = [(frame[largest_rows], False)]
        if name in limits:
            chosen.insert(0, (frame.filter(pl.col("observed") > limits[name]), True))
        parts += [
            rows.lazy().select(*shape(rows.columns, invariant=pl.lit(name)), fixed=pl.lit(value=fixed))
            for rows, fixed in chosen
        ]
    return pl.concat(parts).collect()


def numbered(frame: pl.DataFrame, *columns: str) -> tuple[I64, int]:
    """Give numbers to the different combinations of values in some columns.

    Parameters
    ----------
    frame
        Has the columns.
    *columns
        Integers or words; null is a value of its own.

    Returns
    -------
    number
        Per row, from 0: the same where all columns agree; numbers are in the order of the columns.
    count
        How many there are.
    """
    number, count = np.zeros(frame.height, np.int64), min(1, frame.height)
    for name in columns:
        column = frame[name]
        if column.dtype == pl.String:
            column = column.cast(NAMES)
        values = integers(column.to_physical() if column.dtype == pl.Enum else column)
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        values, distinct = values - low, high - low + 1
        if count * distinct > _SPARSE * frame.height:
            values, occurring = ranks(values)
            distinct = len(occurring)
        if count * distinct > _SPARSE * frame.height:
            number, numbers = ranks(number)
            count = len(numbers)
        if distinct > 1:
            number, count = number * distinct + values, count * distinct
    number, numbers = ranks(number)
    return number, len(numbers)


def limits_given(parameters: InvariantsParameters) -> pl.DataFrame:
    """Return the limits on what a round shows that somebody gave.

    Parameters
    ----------
    parameters
        Limits in nanoseconds; None says nothing.

    Returns
    -------
    DataFrame
        One row per limit: ``invariant`` and ``limit``.
    """
    names = ("epoch_max", "message_max", "operator_max")
    limits = {name: getattr(parameters, f"{name}_ns") for name in names}
    return pl.DataFrame(
        [(name, limit) for name, limit in limits.items() if limit is not None],
        schema={"invariant": NAMES, "limit": pl.Int64},
        orient="row",
    )


def shape(columns: Sequence[str], **values: pl.Expr) -> list[pl.Expr]:
    """Return what brings a frame to the columns of `SEEN`.

    Parameters
    ----------
    columns
        Of the frame; it may lack some of `SEEN`.
    **values
        Columns to be set before, from those of the frame.

    Returns
    -------
    list of Expr
        The columns of `SEEN`, absent ones null, and ``window`` if the frame has it.
    """
    known = {**dict.fromkeys(SEEN, pl.lit(None)), **{name: pl.col(name) for name in columns}, **values}
    place = [pl.col("window")] if "window" in columns else []
    return [*(known[name].cast(kind).alias(name) for name, kind in SEEN.items()), *place]


def _epochs(run: Run, windows: Sequence[Window], last: pl.DataFrame, extent: pl.DataFrame | None) -> pl.DataFrame:
    """Return how long every epoch took, with the local edge that ended last; `extent` has the ends of an island."""
    # One plan: a follower asks at every commit, and each call of Polars takes longer than these rows.
    known_epochs = run.epochs.lazy().select("epoch", start_ns="entry_ns", end_ns="exit_ns")
    frame = pl.DataFrame(
        {"epoch": [window.epoch for window in windows], "window": range(len(windows))},
        schema={"epoch": pl.Int64, "window": pl.Int64},
    )
    spans = frame.lazy().join(known_epochs, on="epoch")
    if extent is not None:
        # There, an epoch is its graph: events that preparation dropped do not count.
        spans = spans.drop("start_ns", "end_ns").join(extent.lazy(), on="window")
    windows_found = last.lazy().join(spans.filter(pl.col("start_ns").is_not_null()), on="window")
    return windows_found.with_columns(observed=pl.col("end_ns") - pl.col("start_ns")).collect()


def _messages(run: Run, edges: pl.DataFrame, window: I64) -> pl.DataFrame:
    """Return the messages, with how long each took."""
    messages = np.flatnonzero(is_type(edges, *MESSAGE_TYPES))
    columns = ("src", "dst", "type", "channel", "start_ns", "duration_ns", *_of_reads(run))
    return edges.select(columns)[messages].with_columns(
        window=pl.Series(window[messages]),
        worker=worker_of("src"),
        to_worker=worker_of("dst"),
        observed=delivered_ns(run),
    )


def _activations(windows: int, edges: pl.DataFrame, window: I64) -> pl.DataFrame:
    """Return the innermost activations, from their first vertex to their last."""
    activation = integers(edges["activation"])
    leaves = np.flatnonzero(is_type(edges, *_LEAVES) & (activation >= 0))
    of_window, order = arrange(
        window[leaves], windows, np.column_stack([activation[leaves], edges["dst"].to_numpy()[leaves]])
    )
    leaves = leaves[order]
    activation = activation[leaves]
    is_first = np.diff(activation, prepend=-1) != 0
    is_first[of_window[:-1][np.diff(of_window) > 0]] = True
    first = np.flatnonzero(is_first)
    src, dst, start, duration = (edges[name].to_numpy()[leaves] for name in ("src", "dst", "start_ns", "duration_ns"))
    begin = np.minimum.reduceat(start, first)
    end = np.maximum.reduceat(start + duration, first)
    return (
        edges.select("type", "operator")[leaves[first]]
        .with_columns(
            window=pl.Series(window[leaves[first]]),
            src=pl.Series(np.minimum.reduceat(src, first)),
            dst=pl.Series(np.maximum.reduceat(dst, first)),
            start_ns=pl.Series(begin),
            observed=pl.Series(end - begin),
        )
        .with_columns(worker=worker_of("src"))
    )
