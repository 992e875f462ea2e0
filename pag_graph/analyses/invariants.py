"""What must hold in every epoch of a run, and where it did not: limits that are given, and limits learned on the way.

Definition: ST2 (Sandstede 2019) 5.1.3 and `docs/analyses.md`, section "invariants" (epoch-max, message-max,
operator-max, progress-max, some-progress). The learned ones are this package's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl

from pag_graph.analyses.expressions import IS_MESSAGE, delivered_ns, rounds, worker_of
from pag_graph.analyses.frames import IS_LOCAL, Frames, end_ns
from pag_graph.analyses.frames import delivered_ns as delivered
from pag_graph.analyses.frames import worker_of as worker_in
from pag_graph.analyses.windows import ordered, over
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.tiling import ranks, tilings
from pag_graph.kernels.arranging import largest, medians
from pag_graph.kernels.compiling import read_only
from pag_graph.kernels.replay import group_arcs
from pag_graph.model.enums import MESSAGE_TYPES, ActivityType, RuleSet
from pag_graph.model.tables import INVARIANTS
from pag_graph.runtime import threads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.analyses.frames import Frame
    from pag_graph.graph.snapshot import Run, Snapshot, Window
    from pag_graph.graph.tiling import Belongs, Tiling

    I64 = NDArray[np.int64]

_COLUMNS = ("operator", "channel", "activation")
_OF_READS = ("read", "receive_buffer_ns")
"""What tells of edges how long after its arrival a message was read; of the rule set `st2` they end at the read."""
_LEAVES = (ActivityType.PROCESSING, ActivityType.SPINNING)
_INVARIANTS = ("epoch_max", "message_max", "operator_max", "progress_max", "some_progress")
_NAMES: pl.DataType = pl.Enum(sorted([*map(str, ActivityType), *_INVARIANTS]))
_PROGRESS = str(ActivityType.PROGRESS_MESSAGE)
_KEY = ["invariant", "worker", "to_worker", "type", "operator", "channel"]
_SPARSE = 4
"""Numbers up to so many times as many as there are rows are ranked fast."""
_SIGMA = 1.4826
"""A normal distribution's standard deviation over its MAD."""

_COLUMN_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "invariant": _NAMES,
    "worker": pl.Int32,
    "to_worker": pl.Int32,
    "type": _NAMES,
    "operator": pl.Int64,
    "channel": pl.Int64,
    "src": pl.Int64,
    "dst": pl.Int64,
    "start_ns": pl.Int64,
    "observed": pl.Int64,
}
_SEEN = pl.Schema(_COLUMN_TYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantsParameters:
    """Parameters of `invariants`; limits that are absent are not checked."""

    epoch_max_ns: Annotated[int | None, "No epoch takes longer, from its first event to its last."] = None
    message_max_ns: Annotated[int | None, "No message takes longer, from send to read."] = None
    operator_max_ns: Annotated[int | None, "No activation of an operator takes longer."] = None
    progress_max_ns: Annotated[int | None, "No worker lets more time pass between progress messages."] = None
    some_progress: Annotated[bool, "Every worker sends progress to every other one in every epoch."] = True
    learn: Annotated[bool, "Compare every epoch with the ones before it as well."] = True
    deviations: Annotated[float, "Learned limit: the median plus so many standard deviations, from the MAD."] = 6.0
    tolerance: Annotated[float, "Learned limit: at least so much above the median, as a share of it."] = 0.25
    least_ns: Annotated[int, "Learned limit: at least so much above the median; less is noise."] = 1_000
    at_least: Annotated[int, "Learned limit: earlier epochs that there must be."] = 5
    over: Annotated[int, "Learned limit: earlier epochs to look at, the latest ones."] = 20

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises
        ------
        InvalidParameterError
            If a value is out of its range.
        """
        for name in (
            "epoch_max_ns",
            "message_max_ns",
            "operator_max_ns",
            "progress_max_ns",
            "deviations",
            "tolerance",
            "least_ns",
        ):
            value = getattr(self, name)
            if value is not None and value < 0:
                message = f"{name} is {value}, and must not be negative."
                raise InvalidParameterError(message)
        if not 1 <= self.at_least <= self.over:
            message = f"at_least is {self.at_least} and over is {self.over}; 1 <= at_least <= over must hold."
            raise InvalidParameterError(message, "invariants(at_least=5, over=20)")


def invariants(run: Run, parameters: InvariantsParameters | None = None, *, parts: pa.Table) -> pa.Table:
    """List the violations of limits on epochs, messages, operators and progress.

    Parameters
    ----------
    run
        Any run.
    parameters
        Limits, and how to learn some.
    parts
        Rows of `round_observations` of every round, with its `epoch`.

    Returns
    -------
    pa.Table
        Rows of `INVARIANTS`, one per violation, sorted by epoch, invariant and what was observed, each with the
        offending edge.

    Notes
    -----
    Everything is strict: a limit that is reached is not violated. An edge belongs to the epoch that it carries.

    - `epoch_max`: the latency window of the epoch, first event to last (under the rule set `st2` first edge to last);
      the edge is the one that ended last.
    - `message_max`: from send to read.
    - `operator_max`: an activation without inner ones, from start to stop; the edge goes from its first vertex to its
      last.
    - `progress_max`: between two progress messages of a worker, counted where the second is sent; and from its last one
      to the end of the last round. The latter has no `dst`.
    - `some_progress`: workers that a worker sent progress to, by the epoch of the sender; the edge is the last one of
      the worker in the epoch.

    A learned limit is the median of the largest value in each of the latest earlier epochs, plus `deviations` times
    1.4826 MAD, and at least `tolerance` of it and `least_ns` more. There is one for every pair of workers, type and
    channel, for every type, operator and worker, for every worker, and for the epochs themselves. The startup and the
    shutdown are no rounds and not looked at. O(edges).
    """
    parameters = parameters or InvariantsParameters()
    seen = pl.DataFrame(pl.from_arrow(parts)).cast({"invariant": _NAMES, "type": _NAMES})
    windows = rounds(run).select("epoch", "start_ns", "end_ns")
    sends = _progress_sends(run)
    progress = _progress(sends, windows)
    fixed = seen.filter("fixed").drop("fixed")
    largest = seen.filter(~pl.col("fixed")).drop("fixed")
    found = [fixed.join(_limits(parameters), on="invariant").with_columns(learned=pl.lit(value=False))]
    if parameters.progress_max_ns is not None:
        limit = pl.lit(parameters.progress_max_ns, pl.Int64)
        slow = progress.filter(pl.col("observed") > parameters.progress_max_ns)
        found.append(slow.with_columns(limit=limit, learned=pl.lit(value=False)))
    if parameters.learn:
        worst = progress.sort("observed", "start_ns", descending=[True, False]).unique(
            ["epoch", "worker"], keep="first", maintain_order=True
        )
        found.append(_unusual(pl.concat([largest, worst.select(largest.columns)]), parameters))
    rows = pl.concat([frame.select(*_SEEN, "epoch", "limit", "learned") for frame in found])
    rows = rows.with_columns(unit=pl.lit("ns"))
    if parameters.some_progress:
        rows = pl.concat([rows, _silent(run, sends, windows).select(rows.columns)])
    rows = rows.sort(
        "epoch",
        "invariant",
        "learned",
        "observed",
        "worker",
        "to_worker",
        "src",
        "dst",
        descending=[False, False, False, True, False, False, False, False],
    )
    return rows.select(INVARIANTS.names).to_arrow().cast(INVARIANTS)


def round_observations(snapshot: Snapshot | Frames, parameters: InvariantsParameters | None = None) -> pa.Table:
    """Return what `invariants` needs to know of one round: what exceeds a limit, and the largest of each kind.

    Parameters
    ----------
    snapshot
        Of a round.
    parameters
        Limits.

    Returns
    -------
    pa.Table
        One row per violation of a given limit (`fixed`), and one per key of a learned one.
    """
    parameters = parameters or InvariantsParameters()
    if isinstance(snapshot, Frames):
        return _candidates(snapshot, parameters).to_arrow()
    window = snapshot.window
    belongs: Belongs = "ends" if window.epoch is None else "labels"
    [tiling] = tilings(snapshot.run, [window], _columns(snapshot.run), belongs)
    return _observations(tiling, parameters).drop("window").to_arrow()


def observations_of_rounds(
    run: Run, windows: Sequence[Window], parameters: InvariantsParameters | None = None
) -> pa.Table:
    """Return what `invariants` needs to know of many rounds, read once.

    Parameters
    ----------
    run
        Any run.
    windows
        Of rounds, in time order.
    parameters
        Limits.

    Returns
    -------
    pa.Table
        Rows of `round_observations` of every round, with the place of its ``window``.
    """
    limits = parameters or InvariantsParameters()
    return over(run, windows, _columns(run), "labels", lambda tiling: _observations(tiling, limits))


def _columns(run: Run) -> tuple[str, ...]:
    return _COLUMNS if run.rules is RuleSet.ST2 else _COLUMNS + _OF_READS


def _observations(tiling: Tiling, parameters: InvariantsParameters) -> pl.DataFrame:
    edges, window = tiling.edges, tiling.window
    src, dst, start = (edges[name].to_numpy() for name in ("src", "dst", "start_ns"))
    end = start + edges["duration_ns"].to_numpy()
    local = np.flatnonzero(~tiling.is_type(*MESSAGE_TYPES))
    after = -dst[local]
    rows = largest(window[local], len(tiling.windows), *read_only(end[local], after, after))
    rows = local[rows[rows >= 0]]
    last = pl.DataFrame({"window": window[rows], "src": src[rows], "dst": dst[rows]})
    shown = np.flatnonzero(np.diff(tiling.first))
    extent = pl.DataFrame(
        {
            "window": shown,
            "start_ns": np.minimum.reduceat(start, tiling.first[shown]),
            "end_ns": np.maximum.reduceat(end, tiling.first[shown]),
        }
    )
    found = {
        "epoch_max": _epochs(tiling.run, tiling.windows, last, extent),
        "message_max": _messages(tiling),
        "operator_max": _activations(tiling),
    }
    return _reduced(found, parameters)


def _candidates(frames: Frames, parameters: InvariantsParameters) -> pl.DataFrame:
    """Do the same as `_observations` where only what may be among the answers can be brought here."""
    edges = frames.engine.settle(
        frames.labelled.select(
            "src",
            "dst",
            "type",
            "start_ns",
            *_COLUMNS,
            *_OF_READS,
            end_ns=end_ns(),
            worker=worker_in("src"),
            to_worker=worker_in("dst"),
            delivered_ns=delivered(frames.run.rules),
        )
    )
    window = pl.lit(0, pl.Int64)
    extent = frames.collect(edges.select(nw.col("start_ns").min(), nw.col("end_ns").max())).with_columns(window=window)
    local = edges.filter(IS_LOCAL)
    last = frames.collect(local.select(nw.col("end_ns").max()))["end_ns"].item()
    ends = frames.collect(local.filter(nw.col("end_ns") == nw.lit(-1 if last is None else last)).select("src", "dst"))
    ended = ends.sort("dst").tail(1).with_columns(window=window)
    epochs = _epochs(frames.run, [frames.window], ended, extent.drop_nulls())
    messages = edges.filter(~IS_LOCAL).with_columns(observed=nw.col("delivered_ns"))
    leaves = nw.col("type").is_in([str(kind) for kind in _LEAVES]) & ~nw.col("activation").is_null()
    activations = (
        edges.filter(leaves)
        .group_by("activation", "type", "operator")
        .agg(nw.col("src", "start_ns").min(), nw.col("dst", "end_ns").max())
        .with_columns(observed=nw.col("end_ns") - nw.col("start_ns"), worker=worker_in("src"))
    )
    found = {
        name: _first_of_all(frames, every, keys, limit).with_columns(window=window)
        for every, keys, limit, name in (
            (messages, ["worker", "to_worker", "type", "channel"], parameters.message_max_ns, "message_max"),
            (activations, ["worker", "type", "operator"], parameters.operator_max_ns, "operator_max"),
        )
    }
    return _reduced({"epoch_max": epochs, **found}, parameters).drop("window")


def _first_of_all(frames: Frames, every: Frame, keys: list[str], limit: int | None) -> pl.DataFrame:
    """Return the rows that exceed a limit, and of each key those with the largest value and lowest `src` and `dst`."""
    # Joins do not find null; numbers of operators and channels are not negative.
    every = frames.engine.settle(
        every.select(*keys, "src", "dst", "start_ns", "observed").with_columns(
            nw.col(name).fill_null(-1) for name in keys if name != "type"
        )
    )
    first = every
    for column, best in (("observed", "max"), ("src", "min"), ("dst", "min")):
        least = first.group_by(keys).agg(getattr(nw.col(column), best)().alias("best"))
        first = first.join(least, on=keys, how="inner").filter(nw.col(column) == nw.col("best")).drop("best")
    rows = [frames.collect(first)]
    if limit is not None:
        rows.append(frames.collect(every.filter(nw.col("observed") > limit)))
    absent = [pl.when(pl.col(name) >= 0).then(name).alias(name) for name in keys if name != "type"]
    return pl.concat(rows).unique().with_columns(absent)


def _reduced(found: Mapping[str, pl.DataFrame], parameters: InvariantsParameters) -> pl.DataFrame:
    """Return what is observed, by invariant, where it exceeds a limit, and the largest of each key."""
    limits = {row["invariant"]: row["limit"] for row in _limits(parameters).iter_rows(named=True)}
    parts = [_SEEN.to_frame().with_columns(window=pl.lit(0, pl.Int64), fixed=pl.lit(value=False)).clear()]
    for name, frame in found.items():
        key, keys = _numbered(frame, "window", *(column for column in _KEY if column in frame.columns))
        most = largest(key, keys, *read_only(*(frame[column].to_numpy() for column in ("observed", "src", "dst"))))
        chosen = [(frame[most], False)]
        if name in limits:
            chosen.insert(0, (frame.filter(pl.col("observed") > limits[name]), True))
        parts += [
            _shaped(rows, invariant=pl.lit(name)).with_columns(fixed=pl.lit(value=fixed)) for rows, fixed in chosen
        ]
    return pl.concat(parts)


def _numbered(frame: pl.DataFrame, *columns: str) -> tuple[I64, int]:
    """Return a number per row that tells what it has in some columns, and how many there are."""
    number, count = np.zeros(frame.height, np.int64), min(1, frame.height)
    for name in columns:
        column = frame[name]
        if column.dtype == pl.String:
            column = column.cast(_NAMES)
        if column.dtype == pl.Enum:
            column = column.to_physical()
        found, known = ranks(column.cast(pl.Int64).fill_null(-1).to_numpy())
        if count * len(known) > _SPARSE * frame.height:
            number, kept = ranks(number)
            count = len(kept)
        if len(known) > 1:
            number, count = number * len(known) + found, count * len(known)
    number, kept = ranks(number)
    return number, len(kept)


def _limits(parameters: InvariantsParameters) -> pl.DataFrame:
    names = ("epoch_max", "message_max", "operator_max")
    given = {name: getattr(parameters, f"{name}_ns") for name in names}
    return pl.DataFrame(
        [(name, limit) for name, limit in given.items() if limit is not None],
        schema={"invariant": _NAMES, "limit": pl.Int64},
        orient="row",
    )


def _shaped(frame: pl.DataFrame, **values: Any) -> pl.DataFrame:
    """Return a frame with the columns of `_SEEN`, absent ones null, and with ``window`` if it has it."""
    frame = frame.with_columns(**values)
    absent = {name: pl.lit(None, kind) for name, kind in _SEEN.items() if name not in frame.columns}
    place = [name for name in frame.columns if name == "window"]
    return frame.with_columns(**absent).select(*_SEEN.names(), *place).cast(dict(_SEEN))  # type: ignore[arg-type]


def _epochs(run: Run, windows: Sequence[Window], last: pl.DataFrame, extent: pl.DataFrame) -> pl.DataFrame:
    """Return how long every epoch took, with the local edge that ended last; `extent` has the ends of its edges."""
    known = run.epochs.select("epoch", start_ns="entry_ns", end_ns="exit_ns")
    frame = pl.DataFrame(
        {"epoch": [window.epoch for window in windows], "window": range(len(windows))},
        schema={"epoch": pl.Int64, "window": pl.Int64},
    )
    spans = frame.join(known, on="epoch")
    if run.rules is RuleSet.ST2:
        # There, an epoch is its graph: events that preparation dropped do not count.
        spans = spans.drop("start_ns", "end_ns").join(extent, on="window")
    found = last.join(spans.filter(pl.col("start_ns").is_not_null()), on="window")
    return found.with_columns(observed=pl.col("end_ns") - pl.col("start_ns"))


def _messages(tiling: Tiling) -> pl.DataFrame:
    messages = np.flatnonzero(tiling.is_type(*MESSAGE_TYPES))
    return tiling.edges.drop("operator")[messages].with_columns(
        window=pl.Series(tiling.window[messages]),
        worker=worker_of("src"),
        to_worker=worker_of("dst"),
        observed=delivered_ns(tiling.run.rules),
    )


def _activations(tiling: Tiling) -> pl.DataFrame:
    """Return the innermost activations, from their first vertex to their last."""
    activation = tiling.number("activation")
    leaves = np.flatnonzero(tiling.is_type(*_LEAVES) & (activation >= 0))
    leaves = leaves[ordered(tiling.window[leaves], activation[leaves])]
    window, activation = tiling.window[leaves], activation[leaves]
    first = np.flatnonzero((np.diff(window, prepend=-1) != 0) | (np.diff(activation, prepend=-1) != 0))
    src, dst, start = (tiling.edges[name].to_numpy()[leaves] for name in ("src", "dst", "start_ns"))
    begin = np.minimum.reduceat(start, first)
    end = np.maximum.reduceat(start + tiling.edges["duration_ns"].to_numpy()[leaves], first)
    return (
        tiling.edges.select("type", "operator")[leaves[first]]
        .with_columns(
            window=pl.Series(window[first]),
            src=pl.Series(np.minimum.reduceat(src, first)),
            dst=pl.Series(np.maximum.reduceat(dst, first)),
            start_ns=pl.Series(begin),
            observed=pl.Series(end - begin),
        )
        .with_columns(worker=worker_of("src"))
    )


def _progress_sends(run: Run) -> pl.DataFrame:
    """Return the messages about progress, one row per receiver."""
    columns = ["src", "dst", "src_epoch", "start_ns"]
    return run.scan("edges").filter(pl.col("type") == _PROGRESS).select(columns).collect()


def _progress(sends: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the gaps between the progress messages of each worker, in the rounds in which they end."""
    sends = sends.unique("src", keep="first").with_columns(worker=worker_of("src"))
    sends = sends.sort("worker", "start_ns", "src")
    gaps = sends.with_columns(
        dst="src",
        epoch="src_epoch",
        src=pl.col("src").shift(1).over("worker"),
        begin=pl.col("start_ns").shift(1).over("worker"),
    ).with_columns(observed=pl.col("start_ns") - pl.col("begin"), start_ns="begin")
    end, last = int(windows["end_ns"].max()), int(windows["epoch"].max())  # type: ignore[arg-type]
    inside = sends.filter(pl.col("start_ns") <= end)
    still = (
        inside.group_by("worker")
        .agg(pl.col("src", "start_ns").last())
        .with_columns(dst=pl.lit(None, pl.Int64), epoch=pl.lit(last, pl.Int64), observed=end - pl.col("start_ns"))
    )
    parts = [
        _shaped(frame, invariant=pl.lit("progress_max"), type=pl.lit(_PROGRESS))
        .with_columns(frame["epoch"])
        .filter(pl.col("observed").is_not_null())
        for frame in (gaps, still)
    ]
    return pl.concat(parts).filter(pl.col("epoch").is_in(windows["epoch"].implode()))


def _silent(run: Run, sends: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the workers that sent progress to too few others in an epoch."""
    workers = pl.DataFrame({"worker": run.workers}, schema={"worker": pl.Int32})
    sent = sends.group_by(worker=worker_of("src"), epoch="src_epoch").agg(
        observed=worker_of("dst").n_unique().cast(pl.Int64)
    )
    epochs = windows.select("epoch", window_ns="start_ns")
    few = (
        epochs.join(workers, how="cross")
        .join(sent, on=["worker", "epoch"], how="left")
        .with_columns(pl.col("observed").fill_null(0))
        .filter(pl.col("observed") < workers.height - 1)
    )
    # Mostly nobody is silent, and no edge needs to be read.
    edges = run.scan("edges") if few.height else run.scan("edges").head(0)
    last = (
        edges.filter(~IS_MESSAGE, pl.col("epoch").is_in(few["epoch"].unique().implode()))
        .select("src", "dst", "type", "operator", "epoch", "start_ns", worker=worker_of("dst"))
        .sort("dst")
        .unique(["worker", "epoch"], keep="last", maintain_order=True)
        .collect()
    )
    joined = few.join(last, on=["worker", "epoch"], how="left")
    shaped = _shaped(joined, invariant=pl.lit("some_progress"), start_ns=pl.coalesce("start_ns", "window_ns"))
    return shaped.with_columns(
        joined["epoch"],
        limit=pl.lit(workers.height - 1, pl.Int64),
        learned=pl.lit(value=False),
        unit=pl.lit("receivers"),
    )


def _unusual(observed: pl.DataFrame, parameters: InvariantsParameters) -> pl.DataFrame:
    """Return the rows that are above what the epochs before them allow."""
    key, keys = _numbered(observed, *_KEY)
    by_epoch = np.argsort(observed["epoch"].to_numpy(), kind="stable")
    first, position = group_arcs(key[by_epoch], keys)
    order = by_epoch[position]
    values = observed["observed"].to_numpy()[order]
    # Keys share nothing: threads do some of them each.
    cuts = np.searchsorted(first, np.linspace(0, len(values), threads.allowed() + 1))
    found = threads.each(
        lambda cut: medians(
            first[cut[0] : cut[1] + 1] - first[cut[0]],
            values[first[cut[0]] : first[cut[1]]],
            parameters.at_least,
            parameters.over,
        ),
        list(pairwise(cuts.tolist())),
    )
    median, mad = (np.concatenate(part) for part in zip(*found, strict=True))
    margin = np.maximum(parameters.deviations * _SIGMA * mad, parameters.tolerance * np.abs(median))
    # What is observed is whole: more than the limit is more than its whole part.
    limit = np.floor(median + np.maximum(margin, parameters.least_ns))
    enough = ~np.isnan(limit)
    limits = np.where(enough, limit, -1).astype(np.int64)
    unusual = enough & (limits >= 0) & (values > limits)
    rows: pl.DataFrame = observed[order[unusual]]
    return rows.with_columns(limit=pl.Series(limits[unusual]), learned=pl.lit(value=True))
