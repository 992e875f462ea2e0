"""What must hold in every epoch of a run, and where it did not: limits that are given, and limits learned on the way.

Definition: ST2 (Sandstede 2019) 5.1.3 and `docs/analyses.md`, section "invariants" (epoch-max, message-max,
operator-max, progress-max, some-progress). The learned ones are this package's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import polars as pl

from pag_graph.analyses.definition import Chart, RunAnalysis, Standing
from pag_graph.analyses.expressions import END, IS_MESSAGE, certain_rounds, worker_of
from pag_graph.analyses.observations import KEY, NAMES, SEEN, limits_given, numbered, round_observations, shape
from pag_graph.errors import InvalidParameterError
from pag_graph.graph.membership import labels, members, places, rows_of
from pag_graph.graph.tiling import scan_near
from pag_graph.kernels.arranging import medians
from pag_graph.kernels.replay import group_arcs
from pag_graph.model.enums import ActivityType
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.tables import INVARIANTS
from pag_graph.runtime import threads

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from pag_graph.graph.run import Run

    I64 = NDArray[np.int64]

_PROGRESS = str(ActivityType.PROGRESS_MESSAGE)
_SILENT: dict[str, Any] = {**SEEN, "epoch": pl.Int64, "limit": pl.Int64, "learned": pl.Boolean, "unit": pl.String}
_SIGMA = 1.4826
"""A normal distribution's standard deviation over its MAD."""
_TOO_MUCH = 2.0**63
"""No observed number is as large."""
FEWEST = 5
"""Earlier epochs that a limit is learned from, at least, unless somebody asks for fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantsParameters:
    """Parameters of `invariants`; limits that are absent are not checked."""

    epoch_max_ns: Annotated[int | None, "Limit for an epoch, from its first event to its last."] = None
    message_max_ns: Annotated[int | None, "Limit for a message, from send to read."] = None
    operator_max_ns: Annotated[int | None, "Limit for an activation of an operator."] = None
    progress_max_ns: Annotated[int | None, "Limit for the time between two progress messages of a worker."] = None
    some_progress: Annotated[bool, "Require that every worker sends progress to another worker in every epoch."] = True
    progress_to_all: Annotated[bool, "With some_progress: require progress to every other worker, not just to one."] = (
        False
    )
    learn: Annotated[bool, "Also compare every epoch with limits that are learned from the epochs before it."] = True
    deviations: Annotated[
        float, "Learned limit: the median plus this many standard deviations, estimated by the MAD."
    ] = 6.0
    tolerance: Annotated[float, "Learned limit: at least this share of the median above the median."] = 0.25
    least_ns: Annotated[int, "Learned limit: at least this many ns above the median; less is noise."] = 1_000
    at_least: Annotated[int, "Learned limit: needs at least this many earlier epochs."] = FEWEST
    over: Annotated[int, "Learned limit: looks at this many of the latest earlier epochs."] = 20

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


def invariants(run: Run, parameters: InvariantsParameters, *, parts: pa.Table) -> pa.Table:
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
    A limit that is just reached is not violated. An edge belongs to the epoch that it carries; one without a row of its
    own counts with the next row.

    - `epoch_max` limits the latency window of an epoch, from its first event to its last (under the rule set `st2`
      from its first edge to its last). The edge in the row is the one that ended last.
    - `message_max` limits the time from send to read.
    - `operator_max` limits an activation without inner ones, from start to stop. The edge in the row goes from its
      first vertex to its last.
    - `progress_max` limits the time between two progress messages of a worker, which counts in the epoch in which the
      second is sent. It also limits the time from the worker's last progress message to the end of the last round, if
      the worker and another one live then; such a row has no `dst`.
    - `some_progress` asks to how many others a worker that is there throughout a round sent progress, by the epoch of
      the sender. The edge in the row is the worker's last one in the epoch. One receiver is enough (ST2), unless
      `progress_to_all` asks for all others that are there throughout. Nobody owes any in rounds up to whose end no
      worker has sent progress: the log may hold none.

    A learned limit comes from the largest value in each of the latest earlier epochs. It is the median of these plus
    `deviations` times 1.4826 MAD, and at least `tolerance` of the median and `least_ns` above the median. There is one
    limit for every pair of workers, type and channel, for every type, operator and worker, for every worker, and for
    the epochs themselves. The startup and the shutdown are no rounds, and are not looked at, unless the log has ended
    without any round. O(edges).
    """
    windows = certain_rounds(run)
    if not windows.height:
        return INVARIANTS.empty_table()
    rows, _ = violations(run, parameters, parts=parts, windows=windows, sends=progress_sends(run))
    return listed(rows)


def violations(
    run: Run,
    parameters: InvariantsParameters,
    *,
    parts: pa.Table,
    windows: pl.DataFrame,
    sends: pl.DataFrame,
    past: pl.DataFrame | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Find the violations in some rounds that follow each other up to the last one.

    Parameters
    ----------
    run, parameters
        As for `invariants`.
    parts
        Rows of `round_observations` of these rounds, with their `epoch`.
    windows
        Rows of `epochs` of these rounds.
    sends
        As from `progress_sends`: those of these rounds and later ones, and the last one of each worker before them.
    past
        What was observed in earlier rounds, as far as limits are learned from it; nothing where these are all.

    Returns
    -------
    rows : DataFrame
        Columns of `INVARIANTS`, unsorted.
    observed : DataFrame
        What later limits are learned from: the largest of each key in each of these rounds.
    """
    observations = pl.DataFrame(pl.from_arrow(parts)).cast({"invariant": NAMES, "type": NAMES})
    windows = windows.select("epoch", "start_ns", "end_ns")
    epochs = windows["epoch"].to_numpy()
    row = rows_of(run, epochs, sends["src_epoch"].to_numpy())
    sends = sends.with_columns(epoch=pl.when(pl.Series(row >= 0)).then(pl.Series(epochs[row])))
    progress = _progress(run, sends, windows)
    # Plans are put together first: a follower asks at every commit, and each call of Polars takes longer than its rows.
    columns, limits = [*SEEN, "epoch"], limits_given(parameters)
    worst = progress.lazy().sort("observed", "start_ns", "src", descending=[True, False, False])
    worst = worst.unique(["epoch", "worker"], keep="first", maintain_order=True)
    largest = observations.lazy().filter(~pl.col("fixed"))
    observed = pl.concat([largest.select(columns), worst.select(columns)]).collect()
    frames = []
    if limits.height:
        fixed = observations.lazy().filter("fixed").join(limits.lazy(), on="invariant")
        frames.append(fixed.with_columns(learned=pl.lit(value=False)))
    if parameters.progress_max_ns is not None:
        limit = pl.lit(parameters.progress_max_ns, pl.Int64)
        slow = progress.lazy().filter(pl.col("observed") > parameters.progress_max_ns)
        frames.append(slow.with_columns(limit=limit, learned=pl.lit(value=False)))
    if parameters.learn:
        before = [] if past is None else [past.select(columns)]
        unusual = _unusual(pl.concat([*before, observed]), parameters).lazy()
        frames.append(unusual.filter(pl.col("epoch").is_in(windows["epoch"].implode())))
    nothing = pl.LazyFrame(schema={**SEEN, "epoch": pl.Int64, "limit": pl.Int64, "learned": pl.Boolean})
    together = pl.concat([nothing, *(frame.select(*columns, "limit", "learned") for frame in frames)])
    rows = together.with_columns(unit=pl.lit("ns")).collect()
    if parameters.some_progress:
        silent = _silent(run, sends, windows, to_all=parameters.progress_to_all)
        rows = pl.concat([rows, silent.select(rows.columns)])
    return rows, observed


def listed(rows: pl.DataFrame) -> pa.Table:
    """Return violations as a table, sorted.

    Parameters
    ----------
    rows
        Has the columns of `INVARIANTS`, and maybe more.

    Returns
    -------
    Table
        Rows of `INVARIANTS`, by epoch and invariant, largest first.
    """
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


def progress_sends(run: Run, since: int | None = None) -> pl.DataFrame:
    """Return the messages about progress.

    Parameters
    ----------
    run
        A committed run.
    since
        The first epoch of senders; None for all.

    Returns
    -------
    DataFrame
        One row per receiver: ``src``, ``dst``, ``src_epoch`` and ``start_ns``, in no order.
    """
    columns = ["src", "dst", "src_epoch", "start_ns"]
    edges = run.scan("edges", None if since is None else pl.col("max_src_epoch") >= since)
    sent = edges.filter(pl.col("type") == _PROGRESS).select(columns)
    return (sent if since is None else sent.filter(pl.col("src_epoch") >= since)).collect()


def _progress(run: Run, sends: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the gaps between the progress messages of each worker, in the rounds in which they end.

    `sends` says with the epoch of which row a message is counted, null where with none of these rounds.
    """
    # A follower asks at every commit about a handful of messages: each call of Polars takes longer than they do.
    src, first = np.unique(sends["src"].to_numpy(), return_index=True)
    start, epoch = sends["start_ns"].to_numpy()[first], sends["epoch"][first]
    worker = src >> POSITION_BITS
    order = np.lexsort((src, start, worker))
    src, start, worker, epoch = src[order], start[order], worker[order], epoch[order]
    counted = epoch.is_not_null().to_numpy()
    gap = np.flatnonzero((worker[1:] == worker[:-1]) & counted[1:])
    end, last = int(windows["end_ns"].max()), int(windows["epoch"].max())  # type: ignore[arg-type]
    inside = np.flatnonzero((start <= end) & np.isin(worker, _owing_at(run, end)["worker"].to_numpy()))
    begun = inside[np.diff(worker[inside], append=-1) != 0]
    begin = np.append(gap, begun)
    gaps = pl.DataFrame(
        {
            "src": src[begin],
            "dst": pl.concat([pl.Series(src[gap + 1]), pl.Series([None] * len(begun), dtype=pl.Int64)]),
            "worker": worker[begin],
            "start_ns": start[begin],
            "observed": np.append(start[gap + 1], np.full(len(begun), end)) - start[begin],
        }
    )
    epochs = pl.concat([epoch[gap + 1], pl.Series([last] * len(begun), dtype=pl.Int64)])
    columns = shape(gaps.columns, invariant=pl.lit("progress_max"), type=pl.lit(_PROGRESS))
    return gaps.select(*columns, epochs.alias("epoch"))


def _silent(run: Run, sends: pl.DataFrame, windows: pl.DataFrame, *, to_all: bool) -> pl.DataFrame:
    """Return the workers that are there throughout a round, and sent progress to too few that are as well."""
    asked = _with_progress(run, sends, windows)
    most = len(run.workers) - 1
    suspects = _with_few_receivers(run, asked["epoch"].to_numpy(), sends, most if to_all else min(most, 1))
    if not suspects.any():
        # Mostly no worker is silent, and nobody's life needs to be known.
        return pl.DataFrame(schema=_SILENT)
    reached = sends.select("epoch", worker=worker_of("src"), to_worker=worker_of("dst")).unique()
    owing = _there_throughout(run, asked.filter(pl.Series(suspects)))
    others = owing.group_by("epoch").agg(limit=pl.len().cast(pl.Int64) - 1)
    if not to_all:
        others = others.with_columns(pl.col("limit").clip(upper_bound=1))
    counted = reached.join(owing, left_on=["epoch", "to_worker"], right_on=["epoch", "worker"], how="semi")
    below_limit = (
        _with_receivers(owing, counted if to_all else reached)
        .join(others, on="epoch")
        .filter(pl.col("observed") < pl.col("limit"))
        .join(asked.select("epoch", window_ns="start_ns"), on="epoch")
    )
    low, high = (below_limit["epoch"].min(), below_limit["epoch"].max()) if below_limit.height else (0, -1)
    last = (
        run.between("edges", low, high)  # type: ignore[arg-type]
        .filter(~IS_MESSAGE, pl.col("epoch").is_in(below_limit["epoch"].unique().implode()))
        .select("src", "dst", "type", "operator", "epoch", "start_ns", worker=worker_of("dst"))
        .sort("dst")
        .unique(["worker", "epoch"], keep="last", maintain_order=True)
        .collect()
    )
    joined = below_limit.join(last, on=["worker", "epoch"], how="left")
    columns = shape(joined.columns, invariant=pl.lit("some_progress"), start_ns=pl.coalesce("start_ns", "window_ns"))
    return joined.select(*columns, "epoch", "limit", learned=pl.lit(value=False), unit=pl.lit("receivers"))


def _with_few_receivers(run: Run, epochs: I64, sends: pl.DataFrame, least: int) -> NDArray[np.bool_]:
    """Say of epochs whether any worker of the run reached fewer than so many in them."""
    # A follower asks at every commit, as `_progress` says.
    workers = np.array(run.workers, np.int64)
    if not len(epochs) or not len(workers):
        return np.zeros(len(epochs), np.bool_)
    counted = sends.filter(pl.col("epoch").is_not_null())
    src, dst = (counted[name].to_numpy() >> POSITION_BITS for name in ("src", "dst"))
    epoch, worker = places(epochs, counted["epoch"].to_numpy()), places(workers, src)
    others, other = np.unique(dst, return_inverse=True)
    pair = epoch * len(workers) + worker
    asked = (epoch >= 0) & (worker >= 0)
    reached = np.unique(pair[asked] * len(others) + other[asked]) // max(len(others), 1)
    receivers = np.bincount(reached, minlength=len(epochs) * len(workers)).reshape(len(epochs), len(workers))
    return np.asarray((receivers < least).any(axis=1), dtype=np.bool_)


def _with_receivers(workers: pl.DataFrame, reached: pl.DataFrame) -> pl.DataFrame:
    """Add to rows of workers in epochs how many each reached: ``observed``."""
    counts = reached.group_by("epoch", "worker").agg(observed=pl.len().cast(pl.Int64))
    return workers.join(counts, on=["epoch", "worker"], how="left").with_columns(pl.col("observed").fill_null(0))


def _with_progress(run: Run, sends: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the rounds from the first one on up to which anybody had sent progress: a log may hold none at all."""
    if not sends.height or run.epochs_are_islands:
        return windows if run.epochs_are_islands else windows.clear()
    _, high = labels(run, windows["epoch"].to_numpy())
    return windows.filter(pl.Series(high) >= sends["src_epoch"].min())


def _owing_at(run: Run, t_ns: int) -> pl.DataFrame:
    """Return who lives at an instant beside others, to whom it can send progress: ``worker``."""
    if run.epochs_are_islands:
        return pl.DataFrame({"worker": run.workers}, schema={"worker": pl.Int32})
    at = scan_near(run, [run.stretch(t_ns, t_ns, follows=t_ns > 0)], "touches")
    # Few edges are left then: only their types are looked at.
    across = at.filter(pl.col("start_ns") <= t_ns, t_ns <= END).select("dst", "type").collect()
    alive = across.filter(~IS_MESSAGE).select(worker=worker_of("dst")).unique()
    return alive if alive.height > 1 else alive.clear()


def _there_throughout(run: Run, windows: pl.DataFrame) -> pl.DataFrame:
    """Return who lives all through which rounds: ``epoch`` and ``worker``."""
    workers = pl.DataFrame({"worker": run.workers}, schema={"worker": pl.Int32})
    if run.epochs_are_islands or not windows.height:
        return windows.select("epoch").join(workers, how="cross")
    lives = []
    for part in run.stretches(run.windows(windows["epoch"].to_list())):
        local = scan_near(run, part, "touches").filter(~IS_MESSAGE).select("dst", "start_ns", "duration_ns").collect()
        edge, place = members(run, part, local, "touches")
        shown = (local if edge is None else local[edge]).with_columns(
            epoch=pl.Series([window.epoch for window in part], dtype=pl.Int64)[place]
        )
        lives.append(shown.group_by("epoch", worker=worker_of("dst")).agg(pl.col("start_ns").min(), end=END.max()))
    known = pl.concat(lives).join(windows.select("epoch", opens_ns="start_ns", closes_ns="end_ns"), on="epoch")
    is_there = (pl.col("start_ns") <= pl.col("opens_ns")) & (pl.col("end") >= pl.col("closes_ns"))
    return known.filter(is_there).select("epoch", "worker").sort("epoch", "worker")


def _unusual(observed: pl.DataFrame, parameters: InvariantsParameters) -> pl.DataFrame:
    """Return the rows that are above what the epochs before them allow."""
    key, keys = numbered(observed, *KEY)
    by_epoch = np.argsort(observed["epoch"].to_numpy(), kind="stable")
    first, position = group_arcs(key[by_epoch], keys)
    order = by_epoch[position]
    values = observed["observed"].to_numpy()[order]
    # Keys share nothing: threads do some of them each.
    # A key has no more values than there are epochs: no room is made for others.
    over = min(parameters.over, len(values) + 1)
    cuts = np.searchsorted(first, np.linspace(0, len(values), threads.allowed() + 1))
    medians_of_cuts = threads.each(
        lambda cut: medians(
            first[cut[0] : cut[1] + 1] - first[cut[0]],
            values[first[cut[0]] : first[cut[1]]],
            parameters.at_least,
            over,
        ),
        list(pairwise(cuts.tolist())),
    )
    median, mad = (np.concatenate(part) for part in zip(*medians_of_cuts, strict=True))
    margin = np.maximum(parameters.deviations * _SIGMA * mad, parameters.tolerance * np.abs(median))
    # Observed values are whole numbers: they exceed the limit if they exceed its whole part.
    limit = np.floor(median + np.maximum(margin, parameters.least_ns))
    # Without enough earlier epochs it is NaN.
    has_limit = limit < _TOO_MUCH
    limits = np.where(has_limit, limit, -1).astype(np.int64)
    unusual = has_limit & (limits >= 0) & (values > limits)
    rows: pl.DataFrame = observed[order[unusual]]
    return rows.with_columns(limit=pl.Series(limits[unusual]), learned=pl.lit(value=True))


ANALYSIS = RunAnalysis(
    name="invariants",
    function=invariants,
    part=round_observations,
    parameters=InvariantsParameters,
    schema=INVARIANTS,
    output="INVARIANTS",
    across=True,
    example="--epoch-max-ns 1000000 --no-learn",
    rows="violations",
    alarm=True,
    standing=Standing.ORDERED,
    resume="pag_graph.analyses.invariants_resumed",
    chart=Chart(kind="lines", x=("epoch",), y=("observed",), colour=("invariant", "to_worker")),
)
