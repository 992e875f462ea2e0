"""Expressions and frames that several analyses share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl

from pag_graph.analyses.view import where
from pag_graph.model.enums import LOCAL_TYPES, MESSAGE_TYPES, ActivityType, EpochRole
from pag_graph.model.ids import POSITION_BITS
from pag_graph.model.units import printable

if TYPE_CHECKING:
    from pag_graph.analyses.view import View
    from pag_graph.graph.run import Run
    from pag_graph.graph.snapshot import Snapshot
    from pag_graph.graph.window import Window

LOCAL = [str(kind) for kind in LOCAL_TYPES]
MESSAGES = [str(kind) for kind in MESSAGE_TYPES]
WAITING, UNKNOWN = str(ActivityType.WAITING), str(ActivityType.UNKNOWN)
SPAWN = str(ActivityType.SPAWN)
IS_MESSAGE = pl.col("type").is_in(MESSAGES)
END = pl.col("start_ns") + pl.col("duration_ns")


def worker_of(vertex: str) -> pl.Expr:
    """Return the worker of the vertex in a column.

    Parameters
    ----------
    vertex
        Column of ids.

    Returns
    -------
    Expr
        Int32.
    """
    return (pl.col(vertex) // (1 << POSITION_BITS)).cast(pl.Int32)


def inside_ns(window: Window) -> pl.Expr:
    """Return how long an edge lasts inside a window.

    Parameters
    ----------
    window
        The window.

    Returns
    -------
    Expr
        Nanoseconds; needs ``start_ns`` and ``end_ns``.
    """
    end = pl.min_horizontal("end_ns", pl.lit(window.end_ns))
    return end - pl.max_horizontal("start_ns", pl.lit(window.start_ns))


def local_inside(snapshot: Snapshot) -> pl.DataFrame:
    """Return the local edges of a window, cut at its borders.

    Where epochs are islands the epoch is the whole window, and nothing is cut.

    Parameters
    ----------
    snapshot
        Of any run.

    Returns
    -------
    DataFrame
        Rows of `Snapshot.local`, with ``worker`` and ``inside_ns``.
    """
    inside = pl.col("duration_ns") if snapshot.run.epochs_are_islands else inside_ns(snapshot.window)
    return snapshot.local.with_columns(worker=worker_of("dst"), inside_ns=inside)


def delivered_ns(run: Run) -> pl.Expr:
    """Return what an edge took; for a message from its send to its read.

    Parameters
    ----------
    run
        The run that it is of.

    Returns
    -------
    Expr
        Nanoseconds. Where every worker keeps its own clock, negative times count as 0.
    """
    if not run.aligned:
        return pl.col("duration_ns").clip(lower_bound=0)
    after_arrival = pl.when(pl.col("read") != pl.col("dst")).then(pl.col("receive_buffer_ns").fill_null(0))
    return pl.col("duration_ns") + after_arrival.otherwise(0).fill_null(0)


def known_records(rows: str) -> pl.Expr:
    """Return how many records rows hold together, or null if unknown (`docs/model.md`, what numbers are called).

    Of messages every one has to tell how many it holds. Of activities one is enough: most have no records to tell of.

    Parameters
    ----------
    rows
        Column with the number of rows that were added up.

    Returns
    -------
    Expr
        Int64; needs ``type``, ``records``, the sum over those that tell, and ``telling``, how many these are.
    """
    enough = pl.when(IS_MESSAGE).then(pl.col("telling") == pl.col(rows)).otherwise(pl.col("telling") > 0)
    return pl.when(enough).then("records")


def share_of(part: str, whole: pl.Expr) -> pl.Expr:
    """Return a column as a share of the whole of its window.

    Parameters
    ----------
    part
        Column of numbers.
    whole
        What they are parts of.

    Returns
    -------
    Expr
        A number; rounded as Polars does when it divides by one number.
    """
    return pl.col(part) * (1.0 / whole)


def operator_names(run: Run) -> pl.DataFrame:
    """Return what the trace calls the operators.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    DataFrame
        One row per operator: ``operator``, ``address`` and ``operator_name``.
    """
    return run.operators.select("operator", "address", operator_name="name").unique("operator", keep="first")


def worker_label(run: Run, column: str) -> pl.Expr:
    """Return how to speak of the worker in a column.

    Parameters
    ----------
    run
        A committed run.
    column
        Column of workers.

    Returns
    -------
    Expr
        As `Run.worker_label` says; null where the column is.
    """
    labels = {worker: run.worker_label(worker) for worker in run.workers}
    return pl.col(column).replace_strict(labels, default=None, return_dtype=pl.String)


def operator_labels(run: Run) -> dict[int, str]:
    """Return what people call each operator.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    dict
        Per operator, as it can be printed: name and address, or its number where it has no name.
    """
    return {
        row["operator"]: printable(f"{row['name']} ({row['address']})")
        if row["name"]
        else f"operator {row['operator']}"
        for row in run.operators.iter_rows(named=True)
    }


def peer_frame(run: Run) -> pl.DataFrame:
    """Return which workers can be compared.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    DataFrame
        One row per worker: ``worker`` and ``group``, the same for all that can be compared (see `Run.peers`).
    """
    schema = {"worker": pl.Int32, "group": pl.Int32}
    return pl.DataFrame({"worker": run.workers, "group": [run.peers[w] for w in run.workers]}, schema=schema)


def presence() -> dict[str, nw.Expr]:
    """Return what says of local edges how long their worker is there, and how much of that is known.

    Returns
    -------
    dict
        ``inside_ns`` and ``unknown_ns``, which is as long where the edge is `unknown`, else 0: columns of a selection,
        to be summed. Needs ``type`` and ``inside_ns``.
    """
    return {"inside_ns": nw.col("inside_ns"), "unknown_ns": where(nw.col("type") == UNKNOWN, "inside_ns")}


def is_recorded() -> pl.Expr:
    """Return whether anything is recorded of a worker: not all its time is `unknown`.

    Returns
    -------
    Expr
        Boolean; needs sums of what `presence` gives. In a window without length nobody has time that could be unknown.
    """
    return (pl.col("unknown_ns") < pl.col("inside_ns")) | (pl.col("unknown_ns") == 0)


def peers_there(view: View, there: pl.DataFrame) -> pl.DataFrame:
    """Return which of the workers that are there in a window can be compared (`docs/model.md`, who with whom).

    Parameters
    ----------
    view
        Of any run.
    there
        Sums over the local edges that show their worker (`View.shows_worker`), as a whole or in parts: ``window``,
        ``worker`` and what `presence` gives.

    Returns
    -------
    DataFrame
        One row per window and worker that is there, without those whose whole time in the window is `unknown`:
        ``window``, ``worker`` and ``group``, as of `peer_frame`. Where epochs are islands, nobody is born or ends, and
        all workers are there, whether they did something or not.
    """
    peers = peer_frame(view.run)
    if view.run.epochs_are_islands:
        return view.spans.select("window").join(peers, how="cross")
    times = there.group_by("window", "worker").agg(pl.col("inside_ns", "unknown_ns").sum())
    return times.filter(is_recorded()).select("window", "worker").join(peers, on="worker")


def rounds(run: Run) -> pl.DataFrame:
    """Return the epochs that analyses of a whole run look at.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    DataFrame
        Rows of `PAG_EPOCHS`: those of rounds; all where there is no round.
    """
    of_rounds = run.epochs.filter(pl.col("role") == str(EpochRole.ROUND))
    return of_rounds if of_rounds.height else run.epochs


def certain_rounds(run: Run) -> pl.DataFrame:
    """Return the epochs that are rounds whatever comes later.

    Parameters
    ----------
    run
        A committed run.

    Returns
    -------
    DataFrame
        As `rounds`; none where there is no round yet, while the log goes on: one may follow.
    """
    known_rounds = rounds(run)
    is_certain = run.complete or (known_rounds["role"] == str(EpochRole.ROUND)).any()
    return known_rounds if is_certain else known_rounds.clear()
